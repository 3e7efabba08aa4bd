//! Which certificate a listener shows, whoever signed it and whether or not it wants one of its client.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::pki::certificate::{self, Certificate};

/// Why a listener's certificate is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there, or nobody lets us.
    #[error("cannot connect to {address}")]
    Connect {
        /// The listener.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nothing happened in time.
    #[error("{address} shows no certificate within {} ms", limit.as_millis())]
    Silent {
        /// The listener.
        address: SocketAddr,
        /// How long it was waited for.
        limit: Duration,
    },
    /// It does not speak TLS, or breaks it off before it shows a certificate.
    #[error("{address} breaks the TLS handshake off")]
    Handshake {
        /// The listener.
        address: SocketAddr,
        /// What TLS said.
        #[source]
        source: io::Error,
    },
    /// It shows a certificate whose key it does not have.
    #[error("{address} does not prove that it has the key of the certificate it shows")]
    Unproven {
        /// The listener.
        address: SocketAddr,
    },
    /// What it shows cannot be parsed.
    #[error("{address} shows a certificate that cannot be used")]
    Certificate {
        /// The listener.
        address: SocketAddr,
        /// What is wrong.
        #[source]
        source: certificate::Error,
    },
    /// There is no TLS in this program.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

impl Error {
    /// Whether nothing answers there, which says nothing about certificates.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Silent { .. } => true,
            Self::Handshake { .. } | Self::Unproven { .. } | Self::Certificate { .. } | Self::Setup(_) => false,
        }
    }
}

/// The certificates that the listener at `address` shows to a client that asks for `server_name` (its address when none),
/// its own first. It has to prove that it has the key; nothing else is checked. Nothing is sent but a handshake, and a
/// listener that wants a certificate of its client may log that there was none.
///
/// # Errors
/// When it shows none within `limit`.
pub async fn served(
    address: SocketAddr,
    server_name: Option<&str>,
    limit: Duration,
) -> Result<Vec<Certificate>, Error> {
    let shown = tokio::time::timeout(limit, handshake(address, server_name)).await;
    let shown = shown.unwrap_or(Err(Error::Silent { address, limit }))?;
    let parse = |der: &Vec<u8>| Certificate::from_der(der);
    let parsed: Result<Vec<Certificate>, certificate::Error> = shown.iter().map(parse).collect();
    parsed.map_err(|source| Error::Certificate { address, source })
}

async fn handshake(address: SocketAddr, server_name: Option<&str>) -> Result<Vec<Vec<u8>>, Error> {
    let connect = |source| Error::Connect { address, source };
    let name = match server_name.map(|name| ServerName::try_from(name.to_owned())) {
        Some(Ok(name)) => name,
        Some(Err(_)) | None => ServerName::from(address.ip()),
    };
    let recorder = Arc::new(Recorder::new());
    let config = config(Arc::clone(&recorder)).map_err(Error::Setup)?;
    let stream = TcpStream::connect(address).await.map_err(connect)?;
    let result = TlsConnector::from(config).connect(name, stream).await;
    let shown = std::mem::take(&mut *recorder.shown.lock().unwrap_or_else(PoisonError::into_inner));
    match (shown, result) {
        (_, Err(error)) if is_unproven(&error) => Err(Error::Unproven { address }),
        // Whatever the server says afterwards: that it wants a certificate, for example.
        (shown, _) if !shown.is_empty() => Ok(shown),
        (_, Err(source)) => Err(Error::Handshake { address, source }),
        (_, Ok(_)) => Err(Error::Handshake {
            address,
            source: io::Error::other("no certificate"),
        }),
    }
}

fn is_unproven(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        inner,
        Some(rustls::Error::InvalidCertificate(CertificateError::BadSignature))
    )
}

fn config(recorder: Arc<Recorder>) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::clone(&recorder.provider);
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.dangerous().with_custom_certificate_verifier(recorder);
    let mut config = builder.with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Accepts every certificate and remembers it.
#[derive(Debug)]
struct Recorder {
    provider: Arc<CryptoProvider>,
    shown: Mutex<Vec<Vec<u8>>>,
}

impl Recorder {
    fn new() -> Self {
        Self {
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            shown: Mutex::default(),
        }
    }

    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

/// A certificate of a form that rustls does not know proves nothing, and need not: what counts is which one it is.
fn lenient(verified: Result<HandshakeSignatureValid, rustls::Error>) -> Result<HandshakeSignatureValid, rustls::Error> {
    match verified {
        Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)) | Ok(_) => verified,
        Err(_) => Ok(HandshakeSignatureValid::assertion()),
    }
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = std::iter::once(end_entity).chain(intermediates).map(|one| one.to_vec());
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown.collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        lenient(verify_tls12_signature(
            message,
            certificate,
            signature,
            self.algorithms(),
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        lenient(verify_tls13_signature(
            message,
            certificate,
            signature,
            self.algorithms(),
        ))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

#[cfg(test)]
mod tests;
