//! The rules of the source tree that no compiler checks: which layer may name which, where `async` may not stand, that
//! concerns do not know one another, and how long a file may get.
//!
//! Paths are found in the text of the files with comments and literals blanked out. A path that a macro builds would go
//! unseen; nothing here writes such macros.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each layer and the layers it may use.
const LAYERS: [(&str, &[&str]); 6] = [
    ("text", &[]),
    ("pki", &["text"]),
    ("reconcilers", &["text", "pki"]),
    ("host", &["text", "pki"]),
    ("controllers", &["text", "pki", "reconcilers", "host"]),
    ("cli", &["text", "pki", "reconcilers", "host", "controllers"]),
];

/// What every concern may use of `reconcilers`: values, no decisions.
const SHARED_BY_CONCERNS: [&str; 4] = ["bootstrap_token", "host_name", "node", "object"];

const LONGEST_FILE: usize = 400;

#[test]
fn layers_are_used_from_the_outside_in_only() {
    report(sources().iter().flat_map(wrong_edges));
}

#[test]
fn pure_code_is_not_async() {
    report(sources().iter().flat_map(stray_async));
}

#[test]
fn concerns_do_not_know_one_another() {
    report(sources().iter().flat_map(foreign_concerns));
}

#[test]
fn files_stay_readable() {
    report(sources().iter().filter_map(too_long));
}

/// The rules themselves, seen to fail: each line breaks exactly one of them.
#[test]
fn each_rule_fails_on_what_it_forbids() {
    let source = |path: &str, text: &str| Source::new(path, text);
    let wrong = [
        wrong_edges(&source("text.rs", "use crate::pki::hexadecimal;")),
        wrong_edges(&source("pki/leaf.rs", "use crate::host::clock;")),
        wrong_edges(&source("host/lock.rs", "use crate::{pki, reconcilers::object};")),
        wrong_edges(&source("reconcilers/plan.rs", "fn f() { crate :: controllers::x() }")),
        wrong_edges(&source("host/lock.rs", "use super::super::cli;")),
        wrong_edges(&source("host/new/deep.rs", "use super::super::super::cli;")),
        wrong_edges(&source("surprise/mod.rs", "")),
        stray_async(&source("pki/key.rs", "pub async fn make() {}")),
        stray_async(&source("reconcilers/manifests/decide.rs", "async {}")),
        foreign_concerns(&source(
            "reconcilers/manifests/decide.rs",
            "use crate::reconcilers::inventory::Entry;",
        )),
        foreign_concerns(&source("reconcilers/manifests.rs", "use super::inventory::Entry;")),
        foreign_concerns(&source(
            "reconcilers/manifests/decide.rs",
            "use super::super::{object, inventory};",
        )),
    ];
    for (number, found) in wrong.iter().enumerate() {
        assert_eq!(found.len(), 1, "case {number}: {found:?}");
    }
    let fine = [
        wrong_edges(&source(
            "host/lock.rs",
            "// crate::cli\nuse crate::pki::key; // crate::cli",
        )),
        wrong_edges(&source(
            "host/lock.rs",
            "const TEXT: &str = \"crate::cli \\\" crate::cli\";",
        )),
        wrong_edges(&source("cli/dev.rs", "use crate::{controllers, host::{clock, lock}};")),
        wrong_edges(&source("host/new/deep.rs", "use super::super::clock;")),
        stray_async(&source("host/child.rs", "pub async fn run() {}")),
        stray_async(&source("pki/key.rs", "// not async")),
        foreign_concerns(&source(
            "reconcilers/manifests/decide.rs",
            "use super::keep::Keep; use crate::reconcilers::object::X;",
        )),
        foreign_concerns(&source(
            "reconcilers/manifests.rs",
            "use crate::reconcilers::manifests::decide;",
        )),
    ];
    assert!(fine.iter().all(Vec::is_empty), "{fine:?}");
    assert!(too_long(&source("host/long.rs", &"\n".repeat(401))).is_some());
    assert!(too_long(&source("host/long/tests.rs", &"\n".repeat(401))).is_none());
}

/// One file of `src`, by its path below it, with comments and literals blanked out.
struct Source {
    path: String,
    text: String,
    lines: usize,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: blank(text),
            lines: text.lines().count(),
        }
    }

    /// The module path of the file: `host/lock.rs` and `host/lock/mod.rs` are both `[host, lock]`.
    fn module(&self) -> Vec<&str> {
        let path = self.path.trim_end_matches(".rs");
        path.split('/')
            .filter(|part| !matches!(*part, "mod" | "lib" | "main"))
            .collect()
    }

    /// Every internal module path named in the file, from the crate's root.
    fn paths(&self) -> BTreeSet<Vec<String>> {
        let mut found = BTreeSet::new();
        let tokens = tokens(&self.text);
        for (index, token) in tokens.iter().enumerate() {
            let continues = index > 0 && tokens[index - 1] == "::";
            let base: Vec<String> = match token.as_str() {
                _ if continues => continue,
                "crate" | "stratum" => Vec::new(),
                "super" => self.parent(),
                _ => continue,
            };
            if tokens.get(index + 1).is_some_and(|next| next == "::") {
                expand(&tokens, index + 2, &base, &mut found);
            }
        }
        found
    }

    fn parent(&self) -> Vec<String> {
        let mut module = self.module();
        module.pop();
        module.into_iter().map(str::to_owned).collect()
    }
}

