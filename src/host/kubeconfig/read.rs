//! What a kubeconfig of anybody's says about its current context: which server, whom it trusts, who its user is.
//!
//! Where data and a path are both given the data counts, and a relative path is seen from the kubeconfig's folder: both as
//! client-go has it (`tools/clientcmd`).

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::super::atomic_file;
use super::Error;

/// The current context of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The server, as a URL.
    pub server: Option<String>,
    /// The certificates to trust.
    pub authorities: Option<Source>,
    /// The client certificate.
    pub client_certificate: Option<Source>,
    /// The client key.
    pub client_key: Option<Source>,
}

/// Where PEM data is.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// In the kubeconfig.
    Embedded(Zeroizing<Vec<u8>>),
    /// In a file.
    File(PathBuf),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded(bytes) => write!(formatter, "Embedded({} bytes)", bytes.len()),
            Self::File(path) => write!(formatter, "File({})", path.display()),
        }
    }
}

impl Source {
    /// The data.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        match self {
            Self::Embedded(bytes) => Ok(bytes.clone()),
            Self::File(path) => std::fs::read(path).map(Zeroizing::new),
        }
    }
}

impl View {
    /// Reads the kubeconfig at `path`, if there is one.
    ///
    /// # Errors
    /// When it is there and cannot be used.
    pub fn load(path: &Path) -> Result<Option<Self>, Error> {
        let read = atomic_file::if_there(std::fs::read(path)).map(|bytes| bytes.map(Zeroizing::new));
        let bytes = read.map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed(path, "it is not UTF-8"))?;
        Self::parse(path, text).map(Some)
    }

    /// Reads the text of the kubeconfig at `path`.
    ///
    /// # Errors
    /// When it is none, or does not define what it names.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(malformed(path, "it is empty"));
        }
        let file: File = parse(path, text)?;
        let context = current(path, file.current_context.as_deref(), file.contexts.unwrap_or_default())?;
        let undefined = |kind: &str, name: &str| malformed(path, format!("it names {kind} {name:?} and defines none"));
        let cluster = match context.cluster.filter(|name| !name.is_empty()) {
            None => Cluster::default(),
            Some(name) => {
                let named = file
                    .clusters
                    .unwrap_or_default()
                    .into_iter()
                    .find(|one| one.name == name);
                named
                    .ok_or_else(|| undefined("cluster", &name))?
                    .cluster
                    .unwrap_or_default()
            }
        };
        let user = match context.user.filter(|name| !name.is_empty()) {
            None => User::default(),
            Some(name) => {
                let named = file.users.unwrap_or_default().into_iter().find(|one| one.name == name);
                named.ok_or_else(|| undefined("user", &name))?.user.unwrap_or_default()
            }
        };
        let source = |field, data, file| source(path, field, data, file);
        Ok(Self {
            server: cluster.server,
            authorities: source(
                "certificate-authority-data",
                cluster.certificate_authority_data,
                cluster.certificate_authority,
            )?,
            client_certificate: source(
                "client-certificate-data",
                user.client_certificate_data,
                user.client_certificate,
            )?,
            client_key: source("client-key-data", user.client_key_data, user.client_key)?,
        })
    }
}

/// Deserializes, with an error that says where the fault is and never what stands there.
pub(super) fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location().map_or_else(
            || "it is no kubeconfig".to_owned(),
            |at| {
                format!(
                    "line {}, column {} is not what it is in a kubeconfig",
                    at.line(),
                    at.column()
                )
            },
        );
        malformed(path, place)
    })
}

pub(super) fn malformed(path: &Path, reason: impl Into<String>) -> Error {
    Error::Malformed {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

fn current(path: &Path, name: Option<&str>, contexts: Vec<NamedContext>) -> Result<Context, Error> {
    let found = match (name, contexts.len()) {
        (None | Some(""), 1) => contexts.into_iter().next(),
        (None | Some(""), _) => {
            return Err(malformed(path, "it has no current-context and not exactly one context"));
        }
        (Some(name), _) => contexts.into_iter().find(|context| context.name == name),
    };
    let found = found.ok_or_else(|| {
        let name = name.unwrap_or_default();
        malformed(
            path,
            format!("its current-context is context {name:?}, which it does not define"),
        )
    })?;
    Ok(found.context.unwrap_or_default())
}

fn source(
    path: &Path,
    field: &str,
    data: Option<Zeroizing<String>>,
    file: Option<String>,
) -> Result<Option<Source>, Error> {
    if let Some(data) = data.filter(|data| !data.trim().is_empty()) {
        // As Go reads it: line breaks do not count.
        let compact: Zeroizing<Vec<u8>> =
            Zeroizing::new(data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect());
        let decoded = STANDARD.decode(compact.as_slice());
        let decoded = decoded.map_err(|_| malformed(path, format!("{field} is not base64")))?;
        return Ok(Some(Source::Embedded(Zeroizing::new(decoded))));
    }
    let file = file.filter(|file| !file.is_empty());
    Ok(file.map(|file| Source::File(path.parent().unwrap_or(Path::new("")).join(file))))
}

#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "current-context")]
    current_context: Option<String>,
    #[serde(default)]
    contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<Context>,
}

#[derive(Default, Deserialize)]
struct Context {
    #[serde(default)]
    cluster: Option<String>,
    #[serde(default)]
    user: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<Cluster>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<Zeroizing<String>>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<Zeroizing<String>>,
    client_key: Option<String>,
    client_key_data: Option<Zeroizing<String>>,
}
