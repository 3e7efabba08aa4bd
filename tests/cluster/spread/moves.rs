//! One pod moves when it can, and only the pod that was meant.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use stratum::controllers::cluster::CallErrorKind;
use stratum::controllers::concern::{Concern, Wake};
use stratum::controllers::hands;
use stratum::host::clock;
use stratum::reconcilers::object::Uid;
use stratum::reconcilers::spread::memory::Pace;

use super::bed::{Bed, allocatable, hasty, ready};
use crate::support::Cluster;

#[tokio::test]
async fn one_replica_leaves_the_node_that_holds_all() {
    let cluster = Cluster::shared().await;
    let bed = Bed::new(cluster).await;
    let leader = bed.leader(hasty()).await;
    let before = bed.pods().await;
    assert_eq!(leader.decides().await, "evict");
    let after = bed.pods().await;
    assert_eq!(after.len(), 1);
    assert!(after.iter().all(|(name, uid)| before[name] == *uid));
    assert_eq!(leader.evictions("granted"), 1);
    let told = bed.told("ReplicaEvicted").await;
    let [a, b] = ["a", "b"].map(|name| bed.node_name(name));
    assert!(
        told.len() == 1 && told[0].contains(&a) && told[0].contains(&b),
        "{told:?}"
    );
    // Its replacement is not there yet, and then it is.
    assert_eq!(leader.decides().await, "rollout");
    bed.replica("coredns-3", "b").await;
    assert_eq!(leader.decides().await, "spread");
    assert_eq!(leader.evictions("granted"), 1);
}

/// Pods that were placed a moment ago are left alone, whoever leads.
#[tokio::test]
async fn what_was_placed_a_moment_ago_stays() {
    let bed = Bed::new(Cluster::shared().await).await;
    let leader = bed.leader(Pace::default()).await;
    let (decision, wake) = leader.pass().await;
    assert_eq!(decision, "settling");
    let Wake::After(wait) = wake else { panic!("{wake:?}") };
    assert!(
        wait > Duration::from_secs(200) && wait <= Duration::from_secs(300),
        "{wait:?}"
    );
    assert_eq!(bed.pods().await.len(), 2);
}

