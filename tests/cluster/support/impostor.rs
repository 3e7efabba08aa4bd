//! Whatever answers in an API server's place.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use stratum::host::clock;
use stratum::pki::authority::Authority;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::leaf::{Request, issue};
use stratum::pki::name::{AlternativeName, Subject};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server at an address of this machine that gives every request the same kind of answer; with TLS, under a certificate of
/// `signer` for that address. What it is asked comes as text, headers and all.
pub(crate) async fn answering(
    address: Ipv4Addr,
    signer: Option<&Authority>,
    answer: impl Fn(String) -> Response<String> + Clone + Send + 'static,
) -> SocketAddr {
    let acceptor = signer.map(|signer| acceptor(address.into(), signer));
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let asked = format!("{} {:?} {body:?}", parts.uri, parts.headers);
                    Ok::<_, hyper::Error>(answer(asked).map(|body| Full::new(Bytes::from(body))))
                }
            });
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let server = hyper::server::conn::http1::Builder::new();
                match acceptor {
                    None => server.serve_connection(TokioIo::new(stream), service).await,
                    Some(acceptor) => match acceptor.accept(stream).await {
                        Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                        Err(_) => Ok(()),
                    },
                }
            });
        }
    });
    address
}

fn acceptor(address: IpAddr, signer: &Authority) -> TlsAcceptor {
    let names = vec![AlternativeName::ip(address)];
    let request = Request::server(Subject::user("kube-apiserver"), names);
    let key = Key::generate(KeyKind::default()).unwrap();
    let certificate = issue(signer, &request, &key, Serial::random().unwrap(), clock::now()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::from_pem_slice(key.to_pem().expose().as_bytes()).unwrap(),
        );
    TlsAcceptor::from(Arc::new(config.unwrap()))
}
