//! Between the inventory's documents and the plain records the manifests decisions go by.

use crate::reconcilers::inventory::document::Entry;
use crate::reconcilers::inventory::records::Documents;
use crate::reconcilers::manifests::apply::{Record, Recorded};

/// A node's own entry.
pub(super) fn own(documents: &Documents, node: &str) -> Record {
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
