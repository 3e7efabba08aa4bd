//! How a document is written, and where in it the fault is when it cannot be read.
//!
//! People edit these documents with `kubectl edit`: one reference stands on each line, keys are sorted, and equal
//! documents have equal text. One blank for each level and not two: of 3,000 references it makes 13 % more than no layout
//! at all, two blanks make 24 %, and what a ConfigMap holds is limited.

use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::ser::{PrettyFormatter, Serializer};

/// One level of a document.
const INDENT: &[u8] = b" ";

/// The place of a fault outside of any key.
const DOCUMENT: &str = "the document";

/// A text that is not the document it should be.
#[derive(Debug, thiserror::Error)]
#[error("{path}")]
pub struct Malformed {
    /// The keys that lead to the fault, joined by dots; "the document" when none do.
    path: String,
    /// What is wrong, with line and column.
    #[source]
    source: serde_json::Error,
}

/// Reads a document.
///
/// # Errors
/// Where it is not exactly of its form.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Malformed> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let document = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| Malformed {
        path: keys(error.path()),
        source: error.into_inner(),
    })?;
    deserializer.end().map_err(|source| Malformed {
        path: DOCUMENT.to_owned(),
        source,
    })?;
    Ok(document)
}

/// Reads a document that is an object. The derived readers take a list of the right length for one, too.
///
/// # Errors
/// As [`read`].
pub fn read_object<T: DeserializeOwned>(text: &str) -> Result<T, Malformed> {
    if text.trim_start().starts_with('{') {
        return read(text);
    }
    Err(Malformed {
        path: DOCUMENT.to_owned(),
        source: serde_json::Error::custom("expected an object, which begins with {"),
    })
}

/// A key that was never read is left out: the text ended before it.
fn keys(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    match path.trim_end_matches(".?") {
        "." | "?" => DOCUMENT.to_owned(),
        keys => keys.to_owned(),
    }
}

/// Writes a document, with a final newline.
///
/// # Errors
/// When it has no JSON form, which would be a fault of this program.
pub fn write<T: Serialize>(document: &T) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(INDENT));
    document.serialize(&mut serializer)?;
    bytes.push(b'\n');
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::inventory::document::{Entry, Inventory};

    #[test]
    fn one_reference_stands_on_each_line_and_equal_documents_have_equal_text() {
        let written = r#"{
 "closedAt": "2026-01-02T03:04:05Z",
 "nodes": {
  "cp-1": {
   "hello": {
    "core/configmaps": {
     "default": {
      "a": "u1",
      "b": null
     }
    }
   }
  },
  "cp-2": {}
 },
 "recovery": true
}
"#;
        let by_hand = r#"{"recovery": true, "nodes": {"cp-2": {}, "cp-1": {"hello": {"core/configmaps": {"default":
            {"b": null, "a": "u1"}}}}}, "closedAt": "2026-01-02T03:04:05Z"}"#;
        let inventory: Inventory = read(by_hand).unwrap();
        assert_eq!(write(&inventory).unwrap(), written);
        assert_eq!(read::<Inventory>(written).unwrap(), inventory);
    }

    /// What the layout costs; the figures are in this module's documentation.
    #[test]
    fn the_layout_of_three_thousand_references_costs_little() {
        let mut record = String::from(r#"{"hello":{"core/configmaps":{"default":{"#);
        for index in 0..3_000 {
            let comma = if index == 0 { "" } else { "," };
            record.push_str(&format!(
                r#"{comma}"some-object-{index:04}":"01234567-89ab-cdef-0123-456789abcdef""#
            ));
        }
        record.push_str("}}}}");
        let mut inventory = Inventory::default();
        inventory.union_into("cp-1", &read::<Entry>(&record).unwrap());
        let compact = serde_json::to_string(&inventory).unwrap().len();
        let two_blanks = serde_json::to_string_pretty(&inventory).unwrap().len();
        let ours = write(&inventory).unwrap().len();
        let percent = |bytes: usize| (bytes - compact) * 100 / compact;
        assert_eq!((percent(ours), percent(two_blanks)), (13, 24), "{compact} bytes");
    }

    #[test]
    fn a_fault_is_named_with_its_keys_line_and_column() {
        let place = |text: &str| {
            let error = read_object::<Inventory>(text).unwrap_err();
            format!("{error}: {}", error.source)
        };
        for (text, says) in [
            (
                "{\"nodes\": {\n \"cp-1\": {\"hello\": {\"core/configmaps\": []}}}}",
                "nodes.cp-1.hello.core/configmaps: invalid type: sequence, expected an object at line 2 column 39",
            ),
            (
                r#"{"nodes": {"a": {"s": {"core/configmaps": {"n": {"x": 1}}}}}}"#,
                "nodes.a.s.core/configmaps.n.x: invalid type: integer `1`, expected a string at line 1 column 55",
            ),
            (
                r#"{"nodes": {"a": {"#,
                "nodes.a: EOF while parsing an object at line 1 column 17",
            ),
            ("", "the document: expected an object, which begins with {"),
            ("[null, {}]", "the document: expected an object, which begins with {"),
            ("{}", "the document: missing field `nodes` at line 1 column 2"),
            (
                r#"{"nodes": {}} x"#,
                "the document: trailing characters at line 1 column 15",
            ),
        ] {
            assert_eq!(place(text), says);
        }
    }
}
