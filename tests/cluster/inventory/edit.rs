//! The inventory as a person meets it with `kubectl edit`.

use stratum::reconcilers::inventory::migration::Note;

use super::bed::{Bed, NAME};
use crate::support::Cluster;

#[tokio::test]
async fn a_person_reads_it_line_by_line_and_closes_the_migration() {
    let cluster = Cluster::shared().await;
    let bed = Bed::new(cluster, "edit").await;
    let uid = bed.objects(&["ours"]).await["ours"].clone();
    let a = bed.instance("a");
    a.write("s/keep.yaml", &bed.declared("keep"));
    let record = format!(
        r#"{{"s":{{"core/configmaps":{{"{}":{{"ours":"{uid}"}}}}}}}}"#,
        bed.namespace
    );
    a.write(".applied.json", &record);
    // No Node is registered in this cluster, so nothing closes by itself.
    assert_eq!(a.sync().await.unwrap().note, Some(Note::NoControlPlane));
    assert_eq!(a.pass().await.total().pruned, 0);

    let shown = bed.kubectl(&["get", "configmap", NAME, "-o", "yaml"]).await;
    let line = format!("\"ours\": \"{uid}\"");
    assert!(shown.contains("\n  inventory: |\n    {\n"), "{shown}");
    assert!(shown.lines().any(|shown| shown.trim() == line), "{shown}");

    let script = r#"sed -i 's/^    {$/    {"recovery": true,/' "$1""#;
    cluster
        .kubectl_edit(&["-n", &bed.namespace, "edit", "configmap", NAME], script)
        .await;
    assert_eq!(a.sync().await.unwrap().note, Some(Note::Recovery));
    assert_eq!(a.pass().await.total().pruned, 1);
    assert_eq!(bed.names().await, ["keep"]);

    // What says the same is not written again.
    let before = bed.config_map().await;
    a.sync().await.unwrap();
    a.pass().await;
    assert_eq!(bed.config_map().await, before);
    let text = bed.text("inventory").await;
    assert!(
        text.starts_with("{\n \"closedAt\": \"") && text.ends_with("\n}\n"),
        "{text}"
    );
    assert!(text.contains("\n \"recovery\": true\n"), "{text}");
}
