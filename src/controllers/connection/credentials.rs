//! The files behind a connection, read together, and the TLS configuration made of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderValue;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::kubeconfig::{self, Endpoint, KubeconfigError, Source};

/// Why the files a kubeconfig names cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum CredentialsError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("reading {what} {}", path.display())]
    Read {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{what} {origin} holds no usable PEM block")]
    NoPem {
        what: &'static str,
        origin: String,
        #[source]
        source: Option<rustls_pki_types::pem::Error>,
    },
    #[error("CA certificate {origin} is not usable as a trust root")]
    Root {
        origin: String,
        #[source]
        source: rustls::Error,
    },
    #[error("client certificate {certificate} and key {key} do not belong together or cannot be used")]
    Identity {
        certificate: String,
        key: String,
        #[source]
        source: rustls::Error,
    },
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    #[error("server name {name:?} is neither a DNS name nor an address")]
    ServerName { name: String },
    #[error("the token {origin} has characters that no HTTP header may have")]
    Token { origin: String },
}

/// What the files said at one moment. Equal digests mean equal connections.
pub(super) struct Credentials {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Option<Tls>,
    /// `Bearer ...`, marked sensitive. Not part of the digest: a new token needs no new connection.
    pub(super) authorization: Option<HeaderValue>,
    pub(super) digest: [u8; 32],
}

/// How to make a TLS connection.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server_name: ServerName<'static>,
}

/// Reads the kubeconfig at `path` and every file it names, and builds the TLS configuration. All or nothing: a pair that
/// is half written is an error, and the caller goes on with what it had. With `server`, that one is meant instead of the one
/// it names.
pub(super) async fn load(path: &Path, server: Option<SocketAddr>) -> Result<Credentials, CredentialsError> {
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|source| KubeconfigError::Read {
            path: path.to_owned(),
            source,
        })?;
    let mut endpoint = kubeconfig::parse(path, &text)?;
    if let Some(server) = server {
        endpoint.move_to(server);
    }
    let mut digest = Sha256::new();
    digest.update(endpoint.server.to_string());
    digest.update([0]);
    digest.update(&endpoint.server_name);

    let tls = match &endpoint.authority {
        None => None,
        Some(authority) => {
            let authority = Material::read("CA certificate", authority, &mut digest).await?;
            let identity = match &endpoint.identity {
                None => None,
                Some((certificate, key)) => Some((
                    Material::read("client certificate", certificate, &mut digest).await?,
                    Material::read("client key", key, &mut digest).await?,
                )),
            };
            Some(tls(&endpoint.server_name, &authority, identity)?)
        }
    };
    let authorization = match &endpoint.token {
        None => None,
        Some(source) => Some(bearer(source).await?),
    };
    Ok(Credentials {
        endpoint,
        tls,
        authorization,
        digest: digest.finalize().into(),
    })
}

/// Bytes, and where they came from for messages.
struct Material {
    what: &'static str,
    origin: String,
    bytes: Zeroizing<Vec<u8>>,
}

impl Material {
    async fn read(what: &'static str, source: &Source, digest: &mut Sha256) -> Result<Self, CredentialsError> {
        let (origin, bytes) = match source {
            Source::Inline(bytes) => ("in the kubeconfig".to_owned(), bytes.clone()),
            Source::File(path) => {
                let bytes = tokio::fs::read(path).await.map_err(|source| CredentialsError::Read {
                    what,
                    path: path.clone(),
                    source,
                })?;
                (path.display().to_string(), Zeroizing::new(bytes))
            }
        };
        digest.update(Sha256::digest(&*bytes));
        Ok(Self { what, origin, bytes })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(self.no_pem(None)),
            Err(source) => Err(self.no_pem(Some(source))),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, CredentialsError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|source| self.no_pem(Some(source)))
    }

    fn no_pem(&self, source: Option<rustls_pki_types::pem::Error>) -> CredentialsError {
        CredentialsError::NoPem {
            what: self.what,
            origin: self.origin.clone(),
            source,
        }
    }
}

fn tls(
    server_name: &str,
    authority: &Material,
    identity: Option<(Material, Material)>,
) -> Result<Tls, CredentialsError> {
    let mut roots = RootCertStore::empty();
    for certificate in authority.certificates()? {
        roots.add(certificate).map_err(|source| CredentialsError::Root {
            origin: authority.origin.clone(),
            source,
        })?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(CredentialsError::Tls)?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificate.certificates()?, key.key()?)
            .map_err(|source| CredentialsError::Identity {
                certificate: certificate.origin,
                key: key.origin,
                source,
            })?,
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls {
        config: Arc::new(config),
        server_name: ServerName::try_from(server_name.to_owned()).map_err(|_| CredentialsError::ServerName {
            name: server_name.to_owned(),
        })?,
    })
}

async fn bearer(source: &Source) -> Result<HeaderValue, CredentialsError> {
    let token = Material::read("token", source, &mut Sha256::new()).await?;
    let refused = || CredentialsError::Token {
        origin: token.origin.clone(),
    };
    let text = std::str::from_utf8(&token.bytes).map_err(|_| refused())?.trim();
    let line = Zeroizing::new(format!("Bearer {text}"));
    let mut value = HeaderValue::from_str(&line).map_err(|_| refused())?;
    value.set_sensitive(true);
    Ok(value)
}
