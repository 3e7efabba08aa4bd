//! A Namespace that is being deleted. No controller manager runs here: it stays so until the test finishes it.

use std::time::Duration;

use stratum::host::layout::Identity;
use stratum::reconcilers::manifests::report::{RefusalReason, Suspension};

use super::bad_input::reasons;
use super::fixture::{Fixture, config_map, config_maps};
use crate::support::wait_for;

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_waited_for_and_made_again() {
    let fixture = Fixture::with_resync("ending", Duration::from_millis(1)).await;
    let cluster = fixture.cluster();
    let name = format!("{}-inner", fixture.namespace());
    let inner = config_map("inner", "1").replace("NAMESPACE", &name);
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n");
    fixture.write("n/n.yaml", &format!("{namespace}---\n{inner}"));
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    assert_eq!(fixture.pass().await.total().created, 4);
    let uids = fixture.uids().await;
    let uid = |kind: &'static str, object: String| {
        let name = name.clone();
        async move {
            cluster
                .kubectl(&["-n", &name, "get", kind, &object, "-o", "jsonpath={.metadata.uid}"])
                .await
        }
    };
    let before = [
        uid("namespace", name.clone()).await,
        uid("configmap", "inner".to_owned()).await,
    ];

    cluster.kubectl(&["delete", "namespace", &name, "--wait=false"]).await;
    cluster.kubectl(&["-n", &name, "delete", "configmap", "inner"]).await;
    // Meanwhile another stack goes on, but for what it no longer declares.
    fixture.write("s/a.yaml", &config_map("a", "2"));
    let report = fixture.settled_pass().await;
    assert!(reasons(&report).contains(&RefusalReason::Terminating), "{report:?}");
    let said: Vec<String> = report.refusals.iter().map(ToString::to_string).collect();
    assert!(
        said.iter()
            .any(|text| text.starts_with("n/n.yaml:1: core/namespaces") && text.contains("being deleted")),
        "{said:?}"
    );
    assert!(
        said.iter()
            .any(|text| text.starts_with("n/n.yaml:6: core/configmaps") && text.contains("being terminated")),
        "{said:?}"
    );
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(report.suspended, Some(Suspension::PassIncomplete));
    assert_eq!(fixture.uids().await, uids, "nothing is pruned meanwhile");
    let value = fixture
        .kubectl(&["get", "configmap", "a", "-o", "jsonpath={.data.key}"])
        .await;
    assert_eq!(value, "2", "the other stack is applied");

    let finalize = format!("/api/v1/namespaces/{name}/finalize");
    let object = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}},"spec":{{}}}}"#);
    let finished = cluster
        .kubectl_as(Identity::Admin, &["replace", "--raw", &finalize, "-f", "-"], &object)
        .await;
    assert!(
        finished.exit.is_success(),
        "{}",
        String::from_utf8_lossy(&finished.stderr)
    );
    let again = || async {
        let report = fixture.pass().await;
        report.is_complete().then_some(report)
    };
    let report = wait_for("everything to be applied again", Duration::from_secs(20), again).await;
    assert_eq!(report.suspended, None, "{report:?}");
    let after = [
        uid("namespace", name.clone()).await,
        uid("configmap", "inner".to_owned()).await,
    ];
    assert!(after[0] != before[0] && after[1] != before[1], "{after:?}");
    let report = fixture.pass().await;
    assert_eq!(report.total().unchanged, 3, "{report:?}");
    assert_eq!(fixture.names().await, ["a"], "and pruning goes on");
}
