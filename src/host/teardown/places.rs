//! Where things of a node are on its machine. Everything an uninstall deletes is named here or by [`Layout`], and nothing
//! that comes from a file, a process or a command line is ever a path to delete.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::super::layout::Layout;

/// The systemd unit, where an administrator puts it.
pub(super) const UNIT: &str = "stratum.service";

/// `/etc/stratum`
pub(super) fn configuration(layout: &Layout) -> PathBuf {
    layout.root().join("etc/stratum")
}

/// `/etc/systemd/system/stratum.service`
pub(super) fn unit(layout: &Layout) -> PathBuf {
    layout.root().join("etc/systemd/system").join(UNIT)
}

/// `/etc/systemd/system/multi-user.target.wants/stratum.service`: what `systemctl enable` makes.
pub(super) fn unit_wanted(layout: &Layout) -> PathBuf {
    layout
        .root()
        .join("etc/systemd/system/multi-user.target.wants")
        .join(UNIT)
}

/// `/var/log/kubernetes`: above the audit logs, and of a name that others use too.
pub(super) fn audit_parent(layout: &Layout) -> PathBuf {
    layout.root().join("var/log/kubernetes")
}

/// `/var/log/pods`: a folder for each pod, which the kubelet names `NAMESPACE_NAME_UID`.
pub(super) fn pod_logs(layout: &Layout) -> PathBuf {
    layout.root().join("var/log/pods")
}

/// `/var/log/containers`: links into [`pod_logs`].
pub(super) fn container_logs(layout: &Layout) -> PathBuf {
    layout.root().join("var/log/containers")
}

/// `/var/lib/cni`: what CNI plugins remember, shared by everybody on the machine who uses them.
pub(super) fn cni_state(layout: &Layout) -> PathBuf {
    layout.root().join("var/lib/cni")
}

/// `/etc/cni/net.d`: the network plugin's, which is the user's.
pub(super) fn cni_configuration(layout: &Layout) -> PathBuf {
    layout.root().join("etc/cni/net.d")
}

/// `/opt/cni`: likewise.
pub(super) fn cni_programs(layout: &Layout) -> PathBuf {
    layout.root().join("opt/cni")
}

/// `/run/netns`: names of network namespaces, everybody's.
pub(super) fn network_namespaces(layout: &Layout) -> PathBuf {
    layout.root().join("run/netns")
}

/// `/run/stratum/containerd/io.containerd.runtime.v2.task/k8s.io`: a folder for each container that runs.
pub(super) fn containers(layout: &Layout) -> PathBuf {
    layout.run().join("containerd/io.containerd.runtime.v2.task/k8s.io")
}

/// `/var/lib/stratum/left-cluster`: written once the cluster has let this node go, so that an uninstall that was interrupted
/// later does not ask with credentials that are gone.
pub(super) fn left_cluster(layout: &Layout) -> PathBuf {
    layout.state().join("left-cluster")
}

/// Folders that somebody may have put on a disk of their own.
pub(super) fn may_be_mounts(layout: &Layout) -> BTreeSet<PathBuf> {
    BTreeSet::from([
        layout.kubelet_root(),
        layout.state(),
        layout.run(),
        layout.logs(),
        layout.audit_logs(),
        layout.etcd_data(),
        layout.payload(),
        layout.containerd(),
        layout.containerd().join("root"),
        configuration(layout),
        pod_logs(layout),
        container_logs(layout),
        cni_state(layout),
    ])
}
