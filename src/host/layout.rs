//! Where everything lives on a node, under one root that tests and `stratum dev` can move (design, section 3).
//!
//! Paths only: nothing here touches the disk. A path belongs here when two parts of the program have to agree on it.

use std::path::{Path, PathBuf};

/// The paths of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

/// Whose kubeconfig. The file is named after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub enum Identity {
    /// People and one-shot commands: group `stratum:cluster-admins`.
    Admin,
    /// The operator's own concerns: user `stratum:operator`.
    Operator,
    /// What manifests and charts need: user `stratum:deployer`.
    Deployer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// The kubelet, whose files are those the kubelet itself renews.
    Kubelet,
}

impl Identity {
    /// The name its files carry: `admin`, `operator`, `deployer`, `controller-manager`, `scheduler`, `kubelet`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Layout {
    /// The paths of the node this process runs on.
    #[must_use]
    pub fn system() -> Self {
        Self::under("/")
    }

    /// The same tree below another folder.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder everything hangs under; `/` on a node.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `/etc/stratum/config.yaml`
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.root.join("etc/stratum/config.yaml")
    }

    /// `/etc/stratum/manifests`
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.root.join("etc/stratum/manifests")
    }

    /// `/var/lib/stratum`: everything the node remembers.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.root.join("var/lib/stratum")
    }

    /// `/var/lib/stratum/pki`, file names as kubeadm's.
    #[must_use]
    pub fn pki(&self) -> PathBuf {
        self.state().join("pki")
    }

    /// `/var/lib/stratum/kubeconfig/NAME.conf`
    #[must_use]
    pub fn kubeconfig(&self, identity: Identity) -> PathBuf {
        self.state()
            .join("kubeconfig")
            .join(format!("{}.conf", identity.name()))
    }

    /// `/run/stratum`: locks and sockets, empty after a boot.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run/stratum")
    }

    /// `/run/stratum/node.lock`: held by whatever changes this node.
    #[must_use]
    pub fn node_lock(&self) -> PathBuf {
        self.run().join("node.lock")
    }

    /// `/run/stratum/up.lock`: held by the running `stratum up`.
    #[must_use]
    pub fn up_lock(&self) -> PathBuf {
        self.run().join("up.lock")
    }

    /// `/run/stratum/fence.lock`: held by whatever operation of this machine has the cluster fence.
    #[must_use]
    pub fn fence_lock(&self) -> PathBuf {
        self.run().join("fence.lock")
    }

    /// `/var/log/stratum`: what the services of `stratum up` write.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("var/log/stratum")
    }

    /// `/var/log/pods`: what containers write, in folders of the kubelet's.
    #[must_use]
    pub fn pod_logs(&self) -> PathBuf {
        self.root.join("var/log/pods")
    }

    /// `/var/lib/stratum/etcd`: the data of the etcd member.
    #[must_use]
    pub fn etcd_data(&self) -> PathBuf {
        self.state().join("etcd")
    }

    /// `/var/lib/stratum/node.yaml`: what this node is.
    #[must_use]
    pub fn node_state(&self) -> PathBuf {
        self.state().join("node.yaml")
    }

    /// `/var/lib/stratum/joining`: there from the first write of a join to its last, so that the next try knows that what
    /// lies beside it is its own.
    #[must_use]
    pub fn joining(&self) -> PathBuf {
        self.state().join("joining")
    }

    /// `/var/lib/stratum/claim.key`: what a worker asks for its first certificate with, until it has it.
    #[must_use]
    pub fn claim_key(&self) -> PathBuf {
        self.state().join("claim.key")
    }

    /// `/var/lib/stratum/static-pods`: what the kubelet reads; every visible file in it is a pod.
    #[must_use]
    pub fn static_pods(&self) -> PathBuf {
        self.state().join("static-pods")
    }

    /// `/var/lib/stratum/static-pod-files`: files that are rendered for static pods and are none themselves.
    #[must_use]
    pub fn static_pod_files(&self) -> PathBuf {
        self.state().join("static-pod-files")
    }

    /// `/var/log/kubernetes/audit`: the audit logs of the API server, where the profile keeps one.
    #[must_use]
    pub fn audit_logs(&self) -> PathBuf {
        self.root.join("var/log/kubernetes/audit")
    }

    /// `/var/lib/stratum/payload`: programs and images, nothing of which is ever downloaded.
    #[must_use]
    pub fn payload(&self) -> PathBuf {
        self.state().join("payload")
    }

    /// `/etc/stratum/registries.yaml`: mirrors of container registries.
    #[must_use]
    pub fn registries(&self) -> PathBuf {
        self.root.join("etc/stratum/registries.yaml")
    }

    /// `/var/lib/stratum/containerd`: containerd's configuration and what was rendered for it; its data is below `root`.
    #[must_use]
    pub fn containerd(&self) -> PathBuf {
        self.state().join("containerd")
    }

    /// `/run/stratum/containerd/containerd.sock`: where the kubelet reaches containerd.
    #[must_use]
    pub fn containerd_socket(&self) -> PathBuf {
        self.run().join("containerd/containerd.sock")
    }

    /// `/var/lib/stratum/kubelet/kubelet.conf`: the kubelet's configuration.
    #[must_use]
    pub fn kubelet_config(&self) -> PathBuf {
        self.state().join("kubelet/kubelet.conf")
    }

    /// `/var/lib/kubelet`: the kubelet's own folder.
    #[must_use]
    pub fn kubelet_root(&self) -> PathBuf {
        self.root.join("var/lib/kubelet")
    }

    /// `/var/lib/kubelet/pki`: where the kubelet keeps the certificates it renews itself.
    #[must_use]
    pub fn kubelet_pki(&self) -> PathBuf {
        self.kubelet_root().join("pki")
    }

    /// `/var/lib/kubelet/pki/kubelet-client-current.pem`: the kubelet's client certificate and key, a link to the latest.
    #[must_use]
    pub fn kubelet_client(&self) -> PathBuf {
        self.kubelet_pki().join("kubelet-client-current.pem")
    }

    /// `/var/lib/stratum/coredns`: what CoreDNS pods of this node mount.
    #[must_use]
    pub fn coredns(&self) -> PathBuf {
        self.state().join("coredns")
    }

    /// `/run/stratum/up.sock`: where `stratum up` is asked.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.run().join("up.sock")
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn paths_of_a_node_and_of_a_moved_root() {
        let paths = |layout: &Layout| {
            let kubeconfigs = Identity::iter().map(|identity| layout.kubeconfig(identity));
            let mut paths = vec![
                layout.config_file(),
                layout.manifests(),
                layout.state(),
                layout.pki(),
                layout.etcd_data(),
                layout.run(),
                layout.node_lock(),
                layout.node_state(),
                layout.static_pods(),
                layout.static_pod_files(),
                layout.payload(),
                layout.registries(),
                layout.containerd(),
                layout.containerd_socket(),
                layout.kubelet_config(),
                layout.kubelet_root(),
                layout.kubelet_pki(),
                layout.kubelet_client(),
                layout.coredns(),
                layout.control_socket(),
                layout.up_lock(),
                layout.fence_lock(),
                layout.logs(),
                layout.pod_logs(),
                layout.audit_logs(),
                layout.joining(),
                layout.claim_key(),
            ];
            paths.extend(kubeconfigs);
            paths
        };
        let expected = [
            "etc/stratum/config.yaml",
            "etc/stratum/manifests",
            "var/lib/stratum",
            "var/lib/stratum/pki",
            "var/lib/stratum/etcd",
            "run/stratum",
            "run/stratum/node.lock",
            "var/lib/stratum/node.yaml",
            "var/lib/stratum/static-pods",
            "var/lib/stratum/static-pod-files",
            "var/lib/stratum/payload",
            "etc/stratum/registries.yaml",
            "var/lib/stratum/containerd",
            "run/stratum/containerd/containerd.sock",
            "var/lib/stratum/kubelet/kubelet.conf",
            "var/lib/kubelet",
            "var/lib/kubelet/pki",
            "var/lib/kubelet/pki/kubelet-client-current.pem",
            "var/lib/stratum/coredns",
            "run/stratum/up.sock",
            "run/stratum/up.lock",
            "run/stratum/fence.lock",
            "var/log/stratum",
            "var/log/pods",
            "var/log/kubernetes/audit",
            "var/lib/stratum/joining",
            "var/lib/stratum/claim.key",
            "var/lib/stratum/kubeconfig/admin.conf",
            "var/lib/stratum/kubeconfig/operator.conf",
            "var/lib/stratum/kubeconfig/deployer.conf",
            "var/lib/stratum/kubeconfig/controller-manager.conf",
            "var/lib/stratum/kubeconfig/scheduler.conf",
            "var/lib/stratum/kubeconfig/kubelet.conf",
        ];
        for (layout, root) in [(Layout::system(), "/"), (Layout::under("/tmp/x"), "/tmp/x")] {
            assert_eq!(layout.root(), Path::new(root));
            let expected: Vec<PathBuf> = expected.iter().map(|path| Path::new(root).join(path)).collect();
            assert_eq!(paths(&layout), expected);
        }
    }
}
