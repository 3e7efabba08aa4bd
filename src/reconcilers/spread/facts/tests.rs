//! What is read, and how.

use serde_json::json;

use super::*;

#[test]
fn a_selector_is_written_as_a_query() {
    let mut deployment = crate::reconcilers::spread::tests::deployment();
    deployment.selector = serde_json::from_value(json!({
        "matchLabels": {"a": "b", "c": "d"},
        "matchExpressions": [
            {"key": "e", "operator": "In", "values": ["f", "g"]},
            {"key": "h", "operator": "NotIn", "values": ["i"]},
            {"key": "j", "operator": "Exists"},
            {"key": "k", "operator": "DoesNotExist"},
        ],
    }))
    .unwrap();
    let text = "a=b,c=d,e in (f,g),h notin (i),j,!k";
    assert_eq!(deployment.selector_text(), text);
    assert_eq!(
        (deployment.selected_label("c"), deployment.selected_label("e")),
        (Some("d"), None)
    );
}

#[test]
fn a_replica_is_a_pod_of_a_replica_set_of_that_deployment() {
    let pod = |owner: &str, hash: &str, phase: &str| -> PodFacts {
        serde_json::from_value(json!({
            "metadata": {
                "name": "x", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"pod-template-hash": hash},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "r", "controller": true}],
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}]},
        }))
        .unwrap()
    };
    let own = pod("coredns-7f", "7f", "Running");
    assert!(own.is_replica_of("coredns") && own.is_ready && !own.is_leaving);
    assert!(!own.is_replica_of("core"));
    assert!(
        !pod("coredns-blue-7f", "7f", "Running").is_replica_of("coredns"),
        "of another Deployment"
    );
    assert!(!pod("coredns-7f", "7f", "Failed").is_replica_of("coredns"), "ended");
    let bare: PodFacts = serde_json::from_value(json!({"metadata": {"name": "x", "uid": "u"}, "spec": {}})).unwrap();
    assert!(!bare.is_replica_of("coredns") && bare.node.is_none());
}

#[test]
fn a_node_is_read_with_what_it_lacks() {
    let node: NodeFacts = serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u"}})).unwrap();
    assert!(!node.is_ready && !node.is_cordoned && node.taints.is_empty());
    let node: NodeFacts = serde_json::from_value(json!({
        "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}},
        "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "2"},
            "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "Unknown"}],
        },
    }))
    .unwrap();
    assert!(!node.is_ready && node.is_cordoned);
    assert_eq!(node.allocatable.of("cpu"), "2".parse().unwrap());
    assert_eq!(node.taints[0].to_string(), "k:NoSchedule");
}
