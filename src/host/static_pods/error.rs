//! What can go wrong with static pods.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::super::{atomic_file, node_state};
use super::Component;

/// Why something about static pods was not done or is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What this node is cannot be read.
    #[error("cannot tell which static pods belong on this node")]
    NodeState(#[source] node_state::Error),
    /// This node has no such component.
    #[error("this node has no {component}: its node.yaml gives it none")]
    NotOfThisNode {
        /// The component.
        component: Component,
    },
    /// A controller without a member of etcd.
    #[error("node.yaml makes this node a controller without an `etcd` section: bring the file back from a backup")]
    NoEtcd,
    /// A network that a manifest needs is not known.
    #[error(
        "node.yaml makes this node a controller and has no range in `networks.services`: bring it back from a backup"
    )]
    NoServices,
    /// The shared address is not known.
    #[error("node.yaml has no `vip`: there is nothing for kube-vip to announce")]
    NoVip,
    /// The pod cannot be written as YAML.
    #[error("cannot write {subject} as YAML: {reason}")]
    Yaml {
        /// The pod or file.
        subject: String,
        /// What the YAML writer said.
        reason: String,
    },
    /// A profile's admission configuration is not one.
    #[error("the admission configuration of this binary's profile cannot be used: {reason}")]
    Admission {
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be written or removed.
    #[error(transparent)]
    File(#[from] atomic_file::Error),
    /// The manifest is not there.
    #[error("there is no manifest {}: `stratum up` writes it from node.yaml", path.display())]
    NoManifest {
        /// The manifest.
        path: PathBuf,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A manifest is not a pod.
    #[error("{} is not a pod this program can read: {reason}; `stratum up` writes it anew", path.display())]
    Malformed {
        /// The manifest.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// What runs on this machine is not known, which is not the same as nothing.
    #[error("cannot tell what runs on this machine: the process table {} cannot be read whole", path.display())]
    Processes {
        /// What of it cannot be read.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The process table says something that is not understood.
    #[error("cannot tell what runs on this machine: {} is not in the kernel's form", path.display())]
    ProcessForm {
        /// The file.
        path: PathBuf,
    },
    /// It did not stop.
    #[error(
        "{component} still runs {limit:?} after its manifest was taken away (processes {pids:?}): see whether the kubelet \
         runs, and `crictl ps --name {component}`"
    )]
    StillRunning {
        /// The component.
        component: Component,
        /// How long was waited.
        limit: Duration,
        /// The processes.
        pids: Vec<u32>,
    },
    /// Its processes are gone, and the kubelet is not done with its pod.
    #[error(
        "{component} has ended, but its pod is not cleaned up {limit:?} after its manifest was taken away: see whether the \
         kubelet runs; without it, `crictl pods --name {component}` and `crictl stopp` end the pod"
    )]
    PodRemains {
        /// The component.
        component: Component,
        /// How long was waited.
        limit: Duration,
    },
    /// It does not end, not even when it is killed.
    #[error(
        "{component} does not end: its processes {pids:?} are still there after {limit:?}, though they were killed; one that \
         `ps` shows in state D waits for a disk or a mount, and ends with that"
    )]
    NotEnding {
        /// The component.
        component: Component,
        /// How long was waited.
        limit: Duration,
        /// The processes.
        pids: Vec<u32>,
    },
    /// It did not begin to answer.
    #[error("{component} does not answer on loopback port {port} after {limit:?}: see `stratum logs {component}`")]
    NotActive {
        /// The component.
        component: Component,
        /// Its port.
        port: u16,
        /// How long was waited.
        limit: Duration,
    },
    /// There is nothing to wait for.
    #[error("{component} listens nowhere, so nobody can wait for it to answer")]
    NoListener {
        /// The component.
        component: Component,
    },
    /// The process of before is still there.
    #[error(
        "{component} was not replaced within {limit:?} (processes {pids:?} are older than the change): see whether the \
         kubelet runs"
    )]
    NotReplaced {
        /// The component.
        component: Component,
        /// How long was waited.
        limit: Duration,
        /// The processes that ought to be gone.
        pids: Vec<u32>,
    },
    /// A snapshot is there already.
    #[error("{} exists already: a snapshot is never taken over another; remove it or choose another folder", path.display())]
    SnapshotExists {
        /// The folder.
        path: PathBuf,
    },
    /// A snapshot without a manifest.
    #[error("{} holds no manifest: it is no snapshot of static pods, and nothing was changed", path.display())]
    EmptySnapshot {
        /// The folder.
        path: PathBuf,
    },
    /// The snapshot's folder cannot be put in place.
    #[error("cannot put the snapshot {} in place", path.display())]
    Place {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
