//! Every state in which the migration from node-local records can be met: what is pruned, what waits and why, and what
//! becomes of the local record.

use std::time::Duration;

use stratum::controllers::inventory::sync::Standing;
use stratum::reconcilers::inventory::migration::Note;
use stratum::reconcilers::manifests::report::{Suspension, SuspensionReason};

use super::bed::{Bed, Instance};
use crate::support::{Cluster, Options};

const SOON: Duration = Duration::from_secs(10);

/// What node `a` meets. The Nodes are `a` and `b`. Object `ours` was applied by `a` and `theirs` by `b`, both from
/// stack `s`, and no file declares them any more; `keep` is declared. OURS and THEIRS stand for their entries.
struct State {
    name: &'static str,
    config_map: Option<&'static [(&'static str, &'static str)]>,
    local: Option<&'static str>,
    /// What the inventory sync says; none: the pass comes first.
    synced: Option<Note>,
    suspended: Option<(SuspensionReason, &'static str)>,
    /// Whether `keep` is applied.
    applies: bool,
    /// What is left of `ours` and `theirs`.
    left: &'static [&'static str],
    /// The local record afterwards.
    files: &'static [&'static str],
}

const KEPT: &[&str] = &[".applied.json"];
const RETIRED: &[&str] = &[".applied.json.retired"];
const BOTH: &[&str] = &["ours", "theirs"];
const OPEN: SuspensionReason = SuspensionReason::MigrationOpen;
const UNREADABLE: SuspensionReason = SuspensionReason::LocalRecordUnreadable;

