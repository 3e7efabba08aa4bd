//! One question over HTTPS, with a client certificate: is the API server ready, who are the members of etcd.
//!
//! For what this machine asks of its own parts. Whoever works with Kubernetes objects has a real client.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A PEM file cannot be used.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The certificates do not make a TLS client.
    #[error("cannot make a TLS client of {} and its key", certificate.display())]
    Client {
        /// The client's certificate.
        certificate: PathBuf,
        /// What is wrong.
        #[source]
        source: rustls::Error,
    },
    /// No connection.
    #[error("cannot connect to {server}")]
    Connect {
        /// The server.
        server: SocketAddr,
        /// What the system or TLS said.
        #[source]
        source: io::Error,
    },
    /// The exchange broke off.
    #[error("{server} broke off the exchange about {path}")]
    Exchange {
        /// The server.
        server: SocketAddr,
        /// The path that was asked for.
        path: String,
        /// What happened.
        #[source]
        source: hyper::Error,
    },
    /// No answer in time.
    #[error("no answer from {server} about {path} within {} s", limit.as_secs())]
    Silent {
        /// The server.
        server: SocketAddr,
        /// The path that was asked for.
        path: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The path is none.
    #[error("{0:?} is no path")]
    Path(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// A client with a certificate.
#[derive(Clone, Debug)]
pub struct Client {
    tls: Arc<ClientConfig>,
}

impl Client {
    /// A client that trusts the authorities in one PEM file and shows a certificate.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub fn new(authorities: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let broken = |source| Error::Client {
            certificate: certificate.to_owned(),
            source,
        };
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_file_iter(authorities).map_err(unusable(authorities))? {
            roots.add(authority.map_err(unusable(authorities))?).map_err(broken)?;
        }
        let chain = vec![CertificateDer::from_pem_file(certificate).map_err(unusable(certificate))?];
        let key = PrivateKeyDer::from_pem_file(key).map_err(unusable(key))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(broken)?.with_root_certificates(roots);
        let tls = builder.with_client_auth_cert(chain, key).map_err(broken)?;
        Ok(Self { tls: Arc::new(tls) })
    }

    /// Asks, on a connection of its own: what a process answers says nothing of the one that took its place meanwhile. A
    /// body is JSON. The server's certificate has to be for the address.
    ///
    /// # Errors
    /// When there is no answer within `limit`; one with any status is an answer.
    pub async fn ask(
        &self,
        server: SocketAddr,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        limit: Duration,
    ) -> Result<Answer, Error> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse::<Uri>().map_err(|_| Error::Path(path.to_owned()))?;
        let headers = request.headers_mut();
        let host = HeaderValue::from_str(&server.to_string()).map_err(|_| Error::Path(path.to_owned()))?;
        headers.insert(header::HOST, host);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = tokio::time::timeout(limit, self.exchange(server, path, request)).await;
        answer.unwrap_or_else(|_| {
            Err(Error::Silent {
                server,
                path: path.to_owned(),
                limit,
            })
        })
    }

    async fn exchange(&self, server: SocketAddr, path: &str, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let connect = |source| Error::Connect { server, source };
        let broken_off = |source| Error::Exchange {
            server,
            path: path.to_owned(),
            source,
        };
        let stream = TcpStream::connect(server).await.map_err(connect)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector
            .connect(ServerName::from(server.ip()), stream)
            .await
            .map_err(connect)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken_off)?;
        // Ends when the sender is dropped.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken_off)?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(broken_off)?.to_bytes();
        Ok(Answer { status, body })
    }
}
