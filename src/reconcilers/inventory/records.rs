//! All documents of the ConfigMap together, to and from its `data`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::confirmation::Confirmation;
use super::desired::{ClusterInputs, Desired};
use super::document::Inventory;
use super::text::{self, Malformed};

/// The annotation with the number of the leadership term that wrote last. A write of an earlier term is refused.
pub const TERM_ANNOTATION: &str = "stratum.ciq.com/term";

/// The most that a ConfigMap may hold, in bytes (Kubernetes, `MaxSecretSize`).
pub const LIMIT: usize = 1024 * 1024;

const INVENTORY: &str = "inventory";
const DESIRED: &str = "desired";
const CLUSTER_INPUTS: &str = "cluster-inputs";
const CONFIRMATIONS: &str = "prune-confirmations";

/// The documents of the ConfigMap. A key that is not there is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// Key `inventory`.
    pub inventory: Option<Inventory>,
    /// Key `desired`.
    pub desired: Option<Desired>,
    /// Key `cluster-inputs`.
    pub cluster_inputs: Option<ClusterInputs>,
    /// Key `prune-confirmations`; no key is no confirmation.
    pub confirmations: Vec<Confirmation>,
    /// The term on record; 0 when none is.
    pub term: u64,
}

/// A document that cannot be read. Nothing is written while there is one, since a write would end it.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The text under a key is not what this version expects there.
    #[error("key {key:?}")]
    Key {
        /// The key.
        key: &'static str,
        /// What is wrong, with its place in the document.
        #[source]
        source: Malformed,
    },
    /// A document has no JSON form: a fault of this program.
    #[error("key {key:?} cannot be written")]
    Unwritable {
        /// The key.
        key: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The term is not a number.
    #[error("the annotation {TERM_ANNOTATION} is {value:?}, not a number; remove it by hand")]
    Term {
        /// What it says.
        value: String,
        /// Why that is no number.
        #[source]
        source: std::num::ParseIntError,
    },
}

impl DocumentError {
    /// The key or annotation that cannot be read.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Key { key, .. } | Self::Unwritable { key, .. } => key,
            Self::Term { .. } => TERM_ANNOTATION,
        }
    }
}

