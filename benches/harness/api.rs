//! The floor: the least a program can do to get requests through an API server. Bare HTTP/2 over one connection, bodies
//! made beforehand, no discovery, no cache, no rate limit, nothing parsed that is not asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use stratum::host::clock;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::credentials::Credentials;

/// Requests in flight: the knee of an API server on two cores.
pub(crate) const IN_FLIGHT: usize = 8;

/// The content type of a server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
/// The content type of a JSON merge patch.
pub(crate) const MERGE: &str = "application/merge-patch+json";

/// A request that was made beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// In whose name it is sent: a user and its groups. The sender needs the right to impersonate.
    pub(crate) name: Option<(String, &'static [&'static str])>,
}

impl Call {
    /// A request without a body.
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            content_type: "application/json",
            body: Bytes::new(),
            name: None,
        }
    }

    /// Sends it in somebody else's name: five thousand users would need as many certificates and connections.
    pub(crate) fn in_the_name_of(mut self, user: String, groups: &'static [&'static str]) -> Self {
        self.name = Some((user, groups));
        self
    }

    /// Gives it a body.
    pub(crate) fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.content_type = content_type;
        self.body = body.into();
        self
    }
}

/// One connection to an API server, made again when the server has closed it: it does so after 90 s without a request.
#[derive(Clone)]
pub(crate) struct Api {
    connection: Arc<Mutex<Sender>>,
    tls: Arc<rustls::ClientConfig>,
    server: SocketAddr,
    authority: Arc<str>,
}

type Sender = SendRequest<Full<Bytes>>;

impl Api {
    /// Connects as a user who may do everything.
    pub(crate) async fn connect(server: SocketAddr, credentials: &Credentials, user: &str) -> Result<Self> {
        let pair = credentials.client(user)?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(credentials.authority())?)?;
        let mut tls =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?],
                    PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?,
                )?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = Arc::new(tls);
        Ok(Self {
            connection: Arc::new(Mutex::new(open(server, &tls).await?)),
            tls,
            server,
            authority: server.to_string().into(),
        })
    }

    async fn sender(&self) -> Result<Sender> {
        let mut sender = self.connection.lock().await;
        if sender.is_closed() {
            *sender = open(self.server, &self.tls).await?;
        }
        Ok(sender.clone())
    }

    /// Sends a request, and hands over the answer before its body.
    pub(crate) async fn open(&self, call: Call) -> Result<(StatusCode, Incoming)> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("https://{}{}", self.authority, call.path))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, call.content_type);
        if let Some((user, groups)) = call.name {
            request = request.header("impersonate-user", user);
            for group in groups {
                request = request.header("impersonate-group", *group);
            }
        }
        let request = request.body(Full::new(call.body))?;
        let (head, body) = self.sender().await?.send_request(request).await?.into_parts();
        Ok((head.status, body))
    }

    /// Sends a request, and reads the answer to its end.
    pub(crate) async fn send(&self, call: Call) -> Result<(StatusCode, Bytes)> {
        let (status, body) = self.open(call).await?;
        Ok((status, body.collect().await?.to_bytes()))
    }

    /// Sends a request that has to succeed.
    pub(crate) async fn call(&self, call: Call) -> Result<Bytes> {
        let what = format!("{} {}", call.method, call.path);
        let (status, body) = self.send(call).await?;
        if !status.is_success() {
            bail!("{what}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Reads a JSON document.
    pub(crate) async fn read(&self, path: &str) -> Result<Value> {
        let body = self.call(Call::new(Method::GET, path)).await?;
        serde_json::from_slice(&body).with_context(|| format!("GET {path} is no JSON"))
    }

    /// Sends all, `in_flight` at a time; how long each took.
    pub(crate) async fn each(&self, calls: Vec<Call>, in_flight: usize) -> Result<Vec<Duration>> {
        let timed = |call| async {
            let began = clock::monotonic();
            self.call(call).await?;
            anyhow::Ok(began.elapsed())
        };
        stream::iter(calls)
            .map(timed)
            .buffer_unordered(in_flight)
            .try_collect()
            .await
    }

    /// Sends all at the knee; how long it took altogether.
    pub(crate) async fn all(&self, calls: Vec<Call>) -> Result<Duration> {
        let began = clock::monotonic();
        self.each(calls, IN_FLIGHT).await?;
        Ok(began.elapsed())
    }

    /// Makes a namespace, unless it is there.
    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
        let path = format!("/api/v1/namespaces/{name}?fieldManager=bench");
        self.call(Call::new(Method::PATCH, path).body(APPLY, body)).await?;
        Ok(())
    }

    /// Follows a list from now on, and ends at the first event that `wanted` takes; when it was seen.
    pub(crate) async fn watch(
        &self,
        list: &str,
        mut wanted: impl FnMut(&Value) -> bool,
        started: tokio::sync::oneshot::Sender<()>,
    ) -> Result<Instant> {
        let version = self.read(list).await?;
        let version = version
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .context("a list without a resourceVersion")?
            .to_owned();
        let separator = if list.contains('?') { '&' } else { '?' };
        let path = format!("{list}{separator}watch=true&resourceVersion={version}");
        let (status, mut body) = self.open(Call::new(Method::GET, path)).await?;
        if !status.is_success() {
            bail!("watching {list}: {status}");
        }
        // Nobody waits for the start: then nothing depends on it.
        let _ = started.send(());
        let mut buffer = Vec::new();
        while let Some(frame) = body.frame().await {
            let seen = clock::monotonic();
            buffer.extend_from_slice(&frame?.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                if wanted(&serde_json::from_slice(&line)?) {
                    return Ok(seen);
                }
            }
        }
        bail!("the watch of {list} ended")
    }
}

async fn open(server: SocketAddr, tls: &Arc<rustls::ClientConfig>) -> Result<Sender> {
    let tcp = TcpStream::connect(server).await?;
    tcp.set_nodelay(true)?;
    let stream = tokio_rustls::TlsConnector::from(Arc::clone(tls))
        .connect(ServerName::IpAddress(server.ip().into()), tcp)
        .await?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .adaptive_window(true)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(connection);
    Ok(sender)
}
