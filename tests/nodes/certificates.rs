//! The certificates of a live controller: rotated while somebody writes through it, by commands that are killed, and when all
//! of them have expired; and renewed by themselves.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use stratum::host::child::Exit;
use stratum::host::layout::Layout;
use stratum::host::node_pki::{Leaf, Place, leaves};
use stratum::host::node_state;
use stratum::host::{clock, entropy};
use stratum::pki::authority::Authority;
use stratum::pki::key::{Key, Serial};
use stratum::pki::leaf::{Request, issue};

use crate::commands::{STATE, started};
use crate::rig::{Node, OurCluster, Ours};
use crate::started::{is_ready, rig};
use crate::support::wait_for;
use crate::traffic::{Handshakes, PKI, Writer, listeners, serial_in_file, serial_served, tell};

const BOOT: Duration = Duration::from_secs(240);
/// Until an API server that was killed is known to be gone, or what was written is served.
const SOON: Duration = Duration::from_secs(60);
/// Moments at which a rotation is killed.
const KILLS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_rotated_under_load_in_pieces_and_after_they_expired() {
    let mut rig = rig().await;
    let cluster = rig.stratum(1, 0).await.unwrap();
    let controller = cluster.first();
    wait_for("the controller to be Ready", BOOT, || {
        is_ready(controller, "controller-1")
    })
    .await;
    let node = &controller.node;
    let fine = checked(node).await;
    assert_eq!(fine.0, Exit::Status(0), "{}", fine.1);
    nothing_is_due(node).await;
    let took = under_load(&cluster).await;
    killed_at_any_moment(controller, took).await;
    after_all_have_expired(controller).await;
}

/// What `certs check` says, and how it ends.
pub(crate) async fn checked(node: &Node) -> (Exit, Value) {
    let finished = node
        .command(&["certs", "check", "-o", "json"], false)
        .run(Vec::new())
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&finished.stdout).into_owned();
    let report = serde_json::from_str(&told)
        .unwrap_or_else(|error| panic!("{error}: {told}{}", String::from_utf8_lossy(&finished.stderr)));
    (finished.exit, report)
}

async fn serials(node: &Node) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for (name, address) in listeners(node) {
        let shows = || serial_served(address);
        all.push((name, wait_for(&format!("{name} to be served"), SOON, shows).await));
    }
    all
}

/// Every listener shows what is in its file.
async fn served_is_written(node: &Node) {
    for (name, address) in listeners(node) {
        let file = serial_in_file(&node.path(PKI).join(format!("{name}.crt"))).await;
        let served = serial_served(address).await;
        assert_eq!(served.as_deref(), Some(file.as_str()), "{name}");
    }
}

async fn nothing_is_due(node: &Node) {
    let before = serials(node).await;
    node.stratum(&["certs", "rotate", "--if-expiring", "30"], false)
        .await
        .unwrap();
    let plan = node.stratum(&["certs", "rotate", "--dry-run"], false).await.unwrap();
    assert!(plan.contains("apiserver-kubelet-client"), "{plan}");
    assert_eq!(serials(node).await, before, "neither changes anything");
}

/// No write of a client that tries again is lost; how long the whole took.
async fn under_load(cluster: &OurCluster) -> Duration {
    let node = &cluster.first().node;
    let before = serials(node).await;
    let (writer, handshakes) = (Writer::start(node, PKI, "admin"), Handshakes::start(node));
    let began = clock::monotonic();
    let told = node.stratum(&["certs", "rotate"], false).await.unwrap();
    let took = began.elapsed();
    let (written, shaken) = (writer.finish().await, handshakes.finish().await);
    tell(format_args!(
        "rotated in {:.1} s: {told}\n{written}",
        took.as_secs_f64()
    ));
    shaken.iter().for_each(tell);
    assert!(written.begun > 0 && written.lost == 0, "{written:?}");
    assert!(shaken.iter().all(|one| one.made > 0), "{shaken:?}");
    served_is_written(node).await;
    let after = serials(node).await;
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(before.1, after.1, "{} moved", before.0);
    }
    let (exit, report) = checked(node).await;
    assert_eq!(exit, Exit::Status(0), "{report}");
    for user in ["controller-manager", "scheduler", "operator", "deployer"] {
        let kubeconfig = format!("/var/lib/stratum/kubeconfig/{user}.conf");
        let words = ["--kubeconfig", &kubeconfig, "auth", "whoami", "-o", "name"];
        node.run("kubectl", &words).await.unwrap();
    }
    took
}

/// SIGKILL at any moment of a rotation; then it is done again, and everything is well.
async fn killed_at_any_moment(controller: &Ours, took: Duration) {
    let node = &controller.node;
    for number in 0..KILLS {
        let random = u32::from_be_bytes(entropy::bytes());
        let moment = took.mul_f64(f64::from(random) / f64::from(u32::MAX));
        let rotating = started(node, &["certs", "rotate"], false, "rotate-cut-off");
        clock::sleep(moment).await;
        drop(rotating);
        let (exit, report) = checked(node).await;
        tell(format_args!("killed after {:.2} s: check {exit}", moment.as_secs_f64()));
        node.stratum(&["certs", "rotate", "--quiet"], false)
            .await
            .unwrap_or_else(|error| panic!("kill {number}, after {moment:?}: {error:#}; it was {report}"));
        let (exit, report) = checked(node).await;
        assert_eq!(exit, Exit::Status(0), "kill {number}, after {moment:?}: {report}");
    }
    served_is_written(node).await;
    controller.is_up().unwrap();
}