/// Reads the documents of the ConfigMap. Other keys and annotations are not looked at.
///
/// # Errors
/// The first document that is not exactly of its form.
pub fn parse(
    data: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Result<Documents, DocumentError> {
    let term = match annotations.get(TERM_ANNOTATION) {
        None => 0,
        Some(value) => value.parse().map_err(|source| DocumentError::Term {
            value: value.clone(),
            source,
        })?,
    };
    Ok(Documents {
        inventory: read(data, INVENTORY, text::read_object)?,
        desired: read(data, DESIRED, text::read_object)?,
        cluster_inputs: read(data, CLUSTER_INPUTS, text::read_object)?,
        confirmations: read(data, CONFIRMATIONS, text::read)?.unwrap_or_default(),
        term,
    })
}

fn read<T>(
    data: &BTreeMap<String, String>,
    key: &'static str,
    reader: impl FnOnce(&str) -> Result<T, Malformed>,
) -> Result<Option<T>, DocumentError> {
    data.get(key)
        .map(|text| reader(text).map_err(|source| DocumentError::Key { key, source }))
        .transpose()
}

/// Puts `after` in the place of `before`. Documents that did not change keep the text they have, other keys and
/// annotations too.
///
/// # Errors
/// When a document has no JSON form, which would be a fault of this program.
pub fn render(
    before: &Documents,
    after: &Documents,
    data: &mut BTreeMap<String, String>,
    annotations: &mut BTreeMap<String, String>,
) -> Result<(), DocumentError> {
    write(data, INVENTORY, before.inventory.as_ref(), after.inventory.as_ref())?;
    write(data, DESIRED, before.desired.as_ref(), after.desired.as_ref())?;
    write(
        data,
        CLUSTER_INPUTS,
        before.cluster_inputs.as_ref(),
        after.cluster_inputs.as_ref(),
    )?;
    let some = |all: &'_ Documents| Some(all.confirmations.clone()).filter(|all| !all.is_empty());
    write(data, CONFIRMATIONS, some(before).as_ref(), some(after).as_ref())?;
    if before.term != after.term {
        annotations.insert(TERM_ANNOTATION.to_owned(), after.term.to_string());
    }
    Ok(())
}

fn write<T: Serialize + PartialEq>(
    data: &mut BTreeMap<String, String>,
    key: &'static str,
    before: Option<&T>,
    after: Option<&T>,
) -> Result<(), DocumentError> {
    if before == after {
        return Ok(());
    }
    match after {
        Some(document) => {
            let text = text::write(document).map_err(|source| DocumentError::Unwritable { key, source })?;
            data.insert(key.to_owned(), text);
        }
        None => {
            data.remove(key);
        }
    }
    Ok(())
}

/// More than a ConfigMap holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are more than the {limit} a ConfigMap may hold")]
pub struct TooLarge {
    /// What it would be.
    pub bytes: usize,
    /// What it may be.
    pub limit: usize,
}

/// What a reference grows by when its object is applied: `null` becomes a quoted UID of 36 characters.
const UID_GROWTH: usize = 34;

/// The size of a ConfigMap's data once what `after` records ahead of its objects has its UIDs, in bytes of all keys and
/// values. `data` is the text that is written, `other` what the ConfigMap holds besides.
///
/// A pass first records what it will apply and then, with UIDs, what it applied. The second write must not fail for its
/// size: objects would live without their UIDs on record.
///
/// # Errors
/// When that is more than a ConfigMap may hold; nothing is ever cut off to make it fit.
pub fn forecast(
    data: &BTreeMap<String, String>,
    other: usize,
    before: &Documents,
    after: &Documents,
) -> Result<usize, TooLarge> {
    let written: usize = data.iter().map(|(key, value)| key.len() + value.len()).sum();
    let ahead = after
        .inventory
        .as_ref()
        .map_or(0, |inventory| inventory.ahead_of(before.inventory.as_ref()));
    let bytes = written + other + ahead * UID_GROWTH;
    if bytes > LIMIT {
        return Err(TooLarge { bytes, limit: LIMIT });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::inventory::document::tests::entry;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn only_what_changed_is_written() {
        let inputs = "{ \"clusterDNS\": \"10.96.0.10\", \"clusterDomain\": \"c\",\n\"dualStack\": false, \"storageDefault\": true }";
        let mut data = map(&[
            ("cluster-inputs", inputs),
            ("note", "mine"),
            ("prune-confirmations", "[]"),
        ]);
        let mut annotations = map(&[("other", "x")]);
        let before = parse(&data, &annotations).unwrap();
        assert_eq!((before.inventory.is_none(), before.term), (true, 0));
        let mut after = before.clone();
        let mut inventory = Inventory::default();
        inventory.union_into("a", &entry(&[("x", "u")]));
        after.inventory = Some(inventory);
        after.term = 4;
        render(&before, &after, &mut data, &mut annotations).unwrap();
        assert_eq!(data["cluster-inputs"], inputs, "hand-written text stays");
        assert_eq!(data["note"], "mine");
        assert_eq!(annotations, map(&[("other", "x"), (TERM_ANNOTATION, "4")]));
        assert_eq!(parse(&data, &annotations).unwrap(), after);
        let without = Documents {
            inventory: None,
            ..after.clone()
        };
        render(&after, &without, &mut data, &mut annotations).unwrap();
        assert!(!data.contains_key("inventory"));
    }

    #[test]
    fn the_last_confirmation_takes_its_key_along() {
        let confirmed = r#"[{"stack":"s","digest":"d","who":"w","when":"2026-01-02T03:04:05Z"}]"#;
        let mut data = map(&[("prune-confirmations", confirmed)]);
        let before = parse(&data, &map(&[])).unwrap();
        let mut after = before.clone();
        after.confirmations.clear();
        render(&before, &after, &mut data, &mut map(&[])).unwrap();
        assert_eq!(data, map(&[]));
    }

    #[test]
    fn an_unreadable_document_is_named() {
        for (key, text) in [
            ("inventory", "{"),
            ("desired", r#"{"generation":1}"#),
            ("cluster-inputs", r#"{"clusterDNS":"x"}"#),
            ("prune-confirmations", "{}"),
        ] {
            assert_eq!(parse(&map(&[(key, text)]), &map(&[])).unwrap_err().key(), key);
        }
        let error = parse(&map(&[]), &map(&[(TERM_ANNOTATION, "-1")])).unwrap_err();
        assert_eq!(error.key(), TERM_ANNOTATION);
    }

    #[test]
    fn the_size_is_that_of_all_keys_and_values() {
        let full = "x".repeat(LIMIT - 1);
        let over = |bytes| Err(TooLarge { bytes, limit: LIMIT });
        let none = Documents::default();
        assert_eq!(forecast(&map(&[("k", &full)]), 0, &none, &none), Ok(LIMIT));
        assert_eq!(forecast(&map(&[("k", &full)]), 2, &none, &none), over(LIMIT + 2));
        assert_eq!(
            forecast(&map(&[("k", &full), ("l", "")]), 0, &none, &none),
            over(LIMIT + 1)
        );

        let with = |uid: &str| {
            let mut inventory = Inventory::default();
            inventory.union_into("a", &entry(&[("x", uid)]));
            let documents = Documents {
                inventory: Some(inventory),
                ..Documents::default()
            };
            let (mut data, mut annotations) = (map(&[]), map(&[]));
            render(&none, &documents, &mut data, &mut annotations).unwrap();
            forecast(&data, 0, &none, &documents)
        };
        assert_eq!(with(""), with("01234567-89ab-cdef-0123-456789abcdef"));
    }
}
