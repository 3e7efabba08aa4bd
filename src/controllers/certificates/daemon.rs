//! The renewal loop as a process of its own, for machines on which nothing else of this program runs: control planes that
//! kubeadm made. It serves `/metrics` and `/healthz` under the rules of the operator's server: plain HTTP on loopback, TLS
//! with client certificates elsewhere.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::SignedDuration;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::super::admin::{Admin, AdminError, AdminSettings};
use super::super::metrics::expose;
use super::metrics;
use super::renewal::{Attempted, Renewal, Teller, Wish};
use crate::host::atomic_file::{self, Access};
use crate::host::layout::Layout;
use crate::host::lock::{self, Holder, Lock};

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The server cannot listen.
    #[error("serving metrics")]
    Server(#[from] AdminError),
    /// Another one runs. Two would renew the same leaves one after the other.
    #[error("the certificates of this machine are looked after already, by {holder}")]
    Runs {
        /// Which.
        holder: Holder,
    },
    /// A folder cannot be made.
    #[error("cannot prepare the folder of locks")]
    Folder(#[source] atomic_file::Error),
    /// A lock cannot be taken.
    #[error("cannot lock the renewal of this machine")]
    Lock(#[source] lock::Error),
}

impl DaemonError {
    /// Whether it ended because it should not run at all, or not in this way.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Runs { .. } | Self::Server(AdminError::NeedsTls { .. }) => true,
            Self::Server(_) | Self::Folder(_) | Self::Lock(_) => false,
        }
    }
}

/// A loop that has its address and its lock, and does nothing yet.
pub struct Daemon {
    layout: Layout,
    admin: Admin,
    _lock: Lock,
}

impl Daemon {
    /// Takes the address and the lock: the one that `stratum up` holds while it runs, which looks after certificates too.
    ///
    /// # Errors
    /// When another process looks after this machine, or the address cannot be had.
    pub async fn bind(layout: Layout, settings: &AdminSettings) -> Result<Self, DaemonError> {
        atomic_file::create_folder(&layout.run(), Access::Secret).map_err(DaemonError::Folder)?;
        let lock = match Lock::attempt(&layout.up_lock(), "stratum certs renew --daemon") {
            Ok(lock::Attempt::Taken(lock)) => lock,
            Ok(lock::Attempt::Held(holder)) => return Err(DaemonError::Runs { holder }),
            Err(error) => return Err(DaemonError::Lock(error)),
        };
        let admin = Admin::bind(settings).await?;
        tracing::info!(address = %admin.address, "listening");
        Ok(Self {
            layout,
            admin,
            _lock: lock,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Looks after the certificates, of which new ones live for `leaf_lifetime`, until `stop`. An attempt that has begun is waited for, and is seen in the metrics until
    /// it has ended.
    pub async fn run<A, F>(self, leaf_lifetime: Option<SignedDuration>, attempt: A, stop: CancellationToken)
    where
        A: Fn(Wish) -> F,
        F: Future<Output = Attempted>,
    {
        let done = CancellationToken::new();
        let serving = self.admin.serve_routes(routes(self.layout.clone()), done.clone());
        let looking = async {
            let renewal = Renewal::new(self.layout, Teller::default(), attempt);
            renewal.with_leaf_lifetime(leaf_lifetime).run(stop).await;
            done.cancel();
        };
        tokio::join!(serving, looking);
    }
}

fn routes(layout: Layout) -> Router {
    Router::new()
        .route("/metrics", get(answer))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::new(metrics::registry(layout)))
}

async fn answer(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    match expose(&[&registry], accept.unwrap_or_default()) {
        Ok(exposition) => ([(header::CONTENT_TYPE, exposition.content_type)], exposition.text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
