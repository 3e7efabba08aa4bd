//! Real listeners: `openssl s_server` would do, but a rustls server in this process needs no port to be guessed.

use std::net::Ipv4Addr;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::host::certificates::fixtures::{Openssl, SERVER};

const LIMIT: Duration = Duration::from_secs(5);

async fn listen(config: Option<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            match &config {
                Some(config) => drop(TlsAcceptor::from(Arc::new(config.clone())).accept(stream).await),
                None => stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await.unwrap(),
            }
        }
    });
    address
}

#[tokio::test]
async fn a_listener_shows_its_certificate_also_when_it_wants_one() {
    let made = Openssl::new();
    made.authority("ca", "");
    made.leaf("a", "ca", "/CN=a", SERVER);
    let certificate = CertificateDer::from_pem_slice(&made.read("a.crt")).unwrap();
    let ca = CertificateDer::from_pem_slice(&made.read("ca.crt")).unwrap();
    let key = || PrivateKeyDer::from_pem_slice(&made.read("a.key")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let wants = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let builder = || {
            ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[version])
                .unwrap()
        };
        let chain = vec![certificate.clone(), ca.clone()];
        let open = builder()
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key())
            .unwrap();
        let strict = builder()
            .with_client_cert_verifier(wants.clone())
            .with_single_cert(chain, key())
            .unwrap();
        for config in [open, strict] {
            let shown = served(listen(Some(config)).await, None, LIMIT).await.unwrap();
            assert_eq!(shown.len(), 2);
            assert_eq!(shown[0].der(), certificate.as_ref());
        }
    }
}

#[tokio::test]
async fn what_listens_without_a_certificate_is_told_apart_from_nobody() {
    let plain = served(listen(None).await, None, LIMIT).await.unwrap_err();
    assert!(
        matches!(plain, Error::Handshake { .. }) && !plain.is_absence(),
        "{plain:?}"
    );
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let refused = served(gone, Some("kubernetes"), LIMIT).await.unwrap_err();
    assert!(
        matches!(refused, Error::Connect { .. }) && refused.is_absence(),
        "{refused:?}"
    );
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let silent = served(mute.local_addr().unwrap(), None, Duration::from_millis(50))
        .await
        .unwrap_err();
    assert!(
        matches!(silent, Error::Silent { .. }) && silent.is_absence(),
        "{silent:?}"
    );
}