const STATES: &[State] = &[
    State {
        name: "no ConfigMap, no record, no sync yet",
        config_map: None,
        local: None,
        synced: None,
        suspended: None,
        applies: true,
        left: BOTH,
        files: &[],
    },
    State {
        name: "no ConfigMap, a record, no sync yet",
        config_map: None,
        local: Some("OURS"),
        synced: None,
        suspended: None,
        applies: true,
        left: &["theirs"],
        files: KEPT,
    },
    State {
        name: "no ConfigMap, an unreadable record, no sync yet",
        config_map: None,
        local: Some("{"),
        synced: None,
        suspended: Some((UNREADABLE, "/manifests/.applied.json: the document: EOF")),
        applies: false,
        left: BOTH,
        files: KEPT,
    },
    State {
        name: "no ConfigMap, a record",
        config_map: None,
        local: Some("OURS"),
        synced: Some(Note::Waiting),
        suspended: Some((OPEN, "no record yet from b;")),
        applies: true,
        left: BOTH,
        files: KEPT,
    },
    State {
        name: "a ConfigMap without an inventory, no sync yet",
        config_map: Some(&[("note", "mine")]),
        local: Some("OURS"),
        synced: None,
        suspended: Some((OPEN, "no record yet from a, b;")),
        applies: true,
        left: BOTH,
        files: KEPT,
    },
    State {
        name: "a ConfigMap without an inventory",
        config_map: Some(&[("note", "mine")]),
        local: Some("OURS"),
        synced: Some(Note::Waiting),
        suspended: Some((OPEN, "no record yet from b;")),
        applies: true,
        left: BOTH,
        files: KEPT,
    },
    State {
        name: "the others have contributed",
        config_map: Some(&[("inventory", r#"{"nodes":{"b":THEIRS}}"#)]),
        local: Some("OURS"),
        synced: Some(Note::Complete),
        suspended: None,
        applies: true,
        left: &[],
        files: RETIRED,
    },
    State {
        name: "the others have contributed, no record here",
        config_map: Some(&[("inventory", r#"{"nodes":{"b":THEIRS}}"#)]),
        local: None,
        synced: Some(Note::Complete),
        suspended: None,
        applies: true,
        left: &["ours"],
        files: &[],
    },
    State {
        name: "the others have contributed, an unreadable record here",
        config_map: Some(&[("inventory", r#"{"nodes":{"b":THEIRS}}"#)]),
        local: Some(r#"{"s":["ours"]}"#),
        synced: Some(Note::LocalUnreadable),
        suspended: Some((OPEN, "no record yet from a;")),
        applies: false,
        left: BOTH,
        files: KEPT,
    },
    State {
        name: "recovery by hand, no sync yet",
        config_map: Some(&[("inventory", r#"{"nodes":{},"recovery":true}"#)]),
        local: Some("OURS"),
        synced: None,
        suspended: Some((OPEN, "no record yet from a, b;")),
        applies: true,
        left: BOTH,
        files: KEPT,
    },
    State {
        name: "recovery by hand",
        config_map: Some(&[("inventory", r#"{"nodes":{},"recovery":true}"#)]),
        local: Some("OURS"),
        synced: Some(Note::Recovery),
        suspended: None,
        applies: true,
        left: &["theirs"],
        files: RETIRED,
    },
    State {
        name: "recovery by hand, an unreadable record here",
        config_map: Some(&[("inventory", r#"{"nodes":{"b":THEIRS},"recovery":true}"#)]),
        local: Some("junk"),
        synced: Some(Note::Recovery),
        suspended: None,
        applies: true,
        left: &["ours"],
        files: RETIRED,
    },
    State {
        name: "closed, a stale record left here",
        config_map: Some(&[(
            "inventory",
            r#"{"nodes":{"a":{},"b":THEIRS},"closedAt":"2026-01-02T03:04:05Z"}"#,
        )]),
        local: Some("OURS"),
        synced: Some(Note::Closed),
        suspended: None,
        applies: true,
        left: &["ours"],
        files: RETIRED,
    },
    State {
        name: "closed, a stale record left here, no sync yet",
        config_map: Some(&[(
            "inventory",
            r#"{"nodes":{"a":{},"b":THEIRS},"closedAt":"2026-01-02T03:04:05Z"}"#,
        )]),
        local: Some("OURS"),
        synced: None,
        suspended: None,
        applies: true,
        left: &["ours"],
        files: KEPT,
    },
    State {
        name: "closed, an unreadable record left here",
        config_map: Some(&[(
            "inventory",
            r#"{"nodes":{"b":THEIRS},"closedAt":"2026-01-02T03:04:05Z"}"#,
        )]),
        local: Some(""),
        synced: Some(Note::Closed),
        suspended: None,
        applies: true,
        left: &["ours"],
        files: RETIRED,
    },
];

/// The entry of a node that applied one object.
fn entry(bed: &Bed<'_>, name: &str, uid: &str) -> String {
    format!(
        r#"{{"s":{{"core/configmaps":{{"{}":{{"{name}":"{uid}"}}}}}}}}"#,
        bed.namespace
    )
}

/// A bed with `ours` and `theirs` live, and their entries.
async fn bed<'a>(cluster: &'a Cluster, purpose: &str) -> (Bed<'a>, String, String) {
    let bed = Bed::new(cluster, purpose).await;
    let uids = bed.objects(BOTH).await;
    let (ours, theirs) = (
        entry(&bed, "ours", &uids["ours"]),
        entry(&bed, "theirs", &uids["theirs"]),
    );
    (bed, ours, theirs)
}

async fn meet(cluster: &Cluster, state: &State) {
    let name = state.name;
    let (bed, ours, theirs) = bed(cluster, "state").await;
    let fill = |text: &str| text.replace("OURS", &ours).replace("THEIRS", &theirs);
    if let Some(data) = state.config_map {
        let filled: Vec<(&str, String)> = data.iter().map(|(key, text)| (*key, fill(text))).collect();
        let data: Vec<(&str, &str)> = filled.iter().map(|(key, text)| (*key, text.as_str())).collect();
        bed.put(&data).await;
    }
    let instance = bed.instance("a");
    instance.write("s/keep.yaml", &bed.declared("keep"));
    instance.write("loose.yaml", &bed.declared("loose"));
    if let Some(local) = state.local {
        instance.write(".applied.json", &fill(local));
    }
    if let Some(note) = state.synced {
        let standing = instance.sync().await.unwrap();
        assert_eq!(standing.note, Some(note), "{name}: {standing:?}");
    }
    let before = bed.document().await;
    let report = instance.pass().await;

    let reason = report.suspended.as_ref().map(SuspensionReason::from);
    assert_eq!(
        reason,
        state.suspended.map(|(reason, _)| reason),
        "{name}: {:?}",
        report.suspended
    );
    if let (Some(suspended), Some((_, says))) = (&report.suspended, state.suspended) {
        assert!(suspended.to_string().contains(says), "{name}: {suspended}");
    }
    assert_eq!(report.is_complete(), state.applies, "{name}: {:?}", report.refusals);
    let mut names: Vec<&str> = state.left.to_vec();
    names.extend(state.applies.then_some("keep"));
    names.push("loose");
    names.sort_unstable();
    assert_eq!(bed.names().await, names, "{name}");
    assert_eq!(instance.local_files(), state.files, "{name}");

    // What was recorded and still lives is still recorded, by whoever recorded it.
    let after = bed.document().await;
    for (node, object) in [("a", "ours"), ("b", "theirs")] {
        let path = format!("/nodes/{node}/s/core~1configmaps/{}/{object}", bed.namespace);
        if !state.left.contains(&object) {
            assert_eq!(after.pointer(&path), None, "{name}: {node}");
        } else if let Some(known) = before.pointer(&path) {
            assert_eq!(after.pointer(&path), Some(known), "{name}: {node}");
        }
    }
    if let Some(&[("note", mine)]) = state.config_map {
        assert_eq!(bed.text("note").await, mine, "{name}");
    }
}

async fn stands(instance: &mut super::bed::Running, what: &str, condition: impl FnMut(&Standing) -> bool) -> Standing {
    let wait = tokio::time::timeout(SOON, instance.standing.wait_for(condition)).await;
    wait.unwrap_or_else(|_| panic!("waited in vain for: {what}"))
        .unwrap()
        .clone()
}

/// From a cluster without a single Node to a node that joins after the close.
async fn walk(cluster: &Cluster) {
    let (bed, ours, theirs) = bed(cluster, "walk").await;
    let late = bed.objects(&["late"]).await["late"].clone();
    let [a, b, c] = ["a", "b", "c"].map(|node| bed.instance(node));
    a.write("s/keep.yaml", &bed.declared("keep"));
    a.write(".applied.json", &ours);
    b.write(".applied.json", &theirs);
    c.write(".applied.json", &entry(&bed, "late", &late));

    let mut first = a.running();
    stands(&mut first, "no Nodes", |now| now.note == Some(Note::NoControlPlane)).await;
    let report = a.pass().await;
    assert_eq!(
        report.suspended,
        Some(Suspension::MigrationOpen { missing: Vec::new() })
    );
    let says = report.suspended.unwrap().to_string();
    assert!(says.contains("no control-plane Node is registered"), "{says}");
    assert_eq!(a.local_files(), KEPT);

    // This node is expected with or without its Node; the other one must not be the second to register.
    cluster.register(&["b", "a"]).await;
    let standing = stands(&mut first, "two Nodes", |now| now.note == Some(Note::Waiting)).await;
    assert_eq!(standing.missing, ["b"]);
    let closed = |now: &Standing| now.note == Some(Note::Closed);
    let mut second = b.running();
    stands(&mut first, "the close, seen by a", closed).await;
    stands(&mut second, "the close, seen by b", closed).await;
    gone(&a, &b).await;

    cluster.register(&["c"]).await;
    assert_eq!(c.sync().await.unwrap().note, Some(Note::Closed));
    assert_eq!(c.local_files(), RETIRED, "put aside unread");
    assert_eq!(bed.document().await["nodes"]["c"], serde_json::Value::Null);

    let report = a.pass().await;
    assert_eq!((report.total().pruned, &report.suspended), (2, &None), "{report:?}");
    assert_eq!(bed.names().await, ["keep", "late"]);
}

async fn gone(a: &Instance<'_>, b: &Instance<'_>) {
    let retired = || async { [a, b].iter().all(|node| node.local_files() == RETIRED).then_some(()) };
    crate::support::wait_for("both records to be put aside", SOON, retired).await;
}

#[tokio::test]
async fn every_state_of_the_migration() {
    // Its Nodes are nobody else's.
    let cluster = Cluster::dedicated(Options::default()).await;
    walk(&cluster).await;
    cluster.kubectl(&["delete", "node", "c"]).await;
    futures::future::join_all(STATES.iter().map(|state| meet(&cluster, state))).await;
}
