//! What this node last took files at their word for, kept across restarts: how a file that was cut short while no
//! operator ran, or a folder that is another one (an unmounted disk), is told from a change somebody made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::host::atomic_file::{self, Access};
use crate::host::folder::{FolderIdentity, Listing, SourceFile};
use crate::reconcilers::manifests::source::cut::{self, Cut, DocumentDigest};

const NAME: &str = "manifests-seen.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Document {
    folder: Option<FolderIdentity>,
    files: BTreeMap<String, Vec<DocumentDigest>>,
}

pub(super) struct Seen {
    path: PathBuf,
    document: Document,
    bytes: BTreeMap<String, Arc<[u8]>>,
    dirty: bool,
}

impl Seen {
    /// Reads it. One that is not there or cannot be read is empty: it only ever adds caution.
    pub(super) fn load(state: &Path) -> Self {
        let path = state.join(NAME);
        let document = std::fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Self {
            path,
            document,
            bytes: BTreeMap::new(),
            dirty: false,
        }
    }

    /// Whether this is the folder of the last complete pass.
    pub(super) fn is_same_folder(&self, identity: FolderIdentity) -> bool {
        self.document.folder == Some(identity)
    }

    /// Whether a file was cut short since it was last taken at its word.
    pub(super) fn judge(&self, file: &SourceFile) -> Cut {
        let digests = self.document.files.get(&file.path).map(Vec::as_slice);
        cut::judge(digests, self.bytes.get(&file.path).map(AsRef::as_ref), &file.bytes)
    }

    /// Takes a file at its word.
    pub(super) fn accept(&mut self, file: &SourceFile) {
        if self
            .bytes
            .get(&file.path)
            .is_some_and(|before| Arc::ptr_eq(before, &file.bytes))
        {
            return;
        }
        self.dirty = true;
        self.document.files.insert(file.path.clone(), cut::digests(&file.bytes));
        self.bytes.insert(file.path.clone(), Arc::clone(&file.bytes));
    }

    /// Keeps it after a complete pass: files that are gone are forgotten, the folder is the one that was read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn complete(&mut self, listing: &Listing) -> Result<(), atomic_file::Error> {
        let there = |path: &String| listing.files.binary_search_by(|file| file.path.cmp(path)).is_ok();
        let before = self.document.files.len();
        self.document.files.retain(|path, _| there(path));
        self.bytes.retain(|path, _| there(path));
        self.dirty |= before != self.document.files.len() || self.document.folder != Some(listing.identity);
        if !self.dirty {
            return Ok(());
        }
        self.document.folder = Some(listing.identity);
        if let Some(parent) = self.path.parent() {
            atomic_file::create_folder(parent, Access::Secret)?;
        }
        let text = serde_json::to_vec(&self.document).unwrap_or_default();
        atomic_file::write_if_changed(&self.path, &text, Access::Secret)?;
        self.dirty = false;
        Ok(())
    }
}