/// Follows a path, and every branch of a `{...}` group, from `index` on. Returns the index after it.
fn expand(tokens: &[String], mut index: usize, base: &[String], found: &mut BTreeSet<Vec<String>>) -> usize {
    let mut path = base.to_vec();
    while let Some(token) = tokens.get(index) {
        match token.as_str() {
            "{" => {
                index += 1;
                while tokens.get(index).is_some_and(|token| token != "}") {
                    let after = expand(tokens, index, &path, found);
                    index = if tokens.get(after).is_some_and(|token| token == ",") {
                        after + 1
                    } else {
                        after.max(index + 1)
                    };
                }
                return index + 1;
            }
            "super" => {
                path.pop();
            }
            "self" | "*" => {}
            name if name.starts_with(|first: char| first.is_alphabetic() || first == '_') => path.push(name.to_owned()),
            _ => break,
        }
        index += 1;
        if tokens.get(index).is_none_or(|token| token != "::") {
            break;
        }
        index += 1;
    }
    found.insert(path);
    index
}

fn wrong_edges(source: &Source) -> Vec<String> {
    let module = source.module();
    let Some(own) = module.first() else {
        return Vec::new();
    };
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| layer == own) else {
        return vec![format!("src/{} belongs to no layer of the table", source.path)];
    };
    let named: BTreeSet<String> = source
        .paths()
        .into_iter()
        .filter_map(|path| path.into_iter().next())
        .collect();
    let is_layer = |name: &&String| LAYERS.iter().any(|(layer, _)| layer == name);
    let wrong = named
        .iter()
        .filter(is_layer)
        .filter(|name| name != own && !allowed.contains(&name.as_str()));
    wrong
        .map(|name| format!("src/{}: {own} may not use {name}", source.path))
        .collect()
}

fn stray_async(source: &Source) -> Vec<String> {
    let module = source.module();
    let decides = module.last().is_some_and(|name| name.starts_with("decide"));
    let pure = match module.first() {
        Some(&"pki") => true,
        Some(&"reconcilers") => decides,
        Some(_) | None => false,
    };
    let found = pure && tokens(&source.text).iter().any(|token| token == "async");
    found
        .then(|| format!("src/{}: pure code may not be async", source.path))
        .into_iter()
        .collect()
}

fn foreign_concerns(source: &Source) -> Vec<String> {
    let module = source.module();
    let [layer @ "reconcilers", own, ..] = module.as_slice() else {
        return Vec::new();
    };
    let others: BTreeSet<String> = source
        .paths()
        .into_iter()
        .filter(|path| path.first().is_some_and(|first| first == layer))
        .filter_map(|path| path.into_iter().nth(1))
        .filter(|name| name.starts_with(char::is_lowercase) && name != own)
        .filter(|name| !SHARED_BY_CONCERNS.contains(&name.as_str()))
        .collect();
    others
        .iter()
        .map(|other| format!("src/{}: the concern {own} may not know {other}", source.path))
        .collect()
}

fn too_long(source: &Source) -> Option<String> {
    let tests = source.module().last().is_some_and(|name| name.contains("tests")) || source.module().contains(&"tests");
    let long = !tests && source.lines > LONGEST_FILE;
    long.then(|| format!("src/{}: {} lines, more than {LONGEST_FILE}", source.path, source.lines))
}

fn report(found: impl Iterator<Item = String>) {
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 5, "no source files below {}", root.display());
    let relative = |file: &PathBuf| file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    files
        .iter()
        .map(|file| Source::new(&relative(file), &fs::read_to_string(file).unwrap()))
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    for character in text.chars() {
        if character.is_alphanumeric() || character == '_' {
            word.push(character);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        match character {
            ':' if tokens.last().is_some_and(|last| last == ":") => {
                tokens.pop();
                tokens.push("::".to_owned());
            }
            _ if character.is_whitespace() => {}
            _ => tokens.push(character.to_string()),
        }
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

/// Replaces comments and string literals by spaces. Block comments and raw strings are treated as far as they occur here.
fn blank(text: &str) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("r#\"") {
            rest.find("\"#")
                .filter(|end| *end > 2)
                .map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else if first == '"' {
            string_length(rest)
        } else {
            blanked.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        blanked.push(' ');
        rest = &rest[length..];
    }
    blanked
}

fn string_length(text: &str) -> usize {
    let mut escaped = true;
    for (index, character) in text.char_indices() {
        match character {
            '"' if !escaped => return index + 1,
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    text.len()
}
