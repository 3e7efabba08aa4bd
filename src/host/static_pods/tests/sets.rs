//! Snapshots: whole or not at all, whatever step they end at.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::machine::write;
use super::*;
use crate::host::static_pods::Error;

/// Every file below a folder, with content and mode.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            found.insert(path.clone(), (fs::read(&path).unwrap(), mode));
        }
    }
    found
}

fn node() -> (tempfile::TempDir, StaticPods, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let pods = pods_under(root.path());
    pods.write_all(&NodeState {
        profile: Profile::Cis,
        ..with_vip()
    })
    .unwrap();
    let snapshot = root.path().join("snapshot");
    (root, pods, snapshot)
}

const FILES: [&str; 8] = [
    "admission-webhook.yaml",
    "audit-policy.yaml",
    "authentication-config.yaml",
    "etcd.yaml",
    "kube-apiserver.yaml",
    "kube-controller-manager.yaml",
    "kube-scheduler.yaml",
    "kube-vip.yaml",
];

fn live(pods: &StaticPods, name: &str) -> PathBuf {
    let derived = pods.layout.static_pod_files().join(name);
    if derived.exists() {
        derived
    } else {
        pods.folder().join(name)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let paths: Vec<PathBuf> = tree(folder).into_keys().collect();
    paths
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_snapshot_is_the_set_and_comes_back() {
    let (root, pods, snapshot) = node();
    fs::set_permissions(live(&pods, "audit-policy.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
    let before = tree(&pods.layout.state());
    for stray in ["etcd.yaml.tmp", "mine.yaml", ".etcd.yaml.1-2.tmp"] {
        write(&pods.folder().join(stray), "x");
    }
    write(&pods.layout.static_pod_files().join("mine.yaml"), "x");
    pods.snapshot(&snapshot).unwrap();
    assert_eq!(names(&snapshot), FILES);
    assert_eq!(fs::metadata(&snapshot).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(matches!(pods.snapshot(&snapshot), Err(Error::SnapshotExists { .. })));
    // What joined the snapshot lands nowhere.
    write(&snapshot.join("mine.yaml"), "y");
    write(&snapshot.join("etcd.yaml.tmp"), "y");
    fs::remove_dir_all(pods.folder()).unwrap();
    fs::remove_dir_all(pods.layout.static_pod_files()).unwrap();
    pods.restore_snapshot(&snapshot).unwrap();
    assert_eq!(tree(&pods.layout.state()), before);
    assert!(root.path().exists());
}

#[test]
fn a_restore_sweeps_what_the_kubelet_would_take_for_pods() {
    let (_root, pods, snapshot) = node();
    pods.snapshot(&snapshot).unwrap();
    write(&pods.folder().join("etcd.yaml.tmp"), "x");
    write(&pods.folder().join("mine.yaml"), "x");
    write(&pods.path(Component::Etcd), "other");
    pods.restore_snapshot(&snapshot).unwrap();
    assert!(!pods.folder().join("etcd.yaml.tmp").exists());
    assert!(pods.folder().join("mine.yaml").exists());
    assert_eq!(
        pods.read(Component::Etcd).unwrap(),
        fs::read(snapshot.join("etcd.yaml")).unwrap()
    );
}

/// Whichever of its files cannot be copied: no snapshot is there, and nothing that looks like one.
#[test]
fn a_snapshot_is_there_whole_or_not_at_all() {
    for name in FILES {
        let (root, pods, snapshot) = node();
        let path = live(&pods, name);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(pods.snapshot(&snapshot).is_err(), "{name}");
        let left: Vec<String> = fs::read_dir(root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left, ["var"], "{name}");
        fs::remove_dir(&path).unwrap();
        write(&path, std::str::from_utf8(&bytes).unwrap());
        pods.snapshot(&snapshot).unwrap();
        assert_eq!(names(&snapshot), FILES, "{name}");
    }
}

/// What a killed attempt left is not part of the next.
#[test]
fn a_killed_snapshot_is_taken_again() {
    let (root, pods, snapshot) = node();
    let staging = root.path().join(".snapshot.incomplete");
    fs::create_dir(&staging).unwrap();
    write(&staging.join("etcd.yaml"), "old");
    write(&staging.join("mine.yaml"), "old");
    pods.snapshot(&snapshot).unwrap();
    assert!(!staging.exists());
    assert_eq!(names(&snapshot), FILES);
    assert_eq!(
        fs::read(snapshot.join("etcd.yaml")).unwrap(),
        pods.read(Component::Etcd).unwrap()
    );
}

/// Ended at any of its writes, a restore completes when it is done again, and no file is ever a part of one.
#[test]
fn a_restore_that_ends_half_way_completes_when_repeated() {
    for name in FILES {
        let (_root, pods, snapshot) = node();
        pods.snapshot(&snapshot).unwrap();
        let wanted = tree(&pods.layout.state());
        for file in FILES {
            write(&live(&pods, file), "changed");
        }
        let obstacle = live(&pods, name);
        fs::remove_file(&obstacle).unwrap();
        fs::create_dir(&obstacle).unwrap();
        assert!(pods.restore_snapshot(&snapshot).is_err(), "{name}");
        fs::remove_dir(&obstacle).unwrap();
        for (path, (bytes, _)) in tree(&pods.layout.state()) {
            assert!(
                bytes == b"changed" || Some(&bytes) == wanted.get(&path).map(|(bytes, _)| bytes),
                "{path:?}"
            );
        }
        pods.restore_snapshot(&snapshot).unwrap();
        assert_eq!(tree(&pods.layout.state()), wanted, "{name}");
    }
}

/// Nothing is changed on the word of a snapshot that cannot be read whole, or is none.
#[test]
fn an_unusable_snapshot_changes_nothing() {
    let (root, pods, snapshot) = node();
    write(&pods.folder().join("etcd.yaml.tmp"), "x");
    let before = tree(&pods.layout.state());
    assert!(matches!(pods.restore_snapshot(&snapshot), Err(Error::Read { .. })));
    fs::create_dir(&snapshot).unwrap();
    write(&snapshot.join("audit-policy.yaml"), "x");
    assert!(matches!(
        pods.restore_snapshot(&snapshot),
        Err(Error::EmptySnapshot { .. })
    ));
    write(&snapshot.join("etcd.yaml"), "x");
    fs::create_dir(snapshot.join("kube-vip.yaml")).unwrap();
    assert!(matches!(pods.restore_snapshot(&snapshot), Err(Error::Read { .. })));
    assert_eq!(tree(&pods.layout.state()), before);
    assert!(matches!(pods.snapshot(Path::new("/")), Err(Error::Place { .. })));
    assert!(root.path().exists());
}
