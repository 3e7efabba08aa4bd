//! What is wrong with a payload, or stands in the way of making or using one.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::super::{assets, atomic_file, child};

/// A payload that cannot be built, used or imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no lock: no payload, or one whose making was cut short.
    #[error("{} is missing: this is no payload, or it was not finished; make one with `stratum payload build`", path.display())]
    NoLock {
        /// The lock.
        path: PathBuf,
    },
    /// The lock cannot be understood.
    #[error("{}: {reason}: build the payload again, or copy it again", path.display())]
    Malformed {
        /// The lock.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The lock is of a newer program.
    #[error("{} has version {found}, and this binary knows up to {known}: use the binary that built it", path.display())]
    NewerLock {
        /// The lock.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The highest that is known.
        known: u64,
    },
    /// The content is not what the lock says, or not what this binary needs.
    #[error("the payload in {} cannot be used: {}", folder.display(), joined(problems))]
    Wrong {
        /// The payload.
        folder: PathBuf,
        /// Everything that is wrong with it, by file.
        problems: Vec<Problem>,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] atomic_file::Error),
    /// A program is not to be had.
    #[error(transparent)]
    Asset(#[from] assets::Error),
    /// A program cannot be asked for its version.
    #[error("cannot ask a program of the payload for its version")]
    Ask(#[source] child::Error),
    /// A program is of another version than this binary needs.
    #[error("{} has to be version {needed}, and says: {said:?}", path.display())]
    OtherVersion {
        /// The program.
        path: PathBuf,
        /// The version.
        needed: &'static str,
        /// What it printed.
        said: String,
    },
    /// The folder for a new payload holds something else.
    #[error("{} is not empty and holds no payload: name an empty or a new folder", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// A file that goes into an image changed while it was read.
    #[error("{} changed while it was packed into an image: try again", path.display())]
    Changed {
        /// The archive that was being written.
        path: PathBuf,
    },
    /// The path of a file for an image is not absolute.
    #[error("{} cannot be put into an image: only an absolute path says where it goes", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// Somebody's image archive cannot be used.
    #[error("{} cannot be used as the image {reference}: {reason}", path.display())]
    Foreign {
        /// The archive.
        path: PathBuf,
        /// The name it shall have.
        reference: String,
        /// What is wrong.
        reason: String,
    },
    /// containerd's command line cannot be run.
    #[error("cannot import images into containerd")]
    Run(#[source] child::Error),
    /// containerd's command line failed, or took too long.
    #[error("`ctr {command}` failed ({how}): {said}")]
    Ctr {
        /// Its arguments.
        command: String,
        /// How it ended.
        how: String,
        /// Its last words, joined.
        said: String,
    },
    /// After an import containerd has another image under the name.
    #[error("containerd has {found} as {reference} after the import, not {expected}: look at containerd's log")]
    OtherDigest {
        /// The name.
        reference: String,
        /// What was imported.
        expected: String,
        /// What is there.
        found: String,
    },
}

/// One thing that is wrong with one file of a payload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase", tag = "problem")]
pub enum Problem {
    /// The lock names it, and it is not there.
    Missing {
        /// The file, below the payload.
        file: String,
    },
    /// It cannot be read.
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// It holds something else.
    Content {
        /// The file.
        file: String,
        /// Size and SHA-256 that the lock says.
        expected: String,
        /// Those that it has.
        found: String,
    },
    /// A program without the permission to be run; copies over some file systems lose it.
    NotExecutable {
        /// The file.
        file: String,
    },
    /// This binary needs it, and the lock does not name it.
    NotInLock {
        /// The file.
        file: String,
        /// What it would be.
        needed: String,
    },
    /// It is of another version than this binary needs.
    Version {
        /// The file.
        file: String,
        /// What this binary needs.
        needed: String,
        /// What the lock says.
        found: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { file } => write!(formatter, "{file} is missing"),
            Self::Unreadable { file, reason } => write!(formatter, "{file} cannot be read ({reason})"),
            Self::Content { file, expected, found } => {
                write!(formatter, "{file} has {found} where the lock says {expected}")
            }
            Self::NotExecutable { file } => write!(formatter, "{file} is not executable"),
            Self::NotInLock { file, needed } => write!(formatter, "the lock has no {file} ({needed})"),
            Self::Version { file, needed, found } => {
                write!(formatter, "{file} is {found}, and this binary needs {needed}")
            }
        }
    }
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
