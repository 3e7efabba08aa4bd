//! The one way to an API server: a client whose credentials follow their files, whose requests end, and which can be
//! fenced.
//!
//! kube's own client reads a kubeconfig once, retries refused requests for minutes inside a call, and sets no limit on
//! a response. Here instead:
//! - The CA, certificate and key are read again before each connection and every [`ClientSettings::reload_interval`]. When
//!   they changed, new requests take new connections at once, and the old ones are closed [`OLD_CONNECTION_GRACE`]
//!   later, so that requests in flight end well; a watch restarts by itself. This process lives through a CA rotation.
//! - Files that cannot be used (a half-written pair) change nothing: the last good ones stay, and one warning is logged.
//! - A request that is not a watch has [`ClientSettings::request_limit`] for everything, connecting and the last byte
//!   of the body included. A watch has it for the response's head.
//! - Nothing is retried. A request that was never put on a connection, because the pool's had just closed, is sent
//!   on a new one: that is no repetition.
//! - With a [`Fence`], nothing is sent after the fence's end.

mod connector;
mod credentials;
mod fence;
mod kubeconfig;
mod service;
mod stream;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use credentials::CredentialsError;
pub use fence::Fence;
pub use kubeconfig::KubeconfigError;
pub use service::RequestError;

use super::metrics::RequestMetrics;

/// How long requests in flight may go on over connections whose credentials were replaced.
pub const OLD_CONNECTION_GRACE: Duration = Duration::from_secs(2);

/// How long the kernel may keep trying to deliver bytes of a fenced connection. Bytes handed over just before the fence's
/// end are given up before a Lease of 15 s that was renewed 10 s before that end can have a new holder.
pub const FENCED_USER_TIMEOUT: Duration = Duration::from_secs(4);

/// How to reach an API server, and how patiently.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The kubeconfig file. Followed like the files it names.
    pub kubeconfig: PathBuf,
    /// Another API server of the same cluster than the kubeconfig names.
    pub server: Option<SocketAddr>,
    /// Who sends, in a word, for the audit log's user agent: `stratum/VERSION (ROLE)`.
    pub role: &'static str,
    /// For a whole request; for a watch, until its first byte.
    pub request_limit: Duration,
    /// For name resolution, TCP and TLS together.
    pub connect_limit: Duration,
    /// How often the files are compared.
    pub reload_interval: Duration,
    /// Where requests are counted.
    pub requests: RequestMetrics,
}

impl ClientSettings {
    /// The usual limits: 30 s a request, 5 s a connection, files compared every 10 s. Requests are counted for nobody.
    #[must_use]
    pub fn new(kubeconfig: impl Into<PathBuf>, role: &'static str) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
            server: None,
            role,
            request_limit: Duration::from_secs(30),
            connect_limit: Duration::from_secs(5),
            reload_interval: Duration::from_secs(10),
            requests: RequestMetrics::default(),
        }
    }
}

/// Why no client could be made. Says nothing about the server: nothing is sent before the first request.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The kubeconfig or a file it names cannot be used.
    #[error("loading the credentials of the {role} client")]
    Credentials {
        /// [`ClientSettings::role`].
        role: &'static str,
        /// What is wrong with which file.
        #[source]
        source: CredentialsError,
    },
    /// The role or version cannot stand in an HTTP header.
    #[error("role {role:?} cannot be part of a user agent")]
    Role {
        /// [`ClientSettings::role`].
        role: &'static str,
    },
}

/// Makes a client. Its background task, which follows the files, ends with the client's last clone.
///
/// With a `fence`, every connection of this client stops sending when the fence ends, and requests fail with
/// [`RequestError::Fenced`].
///
/// # Errors
/// When the kubeconfig or a file it names cannot be used.
pub async fn client(settings: &ClientSettings, fence: Option<Fence>) -> Result<kube::Client, ConnectionError> {
    let service = service::Requests::start(settings.clone(), fence).await?;
    let namespace = service.namespace();
    Ok(kube::Client::new(service, namespace))
}
