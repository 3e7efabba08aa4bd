//! The HTTP server of a process: the operator's metrics, health, readiness and log level, or what another one shows.
//!
//! On loopback it speaks plain HTTP; on any other address only TLS with client certificates.

#[cfg(test)]
mod tests;
mod tls;

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::metrics::Metrics;
use super::telemetry::{LogControl, LogFilter, TelemetryError};

pub use tls::{TlsError, TlsFiles};

/// Where the server listens.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Needed unless the address is loopback.
    pub tls: Option<TlsFiles>,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// It would be open to everyone who can reach this machine.
    #[error(
        "listening on {listen} is refused: anyone who reaches it could read metrics and change the log level; give a certificate, its key and a client CA, or listen on 127.0.0.1"
    )]
    NeedsTls {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// The certificate files cannot be used.
    #[error("setting up TLS for {listen}")]
    Tls {
        /// The address asked for.
        listen: SocketAddr,
        /// Which file, and why.
        #[source]
        source: TlsError,
    },
    /// The address cannot be taken.
    #[error("listening on {listen}")]
    Listen {
        /// The address asked for.
        listen: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A server that listens, and answers once [`Admin::serve`] runs.
pub struct Admin {
    listener: TcpListener,
    tls: Option<tls::Acceptor>,
    /// Where it listens, with the port it got.
    pub address: SocketAddr,
}

/// What the server shows.
#[derive(Clone)]
pub struct Shown {
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For `/healthz` and `/readyz`.
    pub health: Health,
    /// For `/debug/log-level`; none when the process does not own its logs.
    pub log: Option<LogControl>,
}

impl Admin {
    /// Listens, and answers nothing yet.
    ///
    /// # Errors
    /// When the address is open to others without TLS, is taken, or the certificate files cannot be used.
    pub async fn bind(settings: &AdminSettings) -> Result<Self, AdminError> {
        let listen = settings.listen;
        let tls = match &settings.tls {
            None if listen.ip().is_loopback() => None,
            None => return Err(AdminError::NeedsTls { listen }),
            Some(files) => Some(
                tls::Acceptor::load(files.clone())
                    .await
                    .map_err(|source| AdminError::Tls { listen, source })?,
            ),
        };
        let failed = |source| AdminError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, tls, address })
    }

    /// Answers until `stop`; connections that are still open then are dropped.
    pub async fn serve(self, shown: Shown, stop: CancellationToken) {
        self.serve_routes(router(shown), stop).await;
    }

    /// The same with other answers, for a process that is no operator.
    pub async fn serve_routes(self, router: Router, stop: CancellationToken) {
        let serving = async {
            match self.tls {
                None => axum::serve(self.listener, router).await,
                Some(acceptor) => {
                    let listener = tls::Listener::new(self.listener, acceptor);
                    axum::serve(listener, router).await
                }
            }
        };
        if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
            tracing::error!(%error, "the admin server ended");
        }
    }
}

fn router(shown: Shown) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/debug/log-level", get(log_level).put(set_log_level))
        .with_state(shown)
}

async fn metrics(State(shown): State<Shown>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    match shown.metrics.expose(accept.unwrap_or_default()) {
        Ok(exposition) => ([(header::CONTENT_TYPE, exposition.content_type)], exposition.text).into_response(),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "a metric cannot be written as text\n",
        )
            .into_response(),
    }
}

async fn healthz(State(shown): State<Shown>) -> Response {
    match shown.health.sick() {
        None => "ok\n".into_response(),
        Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("{what}\n")).into_response(),
    }
}

async fn readyz(State(shown): State<Shown>) -> Response {
    let missing = shown.health.missing();
    if missing.is_empty() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", missing.join("\n"))).into_response()
}

async fn log_level(State(shown): State<Shown>) -> Response {
    match shown.log.as_ref().map(LogControl::current) {
        None => not_ours(),
        Some(Ok(filter)) => format!("{filter}\n").into_response(),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn set_log_level(State(shown): State<Shown>, body: String) -> Response {
    let Some(log) = &shown.log else { return not_ours() };
    let set = body.parse::<LogFilter>().and_then(|filter| {
        log.set(&filter)?;
        tracing::info!(%filter, "log level changed");
        Ok(filter)
    });
    match set {
        Ok(filter) => format!("{filter}\n").into_response(),
        Err(error @ TelemetryError::Filter { .. }) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        Err(error @ (TelemetryError::Installed(_) | TelemetryError::Reload(_))) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
        }
    }
}

fn not_ours() -> Response {
    (StatusCode::NOT_FOUND, "this process does not own its logs\n").into_response()
}
