//! What can go wrong here.

use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::super::atomic_file;
use super::registry::RegistriesError;

/// A configuration that could not be read, made or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file or folder cannot be written or removed.
    #[error(transparent)]
    File(#[from] atomic_file::Error),
    /// A folder that is to go cannot be removed.
    #[error("cannot remove the folder {}", path.display())]
    RemoveFolder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A path cannot be written down in a configuration.
    #[error("{} cannot be named in a configuration: it is not UTF-8", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// A configuration of containerd that this program wrote is not readable any more.
    #[error("{}: {reason}; `stratum up` writes it anew", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A configuration cannot be put into words.
    #[error("cannot write down {what}")]
    Render {
        /// Which configuration.
        what: &'static str,
        /// What the writer of its format said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A key of config.yaml that would break the node.
    #[error("config.yaml: {section}: {key} is not yours to set: {reason}")]
    Refused {
        /// The section.
        section: &'static str,
        /// The key, with dots.
        key: String,
        /// Why not, or where it is set.
        reason: &'static str,
    },
    /// A key of config.yaml that its program does not know, and would silently ignore.
    #[error("config.yaml: {section}: {key} is none of its settings; check how it is spelled")]
    Unknown {
        /// The section.
        section: &'static str,
        /// The key.
        key: String,
    },
    /// TOML has no null.
    #[error("config.yaml: {section}: {key} has no value")]
    Null {
        /// The section.
        section: &'static str,
        /// The key, with dots.
        key: String,
    },
    /// The range of Services has no tenth address.
    #[error(
        "the range of Services {range} has no tenth address, which the cluster's DNS takes: it must hold 16 addresses or more"
    )]
    NoDnsAddress {
        /// The range.
        range: IpNet,
    },
    /// registries.yaml cannot be used.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// containerd was to be restarted.
    #[error("containerd could not be restarted; it reads its new configuration at its next start")]
    Restart(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// containerd was restarted and does not answer.
    #[error("containerd was restarted and does not answer at {}; see `stratum logs containerd`", socket.display())]
    NotBack {
        /// Its socket.
        socket: PathBuf,
    },
}

/// An error, and what had been changed when it arose: a file that is on the disk is what decides about a restart.
#[derive(Debug, thiserror::Error)]
#[error("{}", if *changed {
    "containerd's configuration was changed and has to be read by it, but not everything was done"
} else {
    "containerd's configuration was not changed"
})]
pub struct Unfinished {
    /// Whether there is something on the disk that containerd reads at its next start only.
    pub changed: bool,
    /// What happened.
    #[source]
    pub source: Error,
}

impl Unfinished {
    /// An error that came before anything was written.
    pub(super) fn before_any_change(source: impl Into<Error>) -> Self {
        Self {
            changed: false,
            source: source.into(),
        }
    }
}

/// The text of a path.
pub(super) fn text(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::Path { path: path.to_owned() })
}

/// A file's bytes, `None` when it is not there.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    atomic_file::if_there(std::fs::read(path)).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}
