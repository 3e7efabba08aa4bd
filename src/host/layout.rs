//! Where everything lives on a node, under one root that tests and `stratum dev` can move (design, section 3).
//!
//! Paths only: nothing but [`Layout::detect`] touches the disk. A path belongs here when two parts of the program have to
//! agree on it.
//!
//! There are two forms: this program's own nodes, and those that kubeadm made. On the latter only what needs files, the API
//! server and static pods works, so only the paths of those are kubeadm's; what this program remembers of such a node is
//! where it always is.

mod detect;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use detect::DetectError;

/// The paths of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
    form: Form,
}

/// Whose files a node has.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Form {
    /// This program's.
    #[default]
    Stratum,
    /// kubeadm's: `/etc/kubernetes` and `/var/lib/kubelet`.
    Kubeadm,
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
        let (root, form) = (root.into(), Form::Stratum);
        Self { root, form }
    }

    /// The paths of a node that kubeadm made, below a folder.
    pub fn kubeadm(root: impl Into<PathBuf>) -> Self {
        Self::under(root).with_form(Form::Kubeadm)
    }

    /// The paths below the same folder in another form.
    #[must_use]
    pub fn with_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Whose files the node has.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
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

    /// `/var/lib/stratum/pki`, file names as kubeadm's; kubeadm: `/etc/kubernetes/pki`.
    #[must_use]
    pub fn pki(&self) -> PathBuf {
        match self.form {
            Form::Stratum => self.state().join("pki"),
            Form::Kubeadm => self.kubernetes().join("pki"),
        }
    }

    /// `/etc/kubernetes`: everything kubeadm writes.
    #[must_use]
    pub fn kubernetes(&self) -> PathBuf {
        self.root.join("etc/kubernetes")
    }

    /// `/var/lib/stratum/kubeconfig/NAME.conf`; kubeadm: `/etc/kubernetes/NAME.conf`, where the operator and the deployer,
    /// whom kubeadm does not know, have none.
    #[must_use]
    pub fn kubeconfig(&self, identity: Identity) -> PathBuf {
        let folder = match self.form {
            Form::Stratum => self.state().join("kubeconfig"),
            Form::Kubeadm => self.kubernetes(),
        };
        folder.join(format!("{}.conf", identity.name()))
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

    /// `/var/lib/stratum/etcd`: the data of the etcd member; kubeadm: `/var/lib/etcd`.
    #[must_use]
    pub fn etcd_data(&self) -> PathBuf {
        match self.form {
            Form::Stratum => self.state().join("etcd"),
            Form::Kubeadm => self.root.join("var/lib/etcd"),
        }
    }

    /// `/var/lib/stratum/renewal.json`: how the last renewal of certificates went.
    #[must_use]
    pub fn renewal_record(&self) -> PathBuf {
        self.state().join("renewal.json")
    }

    /// `/var/lib/stratum/rotation-incomplete.json`: there while certificates are new and not everything runs on them yet.
    #[must_use]
    pub fn rotation_incomplete(&self) -> PathBuf {
        self.state().join("rotation-incomplete.json")
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

    /// `/var/lib/stratum/static-pods`: what the kubelet reads; every visible file in it is a pod. kubeadm:
    /// `/etc/kubernetes/manifests`.
    #[must_use]
    pub fn static_pods(&self) -> PathBuf {
        match self.form {
            Form::Stratum => self.state().join("static-pods"),
            Form::Kubeadm => self.kubernetes().join("manifests"),
        }
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

    /// `/var/lib/stratum/bin/stratum`: this program as `stratum up` last ran it, for the Jobs that do something on this node.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.state().join("bin/stratum")
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

    /// `/var/lib/stratum/kubelet/kubelet.conf`: the kubelet's configuration; kubeadm: `/var/lib/kubelet/config.yaml`.
    #[must_use]
    pub fn kubelet_config(&self) -> PathBuf {
        match self.form {
            Form::Stratum => self.state().join("kubelet/kubelet.conf"),
            Form::Kubeadm => self.kubelet_root().join("config.yaml"),
        }
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

    /// `/var/lib/kubelet/pki/kubelet-server-current.pem`: the same of the certificate it serves with, where it asked the
    /// cluster for one.
    #[must_use]
    pub fn kubelet_server(&self) -> PathBuf {
        self.kubelet_pki().join("kubelet-server-current.pem")
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
