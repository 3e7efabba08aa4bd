//! One document's text -> a JSON value, read as kubectl reads it.
//!
//! serde-saphyr comes closest to kubectl. Where it reads a document differently, the document is refused with what to
//! write instead: two tools that read one file differently are worse than an error.

use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::scalar::{Plain, plain, whole_number};

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
        None => vec![yaml(text, first_line)?],
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
            message: one_line(&error.to_string()),
        }
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
    for next in parser {
        let Ok((event, span)) = next else { return Ok(()) };
        let refuse = |message: String| ValueError {
            line: Some(first_line + span.start.line() - 1),
            message,
        };
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            frames.pop();
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
                let tag = tag.as_deref();
                check_tag(tag, &["str", "binary"]).map_err(&refuse)?;
                if is_key && !is_first && scalar == "<<" && *style == ScalarStyle::Plain {
                    // For kubectl a later merge overrides the keys above it, for YAML it never does.
                    return Err(refuse(
                        "<< has to be the first key of its mapping; move it up".to_owned(),
                    ));
                }
                if *style == ScalarStyle::Plain && tag.is_none() {
                    check_plain(scalar, is_key, options).map_err(refuse)?;
                } else if is_key && tag.is_some() {
                    return Err(refuse("a key has a tag; remove it and quote the key".to_owned()));
                }
            }
            Event::SequenceStart(_, _, tag) | Event::MappingStart(_, _, tag) => {
                check_tag(tag.as_deref(), &["seq", "map"]).map_err(&refuse)?;
                if is_key {
                    return Err(refuse("a key is a list or a mapping; a key has to be text".to_owned()));
                }
                let mapping = matches!(event, Event::MappingStart(..));
                frames.push(if mapping { Frame::Mapping(0) } else { Frame::Sequence });
            }
            Event::Alias(_) if is_key => {
                return Err(refuse("a key is an alias (*name); write the key itself".to_owned()));
            }
            _ => {}
        }
    }
    Ok(())
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

fn check_plain(scalar: &str, is_key: bool, options: &dyn Fn() -> serde_saphyr::Options) -> Result<(), String> {
    if is_ordinary(scalar) {
        return Ok(());
    }
    let meaning = plain(scalar);
    if is_key {
        let same = match &meaning {
            Plain::Text => true,
            Plain::Bool(b) => scalar == b.to_string(),
            Plain::Number(n) => scalar == n.to_string(),
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

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The JSON values of a text that starts with `{`, or `None` if it is no JSON (YAML's flow style starts so, too).
fn json_values(text: &str, first_line: usize) -> Result<Option<Vec<Value>>, ValueError> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    let mut values = Vec::new();
    for next in serde_json::Deserializer::from_str(text).into_iter::<Strict>() {
        match next {
            Ok(Strict(value)) => values.push(value),
            Err(error) if error.is_data() => {
                let line = Some(first_line + error.line().max(1) - 1);
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default().to_owned();
                return Err(ValueError { line, message });
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(values))
}

/// A JSON value whose keys are all different.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Strict(value))) = access.next_entry::<String, Strict>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate mapping key: {key}")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
