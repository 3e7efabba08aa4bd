//! A folder of manifests as it stands: every file's bytes, and everything that could not be read.
//!
//! The one rule: what cannot be read is a [`FolderProblem`] or a [`FolderError`], never absence. A caller that prunes
//! what is no longer declared can trust that a file missing from a [`Listing`] is missing from the folder.
//!
//! Nothing here looks into the bytes. An unchanged file is not even opened: its stamp tells.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::stamp::Stamp;
use self::walk::Walk;

mod stamp;
mod steady;
mod walk;

/// The largest file that is read, in bytes. etcd takes no object over 1.5 MiB.
pub const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// How a folder is opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Which folder it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FolderIdentity {
    /// Number of the file system's device.
    pub device: u64,
    /// Number of the folder in it.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970, where the file system tells: a folder that was removed and made again
    /// often gets the number of the one before.
    pub born: Option<u64>,
}

impl FolderIdentity {
    /// The identity of the folder a path leads to.
    ///
    /// # Errors
    /// [`FolderError`] if it leads to none.
    pub fn of(path: &Path) -> Result<Self, FolderError> {
        match Stamp::at(CWD, path) {
            Ok(stamp) if stamp.kind == FileType::Directory => Ok(stamp.identity),
            Ok(_) => Err(FolderError::NotAFolder { path: path.to_owned() }),
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                Err(FolderError::Missing { path: path.to_owned() })
            }
            Err(source) => Err(unreadable(path)(source)),
        }
    }
}

/// One file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Relative to the folder, with `/`.
    pub path: String,
    /// Name of the first-level folder it is in; `None` for a loose file.
    pub stack: Option<String>,
    /// All of it.
    pub bytes: Arc<[u8]>,
    /// SHA-256 of the bytes.
    pub digest: [u8; 32],
}

/// Something in the folder that could not be read, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderProblem {
    /// Relative to the folder, with `/`; what is not UTF-8 in it is replaced.
    pub path: String,
    /// Name of the first-level folder it is in, or is.
    pub stack: Option<String>,
    /// What is wrong and what to do, on one line, without the path.
    pub message: String,
}

/// The folder at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Which folder was read.
    pub identity: FolderIdentity,
    /// Names of all first-level folders, empty ones included, sorted.
    pub stacks: Vec<String>,
    /// The files, sorted by path.
    pub files: Vec<Arc<SourceFile>>,
    /// What could not be read, sorted by path.
    pub problems: Vec<FolderProblem>,
    /// SHA-256 over names, bytes and problems: equal digests mean equal listings, wherever the folder is.
    pub digest: [u8; 32],
}

/// Why there is no listing at all.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Nothing is there.
    #[error("folder {} does not exist; create it, or mount what should be there", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{} is not a folder; move it away and create the folder", path.display())]
    NotAFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot read folder {}; check its permissions and its file system", path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Another folder took its place meanwhile.
    #[error("folder {} was replaced while it was read; the next reading sees the new one", path.display())]
    Replaced {
        /// The folder.
        path: PathBuf,
    },
}

/// A folder to be read again and again; remembers unchanged files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    cache: BTreeMap<String, Cached>,
    last: Option<Arc<Listing>>,
    /// How many files the last reading opened.
    opened: usize,
}

#[derive(Clone, Debug)]
struct Cached {
    stamp: Stamp,
    read_at: Timestamp,
    file: Arc<SourceFile>,
}

impl Folder {
    /// A folder that need not exist yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            cache: BTreeMap::new(),
            last: None,
            opened: 0,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the folder. It blocks on the disk: call it where that is allowed. A folder that did not change costs a look
    /// at the stamp of each file, and gives the very listing of the reading before.
    ///
    /// # Errors
    /// [`FolderError`] if there is no such folder, or no single one during the whole reading.
    pub fn read(&mut self) -> Result<Arc<Listing>, FolderError> {
        self.read_while(|| {})
    }

    /// `meanwhile` happens before the reading ends; only tests have something to do there.
    fn read_while(&mut self, meanwhile: impl FnOnce()) -> Result<Arc<Listing>, FolderError> {
        let path = &self.path;
        // Says best what is wrong with a folder that cannot be opened.
        FolderIdentity::of(path)?;
        let open = openat(CWD, path, FOLDER, Mode::empty()).map_err(|error| unreadable(path)(error.into()))?;
        let identity = Stamp::of(&open).map_err(unreadable(path))?.identity;
        let mut walk = Walk::new(&self.cache, empty(identity));
        walk.folder(open, "", None, &[identity]).map_err(unreadable(path))?;
        let Walk {
            mut listing,
            cache,
            opened,
            ..
        } = walk;
        meanwhile();
        if FolderIdentity::of(path)? != identity {
            return Err(FolderError::Replaced { path: path.clone() });
        }
        tracing::trace!(
            files = listing.files.len(),
            opened,
            "read the folder {}",
            path.display()
        );
        self.cache = cache;
        self.opened = opened;
        listing.stacks.sort();
        listing.files.sort_by(|a, b| a.path.cmp(&b.path));
        listing.problems.sort_by(|a, b| a.path.cmp(&b.path));
        if let Some(last) = self.last.as_ref().filter(|last| is_same(last, &listing)) {
            return Ok(Arc::clone(last));
        }
        listing.digest = digest_of(&listing);
        Ok(Arc::clone(self.last.insert(Arc::new(listing))))
    }
}

/// Whether a listing says what another one said; the digest, which takes longer to make, is left out.
fn is_same(last: &Listing, now: &Listing) -> bool {
    let Listing {
        identity,
        stacks,
        files,
        problems,
        digest: _,
    } = last;
    let pairs = || files.iter().zip(&now.files);
    *identity == now.identity
        && *stacks == now.stacks
        && *problems == now.problems
        && files.len() == now.files.len()
        && pairs().all(|(last, now)| Arc::ptr_eq(last, now))
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |source| FolderError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

fn empty(identity: FolderIdentity) -> Listing {
    Listing {
        identity,
        stacks: Vec::new(),
        files: Vec::new(),
        problems: Vec::new(),
        digest: [0; 32],
    }
}

fn digest_of(listing: &Listing) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |sort: u8, bytes: &[u8]| {
        hash.update([sort]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for stack in &listing.stacks {
        add(b's', stack.as_bytes());
    }
    for file in &listing.files {
        add(b'f', file.path.as_bytes());
        add(b'd', &file.digest);
    }
    for problem in &listing.problems {
        add(b'p', problem.path.as_bytes());
        add(b'm', problem.message.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
