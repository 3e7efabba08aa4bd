//! Whether a component on this node serves, asked as its own probes do.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use stratum::host::static_pods::Component;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// No answer on loopback takes as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks components.
pub(crate) struct Probe {
    tls: Arc<ClientConfig>,
}

impl Probe {
    pub(crate) fn new() -> Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(tls) })
    }

    /// Whether it says that it is well.
    pub(crate) async fn is_well(&self, component: Component) -> bool {
        let asked = tokio::time::timeout(PATIENCE, self.ask(component)).await;
        matches!(asked, Ok(Ok(true)))
    }

    async fn ask(&self, component: Component) -> Result<bool> {
        let port = component.listener().context("it has no listener")?;
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect(server).await?;
        match component {
            Component::Etcd => says(stream, "/health", r#""health":"true""#).await,
            Component::KubeApiserver => says(self.secured(stream).await?, "/readyz", "ok").await,
            Component::KubeControllerManager | Component::KubeScheduler | Component::KubeVip => {
                says(self.secured(stream).await?, "/healthz", "ok").await
            }
        }
    }

    async fn secured(&self, stream: TcpStream) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>> {
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        Ok(TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await?)
    }
}

/// Whether the answer to `GET path` is 200 and holds `word`.
async fn says(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, path: &str, word: &str) -> Result<bool> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(head.status.is_success() && String::from_utf8_lossy(&body).contains(word))
}

/// Like the kubelet, which does not look at the certificate of what it probes: that of a controller manager or scheduler
/// is signed by nobody.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
