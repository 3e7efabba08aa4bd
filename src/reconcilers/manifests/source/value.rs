//! One document's text -> a JSON value, read as kubectl reads it.
//!
//! serde-saphyr comes closest to kubectl. Where it reads a document differently, the document is refused with what to
//! write instead: two tools that read one file differently are worse than an error.

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle, Tag};
use serde_json::{Number, Value};

use super::json::json_values;
use super::scalar::{Plain, plain, whole_number};
use crate::text::one_line;

/// Nodes of one document: an 8 MiB file of nothing but `- a` has more; no Kubernetes object does.
const MAX_NODES: usize = 1_000_000;
/// Events that aliases may add: a "billion laughs" document stops here.
const MAX_ALIAS_EVENTS: usize = 100_000;
/// Nesting; the API server's own limit for a CRD schema is far lower than its JSON limit of 10000.
const MAX_DEPTH: usize = 100;

/// Why a document has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueError {
    /// The line in the file, counted from 1.
    pub(super) line: Option<usize>,
    /// What is wrong.
    pub(super) message: String,
}

/// Reads the values of one document that starts at `first_line` of its file. More than one only for JSON values that
/// follow each other, as kubectl accepts them.
pub(super) fn values(text: &str, first_line: usize) -> Result<Vec<Value>, ValueError> {
    let mut values = match json_values(text, first_line)? {
        Some(values) => values,
        None => {
            old_line_breaks(text, first_line)?;
            vec![yaml(text, first_line)?]
        }
    };
    values.iter_mut().for_each(settle);
    Ok(values)
}

fn yaml(text: &str, first_line: usize) -> Result<Value, ValueError> {
    let options = || {
        serde_saphyr::options! {
            legacy_octal_numbers: true,
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
            non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::AsString,
            with_snippet: false,
            budget: serde_saphyr::budget! {
                max_nodes: MAX_NODES,
                max_events: 3 * MAX_NODES,
                max_depth: MAX_DEPTH,
                max_documents: 1,
            },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIAS_EVENTS },
        }
    };
    same_as_kubectl(text, first_line, &options)?;
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        // Read it again behind as many empty lines as the file has above it: every line the message names is right.
        let padded = format!("{}{text}", "\n".repeat(first_line.saturating_sub(1)));
        let error = serde_saphyr::from_str_with_options::<Value>(&padded, options())
            .err()
            .unwrap_or(error);
        ValueError {
            line: error.location().and_then(|l| usize::try_from(l.line()).ok()),
            message: one_line(&error.to_string().replace(ADVICE, "")),
        }
    })
}

/// YAML 1.1, and so kubectl, ends a line at three characters that YAML 1.2 takes for text: a comment that holds one goes
/// on as content. The escapes mean the same to both.
fn old_line_breaks(text: &str, first_line: usize) -> Result<(), ValueError> {
    let Some(at) = text.find(['\u{85}', '\u{2028}', '\u{2029}']) else {
        return Ok(());
    };
    Err(ValueError {
        line: Some(first_line + text[..at].matches('\n').count()),
        message:
            "it holds an invisible line break character (U+0085, U+2028 or U+2029), which kubectl reads as the end of \
                  the line; remove it, or write \\u0085, \\u2028 or \\u2029 in a double-quoted text"
                .to_owned(),
    })
}

enum Frame {
    /// In a mapping; how many nodes of it came before: an even number means that a key is next.
    Mapping(usize),
    Sequence,
}

