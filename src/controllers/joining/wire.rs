//! One request to a server that may not be trusted yet: TCP, TLS and HTTP/1.1 with a limit on everything, and with the
//! certificate that the server showed, so that a refusal can be explained.
//!
//! Nothing secret may be sent to a peer that [`Trust::Nobody`] was asked for.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::host::node_state::Endpoint;
use crate::pki::certificate::Certificate;

/// The longest answer that is read. A ConfigMap, or the Secret with the grants, has at most 1 MiB, in base64.
const LONGEST_ANSWER: usize = 4 << 20;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Finding the server's address, TCP and TLS, each.
    pub connect: Duration,
    /// From the request to the last byte of the answer.
    pub answer: Duration,
    /// How long what may pass by itself is tried again.
    pub patience: Duration,
}

impl Default for Limits {
    /// 5 s to connect, 15 s for an answer, 20 s of patience.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(15),
            patience: Duration::from_secs(20),
        }
    }
}

/// Whose certificate is accepted.
#[derive(Clone, Debug)]
pub(super) enum Trust {
    /// Anybody's: what is said has to be proven otherwise.
    Nobody,
    /// One that these authorities signed for the endpoint's name, in date.
    Only(Vec<Certificate>),
}

/// A server, and how to reach it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    pub(super) trust: Trust,
    pub(super) limits: Limits,
    /// The moment at which certificates have to be in date.
    pub(super) now: Timestamp,
}

/// What a server answered.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    /// Its clock, if it told.
    pub(super) clock: Option<Timestamp>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The endpoint's name has no address.
    #[error("{endpoint}: the name cannot be resolved: check it, and this machine's DNS")]
    Resolve {
        /// `HOST:PORT`
        endpoint: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// The endpoint's host is neither a name nor an address.
    #[error("{endpoint}: the host is neither a DNS name nor an address; give HOST:PORT")]
    Name {
        /// `HOST:PORT`
        endpoint: String,
    },
    /// No connection.
    #[error(
        "cannot connect to {endpoint}: check the address and the port, that the API server there runs, and the firewalls in between"
    )]
    Connect {
        /// `HOST:PORT`
        endpoint: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nothing happened in time.
    #[error("{endpoint}: no {what} within {} s: a firewall that drops packets, a wrong address, or a server that hangs", limit.as_secs_f32())]
    TimedOut {
        /// `HOST:PORT`
        endpoint: String,
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// Whatever listens there does not speak TLS.
    #[error("{endpoint} does not speak TLS: it is no API server, or its port is another one")]
    NotTls {
        /// `HOST:PORT`
        endpoint: String,
        /// What TLS said.
        #[source]
        source: io::Error,
    },
    /// Its certificate is not accepted.
    #[error("the certificate of {endpoint} is not accepted")]
    Untrusted {
        /// `HOST:PORT`
        endpoint: String,
        /// What it showed; none when that is no certificate.
        certificate: Option<Box<Certificate>>,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The handshake broke off.
    #[error("{endpoint} breaks off the TLS handshake: it is no API server, or something in between interferes")]
    Handshake {
        /// `HOST:PORT`
        endpoint: String,
        /// What TLS said.
        #[source]
        source: io::Error,
    },
    /// There is no TLS without these.
    #[error("cannot set up TLS with the given CA certificates")]
    Setup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The exchange broke off.
    #[error("{endpoint} does not answer as an HTTP server does")]
    Exchange {
        /// `HOST:PORT`
        endpoint: String,
        /// What happened.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Peer {
    /// Sends a request; its URI is a path. Every status is an answer.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<Reply, WireError> {
        let stream = self.connect().await?;
        self.within("answer", self.limits.answer, self.exchange(stream, request))
            .await
    }

    fn name(&self) -> String {
        self.endpoint.to_string()
    }

    async fn within<T>(
        &self,
        what: &'static str,
        limit: Duration,
        work: impl Future<Output = Result<T, WireError>>,
    ) -> Result<T, WireError> {
        let in_time = tokio::time::timeout(limit, work).await;
        in_time.map_err(|_| WireError::TimedOut {
            endpoint: self.name(),
            what,
            limit,
        })?
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>, WireError> {
        let Endpoint { host, port } = &self.endpoint;
        let endpoint = || self.name();
        let name = ServerName::try_from(host.clone()).map_err(|_| WireError::Name { endpoint: endpoint() })?;
        let limit = self.limits.connect;
        let resolve = async {
            let found = lookup_host((host.as_str(), *port)).await;
            found.map(Vec::from_iter).map_err(|source| WireError::Resolve {
                endpoint: endpoint(),
                source,
            })
        };
        let addresses = self.within("address", limit, resolve).await?;
        let tcp = async {
            let stream = TcpStream::connect(addresses.as_slice()).await;
            stream.map_err(|source| WireError::Connect {
                endpoint: endpoint(),
                source,
            })
        };
        let stream = self.within("connection", limit, tcp).await?;
        let verifier = Arc::new(Verifier::new(&self.trust)?);
        let config = Arc::new(config(verifier.clone(), self.now)?);
        let handshake = async {
            let stream = TlsConnector::from(config).connect(name, stream).await;
            stream.map_err(|source| refused(endpoint(), &verifier, source))
        };
        self.within("TLS handshake", limit, handshake).await
    }

    async fn exchange(&self, stream: TlsStream<TcpStream>, request: Request<Vec<u8>>) -> Result<Reply, WireError> {
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| WireError::Exchange {
            endpoint: self.name(),
            source,
        };
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|source| broken(source.into()))?;
        // Ends when the sender is dropped.
        tokio::spawn(connection);
        let (mut parts, body) = request.into_parts();
        let host = HeaderValue::try_from(self.name()).map_err(|source| broken(source.into()))?;
        parts.headers.insert(header::HOST, host);
        let agent = concat!("stratum/", env!("CARGO_PKG_VERSION"), " (join)");
        parts
            .headers
            .insert(header::USER_AGENT, HeaderValue::from_static(agent));
        let request = Request::from_parts(parts, Full::new(Bytes::from(body)));
        let response = sender.send_request(request).await;
        let (parts, body) = response.map_err(|source| broken(source.into()))?.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await.map_err(broken)?;
        Ok(Reply {
            status: parts.status,
            body: body.to_bytes(),
            clock: parts.headers.get(header::DATE).and_then(date),
        })
    }
}

/// An HTTP date (RFC 9110, section 5.6.7), which is one of RFC 2822.
fn date(value: &HeaderValue) -> Option<Timestamp> {
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    parser.parse_timestamp(value.to_str().ok()?).ok()
}

/// What a failed handshake means.
fn refused(endpoint: String, verifier: &Verifier, source: io::Error) -> WireError {
    match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error @ rustls::Error::InvalidCertificate(_)) => WireError::Untrusted {
            endpoint,
            certificate: verifier.certificate().map(Box::new),
            source: error.clone(),
        },
        Some(rustls::Error::InvalidMessage(_)) => WireError::NotTls { endpoint, source },
        Some(_) | None => WireError::Handshake { endpoint, source },
    }
}

