//! What a hand can make of the inventory: pruning waits, the reason can be acted on, and nothing is written over it.

use stratum::reconcilers::manifests::report::SuspensionReason;

use super::bed::{Bed, NAME};
use crate::support::Cluster;

/// What is put under a key, and what the message has to name.
const NONSENSE: &[(&str, &str, &[&str])] = &[
    ("inventory", "", &["the document: expected an object"]),
    ("inventory", "nodes: {}", &["the document: expected an object"]),
    ("inventory", "{\"nodes\": {\n\"a\": {}", &["EOF", "line 2"]),
    ("inventory", "{}", &["missing field `nodes`"]),
    ("inventory", "[]", &["the document: expected an object"]),
    ("inventory", "[null, {}]", &["the document: expected an object"]),
    (
        "inventory",
        r#"{"nodes": 7}"#,
        &["nodes: invalid type: integer `7`, expected an object"],
    ),
    (
        "inventory",
        r#"{"nodes": {}, "recovry": true}"#,
        &["unknown field `recovry`", "recovery"],
    ),
    (
        "inventory",
        r#"{"nodes": {}, "recovery": "yes"}"#,
        &["recovery: ", "expected a boolean"],
    ),
    (
        "inventory",
        r#"{"nodes": {}, "closedAt": "yesterday"}"#,
        &["closedAt: "],
    ),
    (
        "inventory",
        r#"{"nodes": {"a": {"s": {"core/configmaps": ["a"]}}}}"#,
        &["nodes.a.s.core/configmaps: ", "expected an object"],
    ),
    (
        "inventory",
        r#"{"nodes": {"a": {"core/configmaps": {"n": {"a": null}}}}}"#,
        &["core/configmaps"],
    ),
    (
        "inventory",
        r#"{"nodes": {"a": {"s": {"configmaps": {}}}}}"#,
        &["configmaps", "group/resource"],
    ),
    (
        "inventory",
        r#"{"nodes": {"a": {"s": {"core/configmaps": {"n": {"a": 1}}}}}}"#,
        &["nodes.a.s.core/configmaps.n.a: ", "integer `1`"],
    ),
    (
        "inventory",
        r#"{"nodes": {"a": {}, "a": {}}}"#,
        &["\"a\" is written twice"],
    ),
    (
        "inventory",
        r#"{"nodes": {"a": DEEP"#,
        &["nodes.a: ", "expected an object"],
    ),
    ("inventory", r#"{"nodes": HUGE"#, &["line 1 column 11"]),
    ("desired", "{}", &["\"desired\"", "missing field `generation`"]),
    (
        "cluster-inputs",
        r#"{"clusterDNS": "ten"}"#,
        &["\"cluster-inputs\"", "IP address"],
    ),
    ("prune-confirmations", "{}", &["\"prune-confirmations\"", "sequence"]),
];

#[tokio::test]
async fn nonsense_stops_pruning_and_is_not_written_over() {
    let bed = Bed::new(Cluster::shared().await, "nonsense").await;
    let instance = bed.instance("a");
    instance.write("s/keep.yaml", &bed.declared("keep"));
    let uid = bed.objects(&["gone"]).await["gone"].clone();
    let good = format!(
        r#"{{"nodes":{{"a":{{"s":{{"core/configmaps":{{"{}":{{"gone":"{uid}"}}}}}}}}}},"closedAt":"2026-01-02T03:04:05Z"}}"#,
        bed.namespace
    );
    bed.put(&[("inventory", &good)]).await;
    for (index, (key, text, says)) in NONSENSE.iter().enumerate() {
        let text = text
            .replace("DEEP", &"[".repeat(500))
            .replace("HUGE", &"x".repeat(900_000));
        bed.put(&[("inventory", &good), (key, &text)]).await;
        let loose = format!("loose-{index:02}");
        instance.write("loose.yaml", &bed.declared(&loose));
        let before = bed.config_map().await;
        let report = instance.pass().await;
        let suspended = report.suspended.as_ref().unwrap();
        assert_eq!(
            SuspensionReason::from(suspended),
            SuspensionReason::InventoryUnreadable,
            "{text:.80}"
        );
        let message = suspended.to_string();
        for says in says.iter().chain(&[NAME, key, "by hand"]) {
            assert!(message.contains(says), "{text:.80}: {message}");
        }
        assert!(message.lines().count() == 1 && message.len() < 600, "{message:.2000}");
        let refused = instance.sync().await.unwrap_err();
        assert!(refused.contains(says[0]), "{refused}");
        let names = bed.names().await;
        assert!(
            names.contains(&"gone".to_owned()) && names.contains(&loose),
            "{text:.80}: {names:?}"
        );
        assert!(
            !names.contains(&"keep".to_owned()),
            "{text:.80}: what cannot be recorded is not applied"
        );
        assert_eq!(bed.config_map().await, before, "{text:.80}");
    }
    let patch = format!(
        "{}",
        serde_json::json!({"metadata": {"annotations": {"stratum.ciq.com/term": "many"}},
        "data": {"inventory": good, "desired": null, "cluster-inputs": null, "prune-confirmations": null}})
    );
    bed.kubectl(&["patch", "configmap", NAME, "--type=merge", "-p", &patch])
        .await;
    let message = instance.pass().await.suspended.unwrap().to_string();
    assert!(message.contains(r#"stratum.ciq.com/term is "many""#), "{message}");

    // Repaired by hand: the next pass goes on where it was.
    bed.kubectl(&["annotate", "configmap", NAME, "stratum.ciq.com/term-"])
        .await;
    let report = instance.pass().await;
    assert_eq!((report.total().created, report.total().pruned), (1, 1), "{report:?}");
    assert!(bed.names().await.contains(&"keep".to_owned()));
    assert!(!bed.names().await.contains(&"gone".to_owned()));
}
