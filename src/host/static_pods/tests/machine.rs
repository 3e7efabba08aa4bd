//! A process table and cgroups made of files, and the tests of how they are read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use super::*;
use crate::host::atomic_file::{self, Access};
use crate::host::static_pods::Error;

/// A machine of one node.
pub(super) struct Machine {
    pub(super) root: tempfile::TempDir,
    /// What was sent to whom.
    pub(super) signals: Arc<Mutex<Vec<(u32, Signal)>>>,
}

/// How a machine's cgroups are laid out.
#[derive(Clone, Copy)]
pub(super) enum Cgroups {
    V1,
    V2,
}

/// A UID the kubelet derives from a file.
pub(super) const STATIC: &str = "0123456789abcdef0123456789abcdef";
pub(super) const OTHER_STATIC: &str = "fedcba9876543210fedcba9876543210";
/// A UID of the API.
const UUID: &str = "0fd2a1a4-6a2c-4d6e-9d55-3a3f7f1f2b11";

impl Machine {
    pub(super) fn new() -> Self {
        let machine = Self {
            root: tempfile::tempdir().unwrap(),
            signals: Arc::default(),
        };
        machine.process(1, "/sbin/init", "0::/init.scope\n", 5);
        machine
    }

    pub(super) fn pods(&self) -> StaticPods {
        let signals = Arc::clone(&self.signals);
        let send = move |pid, signal| signals.lock().unwrap().push((pid, signal));
        let mut pods = pods_under(self.root.path()).with_kernel(self.proc(), self.cgroups(), send);
        pods.pacing.interval = std::time::Duration::from_millis(5);
        pods.pacing.unseen = std::time::Duration::from_millis(60);
        pods.pacing.cleared = std::time::Duration::from_millis(20);
        pods.pacing.taken_up = std::time::Duration::from_millis(20);
        pods
    }

    pub(super) fn proc(&self) -> PathBuf {
        self.root.path().join("proc")
    }

    pub(super) fn cgroups(&self) -> PathBuf {
        self.root.path().join("cgroup")
    }

    pub(super) fn process(&self, pid: u32, argv0: &str, cgroup: &str, ticks: u64) {
        let folder = self.proc().join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        write(&folder.join("cgroup"), cgroup);
        let arguments = if argv0.is_empty() {
            String::new()
        } else {
            format!("{argv0}\0--flag\0")
        };
        write(&folder.join("cmdline"), &arguments);
        let fields = "S 1 1 1 0 -1 4194560 1 1 0 0 1 1 0 0 20 0 1 0";
        write(&folder.join("stat"), &format!("{pid} (a) b (c) {fields} {ticks} 0 0\n"));
    }

    /// A process in a container of a pod, whose cgroup is there too.
    pub(super) fn in_pod(&self, cgroups: Cgroups, pid: u32, argv0: &str, uid: &str, ticks: u64) {
        let pod = format!("kubepods/burstable/pod{uid}");
        let text = match cgroups {
            Cgroups::V1 => format!("4:memory:/{pod}/c1\n3:cpu,cpuacct:/{pod}/c1\n1:name=systemd:/{pod}/c1\n"),
            Cgroups::V2 => format!("0::/{pod}/c1\n"),
        };
        self.process(pid, argv0, &text, ticks);
        fs::create_dir_all(self.pod_cgroup(cgroups, uid)).unwrap();
    }

    pub(super) fn pod_cgroup(&self, cgroups: Cgroups, uid: &str) -> PathBuf {
        let pod = format!("kubepods/burstable/pod{uid}");
        match cgroups {
            Cgroups::V1 => self.cgroups().join("cpu,cpuacct").join(pod),
            Cgroups::V2 => self.cgroups().join(pod),
        }
    }

    pub(super) fn end(&self, pid: u32) {
        fs::remove_dir_all(self.proc().join(pid.to_string())).unwrap();
    }
}

pub(super) fn write(path: &Path, text: &str) {
    atomic_file::write(path, text.as_bytes(), Access::Public).unwrap();
}

