//! `payload.lock`: what belongs in a payload. JSON, sorted, the same bytes for the same content.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::atomic_file::{self, Access};
use super::Error;

/// The lock's name.
pub const LOCK: &str = "payload.lock";

/// The version this binary writes, and the highest it reads.
const VERSION: u64 = 1;

/// The content of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PayloadLock {
    version: u64,
    /// `OS/ARCHITECTURE`, in Go's words: `linux/amd64`.
    pub platform: String,
    /// The files by their path below the payload: `bin/NAME` or `images/NAME.tar`.
    pub files: BTreeMap<String, Entry>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The version of the program, or the image's tag.
    pub version: String,
    /// In bytes.
    pub size: u64,
    /// In hexadecimal digits.
    pub sha256: String,
    /// What image the archive holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<PinnedImage>,
}

/// An image as containerd knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinnedImage {
    /// The name it is imported under: `REPOSITORY:TAG`.
    pub reference: String,
    /// The digest of its manifest: `sha256:...`
    pub digest: String,
}

#[derive(Deserialize)]
struct Version {
    version: Option<u64>,
}

impl PayloadLock {
    pub(super) fn new(platform: String) -> Self {
        Self {
            version: VERSION,
            platform,
            files: BTreeMap::new(),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is missing, or is not what this binary understands.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NoLock { path: path.to_owned() });
            }
            Err(source) => {
                let path = path.to_owned();
                return Err(Error::Read { path, source });
            }
        };
        let malformed = |reason: String| Error::Malformed {
            path: path.to_owned(),
            reason,
        };
        let version: Version = serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
        match version.version {
            None => return Err(malformed("no `version` in it".to_owned())),
            Some(found) if found > VERSION => {
                let path = path.to_owned();
                return Err(Error::NewerLock {
                    path,
                    found,
                    known: VERSION,
                });
            }
            Some(_) => {}
        }
        let lock: Self = serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
        match lock.files.keys().find(|file| !is_plain(file)) {
            Some(file) => Err(malformed(format!("{file:?} is neither bin/NAME nor images/NAME.tar"))),
            None => Ok(lock),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// Names the path.
    pub(super) fn save(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Malformed {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(atomic_file::write(
            path,
            format!("{text}\n").as_bytes(),
            Access::Public,
        )?)
    }
}

/// A name directly in one of the two folders; nothing that leads elsewhere.
fn is_plain(file: &str) -> bool {
    let name = match file.split_once('/') {
        Some(("bin", name)) => name,
        Some(("images", name)) => name.strip_suffix(".tar").unwrap_or_default(),
        Some(_) | None => "",
    };
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}
