//! The first pass on a cluster that has no inventory yet: what an earlier release recorded on this node still counts.

use serde_json::json;

use super::fixture::{Fixture, config_maps};

#[tokio::test]
async fn without_any_inventory_the_local_record_is_pruned_by_though_the_pass_also_records_new_objects() {
    let fixture = Fixture::new("local").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.pass().await;
    let uids = fixture.uids().await;
    // As an earlier release left it: the record on this node and nothing in the cluster.
    let namespace = fixture.namespace();
    let record = json!({"s": {"core/configmaps": {namespace: {"a": uids["a"], "b": uids["b"]}}}});
    fixture.write(".applied.json", &record.to_string());
    fixture
        .kubectl(&["delete", "configmap", "stratum-addon-inventory"])
        .await;
    fixture.write("s/a.yaml", &config_maps(&["a", "new"]));
    let report = fixture.restarted().pass().await;
    assert_eq!(
        (report.total().created, report.total().pruned, &report.suspended),
        (1, 1, &None),
        "{report:?}"
    );
    assert_eq!(fixture.names().await, ["a", "new"]);
}
