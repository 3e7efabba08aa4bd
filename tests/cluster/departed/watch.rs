//! The one watch of Nodes: what it tells, and what it does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use http::Method;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use stratum::controllers::concern::{ConcernName, Observer};
use stratum::controllers::nodes::{self, Change};
use stratum::host::clock;
use stratum::reconcilers::node::AddressKind;
use tokio_util::task::AbortOnDropHandle;

use super::bed::{Bed, MACHINE, SOON, node, speak};
use crate::support::requests::send;
use crate::support::wait_for;

#[tokio::test]
async fn the_watch_of_nodes() {
    let bed = Bed::new().await;
    heartbeats_wake_nobody(&bed).await;
    a_refused_watch_says_so_and_goes_on_when_it_may(&bed).await;
}

async fn heartbeats_wake_nobody(bed: &Bed) {
    let mut changes = bed.nodes.changes();
    let kubelet = bed.join("w1").await;
    bed.shows("w1", |facts| facts.machine_id.as_deref() == Some(MACHINE))
        .await;
    while changes.next().now_or_never().is_some() {}

    let since = clock::now();
    speak(&kubelet, "w1", MACHINE, "True", since).await;
    bed.shows("w1", |facts| facts.is_ready()).await;
    let path = format!("{}/status", node("w1"));
    for second in 0..5 {
        let later = Time(since + SignedDuration::from_secs(second));
        let since = Time(since);
        let beat = json!({"status": {"images": [{"names": [format!("image-{second}")]}], "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": later, "lastTransitionTime": since}]}});
        send(&kubelet, Method::PATCH, &path, &beat).await.unwrap();
    }
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    send(&kubelet, Method::PATCH, &path, &addresses).await.unwrap();
    bed.shows("w1", |facts| facts.addresses.len() == 1).await;
    let facts = bed.nodes.get("w1").unwrap();
    assert_eq!(facts.addresses[0].kind, AddressKind::InternalIp);
    bed.cluster.kubectl(&["delete", "node", "w1"]).await;
    let gone = || async { bed.nodes.get("w1").is_none().then_some(()) };
    wait_for("the watch to see the Node gone", SOON, gone).await;

    let mut told = Vec::new();
    while let Some(Some(change)) = changes.next().now_or_never() {
        told.push(change);
    }
    let three = vec![Change::Of("w1".into()); 3];
    assert_eq!(told, three, "ready, an address, gone");
}

#[derive(Default)]
struct Told {
    ready: AtomicU32,
    failed: AtomicU32,
}

impl Observer for Told {
    fn watch_ready(&self, concern: ConcernName) {
        assert_eq!(concern, ConcernName::Nodes);
        self.ready.fetch_add(1, Ordering::Relaxed);
    }

    fn watch_failed(&self, concern: ConcernName) {
        assert_eq!(concern, ConcernName::Nodes);
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn reconciled(&self, _: ConcernName, _: Duration, _: Option<&'static str>) {}
}

async fn a_refused_watch_says_so_and_goes_on_when_it_may(bed: &Bed) {
    let told = Arc::new(Told::default());
    let (nodes, watching) = nodes::watch(bed.cluster.client_of("late", &[]).await, told.clone());
    let _watching = AbortOnDropHandle::new(tokio::spawn(watching));
    let failed = || async { (told.failed.load(Ordering::Relaxed) > 0).then_some(()) };
    wait_for("the refusal to be told", SOON, failed).await;
    assert!(!nodes.is_ready() && told.ready.load(Ordering::Relaxed) == 0);
    let kubectl = |arguments: &'static [&'static str]| bed.cluster.kubectl(arguments);
    kubectl(&["create", "clusterrole", "late", "--verb=list,watch", "--resource=nodes"]).await;
    kubectl(&[
        "create",
        "clusterrolebinding",
        "late",
        "--clusterrole=late",
        "--user=late",
    ])
    .await;
    tokio::time::timeout(SOON, nodes.ready()).await.unwrap();
    assert_eq!(told.ready.load(Ordering::Relaxed), 1);
}
