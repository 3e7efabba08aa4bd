//! Files and objects that are not as they should be: each is refused with its place, and nothing is pruned meanwhile.

use std::os::unix::fs::symlink;

use stratum::reconcilers::manifests::report::{RefusalReason, Report, Suspension};

use super::fixture::{Fixture, config_map, config_maps};

pub(super) fn reasons(report: &Report) -> Vec<RefusalReason> {
    let mut reasons: Vec<RefusalReason> = report.refusals.iter().map(|refusal| refusal.reason).collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

/// One stack of three objects is applied; then something bad comes and one document goes: nothing may be pruned.
async fn refuses(purpose: &str, bad: impl FnOnce(&Fixture<'_>), reason: RefusalReason, says: &str) {
    let fixture = Fixture::new(purpose).await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b", "c"]));
    fixture.pass().await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    bad(&fixture);
    let report = fixture.pass().await;
    assert_eq!(reasons(&report), [reason], "{report:?}");
    assert!(
        report.refusals.iter().any(|refusal| refusal.to_string().contains(says)),
        "{says}: {report:?}"
    );
    assert_eq!(report.suspended, Some(Suspension::PassIncomplete));
    let names = fixture.names().await;
    assert!(
        ["a", "b", "c"]
            .iter()
            .all(|name| names.iter().any(|known| known == name)),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_broken_file() {
    refuses(
        "broken",
        |fixture| fixture.write("s/b.yaml", "a: [\n"),
        RefusalReason::Invalid,
        "s/b.yaml:1",
    )
    .await;
}

#[tokio::test]
async fn a_duplicate_key() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\nkind: Secret\n";
    refuses(
        "duplicate",
        |fixture| fixture.write("s/b.yaml", text),
        RefusalReason::Invalid,
        "s/b.yaml:5",
    )
    .await;
}

#[tokio::test]
async fn a_file_without_its_end() {
    let text = config_map("x", "1");
    refuses(
        "noend",
        |fixture| fixture.write("s/b.yaml", text.trim_end()),
        RefusalReason::HalfWritten,
        "s/b.yaml",
    )
    .await;
}

#[tokio::test]
async fn an_object_without_a_name() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n";
    refuses(
        "noname",
        |fixture| fixture.write("s/b.yaml", text),
        RefusalReason::Invalid,
        "name",
    )
    .await;
}

#[tokio::test]
async fn one_object_in_two_files() {
    refuses(
        "twice",
        |fixture| fixture.write("t/b.yaml", &config_map("a", "2")),
        RefusalReason::DeclaredTwice,
        "t/b.yaml:1",
    )
    .await;
}

#[tokio::test]
async fn an_unknown_field_with_its_line() {
    let text = config_map("x", "1").replace("\ndata:", "\ndota:\n  a: b\ndata:");
    refuses(
        "field",
        |fixture| fixture.write("s/b.yaml", &text),
        RefusalReason::Rejected,
        "s/b.yaml:6",
    )
    .await;
}

#[tokio::test]
async fn a_kind_nobody_serves() {
    let text = "apiVersion: example.com/v1\nkind: Nothing\nmetadata:\n  name: x\n";
    refuses(
        "kind",
        |fixture| fixture.write("s/b.yaml", text),
        RefusalReason::UnknownKind,
        "Nothing",
    )
    .await;
}

#[tokio::test]
async fn a_dangling_link() {
    let link = |fixture: &Fixture<'_>| symlink("nowhere", fixture.path("s/b.yaml")).unwrap();
    refuses("dangling", link, RefusalReason::Unreadable, "s/b.yaml").await;
}

#[tokio::test]
async fn a_stack_that_is_no_label_value() {
    refuses(
        "label",
        |fixture| fixture.write("_x/b.yaml", &config_map("x", "1")),
        RefusalReason::StackName,
        "_x",
    )
    .await;
}

#[tokio::test]
async fn an_unresolved_sentinel() {
    let text = config_map("x", "@stratum:cluster-dns@");
    refuses(
        "sentinel",
        |fixture| fixture.write("s/b.yaml", &text),
        RefusalReason::UnresolvedSentinel,
        "cluster-dns",
    )
    .await;
}

#[tokio::test]
async fn an_invalid_update_keeps_the_live_object() {
    let fixture = Fixture::new("update").await;
    fixture.write("s/a.yaml", &config_map("a", "1"));
    fixture.pass().await;
    let before = fixture.uids().await;
    fixture.write(
        "s/a.yaml",
        &config_map("a", "2").replace("\ndata:", "\nimmutable: 7\ndata:"),
    );
    let report = fixture.pass().await;
    assert_eq!(reasons(&report), [RefusalReason::Rejected], "{report:?}");
    assert_eq!(fixture.uids().await, before);
    assert_eq!(
        fixture
            .kubectl(&["get", "configmap", "a", "-o", "jsonpath={.data.key}"])
            .await,
        "1"
    );
}

#[tokio::test]
async fn an_immutable_field_is_reported_and_nothing_is_re_created() {
    let fixture = Fixture::new("immutable").await;
    fixture.write(
        "s/a.yaml",
        &config_map("a", "1").replace("\ndata:", "\nimmutable: true\ndata:"),
    );
    fixture.pass().await;
    let before = fixture.uids().await;
    fixture.write(
        "s/a.yaml",
        &config_map("a", "2").replace("\ndata:", "\nimmutable: true\ndata:"),
    );
    let report = fixture.pass().await;
    assert_eq!(reasons(&report), [RefusalReason::Rejected], "{report:?}");
    assert_eq!(fixture.uids().await, before);
}

#[tokio::test]
async fn a_missing_folder_is_never_the_absence_of_its_files() {
    let fixture = Fixture::new("missing").await;
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    fixture.pass().await;
    fixture.remove("");
    let error = fixture.failing_pass().await;
    assert!(error.contains("does not exist"), "{error}");
    assert_eq!(fixture.names().await, ["a"]);
    // Made anew and empty, as the mount point of an unmounted disk is.
    std::fs::create_dir(fixture.path("")).unwrap();
    let report = fixture.pass().await;
    assert_eq!(report.suspended, Some(Suspension::FolderEmpty), "{report:?}");
    assert_eq!(fixture.names().await, ["a"]);
}
