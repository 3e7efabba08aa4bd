//! Text that is JSON, read as JSON: one value or several that follow each other, and no key twice.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::value::ValueError;

/// The JSON values of a text that starts with `{`, or `None` if it is no JSON (YAML's flow style starts so, too).
pub(super) fn json_values(text: &str, first_line: usize) -> Result<Option<Vec<Value>>, ValueError> {
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
