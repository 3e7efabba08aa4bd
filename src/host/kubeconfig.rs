//! Kubeconfig files: ours, which name their PEM files by path, so that whoever reads them picks up a renewed certificate
//! without a new kubeconfig; and those of others, which are read ([`View`]) and whose client certificate is replaced
//! ([`with_client`]) with everything else kept.
//!
//! Format: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>

mod authorities;
mod read;
mod replace;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::atomic_file::{self, Access};

pub use authorities::with_authorities;
pub use read::{Source, View};
pub use replace::{Client, replace_client, with_client};

/// A kubeconfig that could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path in it is not UTF-8 or not absolute; a relative one would be read relative to the file's own folder.
    #[error("a kubeconfig cannot name {}: only an absolute path in UTF-8 means the same to every reader", path.display())]
    Path {
        /// The path that was to be named.
        path: PathBuf,
    },
    /// The YAML writer refused.
    #[error("cannot write the kubeconfig {} as YAML", path.display())]
    Yaml {
        /// The kubeconfig.
        path: PathBuf,
        /// What the YAML writer said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file could not be written.
    #[error(transparent)]
    File(#[from] atomic_file::Error),
    /// It cannot be read.
    #[error("cannot read the kubeconfig {}", path.display())]
    Read {
        /// The kubeconfig.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is no kubeconfig, or not one that says who its user is. The reason quotes nothing of it: that may be a key.
    #[error("the kubeconfig {} cannot be used: {reason}", path.display())]
    Malformed {
        /// The kubeconfig.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// One server, one user, one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `https://HOST:PORT`
    pub server: String,
    /// The user's name inside the file, and the context's; what the API server sees is in the certificate.
    pub user: String,
    /// PEM file with the certificates to trust.
    pub certificate_authority: PathBuf,
    /// PEM file with the client certificate.
    pub client_certificate: PathBuf,
    /// PEM file with the client key.
    pub client_key: PathBuf,
}

impl Kubeconfig {
    /// Writes the file, mode 0600, unless it already says the same.
    ///
    /// # Errors
    /// Names the path.
    pub fn write(&self, path: &Path) -> Result<bool, Error> {
        let name = self.user.as_str();
        let document = Document {
            api_version: "v1",
            kind: "Config",
            clusters: [Named {
                name: CLUSTER,
                cluster: ClusterEntry {
                    server: &self.server,
                    certificate_authority: text(&self.certificate_authority)?,
                },
            }],
            users: [NamedUser {
                name,
                user: UserEntry {
                    client_certificate: text(&self.client_certificate)?,
                    client_key: text(&self.client_key)?,
                },
            }],
            contexts: [NamedContext {
                name,
                context: ContextEntry {
                    cluster: CLUSTER,
                    user: name,
                },
            }],
            current_context: name,
        };
        let yaml = serde_saphyr::to_string(&document).map_err(|error| Error::Yaml {
            path: path.to_owned(),
            source: Box::new(error),
        })?;
        Ok(atomic_file::write_if_changed(path, yaml.as_bytes(), Access::Secret)?)
    }
}

const CLUSTER: &str = "stratum";

fn text(path: &Path) -> Result<&str, Error> {
    match path.to_str() {
        Some(text) if path.is_absolute() => Ok(text),
        Some(_) | None => Err(Error::Path { path: path.to_owned() }),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'a str,
    kind: &'a str,
    clusters: [Named<'a>; 1],
    users: [NamedUser<'a>; 1],
    contexts: [NamedContext<'a>; 1],
    #[serde(rename = "current-context")]
    current_context: &'a str,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    cluster: ClusterEntry<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry<'a> {
    server: &'a str,
    certificate_authority: &'a str,
}

#[derive(Serialize)]
struct NamedUser<'a> {
    name: &'a str,
    user: UserEntry<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct UserEntry<'a> {
    client_certificate: &'a str,
    client_key: &'a str,
}

#[derive(Serialize)]
struct NamedContext<'a> {
    name: &'a str,
    context: ContextEntry<'a>,
}

#[derive(Serialize)]
struct ContextEntry<'a> {
    cluster: &'a str,
    user: &'a str,
}
