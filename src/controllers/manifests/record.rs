//! Between the inventory's documents and the plain records the manifests decisions go by.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::controllers::inventory::store::Stored;
use crate::reconcilers::inventory::document::{Entry, Reference};
use crate::reconcilers::inventory::records::Documents;
use crate::reconcilers::manifests::apply::{Record, Recorded};
use crate::reconcilers::object::ObjectId;

/// This node's own entry as a record, made anew only when the inventory changed.
#[derive(Default)]
pub(super) struct Own {
    /// The version of the inventory it was made from.
    version: Option<String>,
    record: Arc<Record>,
}

impl Own {
    /// The record of an inventory as it was read or written last; empty if it cannot be read.
    pub(super) fn of(&mut self, stored: Option<&Stored>, node: &str) -> Arc<Record> {
        let Some(stored) = stored else {
            return Arc::default();
        };
        // An inventory that does not exist has no version, so nothing is known of it.
        if stored.resource_version.is_none() || self.version != stored.resource_version {
            self.record = Arc::new(own(&stored.documents, node));
            self.version.clone_from(&stored.resource_version);
        }
        Arc::clone(&self.record)
    }
}

/// A node's own entry.
fn own(documents: &Documents, node: &str) -> Record {
    let entry = documents
        .inventory
        .as_ref()
        .and_then(|inventory| inventory.nodes.get(node));
    entry.map(from_entry).unwrap_or_default()
}

/// An entry as a record.
pub(super) fn from_entry(entry: &Entry) -> Record {
    let mut record = Record::new();
    for (stack, id, uid) in entry.iter() {
        let known = record.entry(id).or_default();
        known.stacks.insert(stack);
        known.uids.extend(uid);
    }
    record
}

/// The references of the whole cluster as a record.
pub(super) fn from_references(references: BTreeMap<ObjectId, Reference>) -> Record {
    let record = |Reference { uids, stacks }| Recorded { uids, stacks };
    references
        .into_iter()
        .map(|(id, reference)| (id, record(reference)))
        .collect()
}

/// A record as an entry.
pub(super) fn to_entry(record: &Record) -> Entry {
    let mut entry = Entry::default();
    for (id, Recorded { uids, stacks }) in record {
        for stack in stacks {
            entry.insert(stack.clone(), id, uids.last().cloned());
        }
    }
    entry
}

/// Whether what we hold is at least as new as what was seen. Versions that are no numbers count as older.
pub(super) fn is_at_least(ours: Option<&str>, seen: Option<&str>) -> bool {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
    matches!((number(ours), number(seen)), (Some(ours), Some(seen)) if ours >= seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_entry_follows_the_version_of_the_inventory() {
        let stored = |version: Option<&str>, node: &str, stack: &str| {
            let mut stored = Stored::default();
            stored.resource_version = version.map(str::to_owned);
            let text = format!(r#"{{"{stack}":{{"core/configmaps":{{"n":{{"x":null}}}}}}}}"#);
            let entry = Entry::parse(&text).unwrap();
            let inventory = stored.documents.inventory.get_or_insert_default();
            inventory.nodes.insert(node.to_owned(), entry);
            stored
        };
        let stacks = |record: &Record| -> Vec<String> {
            let all = record.values().flat_map(|known| &known.stacks);
            all.map(ToString::to_string).collect()
        };
        let mut own = Own::default();
        let first = own.of(Some(&stored(Some("1"), "a", "s")), "a");
        assert_eq!(stacks(&first), ["s"]);
        let again = own.of(Some(&stored(Some("1"), "a", "s")), "a");
        assert!(Arc::ptr_eq(&first, &again), "made once");
        assert_eq!(stacks(&own.of(Some(&stored(Some("2"), "a", "t")), "a")), ["t"]);
        assert!(
            own.of(Some(&stored(Some("3"), "b", "t")), "a").is_empty(),
            "of another node"
        );
        assert!(own.of(None, "a").is_empty());
        assert_eq!(stacks(&own.of(Some(&stored(None, "a", "u")), "a")), ["u"]);
        assert_eq!(
            stacks(&own.of(Some(&stored(None, "a", "v")), "a")),
            ["v"],
            "no version proves nothing"
        );
    }
}
