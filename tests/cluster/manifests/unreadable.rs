//! A file that is something else, or cannot be read, in the place of one that was applied: never the absence of what it
//! declared.
//!
//! Tests may run as root, whom no permission stops: what cannot be read here is refused by the kernel to everybody.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use stratum::reconcilers::manifests::report::{RefusalReason, Suspension};

use super::bad_input::reasons;
use super::fixture::{Fixture, config_maps};

/// Applies a stack of two files, puts something else in the place of one, and takes it away again.
async fn in_its_place(purpose: &str, make: impl FnOnce(&Path), says: &str) {
    let fixture = Fixture::new(purpose).await;
    fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
    fixture.write("s/c.yaml", &config_maps(&["c", "d"]));
    fixture.pass().await;
    let uids = fixture.uids().await;
    fixture.write("s/c.yaml", &config_maps(&["c"]));
    fixture.rename("s/a.yaml", "a.away");
    make(&fixture.path("s/a.yaml"));
    for report in [fixture.settled_pass().await, fixture.restarted().pass().await] {
        assert_eq!(reasons(&report), [RefusalReason::Unreadable], "{report:?}");
        let text = report.refusals[0].to_string();
        assert!(text.starts_with("s/a.yaml: ") && text.contains(says), "{says}: {text}");
        assert_eq!(report.suspended, Some(Suspension::PassIncomplete), "{report:?}");
        assert_eq!(fixture.uids().await, uids, "{report:?}");
    }
    fixture.remove("s/a.yaml");
    fixture.rename("a.away", "s/a.yaml");
    let report = fixture.restarted().pass().await;
    assert_eq!(report.total().pruned, 1, "{report:?}");
    let left = fixture.uids().await;
    assert!(
        left.len() == 3 && left.iter().all(|(name, uid)| uids[name] == *uid),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_link_to_nothing() {
    in_its_place("nothing", |path| symlink("nowhere", path).unwrap(), "links to nothing").await;
}

#[tokio::test]
async fn a_link_to_itself() {
    in_its_place("itself", |path| symlink("a.yaml", path).unwrap(), "circle").await;
}

#[tokio::test]
async fn a_link_to_the_folder_it_is_in() {
    in_its_place(
        "around",
        |path| symlink(".", path).unwrap(),
        "folder with a file's ending",
    )
    .await;
}

#[tokio::test]
async fn a_pipe() {
    let make = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    in_its_place("pipe", make, "it is a pipe").await;
}

#[tokio::test]
async fn a_socket() {
    // A socket's path may not be long: it is made in /tmp, where the folder may not be, and moved.
    let make = |path: &Path| {
        let folder = tempfile::tempdir_in(path.parent().unwrap()).unwrap();
        let short = folder.path().join("s");
        drop(UnixListener::bind(&short).unwrap());
        fs::rename(short, path).unwrap();
    };
    in_its_place("socket", make, "a socket").await;
}

#[tokio::test]
async fn a_folder_with_the_name_of_a_file() {
    in_its_place(
        "folder",
        |path| fs::create_dir(path).unwrap(),
        "folder with a file's ending",
    )
    .await;
}

/// What a bad disk does: opening works, reading fails. The first page of a process's memory is no memory at all.
#[tokio::test]
async fn a_file_that_cannot_be_read() {
    in_its_place(
        "broken",
        |path| symlink("/proc/self/mem", path).unwrap(),
        "cannot be read",
    )
    .await;
}

/// A file nobody could mean: it is not read into memory.
#[tokio::test]
async fn a_file_larger_than_any_object() {
    let make = |path: &Path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    in_its_place("large", make, "larger than").await;
}

/// A whole stack that is not there: a link into a file system that is not mounted, and one that goes around.
#[tokio::test]
async fn a_stack_that_links_to_nothing_or_around() {
    for (purpose, target, says) in [
        ("unmounted", "/nowhere/stack", "links to nothing"),
        ("loop", "..", "links to a folder it is in"),
        ("self", "s", "circle"),
    ] {
        let fixture = Fixture::new(purpose).await;
        fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
        fixture.write("t/c.yaml", &config_maps(&["c"]));
        fixture.pass().await;
        let uids = fixture.uids().await;
        fixture.rename("s", "../away");
        symlink(target, fixture.path("s")).unwrap();
        let report = fixture.settled_pass().await;
        assert!(reasons(&report).contains(&RefusalReason::Unreadable), "{report:?}");
        assert!(
            report.refusals.iter().any(|refusal| refusal.to_string().contains(says)),
            "{report:?}"
        );
        assert_eq!(fixture.uids().await, uids, "{report:?}");
        let report = fixture.restarted().pass().await;
        assert_eq!(fixture.uids().await, uids, "{report:?}");
    }
}
