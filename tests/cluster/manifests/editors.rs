//! How files are rewritten, with passes at every step of it: nothing is pruned and no object is made anew.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use stratum::host::clock;
use stratum::reconcilers::manifests::report::Suspension;

use super::fixture::{Fixture, config_map, config_maps};

/// A stack of three objects in one file and one object beside it, applied.
async fn applied(purpose: &str) -> (Fixture<'static>, BTreeMap<String, String>) {
    let fixture = Fixture::new(purpose).await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b", "c"]));
    fixture.write("s/d.yaml", &config_map("d", "1"));
    fixture.pass().await;
    let uids = fixture.uids().await;
    assert_eq!(uids.len(), 4);
    (fixture, uids)
}

/// The file is as somebody wanted it: `b` has a new value, and all objects are the ones they were.
async fn is_rewritten(fixture: &Fixture<'_>, uids: &BTreeMap<String, String>) {
    let report = fixture.settled_pass().await;
    assert!(report.is_complete() && report.suspended.is_none(), "{report:?}");
    assert_eq!(fixture.uids().await, *uids);
    let value = fixture
        .kubectl(&["get", "configmap", "b", "-o", "jsonpath={.data.key}"])
        .await;
    assert_eq!(value, "2");
}

/// The file with a new value for `b`, in two parts as they may be written.
fn new_text() -> [String; 2] {
    let text = [config_map("a", "1"), config_map("b", "2"), config_map("c", "1")].join("---\n");
    let (first, second) = text.split_at(text.len() / 2);
    [first.to_owned(), second.to_owned()]
}

/// A pass between two steps of an editor.
async fn between(fixture: &Fixture<'_>, uids: &BTreeMap<String, String>, step: &str) {
    let report = fixture.glance().await;
    assert_eq!(report.total().pruned, 0, "{step}: {report:?}");
    assert_eq!(fixture.uids().await, *uids, "{step}");
}

#[tokio::test]
async fn an_editor_that_renames_the_file_away_and_writes_a_new_one() {
    let (fixture, uids) = applied("vim").await;
    let [first, second] = new_text();
    fixture.rename("s/a.yaml", "s/a.yaml~");
    let report = fixture.glance().await;
    assert_eq!(report.suspended, Some(Suspension::Unsettled), "{report:?}");
    between(&fixture, &uids, "renamed away").await;
    fixture.write_in_place("s/a.yaml".as_ref(), "");
    between(&fixture, &uids, "made").await;
    fixture.append("s/a.yaml", &first);
    between(&fixture, &uids, "half written").await;
    fixture.append("s/a.yaml", &second);
    between(&fixture, &uids, "written").await;
    fixture.remove("s/a.yaml~");
    is_rewritten(&fixture, &uids).await;
}

#[tokio::test]
async fn an_editor_that_fails_and_renames_the_old_file_back() {
    let (fixture, uids) = applied("back").await;
    fixture.rename("s/a.yaml", "s/a.yaml.bak");
    between(&fixture, &uids, "renamed away").await;
    fixture.write_in_place("s/a.yaml".as_ref(), &new_text()[0]);
    between(&fixture, &uids, "half written").await;
    fixture.remove("s/a.yaml");
    between(&fixture, &uids, "removed").await;
    fixture.rename("s/a.yaml.bak", "s/a.yaml");
    let report = fixture.settled_pass().await;
    assert_eq!(report.total().unchanged, 4, "{report:?}");
    assert_eq!(fixture.uids().await, uids);
}

#[tokio::test]
async fn an_editor_that_writes_beside_and_renames_over() {
    let (fixture, uids) = applied("over").await;
    let [first, second] = new_text();
    fixture.write_in_place("s/.a.yaml.swp".as_ref(), &first);
    between(&fixture, &uids, "half written").await;
    fixture.append("s/.a.yaml.swp", &second);
    between(&fixture, &uids, "written").await;
    fixture.rename("s/.a.yaml.swp", "s/a.yaml");
    is_rewritten(&fixture, &uids).await;
}

/// The moments are not chosen: passes run one after the other, as fast as they can, while files are rewritten in every
/// way. No state of the folder lasts for a second.
#[tokio::test]
async fn passes_while_files_are_rewritten_again_and_again() {
    const TIMES: usize = 40;
    let (fixture, uids) = applied("busy").await;
    let text = |value: usize| {
        let value = value.to_string();
        ["a", "b", "c"].map(|name| config_map(name, &value)).join("---\n")
    };
    let done = Cell::new(false);
    let edit = async {
        for time in 2..TIMES {
            let text = text(time);
            let (first, second) = text.split_at(text.len() * time / TIMES);
            match time % 3 {
                0 => fixture.write("s/a.yaml", &text),
                1 => {
                    fixture.write_in_place("s/a.yaml".as_ref(), first);
                    clock::sleep(Duration::from_millis(15)).await;
                    fixture.append("s/a.yaml", second);
                }
                _ => {
                    fixture.rename("s/a.yaml", "s/a.yaml~");
                    clock::sleep(Duration::from_millis(15)).await;
                    fixture.write_in_place("s/a.yaml".as_ref(), first);
                    clock::sleep(Duration::from_millis(15)).await;
                    fixture.append("s/a.yaml", second);
                    fixture.remove("s/a.yaml~");
                }
            }
            clock::sleep(Duration::from_millis(15)).await;
        }
        fixture.write("s/a.yaml", &text(TIMES));
        done.set(true);
    };
    let watch = async {
        let mut passes = 0;
        while !done.get() {
            let report = fixture.glance().await;
            assert_eq!(report.total().pruned, 0, "{report:?}");
            passes += 1;
        }
        passes
    };
    let ((), passes) = futures::future::join(edit, watch).await;
    assert!(passes > TIMES, "{passes}");
    let report = fixture.settled_pass().await;
    assert!(report.is_complete() && report.suspended.is_none(), "{report:?}");
    assert_eq!(fixture.uids().await, uids);
}

/// A ConfigMap or Secret mounted as a volume: files are links through `..data`, which is renamed over.
#[tokio::test]
async fn a_projected_volume_that_moves_to_its_next_version() {
    let fixture = Fixture::new("projected").await;
    for (version, text) in [
        ("..v1", config_maps(&["a", "b", "c"])),
        ("..v2", new_text().concat()),
        ("..v3", config_maps(&["a", "b"])),
    ] {
        fs::create_dir_all(fixture.path("s").join(version)).unwrap();
        fixture.write_in_place(format!("s/{version}/a.yaml").as_ref(), &text);
    }
    let point_to = |version: &str| {
        symlink(version, fixture.path("s/..data_tmp")).unwrap();
        fixture.rename("s/..data_tmp", "s/..data");
    };
    point_to("..v1");
    symlink("..data/a.yaml", fixture.path("s/a.yaml")).unwrap();
    let report = fixture.pass().await;
    assert_eq!(report.total().created, 3, "hidden versions declare nothing: {report:?}");
    let uids = fixture.uids().await;
    fixture.write_in_place("s/..v4".as_ref(), "");
    between(&fixture, &uids, "something new beside it").await;
    point_to("..v2");
    is_rewritten(&fixture, &uids).await;
    // While its target is away it links to nothing, which is not the absence of what it declares.
    fixture.remove("s/..data");
    let report = fixture.settled_pass().await;
    assert_eq!(report.suspended, Some(Suspension::PassIncomplete), "{report:?}");
    assert_eq!(fixture.uids().await, uids);
    point_to("..v3");
    let report = fixture.pass().await;
    assert_eq!(report.total().pruned, 1, "{report:?}");
    assert_eq!(fixture.names().await, ["a", "b"]);
}
