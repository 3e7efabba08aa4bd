//! What an uninstall did, what it left and why, and what stopped it.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::super::{child, lock};

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What is gone, in the order it went.
    pub removed: Vec<String>,
    /// What is still there.
    pub left: Vec<Left>,
}

/// Something that stays on the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// What.
    pub what: String,
    /// Why, and what can be done about it.
    pub why: String,
}

impl Report {
    /// Notes something that is gone.
    pub fn removed(&mut self, what: impl Into<String>) {
        self.removed.push(what.into());
    }

    /// Notes something that stays, once.
    pub fn left(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let left = Left {
            what: what.into(),
            why: why.into(),
        };
        if !self.left.contains(&left) {
            self.left.push(left);
        }
    }
}

/// What stopped an uninstall. What was done before stays done, and the next one goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program cannot be run.
    #[error("cannot run {program}")]
    Run {
        /// Its name.
        program: &'static str,
        /// Why.
        #[source]
        source: child::Error,
    },
    /// A program failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// What was run.
        command: String,
        /// The last it said.
        said: String,
    },
    /// `stratum up` does not end.
    #[error("`stratum up` ({holder}) did not end within {seconds} s: end it, then run this again")]
    StillRuns {
        /// Who holds its lock.
        holder: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// `stratum up` does not obey.
    #[error("`stratum up` refused to stop: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// It cannot be asked.
    #[error("cannot ask `stratum up` to stop")]
    Ask(#[source] super::super::control_socket::Error),
    /// A lock cannot be taken.
    #[error("cannot tell whether `stratum up` runs")]
    Lock(#[source] lock::Error),
    /// Processes do not end, even when killed.
    #[error(
        "{what} did not end within {seconds} s, though killed: {processes:?}; one that waits for a dead network disk ends only when the machine restarts"
    )]
    Undead {
        /// Whose processes.
        what: &'static str,
        /// Their ids.
        processes: Vec<u32>,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Something stays mounted.
    #[error("cannot unmount {}", path.display())]
    Unmount {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A folder of ours is a link.
    #[error("{} is a link: what it leads to was not touched; remove both yourself", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Deleting would reach into another file system.
    #[error("{} is another file system: nothing is deleted through a mount; unmount it, then run this again", path.display())]
    Mounted {
        /// Where it is mounted.
        path: PathBuf,
    },
    /// It cannot be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
