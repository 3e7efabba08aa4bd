//! What `certs check` asks of a real API server and a real etcd.

use std::net::SocketAddr;
use std::time::Duration;

use stratum::controllers::certificates::check::{Limits, staged_key_in};
use stratum::controllers::grants::guard::STAGED_KEY;
use stratum::host::kubeconfig::View;
use stratum::host::layout::Identity;
use stratum::host::served::served;
use stratum::pki::certificate::Certificate;
use stratum::reconcilers::certificates::status::StagedKey;

use crate::support::{Cluster, Options};

const LIMITS: Limits = Limits {
    listener: Duration::from_secs(5),
    cluster: Duration::from_secs(10),
};

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("https://").unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_key_that_waits_in_the_cluster_is_seen_and_a_refusal_is_no_answer() {
    // Of its own: while the key is there others would refuse to mint grants.
    let cluster = Cluster::dedicated(Options::default()).await;
    let admin = cluster.kubeconfig(Identity::Admin);
    let view = View::load(&admin).unwrap().unwrap();
    let at = address(view.server.as_deref().unwrap());
    assert_eq!(staged_key_in(&admin, at, LIMITS).await, StagedKey::Absent);
    cluster
        .kubectl_in("kube-system", &["create", "secret", "generic", STAGED_KEY])
        .await;
    assert_eq!(staged_key_in(&admin, at, LIMITS).await, StagedKey::Present);
    let scheduler = cluster.kubeconfig(Identity::Scheduler);
    assert_eq!(
        staged_key_in(&scheduler, at, LIMITS).await,
        StagedKey::Unknown,
        "forbidden, or no such file"
    );
    let nobody = "127.0.0.1:1".parse().unwrap();
    assert_eq!(staged_key_in(&admin, nobody, LIMITS).await, StagedKey::Unknown);

    // Both show their certificates, etcd to a client without one, too.
    let trusted = Certificate::bundle_from_pem(&view.authorities.unwrap().read().unwrap()).unwrap();
    let shown = served(at, None, LIMITS.listener).await.unwrap();
    assert!(
        trusted.iter().any(|ca| shown[0].check_issued_by(ca).is_ok()),
        "{shown:?}"
    );
    let etcd = served(address(&cluster.plane.etcd_server()), None, LIMITS.listener)
        .await
        .unwrap();
    assert!(etcd[0].details().server_auth, "{etcd:?}");
}
