//! An API group whose discovery fails: nothing is known of its kinds, and that is not their absence.
//!
//! On a control plane of its own, since a broken group is everybody's.

use std::time::Duration;

use stratum::reconcilers::manifests::report::{RefusalReason, Suspension};

use super::bad_input::reasons;
use super::fixture::{Fixture, config_maps};
use crate::support::{Cluster, Options, wait_for};

const GROUP: &str = "broken.example.com";

fn definition() -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: widgets.{GROUP}\nspec:\n  \
         group: {GROUP}\n  scope: Namespaced\n  names: {{kind: Widget, plural: widgets}}\n  versions:\n    - name: v1\n      \
         served: true\n      storage: true\n      schema:\n        openAPIV3Schema: {{type: object}}\n"
    )
}

fn widget(name: &str) -> String {
    format!("apiVersion: {GROUP}/v1\nkind: Widget\nmetadata:\n  name: {name}\n  namespace: NAMESPACE\n")
}

/// Sends the group to a Service that does not exist, as an aggregated API server does whose Deployment is gone.
async fn break_group(cluster: &Cluster) {
    let name = format!("v1.{GROUP}");
    let patch = r#"{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},
        "spec":{"service":{"namespace":"default","name":"nowhere"},"insecureSkipTLSVerify":true}}"#;
    cluster
        .kubectl(&["patch", "apiservice", &name, "--type=merge", "-p", patch])
        .await;
    let stale = || async {
        let served = stratum::controllers::cluster::discover(&cluster.client().await)
            .await
            .unwrap();
        served.unavailable().any(|group| group == GROUP).then_some(())
    };
    wait_for("the group to be stale", Duration::from_secs(30), stale).await;
}

/// The API server makes the APIService of a CustomResourceDefinition again by itself.
async fn mend_group(cluster: &Cluster) {
    cluster.kubectl(&["delete", "apiservice", &format!("v1.{GROUP}")]).await;
    let served = || async {
        let served = stratum::controllers::cluster::discover(&cluster.client().await)
            .await
            .unwrap();
        served.resolve(&format!("{GROUP}/v1"), "Widget").is_ok().then_some(())
    };
    wait_for("the group to be served again", Duration::from_secs(60), served).await;
}

#[tokio::test]
async fn nothing_is_pruned_while_a_group_that_is_declared_does_not_answer() {
    let cluster = Cluster::dedicated(Options::default()).await;
    let fixture = Fixture::on(&cluster, "group").await;
    fixture.write(
        "s/a.yaml",
        &format!("{}---\n{}---\n{}", definition(), widget("w"), widget("x")),
    );
    fixture.write("t/a.yaml", &config_maps(&["a", "b"]));
    assert_eq!(fixture.pass().await.total().created, 5);
    let uids = fixture.uids().await;
    let resource = format!("widgets.{GROUP}");
    let widgets = || async {
        let format = r#"jsonpath={range .items[*]}{.metadata.name}={.metadata.uid} {end}"#;
        fixture.kubectl(&["get", &resource, "-o", format]).await
    };
    let before = widgets().await;

    break_group(&cluster).await;
    fixture.write("s/a.yaml", &format!("{}---\n{}", definition(), widget("w")));
    fixture.write("t/a.yaml", &config_maps(&["a"]));
    fixture.write("t/c.yaml", &config_maps(&["c"]));
    for report in [fixture.restarted().pass().await, fixture.restarted().pass().await] {
        assert_eq!(reasons(&report), [RefusalReason::GroupUnavailable], "{report:?}");
        let text = report.refusals[0].to_string();
        assert!(
            text.starts_with("s/a.yaml:16: Widget w: ") && text.contains(GROUP),
            "{text}"
        );
        assert_eq!(report.suspended, Some(Suspension::PassIncomplete), "{report:?}");
        let now = fixture.uids().await;
        assert!(uids.iter().all(|(name, uid)| now.get(name) == Some(uid)), "{now:?}");
        assert!(now.contains_key("c"), "other stacks are applied: {report:?}");
    }

    mend_group(&cluster).await;
    assert_eq!(before, widgets().await);
    let report = fixture.restarted().pass().await;
    assert_eq!(
        (report.total().pruned, report.suspended),
        (2, None),
        "{:?}",
        report.refusals
    );
    assert_eq!(fixture.names().await, ["a", "c"]);
    let after = widgets().await;
    assert!(
        before.starts_with(after.trim()) && after.trim().contains("w="),
        "{before} {after}"
    );
}

/// The operator that runs on knows the group from before; it, too, prunes nothing of it, and goes on by itself. It cannot
/// compare the group with its files, and compares all others.
#[tokio::test]
async fn an_operator_that_runs_on_keeps_what_it_cannot_see() {
    let cluster = Cluster::dedicated(Options::default()).await;
    let fixture = Fixture::on_with_resync(&cluster, "running", Duration::from_millis(1)).await;
    fixture.write(
        "s/a.yaml",
        &format!("{}---\n{}---\n{}", definition(), widget("w"), widget("x")),
    );
    fixture.write("t/a.yaml", &config_maps(&["a"]));
    assert_eq!(fixture.pass().await.total().created, 4);
    break_group(&cluster).await;
    fixture.kubectl(&["delete", "configmap", "a"]).await;
    fixture.write("t/b.yaml", &config_maps(&["b"]));
    assert_eq!(fixture.pass().await.total().created, 2);
    assert_eq!(fixture.names().await, ["a", "b"]);
    fixture.write("s/a.yaml", &format!("{}---\n{}", definition(), widget("w")));
    let report = fixture.pass().await;
    assert_eq!(report.total().pruned, 0, "{report:?}");
    let kept = report
        .kept
        .iter()
        .any(|kept| kept.contains("/x: its API group does not answer"));
    assert!(kept, "{report:?}");
    mend_group(&cluster).await;
    let resource = format!("widgets.{GROUP}");
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 1, "{report:?}");
    assert_eq!(
        fixture.kubectl(&["get", &resource, "-o", "name"]).await.trim(),
        format!("widget.{GROUP}/w")
    );
}

/// What a definition or a namespace holds cannot be seen either: neither goes, since all of it would go with it.
#[tokio::test]
async fn what_may_hold_objects_of_a_group_that_does_not_answer_is_kept() {
    let cluster = Cluster::dedicated(Options::default()).await;
    let fixture = Fixture::on(&cluster, "holds").await;
    let namespace = format!("{}-extra", fixture.namespace());
    fixture.write("s/a.yaml", &definition());
    fixture.write(
        "s/n.yaml",
        &format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {namespace}\n"),
    );
    fixture.write("t/a.yaml", &config_maps(&["a"]));
    assert_eq!(fixture.pass().await.total().created, 3);
    cluster.apply(&widget("foreign").replace("NAMESPACE", &namespace)).await;
    break_group(&cluster).await;
    fixture.remove("s");
    for report in [fixture.pass().await, fixture.restarted().pass().await] {
        assert_eq!(report.total().pruned, 0, "{report:?}");
        assert_eq!(report.kept.len(), 2, "{report:?}");
    }
    mend_group(&cluster).await;
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 0, "{report:?}");
    assert!(report.kept.iter().all(|kept| kept.contains("foreign")), "{report:?}");
}
