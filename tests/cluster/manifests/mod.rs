//! The manifests concern on a real API server: what is created, repaired and pruned, and above all what is not.

mod bad_input;
mod editors;
mod first_pass;
mod fixture;
mod prefixes;
mod safety;
mod shapes;
mod terminating;
mod unavailable;
mod unreadable;

use fixture::{Fixture, config_map, config_maps};

#[tokio::test]
async fn what_is_declared_is_created_and_then_unchanged_without_a_request_to_change_it() {
    let fixture = Fixture::new("created").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.write("loose.yaml", &config_map("loose", "1"));
    let report = fixture.pass().await;
    assert_eq!(report.total().created, 3, "{report:?}");
    let report = fixture.pass().await;
    assert_eq!((report.total().unchanged, report.total().created), (3, 0), "{report:?}");
    assert_eq!(fixture.labelled("s").await, ["a", "b"]);
    let fresh = fixture.restarted().pass().await;
    assert_eq!(
        fresh.total().unchanged,
        3,
        "a new process finds nothing to change: {fresh:?}"
    );
}

#[tokio::test]
async fn a_removed_document_is_pruned_and_nothing_else_is() {
    let fixture = Fixture::new("pruned").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b", "c"]));
    fixture.write("loose.yaml", &config_map("loose", "1"));
    fixture.pass().await;
    fixture.write("s/a.yaml", &config_maps(&["a", "c"]));
    fixture.remove("loose.yaml");
    let report = fixture.pass().await;
    assert_eq!(report.total().pruned, 1, "{report:?}");
    assert_eq!(
        fixture.names().await,
        ["a", "c", "loose"],
        "a loose file deletes nothing"
    );
}

#[tokio::test]
async fn a_stack_removed_while_no_operator_runs_is_pruned_by_the_next() {
    let fixture = Fixture::new("removed").await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    fixture.write("t/b.yaml", &config_maps(&["b"]));
    fixture.pass().await;
    fixture.remove("s");
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 1, "{report:?}");
    assert_eq!(fixture.names().await, ["b"]);
}

#[tokio::test]
async fn moved_and_renamed_stacks_keep_their_objects() {
    let fixture = Fixture::new("moved").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.write("s/c.yaml", &config_maps(&["c"]));
    fixture.pass().await;
    let before = fixture.uids().await;
    fixture.rename("s/c.yaml", "t/c.yaml");
    let report = fixture.pass().await;
    assert_eq!(report.total().pruned, 0, "{report:?}");
    fixture.rename("s", "u");
    let report = fixture.pass().await;
    assert_eq!(report.total().pruned, 0, "{report:?}");
    assert_eq!(fixture.uids().await, before);
    assert_eq!(fixture.labelled("u").await, ["a", "b"]);
    assert_eq!(fixture.labelled("t").await, ["c"]);
    fixture.remove("u");
    fixture.pass().await;
    assert_eq!(fixture.names().await, ["c"], "and are pruned from where they are now");
}

#[tokio::test]
async fn drift_is_repaired_at_the_resync() {
    let fixture = Fixture::with_resync("drift", std::time::Duration::from_millis(1)).await;
    fixture.write("s/a.yaml", &config_map("a", "1"));
    fixture.write("s/b.yaml", &config_map("b", "1"));
    fixture.pass().await;
    fixture
        .kubectl(&["patch", "configmap", "a", "-p", r#"{"data":{"key":"by hand"}}"#])
        .await;
    fixture.kubectl(&["delete", "configmap", "b"]).await;
    let report = fixture.pass().await;
    assert_eq!(
        (report.total().configured, report.total().created),
        (1, 1),
        "{report:?}"
    );
    assert_eq!(
        fixture
            .kubectl(&["get", "configmap", "a", "-o", "jsonpath={.data.key}"])
            .await,
        "1"
    );
}

#[tokio::test]
async fn a_custom_resource_may_stand_before_its_definition_in_one_file() {
    let fixture = Fixture::new("custom").await;
    let group = format!("{}.example.com", fixture.namespace());
    fixture.write(
        "s/a.yaml",
        &format!(
            "apiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n  size: 1\n---\n\
             apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: widgets.{group}\nspec:\n  \
             group: {group}\n  scope: Cluster\n  names: {{kind: Widget, plural: widgets}}\n  versions:\n    - name: v1\n      \
             served: true\n      storage: true\n      schema:\n        openAPIV3Schema:\n          type: object\n          \
             properties:\n            spec: {{type: object, properties: {{size: {{type: integer}}}}}}\n"
        ),
    );
    let report = fixture.pass().await;
    assert_eq!(report.total().created, 2, "{report:?}");
    let resource = format!("widgets.{group}");
    fixture.kubectl(&["get", &resource, "w"]).await;
    // Somebody else's object keeps the definition from being pruned.
    fixture
        .cluster()
        .apply(&format!(
            "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: foreign}}\n"
        ))
        .await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    let report = fixture.pass().await;
    assert_eq!(report.total().pruned, 1, "{report:?}");
    assert!(report.kept.iter().any(|kept| kept.contains("foreign")), "{report:?}");
    fixture.kubectl(&["get", "crd", &resource]).await;
}
