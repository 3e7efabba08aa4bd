//! Opens connections with the credentials as they are now.

use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio_rustls::TlsConnector;
use tower::{Service, ServiceExt};

use super::service::Shared;
use super::stream::{Guarded, Link};
use super::{FENCED_USER_TIMEOUT, Fence};

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the client is gone")]
    ClientGone,
    #[error("the leader term of this client has ended")]
    Fenced,
    #[error("connecting took longer than {} s", limit.as_secs())]
    TimedOut { limit: Duration },
    #[error("opening a TCP connection")]
    Tcp(#[source] tower::BoxError),
    #[error("TLS handshake")]
    Tls(#[source] std::io::Error),
}

/// A connector for one generation of the HTTP client. Weak, because the client it belongs to owns it.
#[derive(Clone)]
pub(super) struct Connector {
    shared: Weak<Shared>,
}

impl Connector {
    pub(super) fn new(shared: Weak<Shared>) -> Self {
        Self { shared }
    }
}

impl Service<Uri> for Connector {
    type Response = Link;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Link, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move {
            let shared = shared.upgrade().ok_or(ConnectError::ClientGone)?;
            let limit = shared.settings.connect_limit;
            tokio::time::timeout(limit, connect(&shared, destination))
                .await
                .map_err(|_| ConnectError::TimedOut { limit })?
        })
    }
}

async fn connect(shared: &Shared, destination: Uri) -> Result<Link, ConnectError> {
    if shared.fence.as_ref().is_some_and(Fence::has_ended) {
        return Err(ConnectError::Fenced);
    }
    shared.refresh().await;
    let generation = shared.current();
    let tcp = tcp_connector(shared)
        .oneshot(destination)
        .await
        .map_err(|source| ConnectError::Tcp(source.into()))?
        .into_inner();
    let stream = Guarded::new(tcp, shared.fence.clone(), generation.closed.clone());
    let Some(tls) = &generation.credentials.tls else {
        return Ok(Link::new(Box::new(stream), false));
    };
    let stream = TlsConnector::from(tls.config.clone())
        .connect(tls.server_name.clone(), stream)
        .await
        .map_err(ConnectError::Tls)?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Link::new(Box::new(stream), http2))
}

fn tcp_connector(shared: &Shared) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(shared.settings.connect_limit));
    // For HTTP/1.1, which has no pings of its own.
    connector.set_keepalive(Some(Duration::from_secs(15)));
    connector.set_keepalive_interval(Some(Duration::from_secs(5)));
    connector.set_keepalive_retries(Some(2));
    if shared.fence.is_some() {
        connector.set_tcp_user_timeout(Some(FENCED_USER_TIMEOUT));
    }
    connector
}
