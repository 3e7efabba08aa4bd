//! The concern as the operator runs it: what wakes it, and what it asks the API server for.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;
use serde_json::json;
use stratum::controllers::concern::{self, ConcernName, Observer};
use stratum::controllers::events::{EventKind, Events};
use stratum::controllers::nodes;
use tokio_util::sync::CancellationToken;

use super::bed::{Bed, decision, hasty, ready};
use crate::support::{Cluster, wait_for};

const SOON: Duration = Duration::from_secs(15);

struct Nobody;

impl Observer for Nobody {
    fn watch_ready(&self, _: ConcernName) {}
    fn watch_failed(&self, _: ConcernName) {}
    fn reconciled(&self, _: ConcernName, _: Duration, _: Option<&'static str>) {}
}

#[tokio::test]
async fn a_change_of_a_node_or_a_pod_wakes_it() {
    let cluster = Cluster::shared().await;
    let bed = Bed::new(cluster).await;
    bed.patch_node_status("b", json!({"conditions": ready("False")})).await;
    let (nodes, following) = nodes::watch(bed.operator().await, Arc::new(Nobody));
    let following = tokio::spawn(following);
    let leader = bed.leader_with(nodes, hasty()).await;
    let metrics = leader.metrics.clone();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let running = tokio::spawn(concern::run(Arc::new(leader.spread), Arc::new(Nobody), stop.clone()));
    let decided = |word: &'static str| {
        let metrics = metrics.clone();
        wait_for(word, SOON, move || {
            let is_so = decision(&metrics) == word;
            async move { is_so.then_some(()) }
        })
    };
    decided("no_target").await;
    bed.patch_node_status("b", json!({"conditions": ready("True")})).await;
    decided("rollout").await;
    assert_eq!(bed.pods().await.len(), 1);
    bed.replica("coredns-3", "b").await;
    decided("spread").await;
    stop.cancel();
    running.await.unwrap();
    following.abort();

    // Of pods outside its namespace it asked for those on one node only, and watched none.
    let of_operator = |event: &Value| event["user"]["username"] == "stratum:operator";
    let events: Vec<Value> = cluster.audit_events().into_iter().filter(of_operator).collect();
    let is_wide =
        |event: &&Value| event["objectRef"]["resource"] == "pods" && event["objectRef"]["namespace"].is_null();
    let wide: Vec<&str> = events
        .iter()
        .filter(is_wide)
        .map(|event| event["requestURI"].as_str().unwrap())
        .collect();
    assert!(!wide.is_empty());
    for request in wide {
        assert!(
            request.contains("fieldSelector=spec.nodeName%3D") && !request.contains("watch="),
            "{request}"
        );
    }
}

#[tokio::test]
async fn events_on_objects_without_a_namespace_are_told_once() {
    let cluster = Cluster::shared().await;
    let bed = Bed::new(cluster).await;
    let events = Events::new(bed.operator().await, "test");
    let uid = cluster
        .kubectl(&["get", "node", &bed.node_name("a"), "-o", "jsonpath={.metadata.uid}"])
        .await;
    let node = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(bed.node_name("a")),
        uid: Some(uid.trim().to_owned()),
        ..ObjectReference::default()
    };
    for note in ["one", "one", &"é".repeat(1000)] {
        events
            .publish(node.clone(), EventKind::Warning, "Tested", note.to_owned())
            .await;
    }
    let said = cluster.kubectl(&["describe", "node", &bed.node_name("a")]).await;
    assert_eq!(said.matches("Tested").count(), 2, "{said}");
    assert!(
        said.contains("stratum.ciq.com/operator") && said.contains("éé"),
        "{said}"
    );
}