/// The day nobody wants: every leaf has expired, and the API server is dead. One command, and nobody approves anything.
async fn after_all_have_expired(controller: &Ours) {
    let node = &controller.node;
    let layout = Layout::under(node.path("/"));
    let state = node_state::load(&node.path(STATE)).unwrap();
    for leaf in leaves(&state) {
        expire(&layout, &leaf);
    }
    for program in ["kube-apiserver", "etcd"] {
        node.run("pkill", &["-KILL", "-x", program]).await.unwrap();
    }
    let dead = || async {
        controller
            .kubectl(&["get", "--raw", "/readyz", "--request-timeout=2s"])
            .await
            .err()
    };
    wait_for("the API server to be dead", SOON, dead).await;
    let (exit, report) = checked(node).await;
    assert_eq!(exit, Exit::Status(21), "{report}");
    let told = node.stratum(&["certs", "rotate"], false).await.unwrap();
    tell(format_args!("from expired leaves: {told}"));
    assert!(
        told.contains("fence"),
        "it says that it skips the cluster fence: {told}"
    );
    wait_for("the controller to be Ready again", BOOT, || {
        is_ready(controller, "controller-1")
    })
    .await;
    let (exit, report) = checked(node).await;
    assert_eq!(exit, Exit::Status(0), "{report}");
    served_is_written(node).await;
}

/// Puts a certificate that has expired in the place of a leaf, of the same key and signer.
fn expire(layout: &Layout, leaf: &Leaf) {
    let pki = layout.pki();
    let read = |name: &str| std::fs::read(pki.join(name)).unwrap();
    let signer = leaf.signer.name();
    let authority = Authority::load(&read(&format!("{signer}.crt")), &read(&format!("{signer}.key"))).unwrap();
    let path = match leaf.place {
        Place::Pair => leaf.certificate_file(layout),
        // A link, which leads somewhere else on this machine.
        Place::KubeletStore => {
            let link = leaf.certificate_file(layout);
            link.with_file_name(std::fs::read_link(&link).unwrap())
        }
    };
    let key_pem = match leaf.place {
        Place::Pair => std::fs::read(leaf.key_file(layout)).unwrap(),
        Place::KubeletStore => std::fs::read(&path).unwrap(),
    };
    let key = Key::from_pem(&key_pem).unwrap();
    let request = Request {
        lifetime: SignedDuration::from_secs(60),
        ..leaf.request.clone()
    };
    // Just inside the life of its signer, whose start lies minutes back.
    let then = authority.certificate().details().not_before + SignedDuration::from_secs(20);
    let expired = issue(&authority, &request, &key, Serial::random().unwrap(), then).unwrap();
    assert!(!expired.is_in_date(clock::now()));
    let text = match leaf.place {
        Place::Pair => expired.to_pem(),
        Place::KubeletStore => expired.to_pem() + key.to_pem().expose(),
    };
    stratum::host::atomic_file::write(&path, text.as_bytes(), stratum::host::atomic_file::Access::Secret).unwrap();
}

/// Leaves that live for two minutes: what is served changes by itself, and no handshake fails, as the keys are kept.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_renew_themselves() {
    const RENEWALS: usize = 3;
    let mut rig = rig().await;
    rig.payload().await.unwrap();
    let node = rig.prepared("controller-1").await.unwrap();
    let config = node.path("/etc/stratum/config.yaml");
    let mut settings: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    settings["certificates"] = json!({"leafLifetime": "2m"});
    node.write("/etc/stratum/config.yaml", &settings.to_string()).unwrap();
    let controller = node.found().await.unwrap();
    let node = &controller.node;
    let mut before = serials(node).await;
    let handshakes = Handshakes::start(node);
    for number in 0..RENEWALS {
        let moved = || async {
            controller.is_up().unwrap();
            let now = serials(node).await;
            let all_moved = before.iter().zip(&now).all(|(before, now)| before.1 != now.1);
            all_moved.then_some(now)
        };
        before = wait_for(&format!("renewal {number}"), BOOT, moved).await;
    }
    for one in handshakes.finish().await {
        tell(&one);
        assert!(
            one.made > 0 && one.failed.is_empty(),
            "{}: {:?}",
            one.listener,
            one.failed
        );
    }
    let record = std::fs::read_to_string(node.path("/var/lib/stratum/renewal.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert!(record["attemptedAt"].is_string(), "{record}");
    wait_for("the controller to be Ready", BOOT, || {
        is_ready(&controller, "controller-1")
    })
    .await;
}
