//! Asks the API server whether it is ready: one HTTPS request with a client certificate. This layer knows no more of the
//! Kubernetes API than that path.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Why the API server is not known to be ready.
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
    #[error("cannot make a TLS client of the control plane's certificates")]
    Client(#[source] rustls::Error),
    /// No connection.
    #[error("cannot connect to port {port}")]
    Connect {
        /// The port on 127.0.0.1.
        port: u16,
        /// What the system or TLS said.
        #[source]
        source: io::Error,
    },
    /// The exchange broke off.
    #[error("the question for /readyz failed")]
    Exchange(#[source] hyper::Error),
    /// An answer, but another one than 200.
    #[error("/readyz answered {status}: {body}")]
    Answer {
        /// The status.
        status: u16,
        /// The body, which lists the checks.
        body: String,
    },
    /// No answer in time.
    #[error("no answer from /readyz in time")]
    Silent(#[source] tokio::time::error::Elapsed),
}

/// No single question may take longer: a server that accepts and says nothing must be asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Succeeds when `/readyz` answers 200, within `limit`, to the client certificate `admin` in `pki`.
pub(super) async fn readyz(pki: &Path, port: u16, limit: Duration) -> Result<(), Error> {
    let answer = tokio::time::timeout(limit.min(PATIENCE), ask(pki, port)).await;
    answer.map_err(Error::Silent)?
}

async fn ask(pki: &Path, port: u16) -> Result<(), Error> {
    let connect = |source| Error::Connect { port, source };
    let connector = TlsConnector::from(Arc::new(client(pki)?));
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.map_err(connect)?;
    let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
    let stream = connector.connect(name, stream).await.map_err(connect)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(Error::Exchange)?;
    // Ends when the sender is dropped.
    tokio::spawn(connection);
    let mut request = http::Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = http::Uri::from_static("/readyz?verbose");
    request
        .headers_mut()
        .insert(http::header::HOST, http::HeaderValue::from_static("127.0.0.1"));
    let response = sender.send_request(request).await.map_err(Error::Exchange)?;
    let status = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(Error::Exchange)?
        .to_bytes();
    if status == 200 {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&body);
    let unready: Vec<&str> = body.lines().filter(|line| !line.starts_with("[+]")).collect();
    Err(Error::Answer {
        status,
        body: unready.join("; "),
    })
}

fn client(pki: &Path) -> Result<ClientConfig, Error> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    let [authority, certificate, key] = ["ca.crt", "admin.crt", "admin.key"].map(|name| pki.join(name));
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(&authority).map_err(unusable(&authority))?)
        .map_err(Error::Client)?;
    let chain = vec![CertificateDer::from_pem_file(&certificate).map_err(unusable(&certificate))?];
    let key = PrivateKeyDer::from_pem_file(&key).map_err(unusable(&key))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(Error::Client)?.with_root_certificates(roots);
    builder.with_client_auth_cert(chain, key).map_err(Error::Client)
}
