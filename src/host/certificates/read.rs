//! What is in the files, as Go and Rust both see it: a block that one of them would not find is an error here, never
//! absence.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::super::kubeconfig::{self, Source, View};
use super::Store;
use crate::pki::certificate::{self, Certificate};
use crate::pki::key::{self, Key};

/// A certificate that was found, with its key of type `K`.
#[derive(Debug)]
pub struct Found<K = Key> {
    /// The first certificate of its file.
    pub certificate: Certificate,
    /// Those after it: authorities in between, or more of a bundle.
    pub more: Vec<Certificate>,
    /// What became of its key.
    pub key: KeyState<K>,
}

/// A certificate's key, as it was found.
#[derive(Debug)]
pub enum KeyState<K = Key> {
    /// It is the certificate's own.
    Matches(K),
    /// It is another certificate's.
    Other,
    /// It is not there.
    Absent,
    /// This user may not read it, which says nothing about it.
    Denied,
    /// It is there and is no key this program can use.
    Unreadable(KeyError),
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("cannot read it")]
    Read(#[source] io::Error),
    /// It makes no sense.
    #[error(transparent)]
    Key(#[from] key::Error),
    /// The kubeconfig names a file that is not there.
    #[error("{} is named by the kubeconfig and is not there", .0.display())]
    Gone(PathBuf),
}

/// Why a certificate that is there cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refuses.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It has to be there, and is not.
    #[error("{} is not there", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A folder, a device or a pipe.
    #[error("{} is no file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Nothing that long is a certificate.
    #[error("{} is longer than {LONGEST} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A link leads nowhere.
    #[error("{} is a link to {}, which is not there", path.display(), target.display())]
    Dangling {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A block does not begin at the start of a line, so that most programs do not see it.
    #[error("{}: a PEM block does not begin at the start of a line (a byte order mark, or files joined without a line break): most programs do not see it", path.display())]
    Hidden {
        /// The file.
        path: PathBuf,
    },
    /// The content is no certificate.
    #[error("{} cannot be used", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: certificate::Error,
    },
    /// The kubeconfig it is embedded in cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// The kubeconfig has no client certificate.
    #[error("{} has no client certificate", path.display())]
    NoClient {
        /// The kubeconfig.
        path: PathBuf,
    },
    /// The kubeconfig names a file that is not there.
    #[error("{} names {}, which is not there", path.display(), target.display())]
    Gone {
        /// The kubeconfig.
        path: PathBuf,
        /// What it names.
        target: PathBuf,
    },
}

impl ReadError {
    /// Whether this user may not read it, which says nothing about what is there.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Read { source, .. } | Self::Kubeconfig(kubeconfig::Error::Read { source, .. }) => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

/// A bundle of five hundred authorities is shorter.
const LONGEST: u64 = 1 << 20;

const BEGIN: &[u8] = b"-----BEGIN ";

/// Whether PEM data holds the key of a certificate.
type Match<K> = fn(&[u8], &Certificate) -> Result<Option<K>, key::Error>;

/// With the keys themselves, each proven to be whole.
pub(super) fn read(store: &Store) -> Result<Option<Found>, ReadError> {
    let own = |pem: &[u8], certificate: &Certificate| {
        let key = Key::from_pem(pem)?;
        Ok((key.public_key_der() == certificate.public_key_der()).then_some(key))
    };
    read_with(store, own)
}

/// Only whose keys they are.
pub(super) fn look(store: &Store) -> Result<Option<Found<()>>, ReadError> {
    let own = |pem: &[u8], certificate: &Certificate| {
        let belongs = Key::belongs_to(pem, certificate.public_key_der())?;
        Ok(belongs.then_some(()))
    };
    read_with(store, own)
}

fn read_with<K>(store: &Store, own: Match<K>) -> Result<Option<Found<K>>, ReadError> {
    match store {
        Store::Pair { certificate, key } => {
            let Some(pem) = content(certificate)? else {
                return Ok(None);
            };
            found(certificate, &pem, |certificate| file_key(key, certificate, own)).map(Some)
        }
        Store::Together(path) => {
            let Some(pem) = content(path)? else {
                return Ok(None);
            };
            found(path, &pem, |certificate| key_state(&pem, certificate, own)).map(Some)
        }
        Store::Kubeconfig(path) => embedded(path, own),
        Store::Bundle(path) => {
            let Some(pem) = content(path)? else {
                return Ok(None);
            };
            found(path, &pem, |_| KeyState::Absent).map(Some)
        }
    }
}

/// The client of a kubeconfig, wherever that says it is.
fn embedded<K>(path: &Path, own: Match<K>) -> Result<Option<Found<K>>, ReadError> {
    let Some(text) = content(path)? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&text).map_err(|_| kubeconfig::Error::Malformed {
        path: path.to_owned(),
        reason: "it is not UTF-8".to_owned(),
    })?;
    let view = View::parse(path, text)?;
    let key = |certificate: &Certificate| match &view.client_key {
        None => KeyState::Absent,
        Some(Source::Embedded(pem)) => key_state(pem, certificate, own),
        Some(Source::File(file)) => match file_key(file, certificate, own) {
            KeyState::Absent => KeyState::Unreadable(KeyError::Gone(file.clone())),
            other => other,
        },
    };
    match &view.client_certificate {
        None => Err(ReadError::NoClient { path: path.to_owned() }),
        Some(Source::Embedded(pem)) => found(path, pem, key).map(Some),
        Some(Source::File(target)) => match content(target)? {
            Some(pem) => found(target, &pem, key).map(Some),
            None => Err(ReadError::Gone {
                path: path.to_owned(),
                target: target.clone(),
            }),
        },
    }
}

