use std::os::unix::fs::symlink;
use std::path::Path;

use super::super::child::Program;
use super::super::clock;
use super::remove::{Outcome, remove};
use super::*;

/// Writes a file, and the folders above it.
pub(super) fn put(path: &Path, text: &[u8]) {
    atomic_file::create_folder(path.parent().unwrap(), Access::Public).unwrap();
    atomic_file::write(path, text, Access::Public).unwrap();
}

/// A program that runs a shell script.
pub(super) fn tool(folder: &Path, name: &str, script: &str) -> PathBuf {
    let path = folder.join(name);
    atomic_file::write(&path, format!("#!/bin/sh\n{script}\n").as_bytes(), Access::Executable).unwrap();
    path
}

/// Everything below a folder, by name; what links lead to is left out.
fn listing(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            found.insert(entry.path().strip_prefix(folder).unwrap().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// What was on the machine before it was a node.
const BEFORE: [&str; 9] = [
    "etc/cni/net.d/10-bridge.conflist",
    "etc/hostname",
    "proc/net/dev",
    "proc/self/mountinfo",
    "run/netns/blue",
    "var/lib/cni/networks/podman/10.88.0.2",
    "var/lib/other/file",
    "var/log/pods/default_other_99/c/0.log",
    "var/log/syslog",
];

/// What a node has.
const NODE: [(&str, &str); 20] = [
    ("etc/stratum/config.yaml", ""),
    ("etc/stratum/manifests/coredns/coredns.yaml", ""),
    (
        "etc/systemd/system/stratum.service",
        "[Service]\nExecStart=/usr/local/bin/stratum up\n",
    ),
    ("run/stratum/node.lock", ""),
    (
        "run/stratum/containerd/io.containerd.runtime.v2.task/k8s.io/abc/config.json",
        r#"{"linux": {"namespaces": [{"type": "network", "path": "/var/run/netns/cni-1"}]}}"#,
    ),
    ("run/netns/cni-1", ""),
    ("sys/fs/cgroup/cgroup.controllers", ""),
    ("var/lib/cni/networks/pods/10.244.0.2", "abc\neth0"),
    ("var/lib/cni/networks/pods/last_reserved_ip.0", "10.244.0.2"),
    ("var/lib/cni/results/pods-abc-eth0", "{}"),
    ("var/lib/kubelet/pki/kubelet-client-current.pem", ""),
    ("var/lib/kubelet/pods/11/etc-hosts", ""),
    ("var/lib/stratum/etcd/member/snap/db", ""),
    ("var/lib/stratum/kubelet/kubelet.conf", "cgroupRoot: /\n"),
    ("var/lib/stratum/node.yaml", "version: 1\n"),
    ("var/lib/stratum/pki/ca.key", ""),
    ("var/log/kubernetes/audit/audit.log", ""),
    ("var/log/pods/kube-system_etcd_11/etcd/0.log", ""),
    ("var/log/stratum/kubelet.log", ""),
    ("var/log/containers/note", ""),
];

struct Machine {
    folder: tempfile::TempDir,
    before: BTreeSet<String>,
}

impl Machine {
    fn bare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for path in BEFORE {
            put(&folder.path().join(path), b"");
        }
        // What the kernel and everybody has.
        for path in [
            "etc/systemd/system/multi-user.target.wants",
            "run",
            "sys/fs/cgroup",
            "var/lib",
            "var/log",
        ] {
            atomic_file::create_folder(&folder.path().join(path), Access::Public).unwrap();
        }
        put(&folder.path().join("sys/fs/cgroup/cgroup.controllers"), b"");
        let before = listing(folder.path());
        Self { folder, before }
    }

    fn node() -> Self {
        let machine = Self::bare();
        for (path, text) in NODE {
            put(&machine.path(path), text.as_bytes());
        }
        symlink(
            "/var/log/pods/kube-system_etcd_11/etcd/0.log",
            machine.path("var/log/containers/etcd_kube-system_etcd-1.log"),
        )
        .unwrap();
        // As `systemctl enable` makes it.
        symlink(
            "/etc/systemd/system/stratum.service",
            machine.path("etc/systemd/system/multi-user.target.wants/stratum.service"),
        )
        .unwrap();
        // A link in a volume, and one that leads out.
        symlink(
            machine.path("var/lib/other"),
            machine.path("var/lib/kubelet/pods/11/out"),
        )
        .unwrap();
        atomic_file::create_folder(
            &machine.path("sys/fs/cgroup/kubepods.slice/kubepods-pod11.slice"),
            Access::Public,
        )
        .unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn teardown(&self) -> Teardown {
        Teardown {
            layout: Layout::under(self.folder.path()),
            tools: Tools::default(),
            keep_configuration: false,
        }
    }

    async fn clean(&self) -> Result<Report, Error> {
        let mut report = Report::default();
        let teardown = self.teardown();
        let stopped = teardown.stop(&mut report).await.unwrap();
        teardown.clean(&stopped, &mut report).await.map(|()| report)
    }
}

#[tokio::test]
async fn afterwards_the_machine_is_as_it_was_before() {
    let machine = Machine::node();
    // Somebody's file among the links of logs is somebody's.
    std::fs::remove_file(machine.path("var/log/containers/note")).unwrap();
    let plan = machine.teardown().plan().unwrap();
    assert!(!plan.is_empty());
    assert_eq!(plan.control_groups, [machine.path("sys/fs/cgroup/kubepods.slice")]);
    assert_eq!(plan.files.last(), Some(&machine.path("run/stratum")));
    assert!(
        listing(machine.folder.path()).contains("var/lib/stratum/node.yaml"),
        "a plan changes nothing"
    );

    let report = machine.clean().await.unwrap();
    assert_eq!(listing(machine.folder.path()), machine.before);
    let left: Vec<&str> = report.left.iter().map(|left| left.what.as_str()).collect();
    assert!(
        left.contains(&machine.path("var/log/pods").to_str().unwrap()),
        "{left:?}"
    );
    assert!(machine.teardown().plan().unwrap().is_empty());
    machine.clean().await.unwrap();
    assert_eq!(
        listing(machine.folder.path()),
        machine.before,
        "once more changes nothing"
    );
}

/// As the runtime would have it: their containers have ended, and their namespaces still have a name.
#[tokio::test]
async fn network_plugins_undo_what_they_did() {
    let machine = Machine::node();
    let attachment = super::cni::tests::result("abc", super::cni::tests::NETWORK);
    put(
        &machine.path("var/lib/cni/results/pods-abc-eth0"),
        attachment.as_bytes(),
    );
    let (name, log) = (machine.path("run/netns/cni-1"), machine.path("var/lib/other/log"));
    let plugins = machine.path("opt/cni/bin");
    atomic_file::create_folder(&plugins, Access::Public).unwrap();
    for plugin in ["bridge", "portmap"] {
        let script = format!("test -e {} && echo {plugin} >> {}", name.display(), log.display());
        tool(&plugins, plugin, &script);
    }
    let report = machine.clean().await.unwrap();
    assert_eq!(std::fs::read_to_string(log).unwrap(), "portmap\nbridge\n");
    assert!(
        report.removed.contains(&"network of sandbox abc".to_owned()),
        "{report:?}"
    );
    assert!(!name.exists());
}

/// It stands in the distribution's place, so a plan tells of it; one that is somebody else's is never touched.
#[tokio::test]
async fn the_configuration_an_older_build_left_for_containerd_goes() {
    for (text, ours) in [
        ("# Written by stratum; x.\nversion = 2\n", true),
        ("version = 3\n", false),
    ] {
        let machine = Machine::node();
        let legacy = machine.path("etc/containerd/config.toml");
        put(&legacy, text.as_bytes());
        assert_eq!(machine.teardown().plan().unwrap().files.contains(&legacy), ours);
        let report = machine.clean().await.unwrap();
        assert_eq!(report.removed.contains(&legacy.display().to_string()), ours);
        assert_eq!(legacy.exists(), !ours);
    }
}

#[tokio::test]
async fn the_configuration_and_what_others_have_stay() {
    let machine = Machine::node();
    let mut report = Report::default();
    let teardown = Teardown {
        keep_configuration: true,
        ..machine.teardown()
    };
    let stopped = teardown.stop(&mut report).await.unwrap();
    teardown.clean(&stopped, &mut report).await.unwrap();
    assert!(machine.path("etc/stratum/config.yaml").exists());
    assert!(machine.path("var/log/containers/note").exists());
    assert!(!machine.path("var/lib/stratum").exists());
}

/// However far an uninstall came, the next one finishes it. Each thing of a node is taken away alone, and all up to it.
#[tokio::test]
async fn an_interrupted_one_is_finished_by_the_next() {
    for until in 0..NODE.len() {
        for first in [0, until] {
            let machine = Machine::node();
            std::fs::remove_file(machine.path("var/log/containers/note")).unwrap();
            for (path, _) in &NODE[first..=until] {
                let _ = std::fs::remove_file(machine.path(path));
            }
            // Without what the machine itself says, nothing would be a machine.
            put(&machine.path("sys/fs/cgroup/cgroup.controllers"), b"");
            machine.clean().await.unwrap();
            let mut left = listing(machine.folder.path());
            // Without the kubelet's configuration its groups are not known to be ours, and stay.
            if !machine.path("var/lib/stratum/kubelet").exists() {
                left.retain(|path| !path.contains("kubepods"));
            }
            assert!(
                !left.iter().any(|path| path.contains("stratum")),
                "{first}..={until}: {left:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_cannot_be_deleted_keeps_the_nodes_state() {
    let machine = Machine::node();
    let elsewhere = machine.path("var/lib/other/kubelet");
    std::fs::rename(machine.path("var/lib/kubelet"), &elsewhere).unwrap();
    symlink(&elsewhere, machine.path("var/lib/kubelet")).unwrap();
    let error = machine.clean().await.unwrap_err();
    assert!(matches!(error, Error::Link { .. }), "{error}");
    assert!(elsewhere.join("pki/kubelet-client-current.pem").exists());
    // The rest went on; what says which node it was is still there.
    assert!(machine.path("var/lib/stratum/node.yaml").exists());
    assert!(!machine.path("var/lib/stratum/pki").exists());
    assert!(!machine.path("etc/stratum").exists());
    std::fs::remove_file(machine.path("var/lib/kubelet")).unwrap();
    machine.clean().await.unwrap();
    assert!(!machine.path("var/lib/stratum").exists());
}

#[tokio::test]
async fn what_is_mounted_and_cannot_be_unmounted_stops_it_before_any_file_goes() {
    let machine = Machine::node();
    let point = machine.path("var/lib/kubelet/pods/11/etc-hosts");
    let line = format!("1 2 0:1 / {} rw - tmpfs tmpfs rw\n", point.display());
    put(&machine.path("proc/self/mountinfo"), line.as_bytes());
    assert_eq!(machine.teardown().plan().unwrap().mounts, std::slice::from_ref(&point));
    // The kernel knows of no such mount, so it never goes from the list.
    let error = machine.clean().await.unwrap_err();
    assert!(matches!(&error, Error::Mounted { path } if *path == point), "{error}");
    assert!(point.exists() && machine.path("var/lib/stratum/pki/ca.key").exists());
}

#[tokio::test]
async fn that_the_cluster_let_go_is_remembered_until_the_end() {
    let machine = Machine::node();
    let teardown = machine.teardown();
    assert_eq!(teardown.was_let_go(), None);
    teardown.let_go("marked").unwrap();
    assert_eq!(teardown.was_let_go().as_deref(), Some("marked"));
    machine.clean().await.unwrap();
    assert_eq!(teardown.was_let_go(), None);
    teardown.let_go("marked").unwrap();
    assert!(!machine.path("var/lib/stratum").exists(), "nothing is made for it");
}

#[test]
fn links_are_deleted_and_never_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    put(&path("precious/file"), b"x");
    put(&path("ours/a/b/file"), b"x");
    symlink(path("precious"), path("ours/a/folder")).unwrap();
    symlink(path("precious/file"), path("ours/file")).unwrap();
    symlink("..", path("ours/a/up")).unwrap();
    symlink("/", path("ours/a/top")).unwrap();
    assert_eq!(remove(&path("ours"), &BTreeSet::new()).unwrap(), Outcome::Removed);
    assert!(!path("ours").exists() && path("precious/file").exists());
    assert_eq!(remove(&path("ours"), &BTreeSet::new()).unwrap(), Outcome::Absent);
    assert_eq!(
        remove(&path("no/such/folder"), &BTreeSet::new()).unwrap(),
        Outcome::Absent
    );

    symlink(path("precious"), path("ours")).unwrap();
    assert!(matches!(
        remove(&path("ours"), &BTreeSet::new()),
        Err(Error::Link { .. })
    ));
    assert!(path("precious/file").exists());
    assert!(matches!(
        remove(Path::new("/"), &BTreeSet::new()),
        Err(Error::Remove { .. })
    ));
    assert!(matches!(
        remove(Path::new("/proc/.."), &BTreeSet::new()),
        Err(Error::Remove { .. })
    ));
}

#[test]
fn what_is_kept_stays_with_its_folders() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["ours/node.yaml", "ours/a/kept", "ours/a/b/file", "ours/c/file"] {
        put(&path(name), b"x");
    }
    let keep = BTreeSet::from([path("ours/node.yaml"), path("ours/a/kept")]);
    assert_eq!(remove(&path("ours"), &keep).unwrap(), Outcome::Emptied);
    assert_eq!(
        listing(folder.path()),
        ["ours", "ours/a", "ours/a/kept", "ours/node.yaml"]
            .map(str::to_owned)
            .into()
    );
}

/// Deeper than a process may have files open.
#[test]
fn a_very_deep_tree_goes_too() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("ours");
    let step = "d".repeat(20);
    std::fs::create_dir(&top).unwrap();
    // Built from the inside out: the whole path is longer than the kernel takes.
    for _ in 0..30 {
        let deep: PathBuf = std::iter::repeat_n(step.as_str(), 100).collect();
        let fresh = folder.path().join("fresh");
        std::fs::create_dir_all(fresh.join(&deep)).unwrap();
        std::fs::rename(&top, fresh.join(deep).join("below")).unwrap();
        std::fs::rename(&fresh, &top).unwrap();
    }
    assert_eq!(remove(&top, &BTreeSet::new()).unwrap(), Outcome::Removed);
    assert_eq!(listing(folder.path()), BTreeSet::new());
}

/// The real thing, in a mount namespace of its own: [`with_real_mounts`] is run in it.
#[tokio::test]
async fn nothing_is_deleted_through_a_mount() {
    let own = std::env::current_exe().unwrap();
    let inner = ["--exact", "host::teardown::tests::with_real_mounts", "--ignored"];
    let unshare = Program::new("unshare")
        .arguments(["--mount", "--propagation", "private", "--"])
        .arguments([own])
        .arguments(inner);
    let finished = unshare.run(Vec::new()).await.unwrap();
    let said = String::from_utf8_lossy(&finished.stderr);
    if said.contains("Operation not permitted") && std::env::var_os("CI").is_none() {
        return;
    }
    let printed = String::from_utf8_lossy(&finished.stdout);
    assert!(
        finished.exit.is_success() && printed.contains("1 passed"),
        "{said}{printed}"
    );
}

#[tokio::test]
#[ignore = "needs a mount namespace of its own: nothing_is_deleted_through_a_mount runs it in one"]
async fn with_real_mounts() {
    use rustix::mount::{MountFlags, mount, mount_bind};
    let machine = Machine::node();
    // A disk of somebody's for etcd, one for the kubelet, a volume in a pod with a bind mount of a file on top of it.
    let mounted = |path: &str| {
        let point = machine.path(path);
        atomic_file::create_folder(&point, Access::Public).unwrap();
        mount("tmpfs", &point, "tmpfs", MountFlags::empty(), None).unwrap();
        put(&point.join("data/file"), b"x");
    };
    mounted("var/lib/stratum/etcd");
    mounted("var/lib/kubelet");
    mounted("var/lib/kubelet/pods/11/volumes/disk");
    let bind = machine.path("var/lib/kubelet/pods/11/volumes/other");
    atomic_file::create_folder(&bind, Access::Public).unwrap();
    mount_bind(machine.path("var/lib/other"), &bind).unwrap();
    let hosts = machine.path("var/lib/kubelet/pods/11/hosts");
    put(&hosts, b"");
    mount_bind(machine.path("etc/hostname"), &hosts).unwrap();

    // The walk by itself refuses what it was not told of, a bind mount of the same file system and of a file among it.
    for inner in [&bind, &machine.path("var/lib/kubelet/pods/11/volumes/disk"), &hosts] {
        let error = remove(inner.parent().unwrap(), &BTreeSet::new()).unwrap_err();
        assert!(matches!(&error, Error::Mounted { .. }), "{error}");
        assert!(matches!(
            remove(&machine.path("var/lib/stratum"), &BTreeSet::new()),
            Err(Error::Mounted { .. })
        ));
    }
    assert!(machine.path("var/lib/other/file").exists());

    // Somebody is in a volume, so it is busy.
    let busy = Program::new("sleep")
        .arguments(["600"])
        .folder(machine.path("var/lib/kubelet/pods/11/volumes/disk"));
    let busy = busy.start(&super::super::child::Output::Discard).unwrap();
    symlink("/proc/self/mountinfo", machine.path("proc/self/table")).unwrap();
    std::fs::rename(machine.path("proc/self/table"), machine.path("proc/self/mountinfo")).unwrap();
    let began = clock::monotonic();
    let report = machine.clean().await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(5), "it was waited for");
    drop(busy);
    let left = listing(machine.folder.path());
    for path in [
        "var/lib/other/file",
        "etc/hostname",
        "var/lib/stratum/etcd",
        "var/lib/kubelet",
    ] {
        assert!(left.contains(path), "{path}: {left:?}");
    }
    for path in ["var/lib/stratum/etcd", "var/lib/kubelet"] {
        assert_eq!(listing(&machine.path(path)), BTreeSet::new(), "it is empty, and there");
    }
    assert!(!left.contains("var/lib/stratum/node.yaml"));
    let why = |what: &str| {
        let what = machine.path(what).display().to_string();
        report
            .left
            .iter()
            .find(|left| left.what.ends_with(&what))
            .map(|left| left.why.clone())
    };
    assert!(why("var/lib/stratum/etcd").unwrap().contains("stays mounted"));
    assert!(why("var/lib/kubelet/pods/11/volumes/disk").unwrap().contains("in use"));
}
