//! `rotation-incomplete.json`, beside node.yaml: leaves of this node were replaced, and not everybody who uses them has been
//! proven to have moved to them.
//!
//! It is written before the first of them changes and removed after the last proof, so that a command that was killed in
//! between is finished by the next one. What cannot be read counts as present: then nothing is known of who has moved.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::atomic_file::{self, Access};
use super::clock;
use super::layout::Layout;
use super::static_pods::Mark;

/// The form that is written, and the highest that is read.
const VERSION: u32 = 1;
/// No marker is longer, in bytes.
const LIMIT: u64 = 64 * 1024;

/// What is not finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Incomplete {
    version: u32,
    /// Who began it, as its command is spelled.
    pub operation: String,
    /// Whether any leaf had expired when it began: then parts of the control plane may be down.
    pub expired: bool,
    /// When it began, by the clock on the wall.
    pub began: Timestamp,
    /// The leaves that are replaced, by their names in `certs check`.
    pub leaves: BTreeSet<String>,
    /// Who has not been proven to use them; none when that was not worked out, and then it is everybody who uses one of the
    /// leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<BTreeSet<String>>,
    /// The moment after the last of them was written; none while they are being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Moment>,
}

/// A moment that can be compared with the start of a process, also by another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Moment {
    /// The boot it is in.
    pub boot: String,
    /// Clock ticks since that boot.
    pub ticks: u64,
}

impl Moment {
    /// The present one.
    #[must_use]
    pub fn take() -> Self {
        Self {
            boot: clock::boot_id(),
            ticks: Mark::take().ticks(),
        }
    }

    /// As this boot sees it: whatever runs now was started after a moment of an earlier one. Where boots cannot be told
    /// apart, nothing is known of it, which is none.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        let boot = clock::boot_id();
        if boot.is_empty() || self.boot.is_empty() {
            return None;
        }
        Some(if boot == self.boot {
            Mark::at(self.ticks)
        } else {
            Mark::at(0)
        })
    }
}

/// A marker that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is there and cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is there and is not what this program writes.
    #[error("{} is not what this version writes", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A later version wrote it.
    #[error("{} has version {found}, and this binary knows up to {VERSION}", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// It cannot be written or removed.
    #[error(transparent)]
    File(#[from] atomic_file::Error),
}

impl Error {
    /// Whether this user may not read it, which says nothing about what it would say.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
    }
}

impl Incomplete {
    /// One that begins now.
    #[must_use]
    pub fn new(operation: &str, expired: bool, leaves: BTreeSet<String>, now: Timestamp) -> Self {
        Self {
            version: VERSION,
            operation: operation.to_owned(),
            expired,
            began: now,
            leaves,
            waiting: None,
            written: None,
        }
    }

    /// The same, with what an earlier one has left undone: nobody may be forgotten because another command began.
    #[must_use]
    pub fn after(mut self, earlier: Option<&Self>) -> Self {
        let Some(earlier) = earlier else {
            return self;
        };
        self.expired |= earlier.expired;
        self.leaves.extend(earlier.leaves.iter().cloned());
        self.waiting = match (self.waiting, &earlier.waiting) {
            (Some(mut own), Some(others)) => {
                own.extend(others.iter().cloned());
                Some(own)
            }
            (None, _) | (_, None) => None,
        };
        self
    }

    /// Writes it, whole and durably.
    ///
    /// # Errors
    /// When it cannot be written; the old one is then still there.
    pub fn save(&self, layout: &Layout) -> Result<(), Error> {
        let path = path(layout);
        if let Some(folder) = path.parent() {
            atomic_file::create_folder(folder, Access::Secret)?;
        }
        let mut text = serde_json::to_vec_pretty(self).map_err(|source| Error::Malformed {
            path: path.clone(),
            source,
        })?;
        text.push(b'\n');
        Ok(atomic_file::write(&path, &text, Access::Secret)?)
    }
}

/// Reads it; none when it is not there.
///
/// # Errors
/// When it is there and cannot be used, which is not absence.
pub fn load(layout: &Layout) -> Result<Option<Incomplete>, Error> {
    let path = path(layout);
    let Some(bytes) = read(&path)? else {
        return Ok(None);
    };
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let malformed = |source| Error::Malformed {
        path: path.clone(),
        source,
    };
    let Version { version } = serde_json::from_slice(&bytes).map_err(malformed)?;
    if version > VERSION {
        return Err(Error::NewerVersion { path, found: version });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(malformed)
}

/// Removes it, when everybody has moved.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(layout: &Layout) -> Result<bool, Error> {
    Ok(atomic_file::remove(&path(layout))?)
}

