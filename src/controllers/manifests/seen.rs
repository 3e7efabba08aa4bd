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
    /// What files held in the last complete pass.
    bytes: BTreeMap<String, Arc<[u8]>>,
    /// What they were last taken at their word for, which a later pass has not made complete yet: a writer that empties a
    /// file first shows an empty file, and what follows is not a file that grows.
    looked: BTreeMap<String, Arc<[u8]>>,
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
            looked: BTreeMap::new(),
            dirty: false,
        }
    }

    /// Whether this is the folder of the last complete pass.
    pub(super) fn is_same_folder(&self, identity: FolderIdentity) -> bool {
        self.document.folder == Some(identity)
    }

    /// Whether a file was cut short since the last complete pass, or since it was last taken at its word.
    pub(super) fn judge(&self, file: &SourceFile) -> Cut {
        let digests = self.document.files.get(&file.path).map(Vec::as_slice);
        let [complete, looked] = [&self.bytes, &self.looked].map(|known| known.get(&file.path).map(AsRef::as_ref));
        match cut::judge(digests, complete, &file.bytes) {
            Cut::Whole => cut::judge(None, looked, &file.bytes),
            cut @ Cut::EndsInsideADocument { .. } => cut,
        }
    }

    /// Takes a file at its word.
    pub(super) fn accept(&mut self, file: &SourceFile) {
        self.looked.insert(file.path.clone(), Arc::clone(&file.bytes));
    }

    /// Takes a complete pass in: files hold what was read, those that are gone are forgotten, the folder is the one that
    /// was read. What is to be written then, if anything; a write that fails has to be told to [`Seen::not_written`].
    pub(super) fn complete(&mut self, listing: &Listing) -> Option<Unwritten> {
        let there = |path: &String| listing.files.binary_search_by(|file| file.path.cmp(path)).is_ok();
        let before = self.document.files.len();
        self.document.files.retain(|path, _| there(path));
        self.bytes.retain(|path, _| there(path));
        self.looked.retain(|path, _| there(path));
        for file in &listing.files {
            if self
                .bytes
                .get(&file.path)
                .is_some_and(|before| Arc::ptr_eq(before, &file.bytes))
            {
                continue;
            }
            self.dirty = true;
            self.document.files.insert(file.path.clone(), cut::digests(&file.bytes));
            self.bytes.insert(file.path.clone(), Arc::clone(&file.bytes));
        }
        self.dirty |= before != self.document.files.len() || self.document.folder != Some(listing.identity);
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        self.document.folder = Some(listing.identity);
        Some(Unwritten {
            path: self.path.clone(),
            text: serde_json::to_vec(&self.document).unwrap_or_default(),
        })
    }

    /// The next complete pass writes again.
    pub(super) fn not_written(&mut self) {
        self.dirty = true;
    }
}

/// What was seen, on its way to the disk.
pub(super) struct Unwritten {
    path: PathBuf,
    text: Vec<u8>,
}

impl Unwritten {
    /// Writes it; blocks until the disk has it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(self) -> Result<(), atomic_file::Error> {
        if let Some(parent) = self.path.parent() {
            atomic_file::create_folder(parent, Access::Secret)?;
        }
        atomic_file::write_if_changed(&self.path, &self.text, Access::Secret)?;
        Ok(())
    }
}
