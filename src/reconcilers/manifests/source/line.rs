//! The line of a field in a document, for messages of the API server that name a path only.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// The line of the file at which `path` (as in `spec.template.spec.containers[0].imagee`, or with `[key]` for map keys)
/// stands in a document that starts at `first_line`. If the field itself is missing, the nearest parent's line. `None`
/// if the document is no YAML or has not even the path's first step.
#[must_use]
pub fn line_of(document_text: &str, first_line: usize, path: &str) -> Option<usize> {
    let lines = lines(document_text);
    let mut wanted = steps(path);
    while !wanted.is_empty() {
        if let Some(line) = best(&lines, &wanted) {
            return Some(first_line + line - 1);
        }
        wanted.pop();
    }
    None
}

/// The line of the path whose spelling is `wanted`, where a key that holds dots may be spelled as several steps.
fn best(lines: &BTreeMap<String, usize>, wanted: &[Step]) -> Option<usize> {
    lines.get(&spelled(wanted)).copied()
}

/// Keys and indices in one spelling, so that `annotations.a.b/c` and `annotations[a.b/c]` are equal.
fn spelled(steps: &[Step]) -> String {
    steps.iter().fold(String::new(), |mut text, step| {
        text.push('.');
        match step {
            Step::Key(key) => text.push_str(key),
            Step::Index(index) => text.push_str(&index.to_string()),
        }
        text
    })
}

fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path.trim_matches(['"', '.', ' ']);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']').unwrap_or(inner.len());
            let key = inner[..end].trim_matches(['"', '\'']);
            steps.push(key.parse().map_or_else(|_| Step::Key(key.to_owned()), Step::Index));
            rest = inner.get(end + 1..).unwrap_or_default();
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(Step::Key(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    steps
}

struct Open {
    /// Number of steps of the path when it was opened.
    depth: usize,
    state: State,
}

enum State {
    Key,
    Value,
    Item(usize),
}

/// Every path of the document with the line (counted from 1) of its key or item.
fn lines(text: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    let mut path: Vec<Step> = Vec::new();
    for next in Parser::new_from_str_with_options(text, granit_parser::options! { emit_comments: false }) {
        let Ok((event, span)) = next else { break };
        if matches!(event, Event::MappingEnd | Event::SequenceEnd) {
            open.pop();
            continue;
        }
        let opens = match &event {
            Event::MappingStart(..) => Some(State::Key),
            Event::SequenceStart(..) => Some(State::Item(0)),
            Event::Scalar(..) | Event::Alias(_) => None,
            _ => continue,
        };
        if let Some(parent) = open.last_mut() {
            path.truncate(parent.depth + usize::from(matches!(parent.state, State::Value)));
            match &mut parent.state {
                State::Key => {
                    let Event::Scalar(key, ..) = &event else { break };
                    path.push(Step::Key(key.to_string()));
                    found.entry(spelled(&path)).or_insert(span.start.line());
                    parent.state = State::Value;
                    continue;
                }
                state @ State::Value => *state = State::Key,
                State::Item(index) => {
                    path.push(Step::Index(*index));
                    found.entry(spelled(&path)).or_insert(span.start.line());
                    *index += 1;
                }
            }
        }
        if let Some(state) = opens {
            open.push(Open {
                depth: path.len(),
                state,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
apiVersion: apps/v1
metadata:
  annotations:
    a.b/c: x
    d: y
spec:
  template:
    spec:
      containers:
      - name: a
        args: [x,
          y]
      - name: b
        imagee: c
  replicas: 1
";

    #[test]
    fn fields_are_found() {
        for (path, line) in [
            ("apiVersion", 11),
            ("metadata.annotations[a.b/c]", 14),
            ("metadata.annotations.a.b/c", 14),
            ("metadata.annotations.d", 15),
            ("spec.template.spec.containers[0]", 20),
            ("spec.template.spec.containers[0].args[1]", 22),
            ("spec.template.spec.containers[1].imagee", 24),
            (".spec.replicas", 25),
            ("spec.template.spec.containers[1].ports[0].x", 23),
            ("spec.nope", 16),
        ] {
            assert_eq!(line_of(TEXT, 11, path), Some(line), "{path}");
        }
        assert_eq!(line_of(TEXT, 11, "nope.x"), None);
        assert_eq!(line_of("a: [", 1, "b"), None);
    }

    #[test]
    fn json_is_yaml_enough() {
        assert_eq!(line_of("{\"a\": {\n\"b\": [1,\n2]}}\n", 1, "a.b[1]"), Some(3));
    }
}