/// Whether leaves were replaced and not everybody has moved, and whether that began from expired leaves (seed
/// `IncompleteRotation`). A marker that cannot be read is one.
#[must_use]
pub fn incomplete_rotation(layout: &Layout) -> (bool, bool) {
    match load(layout) {
        Ok(None) => (false, false),
        Ok(Some(found)) => (true, found.expired),
        // Of another version that word may mean the same.
        Err(_) => (true, expired_at_least(layout)),
    }
}

fn expired_at_least(layout: &Layout) -> bool {
    let bytes = atomic_file::read_record(&path(layout), LIMIT).unwrap_or_default();
    let found: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    found["expired"].as_bool().unwrap_or(false)
}

/// Where it is.
#[must_use]
pub fn path(layout: &Layout) -> PathBuf {
    layout.rotation_incomplete()
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    atomic_file::if_there(atomic_file::read_record(path, LIMIT)).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn marker(expired: bool) -> Incomplete {
        Incomplete::new("stratum certs rotate", expired, names(&["apiserver"]), clock::now())
    }

    #[test]
    fn it_comes_back_as_it_was_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        assert_eq!(incomplete_rotation(&layout), (false, false));
        assert!(!remove(&layout).unwrap());
        for expired in [false, true] {
            let mut saved = marker(expired);
            saved.waiting = Some(names(&["kube-scheduler"]));
            saved.written = Some(Moment::take());
            saved.save(&layout).unwrap();
            assert_eq!(load(&layout).unwrap(), Some(saved));
            assert_eq!(incomplete_rotation(&layout), (true, expired));
        }
        assert!(remove(&layout).unwrap());
        assert_eq!(load(&layout).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_read_is_present() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        atomic_file::create_folder(&layout.state(), Access::Secret).unwrap();
        for text in ["", "{", "{}", "{\"version\": 2}", "{\"version\": 1}", "\0\0\0"] {
            atomic_file::write(&path(&layout), text.as_bytes(), Access::Secret).unwrap();
            assert_eq!(incomplete_rotation(&layout), (true, false), "{text:?}");
            load(&layout).unwrap_err();
        }
        let later = b"{\"version\": 2, \"expired\": true}";
        atomic_file::write(&path(&layout), later, Access::Secret).unwrap();
        assert_eq!(incomplete_rotation(&layout), (true, true));
        std::fs::remove_file(path(&layout)).unwrap();
        std::fs::create_dir(path(&layout)).unwrap();
        assert_eq!(incomplete_rotation(&layout), (true, false));
    }

    #[test]
    fn nobody_is_forgotten_because_another_command_began() {
        let mut earlier = marker(true);
        earlier.leaves = names(&["scheduler"]);
        earlier.waiting = Some(names(&["kube-scheduler"]));
        let both = marker(false).after(Some(&earlier));
        assert!(both.expired && both.waiting.is_none());
        assert_eq!(both.leaves, names(&["apiserver", "scheduler"]));
        let mut own = marker(false);
        own.waiting = Some(names(&["kubelet"]));
        let both = own.clone().after(Some(&earlier));
        assert_eq!(both.waiting, Some(names(&["kube-scheduler", "kubelet"])));
        assert_eq!(own.clone().after(None), own);
        // Of an earlier one that had not got so far, everybody.
        earlier.waiting = None;
        assert_eq!(own.after(Some(&earlier)).waiting, None);
    }

    #[test]
    fn a_moment_means_something_in_its_own_boot_only() {
        let now = Moment::take();
        assert_eq!(now.mark(), Some(Mark::at(now.ticks)));
        let earlier = Moment {
            boot: "another".to_owned(),
            ticks: u64::MAX,
        };
        assert_eq!(earlier.mark(), Some(Mark::at(0)), "whatever runs now is younger");
        let unknown = Moment {
            boot: String::new(),
            ticks: 5,
        };
        assert_eq!(unknown.mark(), None);
    }
}