/// Walks the document's scalars and refuses what the parser would read unlike kubectl. A document that is no YAML
/// passes: the parser's own message is better.
fn same_as_kubectl(
    text: &str,
    first_line: usize,
    options: &dyn Fn() -> serde_saphyr::Options,
) -> Result<(), ValueError> {
    let parser = Parser::new_from_str_with_options(
        text,
        granit_parser::options! { emit_comments: false, block_nesting_limit: MAX_DEPTH + 1 },
    );
    let mut frames: Vec<Frame> = Vec::new();
    // How each of them is written; whatever is inside brackets or braces is written so, too.
    let mut flow = Vec::new();
    for next in parser {
        let Ok((event, span)) = next else { return Ok(()) };
        let refuse = |message: String| ValueError {
            line: Some(first_line + span.start.line() - 1),
            message,
        };
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            frames.pop();
            flow.pop();
        }
        if !matches!(
            event,
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_)
        ) {
            continue;
        }
        let (is_key, is_first) = match frames.last_mut() {
            Some(Frame::Mapping(seen)) => {
                *seen += 1;
                (*seen % 2 == 1, *seen == 1)
            }
            Some(Frame::Sequence) | None => (false, false),
        };
        match &event {
            Event::Scalar(scalar, style, _, tag) => {
                let place = Place {
                    is_key,
                    is_first,
                    several_lines: span.start.line() != span.end.line(),
                    in_flow: flow.last() == Some(&StructureStyle::Flow),
                    rest: span
                        .byte_range()
                        .and_then(|range| text.get(range.end..))
                        .unwrap_or_default(),
                };
                check_scalar(scalar, *style, tag.as_deref(), &place, options).map_err(refuse)?;
            }
            Event::SequenceStart(structure, _, tag) | Event::MappingStart(structure, _, tag) => {
                check_tag(tag.as_deref(), &["seq", "map"]).map_err(&refuse)?;
                if is_key {
                    return Err(refuse("a key is a list or a mapping; a key has to be text".to_owned()));
                }
                let mapping = matches!(event, Event::MappingStart(..));
                frames.push(if mapping { Frame::Mapping(0) } else { Frame::Sequence });
                flow.push(*structure);
            }
            Event::Alias(_) if is_key => {
                return Err(refuse("a key is an alias (*name); write the key itself".to_owned()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where a scalar stands.
struct Place<'a> {
    is_key: bool,
    /// It is its mapping's first key.
    is_first: bool,
    several_lines: bool,
    /// Between brackets or braces.
    in_flow: bool,
    /// The text that follows.
    rest: &'a str,
}

fn check_scalar(
    scalar: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: &Place<'_>,
    options: &dyn Fn() -> serde_saphyr::Options,
) -> Result<(), String> {
    check_tag(tag, &["str", "binary"])?;
    if place.is_key && place.in_flow && place.several_lines {
        return Err("a key goes over several lines, which kubectl refuses".to_owned());
    }
    let plain = style == ScalarStyle::Plain;
    if plain && place.in_flow {
        check_flow(scalar, place.rest)?;
    }
    if place.is_key && !place.is_first && plain && scalar == "<<" {
        // For kubectl a later merge overrides the keys above it, for YAML it never does.
        return Err("<< has to be the first key of its mapping; move it up".to_owned());
    }
    if plain && tag.is_none() {
        check_plain(scalar, place.is_key, options)
    } else if place.is_key && tag.is_some() {
        Err("a key has a tag; remove it and quote the key".to_owned())
    } else {
        Ok(())
    }
}

fn check_tag(tag: Option<&Tag>, known: &[&str]) -> Result<(), String> {
    match tag {
        Some(tag)
            if !tag
                .suffix_in_namespace("tag:yaml.org,2002:")
                .is_some_and(|suffix| known.contains(&&*suffix)) =>
        {
            Err(format!(
                "the tag {} is not understood; remove it, and quote the value if it is text",
                tag.original()
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// A plain scalar between brackets or braces, followed by `rest`. YAML 1.1 ends it at a `?` and takes a `:` into it that
/// stands before a closing bracket: `{a:}` has the key `a:` for kubectl and `a` for everybody else.
fn check_flow(scalar: &str, rest: &str) -> Result<(), String> {
    let mut rest = rest.chars();
    let colon_joins = rest.next() == Some(':') && matches!(rest.next(), Some(',' | '[' | ']' | '{' | '}'));
    if colon_joins || scalar.starts_with(':') || scalar.contains('?') {
        Err("kubectl reads a : or ? here differently; quote the text, and put a space behind the : of a key".to_owned())
    } else {
        Ok(())
    }
}

fn check_plain(scalar: &str, is_key: bool, options: &dyn Fn() -> serde_saphyr::Options) -> Result<(), String> {
    if is_ordinary(scalar) {
        return Ok(());
    }
    let meaning = plain(scalar);
    if is_key {
        let same = match &meaning {
            Plain::Text => true,
            Plain::Bool(b) => scalar == b.to_string(),
            // kubectl rounds a key that is a float to single precision, and fails on one beyond 2^63.
            Plain::Number(n) => n.is_i64() && scalar == n.to_string(),
            Plain::Null | Plain::NotJson => false,
        };
        return if same {
            Ok(())
        } else {
            Err(format!(
                "kubectl reads the key {scalar} as {}; quote it: \"{scalar}\"",
                shown(&meaning)
            ))
        };
    }
    if meaning == Plain::NotJson {
        return Err(format!(
            "{scalar} has no JSON value; quote it if it is text: \"{scalar}\""
        ));
    }
    let kubectl = meaning.value(scalar).map(|mut value| {
        settle(&mut value);
        value
    });
    let ours = serde_saphyr::from_str_with_options::<Value>(scalar, options())
        .ok()
        .map(|mut value| {
            settle(&mut value);
            value
        });
    if ours == kubectl {
        Ok(())
    } else {
        // The value itself may be a password: the line is enough to find it.
        Err(
            "this unquoted value means different things to different tools; quote it if it is text, write it as a \
             plain decimal number or as true or false if it is not"
                .to_owned(),
        )
    }
}

/// Whether every reader agrees on this scalar: most of them are, and the check above is not free.
fn is_ordinary(scalar: &str) -> bool {
    let bytes = scalar.as_bytes();
    match bytes.first() {
        None => true,
        Some(b'1'..=b'9') if bytes.len() < 16 && bytes.iter().all(u8::is_ascii_digit) => true,
        Some(b'0') if bytes.len() == 1 => true,
        Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'~' | b'=' | b'<') => false,
        Some(_) if bytes.len() > 8 => true,
        Some(_) => {
            matches!(scalar, "true" | "false" | "null")
                || ![
                    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity",
                ]
                .iter()
                .any(|word| scalar.trim().eq_ignore_ascii_case(word))
        }
    }
}

fn shown(meaning: &Plain) -> String {
    match meaning {
        Plain::Null => "null".to_owned(),
        Plain::Bool(b) => b.to_string(),
        Plain::Number(n) => n.to_string(),
        Plain::NotJson => "no JSON value".to_owned(),
        Plain::Text => "text".to_owned(),
    }
}

/// Whole floats become integers and integers beyond 63 bits floats, as on kubectl's way.
fn settle(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(whole_number) {
                *number = whole;
            }
        }
        // Kubernetes' integers have 63 bits; kubectl turns a larger one into a float.
        Value::Number(number) if !number.is_i64() => {
            *number = number
                .as_f64()
                .and_then(Number::from_f64)
                .unwrap_or_else(|| number.clone());
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Object(map) => map.values_mut().for_each(settle),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The parser's message on one line, without its advice to the programmer.
/// What the parser tells programmers.
const ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