fn setup(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> WireError {
    WireError::Setup(source.into())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn config(verifier: Arc<Verifier>, now: Timestamp) -> Result<ClientConfig, WireError> {
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(Clock(now)));
    let builder = builder.with_safe_default_protocol_versions().map_err(setup)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(builder.with_no_client_auth())
}

/// The one moment of a [`Peer`].
#[derive(Debug)]
struct Clock(Timestamp);

impl rustls::time_provider::TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Accepts what [`Trust`] says, and keeps what was shown.
#[derive(Debug)]
struct Verifier {
    trusted: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
    shown: Mutex<Option<Vec<u8>>>,
}

impl Verifier {
    fn new(trust: &Trust) -> Result<Self, WireError> {
        let trusted = match trust {
            Trust::Nobody => None,
            Trust::Only(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots
                        .add(CertificateDer::from(authority.der().to_vec()))
                        .map_err(setup)?;
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
                Some(verifier.build().map_err(setup)?)
            }
        };
        Ok(Self {
            trusted,
            algorithms: provider().signature_verification_algorithms,
            shown: Mutex::new(None),
        })
    }

    fn certificate(&self) -> Option<Certificate> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        Certificate::from_der(shown.as_deref()?).ok()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.to_vec());
        match &self.trusted {
            None => Ok(ServerCertVerified::assertion()),
            Some(trusted) => trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        let read = |text| date(&HeaderValue::from_static(text)).map(|at| at.to_string());
        assert_eq!(
            read("Fri, 02 Jan 2026 03:04:05 GMT").as_deref(),
            Some("2026-01-02T03:04:05Z")
        );
        assert_eq!(read("yesterday"), None);
    }
}
