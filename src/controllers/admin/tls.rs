//! TLS with client certificates for the admin server. The files are read again for new connections, so that the server
//! lives through the renewal of its certificate and of the client CA.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use super::super::concern::chain;
use crate::host::clock;

/// How long a client may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// PEM files of the server.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate and what leads to its root.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// Whoever shows a certificate signed by one of these may ask.
    pub client_ca: PathBuf,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not readable.
    #[error("reading {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Not PEM, or of another kind.
    #[error("{} holds no usable PEM block", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// Why, when the file is PEM at all.
        #[source]
        source: Option<rustls_pki_types::pem::Error>,
    },
    /// The certificates cannot be used together.
    #[error("certificate {}, its key and client CA {} cannot be used together", certificate.display(), client_ca.display())]
    Unusable {
        /// The server's certificate.
        certificate: PathBuf,
        /// The client CA.
        client_ca: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Makes handshakes with the files as they are.
#[derive(Clone)]
pub(super) struct Acceptor {
    files: TlsFiles,
    loaded: Arc<Mutex<Loaded>>,
}

struct Loaded {
    digest: [u8; 32],
    acceptor: TlsAcceptor,
    /// What was logged last about files that cannot be used.
    warned: Option<String>,
}

impl Acceptor {
    pub(super) async fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let bytes = Bytes::read(&files).await?;
        let loaded = Loaded {
            digest: bytes.digest(),
            acceptor: bytes.acceptor(&files)?,
            warned: None,
        };
        Ok(Self {
            files,
            loaded: Arc::new(Mutex::new(loaded)),
        })
    }

    async fn current(&self) -> TlsAcceptor {
        let mut loaded = self.loaded.lock().await;
        match self.reload(loaded.digest).await {
            Ok(None) => loaded.warned = None,
            Ok(Some((digest, acceptor))) => {
                *loaded = Loaded {
                    digest,
                    acceptor,
                    warned: None,
                };
            }
            Err(error) => {
                let text = chain(&error);
                if loaded.warned.as_ref() != Some(&text) {
                    tracing::warn!(error = %text, "the admin server goes on with the last good certificate");
                    loaded.warned = Some(text);
                }
            }
        }
        loaded.acceptor.clone()
    }

    async fn reload(&self, known: [u8; 32]) -> Result<Option<([u8; 32], TlsAcceptor)>, TlsError> {
        let bytes = Bytes::read(&self.files).await?;
        let digest = bytes.digest();
        if digest == known {
            return Ok(None);
        }
        Ok(Some((digest, bytes.acceptor(&self.files)?)))
    }
}

struct Bytes {
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
    client_ca: Vec<u8>,
}

impl Bytes {
    async fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let TlsFiles {
            certificate,
            key,
            client_ca,
        } = files;
        Ok(Self {
            certificate: read(certificate).await?,
            key: Zeroizing::new(read(key).await?),
            client_ca: read(client_ca).await?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in [&self.certificate, &*self.key, &self.client_ca] {
            digest.update(Sha256::digest(part));
        }
        digest.finalize().into()
    }

    fn acceptor(&self, files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
        let unusable = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::Unusable {
            certificate: files.certificate.clone(),
            client_ca: files.client_ca.clone(),
            source,
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.client_ca, &self.client_ca)? {
            roots.add(certificate).map_err(|source| unusable(source.into()))?;
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|source| TlsError::Pem {
            path: files.key.clone(),
            source: Some(source),
        })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .build()
            .map_err(|source| unusable(source.into()))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| unusable(source.into()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&files.certificate, &self.certificate)?, key)
            .map_err(|source| unusable(source.into()))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A listener for axum that hands on connections only after their handshake.
pub(super) struct Listener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: io::Result<SocketAddr>,
    _accepting: AbortOnDropHandle<()>,
}

impl Listener {
    pub(super) fn new(listener: TcpListener, acceptor: Acceptor) -> Self {
        let (sender, ready) = mpsc::channel(16);
        let address = listener.local_addr();
        let accepting = async move {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        tokio::spawn(shake_hands(acceptor.clone(), stream, peer, sender.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the admin server cannot accept a connection");
                        clock::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        };
        Self {
            ready,
            address,
            _accepting: AbortOnDropHandle::new(tokio::spawn(accepting)),
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task lives as long as this.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}

async fn shake_hands(
    acceptor: Acceptor,
    stream: TcpStream,
    peer: SocketAddr,
    sender: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let shaking = async { acceptor.current().await.accept(stream).await };
    match tokio::time::timeout(HANDSHAKE, shaking).await {
        Ok(Ok(stream)) => {
            // Fails only when the server ends.
            let _ = sender.send((stream, peer)).await;
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "refused a connection to the admin server"),
        Err(_) => tracing::debug!(%peer, "a client of the admin server did not finish its handshake"),
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    tokio::fs::read(path).await.map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::Pem {
        path: path.to_owned(),
        source,
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(failed(None)),
        Err(source) => Err(failed(Some(source))),
    }
}
