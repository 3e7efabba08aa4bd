//! The ConfigMap `stratum-addon-inventory`: its store, the concern that publishes this node's record in it, and what the
//! staging of bundled stacks records. The decisions are in [`crate::reconcilers::inventory`].

use std::path::Path;

use crate::controllers::concern::chain;
use crate::host::local_record;
use crate::reconcilers::inventory::document::Entry;
use crate::reconcilers::inventory::migration::LocalRecord;

pub mod staging;
pub mod store;
pub mod sync;

/// This node's `.applied.json`, parsed. Blocks. One that is not of its shape is unreadable, never empty; the reason names
/// the file, line and column.
#[must_use]
pub fn local_record(folder: &Path) -> LocalRecord {
    match local_record::read(folder) {
        local_record::LocalRecord::Absent => LocalRecord::Absent,
        local_record::LocalRecord::Unreadable(problem) => LocalRecord::Unreadable(problem),
        local_record::LocalRecord::Read(text) => match Entry::parse(&text) {
            Ok(entry) => LocalRecord::Read(entry),
            Err(error) => LocalRecord::Unreadable(format!("{}/.applied.json: {}", folder.display(), chain(&error))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::atomic_file::{self, Access};

    #[test]
    fn a_local_record_of_another_shape_is_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(local_record(folder.path()), LocalRecord::Absent);
        let write = |text: &str| {
            atomic_file::write(&folder.path().join(".applied.json"), text.as_bytes(), Access::Public).unwrap();
            local_record(folder.path())
        };
        let read = write(r#"{"s":{"core/configmaps":{"n":{"x":null}}}}"#);
        assert!(matches!(read, LocalRecord::Read(entry) if !entry.is_empty()));
        for bad in ["", "{\"s\":", "[]", r#"{"s":["x"]}"#] {
            match write(bad) {
                LocalRecord::Unreadable(reason) => assert!(reason.contains(".applied.json: "), "{reason}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
    }
}
