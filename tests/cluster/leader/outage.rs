//! A leader whose way to the API server breaks for a while, and a client whose credentials are replaced.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use stratum::controllers::connection::{self, ClientSettings};
use stratum::controllers::leader::CampaignError;
use stratum::host::atomic_file::{self, Access};
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::reconcilers::election::LossReason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Candidate, EXPIRY, SOON};
use crate::support::{Cluster, wait_for};

/// A way to the API server that can be blocked: connections stay, and nothing passes.
struct Way {
    blocked: watch::Sender<bool>,
    port: u16,
}

impl Way {
    async fn to(server: &str) -> Self {
        let target = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (blocked, follow) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (target, follow) = (target.clone(), follow.clone());
                tokio::spawn(async move {
                    let far = TcpStream::connect(target).await.unwrap();
                    let (near_read, near_write) = near.into_split();
                    let (far_read, far_write) = far.into_split();
                    tokio::join!(
                        pass(near_read, far_write, follow.clone()),
                        pass(far_read, near_write, follow.clone())
                    );
                });
            }
        });
        Self { blocked, port }
    }

    /// The operator's kubeconfig with this way in it, beside the files it names.
    fn kubeconfig(&self, cluster: &Cluster, folder: &Path) -> PathBuf {
        let original = cluster.kubeconfig(Identity::Operator);
        let text = std::fs::read_to_string(&original).unwrap();
        let there = cluster.plane.server();
        assert!(text.contains(&there));
        let port = there.rsplit(':').next().unwrap();
        let here = there.replace(port, &self.port.to_string());
        let path = folder.join("way.conf");
        atomic_file::write(&path, text.replace(&there, &here).as_bytes(), Access::Secret).unwrap();
        path
    }
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut blocked: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if blocked.wait_for(|blocked| !*blocked).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

#[tokio::test]
async fn a_short_outage_is_outlived_and_a_long_one_ends_the_term_in_time() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("outage").await;
    let folder = tempfile::tempdir().unwrap();
    let way = Way::to(&cluster.plane.server()).await;
    let mut leader = Candidate::new(&way.kubeconfig(cluster, folder.path()), &namespace, "a").await;
    let term = leader.leads(SOON).await;
    let mut next = Candidate::new(&cluster.kubeconfig(Identity::Operator), &namespace, "b").await;
    next.has_seen_a_holder().await;

    way.blocked.send_replace(true);
    clock::sleep(Duration::from_secs(5)).await;
    way.blocked.send_replace(false);
    let before = term.fence.deadline();
    wait_for("the term to be extended", SOON, || async {
        (term.fence.deadline() > before).then_some(())
    })
    .await;
    assert!(leader.is_leading() && !next.is_leading());

    way.blocked.send_replace(true);
    let blocked = clock::since_boot();
    let error = leader.fails(EXPIRY).await;
    let lost = clock::since_boot() - blocked;
    assert!(
        matches!(
            error,
            CampaignError::LeadershipLost {
                reason: LossReason::Deadline,
                ..
            }
        ),
        "{error}"
    );
    assert!(term.fence.has_ended() && !next.is_leading());
    assert!(lost <= Duration::from_secs(12), "{lost:?}");
    next.leads(EXPIRY).await;
    let led = clock::since_boot() - blocked;
    assert!(
        led >= lost + Duration::from_secs(2),
        "lost after {lost:?}, next after {led:?}"
    );
    next.stop().await;
}

#[tokio::test]
async fn a_client_goes_on_when_its_certificate_is_replaced_while_it_watches() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("replaced").await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let put = |name: &str, text: &[u8]| atomic_file::write(&file(name), text, Access::Secret).unwrap();
    let pki = cluster.plane.bootstrap_credential(clock::now()).unwrap();
    put("ca.crt", cluster.plane.authority().as_bytes());
    put("a.crt", pki.certificate.as_bytes());
    put("a.key", pki.key.expose().as_bytes());
    let server = cluster.plane.server();
    let kubeconfig = format!(
        "contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}', certificate-authority: ca.crt}}}}]\n\
         users: [{{name: u, user: {{client-certificate: a.crt, client-key: a.key}}}}]\n"
    );
    put("kubeconfig", kubeconfig.as_bytes());
    let settings = ClientSettings {
        reload_interval: Duration::from_millis(100),
        ..ClientSettings::new(file("kubeconfig"), "replaced")
    };
    let client = connection::client(&settings, None).await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let mut events = watcher(config_maps, watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .boxed();
    let (names, mut seen) = watch::channel(Vec::new());
    let watching = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Ok(config_map) = event {
                names.send_modify(|names: &mut Vec<String>| names.extend(config_map.metadata.name));
            }
        }
    });
    let sees = async |seen: &mut watch::Receiver<Vec<String>>, name: &str| {
        cluster.kubectl(&["-n", &namespace, "create", "configmap", name]).await;
        let arrived = seen.wait_for(|names| names.iter().any(|seen| seen == name));
        tokio::time::timeout(SOON, arrived).await.expect(name).unwrap();
    };
    sees(&mut seen, "before").await;

    // Another certificate and key of the same user, and a bundle with one more CA.
    let renewed = cluster.plane.bootstrap_credential(clock::now()).unwrap();
    assert_ne!(renewed.certificate, pki.certificate);
    put("a.key", renewed.key.expose().as_bytes());
    put("a.crt", renewed.certificate.as_bytes());
    let bundle = format!("{0}{0}", cluster.plane.authority());
    put("ca.crt", bundle.as_bytes());
    let watches = || async {
        let count = cluster
            .audit_events()
            .iter()
            .filter(|event| event["verb"] == "watch" && event["objectRef"]["namespace"] == namespace.as_str())
            .filter(|event| event["userAgent"].as_str().unwrap_or_default().ends_with("(replaced)"))
            .filter(|event| event["stage"] == "ResponseComplete")
            .count();
        (count >= 1).then_some(())
    };
    wait_for("the old watch to be closed", SOON, watches).await;
    sees(&mut seen, "after").await;
    watching.abort();
}