#[test]
fn processes_are_told_by_the_cgroup_of_a_static_pod() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let machine = Machine::new();
        let pods = machine.pods();
        assert!(pods.pids(Component::Etcd).unwrap().is_empty());
        assert!(!pods.running(Component::Etcd).unwrap());
        machine.in_pod(cgroups, 100, "/usr/local/bin/etcd", STATIC, 1);
        machine.in_pod(cgroups, 90, "etcd", OTHER_STATIC, 1);
        // Another component, a program whose name only begins alike, and the sandbox of the pod.
        machine.in_pod(cgroups, 101, "kube-apiserver", OTHER_STATIC, 1);
        machine.in_pod(cgroups, 102, "etcdctl", STATIC, 1);
        machine.in_pod(cgroups, 103, "/pause", STATIC, 1);
        // A user's own etcd: in a pod of the API, under either driver, and outside of any pod.
        machine.in_pod(cgroups, 104, "etcd", UUID, 1);
        let slice = format!(
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
            UUID.replace('-', "_")
        );
        machine.process(105, "etcd", &format!("0::/{slice}/cri-containerd-c1.scope\n"), 1);
        machine.process(106, "etcd", "0::/system.slice/etcd.service\n", 1);
        machine.process(107, "etcd", "0::/\n", 1);
        // Ended, and not reaped.
        machine.in_pod(cgroups, 108, "", STATIC, 1);
        assert_eq!(pods.pids(Component::Etcd).unwrap(), [90, 100]);
        assert_eq!(pods.pids(Component::KubeApiserver).unwrap(), [101]);
        assert!(pods.running(Component::Etcd).unwrap());
        assert!(!pods.running(Component::KubeScheduler).unwrap());
    }
}

#[test]
fn the_systemd_driver_and_a_root_for_cgroups_are_understood() {
    let machine = Machine::new();
    let slice = format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice");
    machine.process(10, "etcd", &format!("0::/{slice}/cri-containerd-c1.scope\n"), 1);
    let guaranteed = format!("kubepods.slice/kubepods-pod{OTHER_STATIC}.slice");
    machine.process(11, "etcd", &format!("0::/{guaranteed}/cri-containerd-c1.scope\n"), 1);
    machine.process(
        12,
        "etcd",
        &format!("5:pids:/rig-n1/kubepods/burstable/pod{STATIC}/c1\n"),
        1,
    );
    assert_eq!(machine.pods().pids(Component::Etcd).unwrap(), [10, 11, 12]);
}

/// A table that cannot be read whole says nothing about who runs: a caller would move the data of a running etcd away.
#[test]
fn an_unreadable_process_table_is_no_absence() {
    let unknown = |machine: &Machine| {
        let error = machine.pods().running(Component::Etcd).unwrap_err();
        assert!(matches!(error, Error::Processes { .. }), "{error:?}");
        assert!(error.to_string().contains("proc"), "{error}");
    };
    let machine = Machine::new();
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
    fs::remove_file(machine.proc().join("100/cmdline")).unwrap();
    assert!(
        !machine.pods().running(Component::Etcd).unwrap(),
        "ended while it was looked at"
    );
    fs::create_dir(machine.proc().join("100/cmdline")).unwrap();
    unknown(&machine);
    let machine = Machine::new();
    machine.end(1);
    unknown(&machine);
    fs::remove_dir_all(machine.proc()).unwrap();
    unknown(&machine);
}

#[test]
fn a_process_knows_when_it_started() {
    let machine = Machine::new();
    machine.process(100, "etcd", "0::/\n", 4711);
    let pods = machine.pods();
    assert_eq!(pods.start_ticks(100).unwrap(), Some(4711));
    assert_eq!(pods.start_ticks(101).unwrap(), None);
    write(&machine.proc().join("100/stat"), "100 (etcd) S 1 2\n");
    assert!(matches!(pods.start_ticks(100), Err(Error::ProcessForm { .. })));
}

/// The kernel's own table, and its clock against ours: this process has started, and after the mark of its start nothing
/// of it has.
#[test]
fn the_kernels_ticks_are_those_of_a_mark() {
    use crate::host::static_pods::Mark;
    let pods = StaticPods::new(Layout::system(), Inputs::default());
    let started = pods.start_ticks(std::process::id()).unwrap().unwrap();
    let now = Mark::take();
    assert!(Mark::at(started) <= now, "{started} {now:?}");
    // Tests run for less than an hour.
    assert!(Mark::at(started + 360_000) > now, "{started} {now:?}");
    assert!(pods.pids(Component::KubeVip).unwrap().is_empty());
}