#[tokio::test]
async fn a_node_that_cannot_take_a_replica_is_no_reason_to_move() {
    let cluster = Cluster::shared().await;
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let no_taint = json!({"spec": {"taints": null}});
    let conditions = |status: &str| json!({"conditions": ready(status)});
    let size = |cpu: &str| json!({"allocatable": allocatable(cpu)});
    let cordon = |is_cordoned: bool| json!({"spec": {"unschedulable": is_cordoned}});
    for (name, is_status, spoil, mend, word) in [
        ("cordoned", false, cordon(true), cordon(false), "it is cordoned"),
        (
            "tainted",
            false,
            taint("NoSchedule"),
            no_taint.clone(),
            "its taint k=v:NoSchedule is not tolerated",
        ),
        (
            "tainted harder",
            false,
            taint("NoExecute"),
            no_taint,
            "its taint k=v:NoExecute is not tolerated",
        ),
        (
            "not Ready",
            true,
            conditions("False"),
            conditions("True"),
            "it is not Ready",
        ),
        (
            "not heard of",
            true,
            conditions("Unknown"),
            conditions("True"),
            "it is not Ready",
        ),
        (
            "too small",
            true,
            size("50m"),
            size("2"),
            "it has 50m cpu left, and one replica needs 100m",
        ),
    ] {
        let bed = Bed::new(cluster).await;
        let leader = bed.leader(hasty()).await;
        let patch = async |patch: Value| {
            if is_status {
                bed.patch_node_status("b", patch).await;
            } else {
                bed.patch_node("b", patch).await;
            }
        };
        patch(spoil).await;
        assert_eq!(
            leader.pass().await,
            ("no_target", Wake::After(Duration::from_secs(120))),
            "{name}"
        );
        let reason = why(&leader.spread).await;
        assert!(
            reason.ends_with(&format!("{}: {word}", bed.node_name("b"))),
            "{name}: {reason}"
        );
        assert_eq!(bed.pods().await.len(), 2, "{name}");
        patch(mend).await;
        assert_eq!(leader.decides().await, "evict", "{name}");
        assert_eq!(bed.pods().await.len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_full_node_and_one_of_another_kind_are_no_targets() {
    let bed = Bed::new(Cluster::shared().await).await;
    let leader = bed.leader(hasty()).await;
    bed.pod(json!({"name": "large"}), "b", "1950m").await;
    assert_eq!(leader.decides().await, "no_target");
    let reason = why(&leader.spread).await;
    assert!(
        reason.ends_with("it has 50m cpu left, and one replica needs 100m"),
        "{reason}"
    );
    bed.delete_pod("large", 0).await;
    bed.label_node("b", false).await;
    assert_eq!(leader.decides().await, "no_target");
    bed.label_node("b", true).await;
    // A pod that has ended takes no room.
    bed.pod(json!({"name": "ended"}), "b", "1950m").await;
    let path = bed.path("api/v1", "pods/ended/status");
    bed.send(Method::PATCH, &path, json!({"status": {"phase": "Succeeded"}}))
        .await;
    assert_eq!(leader.decides().await, "evict");
}

/// What the concern would say now.
async fn why(spread: &stratum::controllers::spread::Spread) -> String {
    let root = Arc::new(PartialObjectMeta::<Deployment>::default());
    let observed = spread.observe(root).await.unwrap();
    match spread.decide(&observed, clock::now()).0 {
        stratum::reconcilers::spread::Decision::Stay(reason) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_replacement_on_the_same_node_is_the_end_of_it() {
    let bed = Bed::new(Cluster::shared().await).await;
    let leader = bed.leader(hasty()).await;
    assert_eq!(leader.decides().await, "evict");
    bed.replica("coredns-3", "a").await;
    for _ in 0..5 {
        assert_eq!(leader.pass().await, ("gave_up", Wake::Resync));
    }
    assert_eq!((leader.evictions("granted"), bed.pods().await.len()), (1, 2));
    let told = bed.told("ReplicasNotSpread").await;
    assert!(told.len() == 1 && told[0].contains("came back to node"), "{told:?}");
    // The node there was goes and comes back: nothing new. Another one is.
    bed.patch_node("b", json!({"spec": {"unschedulable": true}})).await;
    assert_eq!(leader.decides().await, "no_target");
    bed.patch_node("b", json!({"spec": {"unschedulable": false}})).await;
    assert_eq!(leader.decides().await, "gave_up");
    bed.node("c").await;
    assert_eq!(leader.decides().await, "evict");
    bed.replica("coredns-4", "a").await;
    assert_eq!(leader.decides().await, "gave_up");
    assert_eq!(leader.evictions("granted"), 2);
}

#[tokio::test]
async fn a_pod_of_the_same_name_is_not_the_same_pod() {
    let bed = Bed::new(Cluster::shared().await).await;
    let leader = bed.leader(hasty()).await;
    let root = Arc::new(PartialObjectMeta::<Deployment>::default());
    let observed = leader.spread.observe(root).await.unwrap();
    let plan = leader.spread.decide(&observed, clock::now());
    for replica in ["coredns-1", "coredns-2"] {
        bed.delete_pod(replica, 0).await;
        bed.replica(replica, "a").await;
    }
    let before = bed.pods().await;
    let started = clock::monotonic();
    let Wake::After(wait) = leader.spread.act(observed, plan).await.unwrap() else {
        panic!("no wait")
    };
    assert!(wait > Duration::from_secs(55) && started.elapsed() < Duration::from_secs(5));
    assert_eq!(bed.pods().await, before);
    assert_eq!(leader.evictions("changed"), 1);

    let gone = hands::evict(&bed.operator().await, &bed.namespace, "coredns-9", &Uid("0".to_owned())).await;
    assert_eq!(gone.unwrap_err().kind(), CallErrorKind::NotFound);
}
