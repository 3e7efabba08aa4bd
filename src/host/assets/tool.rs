//! The programs: what each is built from. Another program is one variant and its row in [`Tool::recipe`].

use std::fmt;

use super::module::Module;

/// Version of Kubernetes' programs; the module file pins the same.
pub const KUBERNETES_VERSION: &str = "1.37.2";
/// Version of etcd and etcdctl; the module file pins the same.
pub const ETCD_VERSION: &str = "3.7.3";

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumIter)]
pub enum Tool {
    /// The store.
    Etcd,
    /// Its command line.
    Etcdctl,
    /// The API server.
    KubeApiserver,
    /// The controllers, among them the signers of certificate requests.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// What makes Services reachable on a node.
    KubeProxy,
    /// What runs the pods of a node.
    Kubelet,
    /// Makes a control plane that is not ours, by which the tests judge.
    Kubeadm,
    /// The API server's command line.
    Kubectl,
    /// What runs the containers of a node.
    Containerd,
    /// Holds one pod for containerd.
    ContainerdShimRuncV2,
    /// containerd's own command line.
    Ctr,
    /// Starts a container.
    Runc,
    /// The command line of any container runtime the kubelet can use.
    Crictl,
    /// Network plugin: pods of a node on one bridge.
    CniBridge,
    /// Network plugin: addresses from a range of the node's own.
    CniHostLocal,
    /// Network plugin: a pod's own loopback, which containerd asks for.
    CniLoopback,
    /// Network plugin: ports of the node that lead to a pod.
    CniPortmap,
    /// The cluster's name server.
    Coredns,
    /// A container registry, which the tests mirror from. It is in no payload.
    Registry,
    /// Waits, and holds a pod's namespaces meanwhile.
    Pause,
}

/// How a program is built.
pub(super) struct Recipe {
    pub(super) name: &'static str,
    pub(super) module: Module,
    pub(super) package: &'static str,
}

/// The recipe of a program whose package ends with its name.
macro_rules! recipe {
    ($module:ident, $folder:literal, $name:literal) => {
        ($name, Module::$module, concat!($folder, "/", $name))
    };
}

impl Tool {
    /// The name of its executable.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.recipe().name
    }

    /// Its version, without a `v`.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.recipe().module.version()
    }

    pub(super) fn recipe(self) -> Recipe {
        let (name, module, package) = match self {
            Self::Etcd => ("etcd", Module::Etcd, "go.etcd.io/etcd/server/v3"),
            Self::Etcdctl => ("etcdctl", Module::Etcd, "go.etcd.io/etcd/etcdctl/v3"),
            Self::KubeApiserver => recipe!(Kubernetes, "k8s.io/kubernetes/cmd", "kube-apiserver"),
            Self::KubeControllerManager => recipe!(Kubernetes, "k8s.io/kubernetes/cmd", "kube-controller-manager"),
            Self::KubeScheduler => recipe!(Kubernetes, "k8s.io/kubernetes/cmd", "kube-scheduler"),
            Self::KubeProxy => recipe!(Kubernetes, "k8s.io/kubernetes/cmd", "kube-proxy"),
            Self::Kubelet => recipe!(Kubernetes, "k8s.io/kubernetes/cmd", "kubelet"),
            Self::Kubeadm => recipe!(Kubernetes, "k8s.io/kubernetes/cmd", "kubeadm"),
            Self::Kubectl => recipe!(Kubernetes, "k8s.io/kubernetes/cmd", "kubectl"),
            Self::Containerd => recipe!(Containerd, "github.com/containerd/containerd/v2/cmd", "containerd"),
            Self::ContainerdShimRuncV2 => recipe!(
                Containerd,
                "github.com/containerd/containerd/v2/cmd",
                "containerd-shim-runc-v2"
            ),
            Self::Ctr => recipe!(Containerd, "github.com/containerd/containerd/v2/cmd", "ctr"),
            Self::Runc => recipe!(Runc, "github.com/opencontainers", "runc"),
            Self::Crictl => recipe!(Crictl, "sigs.k8s.io/cri-tools/cmd", "crictl"),
            Self::CniBridge => recipe!(Cni, "github.com/containernetworking/plugins/plugins/main", "bridge"),
            Self::CniHostLocal => recipe!(Cni, "github.com/containernetworking/plugins/plugins/ipam", "host-local"),
            Self::CniLoopback => recipe!(Cni, "github.com/containernetworking/plugins/plugins/main", "loopback"),
            Self::CniPortmap => recipe!(Cni, "github.com/containernetworking/plugins/plugins/meta", "portmap"),
            Self::Coredns => recipe!(Coredns, "github.com/coredns", "coredns"),
            Self::Registry => recipe!(Registry, "github.com/distribution/distribution/v3/cmd", "registry"),
            Self::Pause => recipe!(Pause, "stratum.ciq.com/assets", "pause"),
        };
        Recipe { name, module, package }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
