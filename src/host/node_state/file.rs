//! The file: read, checked and written whole.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::atomic_file::{self, Access};
use super::NodeState;
use crate::text::{one_line, yaml_fault};

/// The version this binary writes, and the highest it reads.
const VERSION: u64 = 1;

/// The last line: YAML's end of a document. Whatever is cut off a list or a map leaves one that is whole, too.
const END: &str = "...";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there.
    #[error("{} is missing: this machine is no node yet (`stratum server` or `stratum join` makes it one)", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It has nothing in it.
    #[error("{} is empty: bring it back from a backup; without it nothing can be rendered on this node", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is not what this program writes.
    #[error("{}: {reason}: bring it back from a backup, or correct it", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// It says no version.
    #[error("{}: no `version` in it: it is cut off, or not this program's", path.display())]
    NoVersion {
        /// The file.
        path: PathBuf,
    },
    /// Its last line is missing.
    #[error("{} is cut off: its last line is not `{END}`: bring it back from a backup", path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error("{} has version {found}, and this binary knows up to {VERSION}: run the newer binary that wrote it", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] atomic_file::Error),
}

/// The file around the state.
#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    #[serde(flatten)]
    state: &'a NodeState,
}

/// Only the version, read before anything else is understood.
#[derive(Deserialize)]
struct Version {
    version: Option<u64>,
}

/// Reads it.
///
/// # Errors
/// Says which file, what is wrong with it and what to do.
pub fn load(path: &Path) -> Result<NodeState, Error> {
    let owned = || path.to_owned();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Err(Error::Missing { path: owned() }),
        Err(source) => Err(Error::Read { path: owned(), source }),
    }
}

/// Reads the text of such a file, which errors name `path`.
///
/// # Errors
/// Says what is wrong with it and what to do.
pub fn parse(path: &Path, text: &str) -> Result<NodeState, Error> {
    let path = || path.to_owned();
    if text.trim().is_empty() {
        return Err(Error::Empty { path: path() });
    }
    let malformed = |error: serde_saphyr::Error| Error::Malformed {
        path: path(),
        reason: yaml_fault(&error),
    };
    let Version { version } = serde_saphyr::from_str(text).map_err(malformed)?;
    match version {
        None => return Err(Error::NoVersion { path: path() }),
        Some(found) if found > VERSION => return Err(Error::NewerVersion { path: path(), found }),
        Some(_) => {}
    }
    if text.lines().next_back() != Some(END) {
        return Err(Error::CutOff { path: path() });
    }
    // Past its own line the version is no field of the state, which knows all of its keys.
    let rest: String = text
        .lines()
        .filter(|line| !line.starts_with("version:") && *line != END)
        .map(|line| format!("{line}\n"))
        .collect();
    serde_saphyr::from_str(&rest).map_err(malformed)
}

/// Writes it.
///
/// # Errors
/// When the file cannot be written; the old one is then still there.
pub fn save(path: &Path, state: &NodeState) -> Result<(), Error> {
    let written = Written {
        version: VERSION,
        state,
    };
    let text = serde_saphyr::to_string(&written).map_err(|error| Error::Malformed {
        path: path.to_owned(),
        reason: one_line(&error.to_string()),
    })?;
    let head = "# Written by stratum. What is rendered on this node is derived from it.\n";
    Ok(atomic_file::write(
        path,
        format!("{head}{text}{END}\n").as_bytes(),
        Access::Secret,
    )?)
}

/// The JSON schema of the state, for editors and checkers.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(NodeState).into()
}
