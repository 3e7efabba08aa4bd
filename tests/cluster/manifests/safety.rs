//! What pruning must never do.

use stratum::reconcilers::inventory::confirmation::{Confirmation, confirm};
use stratum::reconcilers::manifests::report::Suspension;

use super::fixture::{Fixture, config_map, config_maps};

#[tokio::test]
async fn an_object_somebody_created_again_under_its_name_survives() {
    let fixture = Fixture::new("again").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.pass().await;
    fixture.kubectl(&["delete", "configmap", "b"]).await;
    fixture.kubectl(&["create", "configmap", "b"]).await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    let report = fixture.pass().await;
    assert_eq!(report.total().pruned, 0, "{report:?}");
    assert_eq!(fixture.names().await, ["a", "b"]);
}

#[tokio::test]
async fn a_protected_object_stays() {
    let fixture = Fixture::new("protected").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.pass().await;
    fixture
        .kubectl(&["annotate", "configmap", "b", "stratum.ciq.com/prune=disabled"])
        .await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    let report = fixture.pass().await;
    assert_eq!(report.kept.len(), 1, "{report:?}");
    assert_eq!(fixture.names().await, ["a", "b"]);
}

#[tokio::test]
async fn labels_copied_by_a_controller_are_no_reason_to_delete() {
    let fixture = Fixture::new("copied").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.pass().await;
    fixture.kubectl(&["create", "configmap", "child"]).await;
    fixture
        .kubectl(&["label", "configmap", "child", "stratum.ciq.com/stack=s"])
        .await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    fixture.pass().await;
    assert_eq!(fixture.names().await, ["a", "child"]);
}

#[tokio::test]
async fn the_brake_holds_until_that_very_plan_is_confirmed() {
    let fixture = Fixture::with_brake("brake", 0.5).await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b", "c"]));
    fixture.pass().await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    let report = fixture.pass().await;
    assert!(
        matches!(
            report.suspended,
            Some(Suspension::Held {
                deletes: 2,
                recorded: 3,
                ..
            })
        ),
        "{report:?}"
    );
    let client = fixture.cluster().client().await;
    let preview = fixture.preview(client).await;
    let (stack, digest, _) = preview.plans[0].clone();
    let store = fixture.store().await;
    store
        .commit(None, None, |documents| {
            let who = "a test".to_owned();
            confirm(
                &mut documents.confirmations,
                Confirmation {
                    stack: stack.clone(),
                    digest: digest.0.clone(),
                    who,
                    when: stratum::host::clock::now(),
                },
            );
            Ok(())
        })
        .await
        .unwrap();
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 2, "{report:?}");
    assert!(
        store.load().await.unwrap().documents.confirmations.is_empty(),
        "used once"
    );
}

#[tokio::test]
async fn an_inventory_edited_to_nonsense_stops_everything_but_loose_files() {
    let fixture = Fixture::new("nonsense").await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.pass().await;
    fixture
        .kubectl(&[
            "patch",
            "configmap",
            "stratum-addon-inventory",
            "-p",
            r#"{"data":{"inventory":"{\"nodes\": 7}"}}"#,
        ])
        .await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    fixture.write("loose.yaml", &config_map("loose", "1"));
    let report = fixture.restarted().pass().await;
    assert!(
        matches!(report.suspended, Some(Suspension::InventoryUnreadable { .. })),
        "{report:?}"
    );
    assert_eq!(report.total().pruned, 0);
    assert_eq!(fixture.names().await, ["a", "b", "loose"]);
    let found = fixture
        .kubectl(&[
            "get",
            "configmap",
            "stratum-addon-inventory",
            "-o",
            "jsonpath={.data.inventory}",
        ])
        .await;
    assert_eq!(found, r#"{"nodes": 7}"#, "nothing is written over it");
}

#[tokio::test]
async fn a_namespace_with_foreign_objects_and_kube_system_stay() {
    let fixture = Fixture::new("foreign").await;
    let name = format!("{}-extra", fixture.namespace());
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n");
    fixture.write("s/n.yaml", &namespace);
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    fixture.pass().await;
    fixture
        .cluster()
        .kubectl(&["-n", &name, "create", "configmap", "foreign"])
        .await;
    fixture.remove("s/n.yaml");
    let report = fixture.pass().await;
    assert!(report.kept.iter().any(|kept| kept.contains("foreign")), "{report:?}");
    fixture
        .cluster()
        .kubectl(&["-n", &name, "delete", "configmap", "foreign"])
        .await;
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 1, "{report:?}");
}

#[tokio::test]
async fn a_namespace_does_not_take_what_is_declared_or_protected_with_it() {
    let fixture = Fixture::new("holder").await;
    let name = format!("{}-extra", fixture.namespace());
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n");
    let inside = |map: &str| config_maps(&[map]).replace("NAMESPACE", &name);
    fixture.write("s/n.yaml", &namespace);
    fixture.write("s/declared.yaml", &inside("declared"));
    fixture.write("s/protected.yaml", &inside("protected"));
    fixture.pass().await;
    let cluster = fixture.cluster();
    let protect = [
        "-n",
        &name,
        "annotate",
        "configmap",
        "protected",
        "stratum.ciq.com/prune=disabled",
    ];
    cluster.kubectl(&protect).await;
    let phase = ["get", "namespace", &name, "-o", "jsonpath={.status.phase}"];

    fixture.remove("s/n.yaml");
    let report = fixture.pass().await;
    assert!(report.kept.iter().any(|kept| kept.contains(&name)), "{report:?}");
    assert_eq!(
        cluster.kubectl(&phase).await,
        "Active",
        "an object in it is still declared"
    );

    fixture.write("s/other.yaml", &config_maps(&["other"]));
    fixture.remove("s/declared.yaml");
    fixture.remove("s/protected.yaml");
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 1, "only what is not protected: {report:?}");
    assert_eq!(cluster.kubectl(&phase).await, "Active", "a protected object is in it");

    cluster
        .kubectl(&[
            "-n",
            &name,
            "annotate",
            "configmap",
            "protected",
            "stratum.ciq.com/prune-",
        ])
        .await;
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 2, "{report:?}");
}
