//! Whatever else may answer at an endpoint: nothing, something else, another cluster, and somebody in between.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use stratum::controllers::joining::discovery::DiscoveryError;
use stratum::controllers::joining::publishing::sign_cluster_info;
use stratum::controllers::joining::wire::WireError;
use stratum::host::node_state::Endpoint;
use stratum::pki::authority::Authority;
use stratum::pki::jws;
use stratum::reconcilers::bootstrap_token::BootstrapToken;
use stratum::reconcilers::joining::cluster_info;
use stratum::reconcilers::joining::token::Kind;
use stratum::reconcilers::joining::verify::ServerRefusal;
use tokio::net::{TcpListener, TcpStream};

use super::bed::{BRIEF, Bed, NAMESPACE, other_authority};
use crate::support::{Cluster, impostor};

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

/// [`impostor::answering`] on 127.0.0.1, with a status and a body.
async fn answering(
    signer: Option<&Authority>,
    answer: impl Fn(String) -> (u16, String) + Clone + Send + 'static,
) -> SocketAddr {
    let here = std::net::Ipv4Addr::LOCALHOST;
    impostor::answering(here, signer, move |asked| {
        let (status, body) = answer(asked);
        hyper::Response::builder().status(status).body(body).unwrap()
    })
    .await
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
