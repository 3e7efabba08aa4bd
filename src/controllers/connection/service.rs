//! What happens to each request: where it goes, who it is from, and how long it may take.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::super::metrics::{ByRequest, Word};
use super::connector::Connector;
use super::credentials::{self, Credentials};
use super::{ClientSettings, ConnectionError, Fence, OLD_CONNECTION_GRACE};

type RequestBody = kube::client::Body;

/// Why a request has no response. kube hands it on inside `kube::Error::Service`.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The term this client belongs to is over; nothing was sent.
    #[error("the leader term of this client has ended; nothing was sent")]
    Fenced,
    /// No complete response in time. The server may have done it all the same.
    #[error("no complete response within {} s", limit.as_secs())]
    TimedOut {
        /// [`ClientSettings::request_limit`].
        limit: Duration,
    },
    /// The request's path cannot be put behind the server's URL.
    #[error("building the URL of the request")]
    Url(#[source] http::Error),
    /// Connecting, sending or receiving failed.
    #[error("talking to the API server")]
    Http(#[source] tower::BoxError),
}

/// The client's inside, shared with its connectors and the task that follows the files.
pub(super) struct Shared {
    pub(super) settings: ClientSettings,
    pub(super) fence: Option<Fence>,
    user_agent: HeaderValue,
    current: RwLock<Arc<Generation>>,
    /// Held during a reload; what was logged last, so that one bad state of the files is one line.
    reload: tokio::sync::Mutex<Option<String>>,
    myself: Weak<Shared>,
}

/// One state of the files, and the connections made with it.
pub(super) struct Generation {
    pub(super) credentials: Credentials,
    /// Cancelled when the connections must be gone.
    pub(super) closed: CancellationToken,
    http: legacy::Client<Connector, RequestBody>,
}

impl Generation {
    fn new(shared: &Weak<Shared>, credentials: Credentials) -> Self {
        Self {
            credentials,
            closed: CancellationToken::new(),
            http: http_client(shared.clone()),
        }
    }
}

impl Shared {
    pub(super) fn current(&self) -> Arc<Generation> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again and takes over what they say, if they can be used.
    pub(super) async fn refresh(&self) {
        let mut warned = self.reload.lock().await;
        match credentials::load(&self.settings.kubeconfig, self.settings.server).await {
            Err(error) => {
                let text = error_chain(&error);
                if warned.as_ref() != Some(&text) {
                    tracing::warn!(
                        role = self.settings.role,
                        error = %text,
                        "the changed credentials cannot be used; going on with the last good ones"
                    );
                    *warned = Some(text);
                }
            }
            Ok(credentials) => {
                *warned = None;
                self.take_over(credentials);
            }
        }
    }

    fn take_over(&self, credentials: Credentials) {
        let old = self.current();
        let same_connections = old.credentials.digest == credentials.digest;
        if same_connections && old.credentials.authorization == credentials.authorization {
            return;
        }
        let mut new = Generation::new(&self.myself, credentials);
        if same_connections {
            // Only the token differs: go on with the connections there are.
            new.closed = old.closed.clone();
            new.http = old.http.clone();
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        if !same_connections {
            tracing::info!(
                role = self.settings.role,
                "credentials changed; new connections use the new ones"
            );
            let closed = old.closed.clone();
            tokio::spawn(async move {
                crate::host::clock::sleep(OLD_CONNECTION_GRACE).await;
                closed.cancel();
            });
        }
    }
}

/// The service behind a `kube::Client`.
#[derive(Clone)]
pub(super) struct Requests {
    shared: Arc<Shared>,
}

impl Requests {
    /// Loads the files and starts to follow them.
    pub(super) async fn start(settings: ClientSettings, fence: Option<Fence>) -> Result<Self, ConnectionError> {
        let role = settings.role;
        let user_agent = HeaderValue::from_str(&format!("stratum/{} ({role})", env!("CARGO_PKG_VERSION")))
            .map_err(|_| ConnectionError::Role { role })?;
        let credentials = credentials::load(&settings.kubeconfig, settings.server)
            .await
            .map_err(|source| ConnectionError::Credentials { role, source })?;
        let interval = settings.reload_interval;
        let shared = Arc::new_cyclic(|myself| Shared {
            settings,
            fence,
            user_agent,
            current: RwLock::new(Arc::new(Generation::new(myself, credentials))),
            reload: tokio::sync::Mutex::new(None),
            myself: myself.clone(),
        });
        tokio::spawn(follow(Arc::downgrade(&shared), interval));
        Ok(Self { shared })
    }

    /// The namespace of the kubeconfig's context.
    pub(super) fn namespace(&self) -> String {
        self.shared.current().credentials.endpoint.namespace.clone()
    }

    fn prepare(
        &self,
        generation: &Generation,
        mut request: Request<RequestBody>,
    ) -> Result<Request<RequestBody>, RequestError> {
        *request.uri_mut() = absolute(&generation.credentials.endpoint.server, request.uri())?;
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, self.shared.user_agent.clone());
        if let Some(authorization) = &generation.credentials.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }

    async fn send(&self, request: Request<RequestBody>) -> Result<Response<LimitedBody>, RequestError> {
        if self.shared.fence.as_ref().is_some_and(Fence::has_ended) {
            return Err(RequestError::Fenced);
        }
        let limit = self.shared.settings.request_limit;
        let deadline = Instant::now() + limit;
        let endless = is_endless(request.uri());
        let generation = self.shared.current();
        let request = self.prepare(&generation, request)?;
        let response = tokio::time::timeout_at(deadline, generation.http.request(request))
            .await
            .map_err(|_| RequestError::TimedOut { limit })?
            .map_err(|error| self.failure(error.into()))?;
        Ok(response.map(|incoming| LimitedBody {
            incoming,
            limit,
            deadline: (!endless).then(|| Box::pin(tokio::time::sleep_until(deadline))),
            // The pool may close idle connections of a client that is gone; this body is not idle.
            _shared: self.shared.clone(),
        }))
    }

    fn failure(&self, source: tower::BoxError) -> RequestError {
        match &self.shared.fence {
            Some(fence) if fence.has_ended() => RequestError::Fenced,
            Some(_) | None => RequestError::Http(source),
        }
    }
}

impl Service<Request<RequestBody>> for Requests {
    type Response = Response<LimitedBody>;
    type Error = RequestError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, RequestError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        async move {
            let settings = &this.shared.settings;
            let method = method(request.method());
            let result = this.send(request).await;
            let status = result.as_ref().map_or("none", |response| class(response.status()));
            let labels = ByRequest {
                role: Word(settings.role),
                method: Word(method),
                status: Word(status),
            };
            settings.requests.requests.get_or_create(&labels).inc();
            result
        }
        .boxed()
    }
}

