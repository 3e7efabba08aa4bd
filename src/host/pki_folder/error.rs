//! What goes wrong with the files.

use std::io;
use std::path::PathBuf;

use super::super::atomic_file;
use crate::pki::{authority, key, leaf};

/// A certificate or key that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] atomic_file::Error),
    /// Of an authority's two files one is missing.
    #[error("{} is missing, but its other half is there: bring it back, or remove both to start with a new authority", path.display())]
    HalfAuthority {
        /// The missing file.
        path: PathBuf,
    },
    /// A private key is missing whose public half is there.
    #[error("{} is missing, but {} is there: bring it back, or remove both to start with a new key", path.display(), public.display())]
    HalfKey {
        /// The missing file.
        path: PathBuf,
        /// Its public half.
        public: PathBuf,
    },
    /// An authority cannot be made or loaded.
    #[error("the authority in {} cannot be used", path.display())]
    Authority {
        /// Its certificate's file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: authority::Error,
    },
    /// A key cannot be made or read.
    #[error("the key {} cannot be used", path.display())]
    Key {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: key::Error,
    },
    /// A certificate cannot be issued.
    #[error("cannot issue {}", path.display())]
    Issue {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: leaf::Error,
    },
    /// A file of certificates or public keys to trust holds something else.
    #[error("{} cannot be used as a bundle: bring it back from a backup, for what it trusted is known nowhere else", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
