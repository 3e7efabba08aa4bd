//! Whatever else may answer at an endpoint: nothing, something else, another cluster, and somebody in between.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use stratum::controllers::joining::discovery::DiscoveryError;
use stratum::controllers::joining::publishing::sign_cluster_info;
use stratum::controllers::joining::wire::WireError;
use stratum::host::clock;
use stratum::host::node_state::Endpoint;
use stratum::pki::authority::Authority;
use stratum::pki::jws;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::leaf::{Request, issue};
use stratum::pki::name::{AlternativeName, Subject};
use stratum::reconcilers::bootstrap_token::BootstrapToken;
use stratum::reconcilers::joining::cluster_info;
use stratum::reconcilers::joining::token::Kind;
use stratum::reconcilers::joining::verify::ServerRefusal;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::bed::{BRIEF, Bed, NAMESPACE, other_authority};
use crate::support::Cluster;

fn at(address: SocketAddr) -> Endpoint {
    Endpoint {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

async fn signed_token(bed: &Bed) -> BootstrapToken {
    let token = bed.token(Kind::Worker, 3600).await;
    sign_cluster_info(&bed.admin().await, NAMESPACE).await.unwrap();
    token
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the limits are measured")]
async fn whatever_is_no_api_server_is_told_as_what_it_is_and_in_time() {
    let bed = Bed::shared().await;
    let token = signed_token(bed).await;
    let fails = |endpoint: Endpoint| {
        let (bed, token) = (bed, &token);
        async move {
            let began = Instant::now();
            let error = bed.find_at(&endpoint, token, &[bed.pin()]).await.unwrap_err();
            let limit = BRIEF.connect * 2 + BRIEF.patience * 2;
            assert!(began.elapsed() < limit, "{error}: {:?}", began.elapsed());
            error
        }
    };
    let wire = |error: &DiscoveryError, is: fn(&WireError) -> bool| {
        assert!(matches!(error, DiscoveryError::Wire(wire) if is(wire)), "{error:?}");
    };
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    wire(&fails(at(closed)).await, |error| {
        matches!(error, WireError::Connect { .. })
    });

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = fails(at(silent.local_addr().unwrap())).await;
    wire(&error, |error| {
        matches!(
            error,
            WireError::TimedOut {
                what: "TLS handshake",
                ..
            }
        )
    });

    for (host, is) in [
        (
            "nowhere.invalid",
            (|error| matches!(error, WireError::Resolve { .. })) as fn(&WireError) -> bool,
        ),
        ("no where", |error| matches!(error, WireError::Name { .. })),
    ] {
        let endpoint = Endpoint {
            host: host.to_owned(),
            port: 6443,
        };
        // A resolver that never answers is as good.
        let error = fails(endpoint).await;
        wire(
            &error,
            match &error {
                DiscoveryError::Wire(WireError::TimedOut { what: "address", .. }) => |_| true,
                _ => is,
            },
        );
    }

    let plain = answering(None, |_| (200, "{}".to_owned())).await;
    wire(&fails(at(plain)).await, |error| {
        matches!(error, WireError::NotTls { .. })
    });

    let etcd: http::Uri = bed.cluster.plane.etcd_server().parse().unwrap();
    let etcd = Endpoint {
        host: etcd.host().unwrap().to_owned(),
        port: etcd.port_u16().unwrap(),
    };
    wire(&fails(etcd).await, |error| {
        matches!(error, WireError::Handshake { .. } | WireError::Exchange { .. })
    });

    for (status, body) in [
        (200, "<html>welcome</html>"),
        (404, "not found"),
        (401, "Unauthorized"),
        (302, ""),
    ] {
        let web = answering(Some(&other_authority()), move |_| (status, body.to_owned())).await;
        let error = fails(at(web)).await;
        assert!(
            matches!(&error, DiscoveryError::NotKubernetes { status: found, .. } if *found == status),
            "{error}"
        );
    }
    let balancer = answering(Some(&other_authority()), |_| (503, "no backend".to_owned())).await;
    let error = fails(at(balancer)).await;
    assert!(
        matches!(&error, DiscoveryError::NotReady { status: 503, .. }),
        "{error}"
    );

    let another = Cluster::shared().await.plane.server();
    let another: http::Uri = another.parse().unwrap();
    let error = fails(Endpoint {
        host: another.host().unwrap().to_owned(),
        port: another.port_u16().unwrap(),
    })
    .await;
    assert!(
        matches!(
            error,
            DiscoveryError::Hidden { .. } | DiscoveryError::NoClusterInfo { .. }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_hold_is_told_with_those_it_does() {
    let bed = Bed::shared().await;
    let token = signed_token(bed).await;
    let through = forwarding("127.0.0.9:0", bed.endpoint()).await;
    let error = bed.find_at(&at(through), &token, &[bed.pin()]).await.unwrap_err();
    let DiscoveryError::Server(ServerRefusal::OtherName { names, .. }) = &error else {
        panic!("{error}")
    };
    assert!(names.iter().any(|name| name == "127.0.0.1"), "{error}");
}

/// He repeats what the cluster says, signatures and all.
#[tokio::test]
async fn somebody_in_between_who_knows_nothing_is_found_out() {
    let bed = Bed::shared().await;
    let token = signed_token(bed).await;
    let data = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": bed.cluster_info().await.data}).to_string();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keeps = Arc::clone(&seen);
    let between = answering(Some(&other_authority()), move |request| {
        keeps.lock().unwrap().push(request);
        (200, data.clone())
    })
    .await;
    let error = bed.find_at(&at(between), &token, &[bed.pin()]).await.unwrap_err();
    assert!(
        matches!(&error, DiscoveryError::Server(ServerRefusal::Foreign { .. })),
        "{error}"
    );
    let seen = seen.lock().unwrap();
    assert!(
        !seen.is_empty() && !seen.concat().contains(token.expose_secret()),
        "{seen:?}"
    );
}

/// He joined with the same token earlier, so he can sign; the authority he adds is his own.
#[tokio::test]
async fn somebody_in_between_who_knows_the_token_is_found_out_by_the_pin() {
    let bed = Bed::shared().await;
    let token = signed_token(bed).await;
    let his = other_authority();
    let bundle = [bed.authority(), his.certificate().clone()];
    let content = cluster_info::render("https://evil:6443", &bundle);
    let signature = jws::detached(
        token.expose_secret().as_bytes(),
        token.id().as_str(),
        content.as_bytes(),
    );
    let key = cluster_info::signature_key(token.id());
    let data = json!({"kind": "ConfigMap", "data": {"kubeconfig": content, key: signature}}).to_string();
    let between = answering(Some(&his), move |_| (200, data.clone())).await;
    let error = bed.find_at(&at(between), &token, &[bed.pin()]).await.unwrap_err();
    assert!(
        matches!(&error, DiscoveryError::Server(ServerRefusal::NotPinned { .. })),
        "{error}"
    );
}

/// A server on 127.0.0.1 that answers every request with a status and a body; with TLS, under a certificate of `signer`
/// for that address. What it is asked comes as text, headers and all.
async fn answering(
    signer: Option<&Authority>,
    answer: impl Fn(String) -> (u16, String) + Clone + Send + 'static,
) -> SocketAddr {
    let acceptor = signer.map(acceptor);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
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
                    let (status, body) = answer(asked);
                    let response = hyper::Response::builder().status(status);
                    Ok::<_, hyper::Error>(response.body(Full::new(Bytes::from(body))).unwrap())
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

fn acceptor(signer: &Authority) -> TlsAcceptor {
    let names = vec![AlternativeName::ip(std::net::Ipv4Addr::LOCALHOST)];
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

/// A listener that passes every byte on.
async fn forwarding(from: &str, to: Endpoint) -> SocketAddr {
    let listener = TcpListener::bind(from).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let to = (to.host.clone(), to.port);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut stream, &mut server).await
            });
        }
    });
    address
}