/// A response's body that must end by a deadline.
pub(super) struct LimitedBody {
    incoming: Incoming,
    limit: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    _shared: Arc<Shared>,
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = RequestError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| RequestError::Http(error.into()))));
        }
        let limit = self.limit;
        let Some(deadline) = &mut self.deadline else {
            return Poll::Pending;
        };
        deadline
            .as_mut()
            .poll(context)
            .map(|()| Some(Err(RequestError::TimedOut { limit })))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Compares the files from time to time until the client is gone.
async fn follow(shared: Weak<Shared>, interval: Duration) {
    loop {
        crate::host::clock::sleep(interval).await;
        match shared.upgrade() {
            Some(shared) => shared.refresh().await,
            None => return,
        }
    }
}

fn http_client(shared: Weak<Shared>) -> legacy::Client<Connector, RequestBody> {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(Duration::from_secs(15))
        .http2_keep_alive_timeout(Duration::from_secs(10))
        .http2_keep_alive_while_idle(true)
        .build(Connector::new(shared))
}

/// Puts the path of `request` behind the URL of the server, which may have a path of its own.
fn absolute(server: &Uri, request: &Uri) -> Result<Uri, RequestError> {
    let prefix = server.path().trim_end_matches('/');
    let rest = request.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut parts = http::uri::Parts::default();
    parts.scheme = server.scheme().cloned();
    parts.authority = server.authority().cloned();
    parts.path_and_query = Some(
        format!("{prefix}{rest}")
            .parse()
            .map_err(|source: http::uri::InvalidUri| RequestError::Url(source.into()))?,
    );
    Uri::from_parts(parts).map_err(|source| RequestError::Url(source.into()))
}

/// A method as a metric's label.
fn method(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// A status as a metric's label.
fn class(status: http::StatusCode) -> &'static str {
    match status.as_u16() {
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500..600 => "5xx",
        _ => "other",
    }
}

/// Watches and followed logs have no end of their own.
fn is_endless(uri: &Uri) -> bool {
    uri.query()
        .unwrap_or_default()
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1" | "follow=true" | "follow=1"))
}

/// The error and its causes in one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_server_comes_first() {
        let path: Uri = "/api/v1/nodes?watch=true".parse().unwrap();
        for (server, want) in [
            ("https://[::1]:6443", "https://[::1]:6443/api/v1/nodes?watch=true"),
            ("https://a:1/k8s/c-1/", "https://a:1/k8s/c-1/api/v1/nodes?watch=true"),
        ] {
            assert_eq!(absolute(&server.parse().unwrap(), &path).unwrap().to_string(), want);
        }
    }

    #[test]
    fn only_watches_are_endless() {
        for (text, want) in [
            ("/api/v1/nodes?&watch=true&timeoutSeconds=290", true),
            ("/api/v1/nodes?watch=1", true),
            ("/api/v1/pods/a/log?follow=true", true),
            ("/api/v1/nodes?watch=false", false),
            ("/api/v1/nodes?labelSelector=watch%3Dtrue", false),
            ("/api/v1/nodes", false),
        ] {
            assert_eq!(is_endless(&text.parse().unwrap()), want, "{text}");
        }
    }
}