fn found<K>(path: &Path, pem: &[u8], key: impl FnOnce(&Certificate) -> KeyState<K>) -> Result<Found<K>, ReadError> {
    let mut certificates = certificates(path, pem)?.into_iter();
    let certificate = certificates.next().ok_or_else(|| ReadError::Certificate {
        path: path.to_owned(),
        source: certificate::Error::Missing,
    })?;
    let key = key(&certificate);
    Ok(Found {
        certificate,
        more: certificates.collect(),
        key,
    })
}

/// Every certificate of a file; a private key may stand among them where the file is of that kind, nothing else.
pub(super) fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<Certificate>, ReadError> {
    let unusable = |source| ReadError::Certificate {
        path: path.to_owned(),
        source,
    };
    let starts = pem
        .windows(BEGIN.len())
        .enumerate()
        .filter(|(_, window)| *window == BEGIN);
    let starts: Vec<usize> = starts.map(|(start, _)| start).collect();
    if starts.iter().any(|start| *start > 0 && pem[start - 1] != b'\n') {
        return Err(ReadError::Hidden { path: path.to_owned() });
    }
    let blocks = pem::parse_many(pem).map_err(|error| unusable(certificate::Error::Pem(error)))?;
    if blocks.is_empty() || blocks.len() != starts.len() {
        return Err(unusable(certificate::Error::Missing));
    }
    let has_certificate = blocks.iter().any(|block| block.tag() == "CERTIFICATE");
    let mut certificates = Vec::new();
    for block in &blocks {
        match block.tag() {
            "CERTIFICATE" => certificates.push(Certificate::from_der(block.contents()).map_err(unusable)?),
            tag if has_certificate && (tag.ends_with("PRIVATE KEY") || tag == "EC PARAMETERS") => {}
            other => return Err(unusable(certificate::Error::Foreign(other.to_owned()))),
        }
    }
    Ok(certificates)
}

fn file_key<K>(path: &Path, certificate: &Certificate, own: Match<K>) -> KeyState<K> {
    match content(path) {
        Ok(Some(pem)) => key_state(&pem, certificate, own),
        Ok(None) => KeyState::Absent,
        Err(error) if error.is_denied() => KeyState::Denied,
        Err(ReadError::Read { source, .. }) => KeyState::Unreadable(KeyError::Read(source)),
        Err(other) => KeyState::Unreadable(KeyError::Read(io::Error::other(other))),
    }
}

fn key_state<K>(pem: &[u8], certificate: &Certificate, own: Match<K>) -> KeyState<K> {
    match own(pem, certificate) {
        Ok(Some(key)) => KeyState::Matches(key),
        Ok(None) => KeyState::Other,
        Err(key::Error::Missing(found))
            if found
                .split(", ")
                .all(|tag| tag.trim_start_matches("found ") == "CERTIFICATE") =>
        {
            KeyState::Absent
        }
        Err(error) => KeyState::Unreadable(error.into()),
    }
}

/// The content of a file; none when it is not there. A pipe is not waited for.
fn content(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, ReadError> {
    let owned = || path.to_owned();
    let failed = |source| ReadError::Read { path: owned(), source };
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match path.read_link() {
                Ok(target) => Err(ReadError::Dangling { path: owned(), target }),
                Err(_) => Ok(None),
            };
        }
        // A folder's name is a file: what is below it is not there.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_file() {
        return Err(ReadError::NotAFile { path: owned() });
    }
    if metadata.len() > LONGEST {
        return Err(ReadError::TooLong { path: owned() });
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map_err(failed)?;
    Ok(Some(bytes))
}
