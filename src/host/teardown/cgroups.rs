//! The control groups of the kubelet's pods: what still runs in them, and how they go.
//!
//! The kubelet keeps all pods in one group, `kubepods`, below the `cgroupRoot` of its configuration: one in each tree of
//! cgroup v1, one in the single tree of v2. Without its configuration nothing is known to be ours, and none is touched.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::super::clock;
use super::super::layout::Layout;
use super::report::{Error, Report};

/// The kernel takes a moment to let a group go whose last process has ended.
const PATIENCE: Duration = Duration::from_secs(5);
const PACE: Duration = Duration::from_millis(100);

/// What of the kubelet's configuration says where its groups are.
#[derive(Deserialize)]
struct KubeletConfiguration {
    #[serde(default, rename = "cgroupRoot")]
    root: Option<String>,
}

/// The pods' groups that exist.
pub(super) fn find(layout: &Layout) -> Result<Vec<PathBuf>, Error> {
    let path = layout.kubelet_config();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::Read { path, source }),
    };
    // One that cannot be parsed names no group, like none.
    let Ok(KubeletConfiguration { root }) = serde_saphyr::from_str(&text) else {
        return Ok(Vec::new());
    };
    let names = names(root.as_deref().unwrap_or("/"));
    let groups = trees(layout)
        .into_iter()
        .flat_map(|tree| names.iter().map(move |name| tree.join(name)).collect::<Vec<_>>());
    Ok(groups.filter(|group| group.is_dir()).collect())
}

/// The roots of the trees of groups.
fn trees(layout: &Layout) -> Vec<PathBuf> {
    let top = layout.root().join("sys/fs/cgroup");
    if top.join("cgroup.controllers").exists() {
        return vec![top];
    }
    let entries = std::fs::read_dir(&top).into_iter().flatten().flatten();
    // Links are second names of a tree.
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut trees: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    trees.sort();
    trees
}

/// Where the pods' group is below the root of a tree: as the kubelet's driver `cgroupfs` names it, and as `systemd` does.
/// A root that leads upwards names none.
fn names(root: &str) -> Vec<PathBuf> {
    let mut parts = Vec::new();
    for component in Path::new(root).components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir | Component::Prefix(_) => return Vec::new(),
        }
    }
    parts.push("kubepods".to_owned());
    // systemd's slices repeat the names above them: a.slice/a-b.slice.
    let slices = (1..=parts.len()).map(|length| format!("{}.slice", parts[..length].join("-")));
    vec![parts.iter().collect(), slices.collect()]
}

/// The processes in groups and below.
pub(super) fn processes(groups: &[PathBuf]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut folders = groups.to_vec();
    while let Some(folder) = folders.pop() {
        // A group that goes meanwhile has no processes.
        let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        // Those of other PID namespaces are listed as 0.
        found.extend(
            text.lines()
                .filter_map(|line| line.parse::<u32>().ok())
                .filter(|id| *id != 0),
        );
        folders.extend(below(&folder));
    }
    found
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Removes groups without processes, the innermost first.
pub(super) async fn remove(groups: &[PathBuf], report: &mut Report) {
    for group in groups {
        let began = clock::monotonic();
        loop {
            match remove_one(group) {
                Ok(()) => {
                    report.removed(format!("control group {}", group.display()));
                    break;
                }
                Err(_) if began.elapsed() < PATIENCE => clock::sleep(PACE).await,
                Err(error) => {
                    let why =
                        format!("it cannot be removed ({error}); it is empty, and gone when the machine restarts");
                    report.left(format!("control group {}", group.display()), why);
                    break;
                }
            }
        }
    }
}

fn remove_one(group: &Path) -> io::Result<()> {
    for folder in below(group) {
        remove_one(&folder)?;
    }
    match std::fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::put;
    use super::*;

    #[test]
    fn where_the_kubelet_keeps_its_pods() {
        let named = |root: &str| {
            names(root)
                .iter()
                .map(|name| name.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(named("/"), ["kubepods", "kubepods.slice"]);
        assert_eq!(named(""), ["kubepods", "kubepods.slice"]);
        assert_eq!(named("/a/b"), ["a/b/kubepods", "a.slice/a-b.slice/a-b-kubepods.slice"]);
        assert_eq!(named("/../etc"), Vec::<String>::new());
    }

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            put(&folder.path().join(path), text.as_bytes());
        }
        let layout = Layout::under(folder.path());
        (folder, layout)
    }

    #[test]
    fn groups_of_both_versions_and_what_runs_in_them() {
        let configuration = ("var/lib/stratum/kubelet/kubelet.conf", "cgroupRoot: /rig-1\n");
        let (folder, layout) = machine(&[
            configuration,
            ("sys/fs/cgroup/memory/rig-1/kubepods/cgroup.procs", ""),
            (
                "sys/fs/cgroup/memory/rig-1/kubepods/burstable/pod1/c1/cgroup.procs",
                "11\n12\n0\n",
            ),
            ("sys/fs/cgroup/pids/rig-1/kubepods/pod2/cgroup.procs", "11\n13\n"),
            // Another kubelet's.
            ("sys/fs/cgroup/pids/rig-2/kubepods/pod2/cgroup.procs", "14\n"),
            ("sys/fs/cgroup/pids/kubepods/pod2/cgroup.procs", "15\n"),
        ]);
        std::os::unix::fs::symlink("memory", folder.path().join("sys/fs/cgroup/second-name")).unwrap();
        let groups = find(&layout).unwrap();
        let top = folder.path().join("sys/fs/cgroup");
        assert_eq!(
            groups,
            [top.join("memory/rig-1/kubepods"), top.join("pids/rig-1/kubepods")]
        );
        assert_eq!(processes(&groups), BTreeSet::from([11, 12, 13]));

        let (folder, layout) = machine(&[
            ("var/lib/stratum/kubelet/kubelet.conf", "cgroupDriver: systemd\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu"),
            ("sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cgroup.procs", "21\n"),
            ("sys/fs/cgroup/system.slice/cgroup.procs", "22\n"),
        ]);
        let groups = find(&layout).unwrap();
        assert_eq!(groups, [folder.path().join("sys/fs/cgroup/kubepods.slice")]);
        assert_eq!(processes(&groups), BTreeSet::from([21]));
    }

    #[test]
    fn without_the_kubelets_configuration_no_group_is_ours() {
        for files in [
            &[("sys/fs/cgroup/pids/kubepods/cgroup.procs", "1\n")][..],
            &[
                ("sys/fs/cgroup/pids/kubepods/cgroup.procs", "1\n"),
                ("var/lib/stratum/kubelet/kubelet.conf", "cgroupRoot: [\n"),
            ],
        ] {
            let (_folder, layout) = machine(files);
            assert_eq!(find(&layout).unwrap(), Vec::<PathBuf>::new(), "{files:?}");
        }
    }

    #[tokio::test]
    async fn groups_go_with_those_in_them_and_one_that_cannot_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, used) = (folder.path().join("a/kubepods"), folder.path().join("b/kubepods"));
        std::fs::create_dir_all(empty.join("burstable/pod1")).unwrap();
        // A real group has no files that could be in the way; here one stands for a process.
        put(&used.join("pod1/process"), b"");
        let mut report = Report::default();
        remove(&[empty.clone(), used.clone()], &mut report).await;
        assert!(!empty.exists() && used.exists());
        assert_eq!(report.removed.len(), 1);
        assert_eq!(report.left[0].what, format!("control group {}", used.display()));
    }
}
