//! The programs: what each is built from. Another program is one variant and its row in [`Tool::recipe`].

use std::fmt;

use sha2::{Digest, Sha256};

use crate::pki::hexadecimal;

/// Version of kube-apiserver and kubectl; the module file pins the same.
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
    /// Its command line.
    Kubectl,
}

/// A Go module that pins sources: `tests/assets/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumIter)]
pub enum Module {
    /// etcd's programs.
    Etcd,
    /// Kubernetes' programs.
    Kubernetes,
}

/// How a program is built.
pub(super) struct Recipe {
    pub(super) name: &'static str,
    pub(super) module: Module,
    pub(super) package: &'static str,
}

impl Tool {
    /// The name of its executable.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.recipe().name
    }

    pub(super) fn recipe(self) -> Recipe {
        let (name, module, package) = match self {
            Self::Etcd => ("etcd", Module::Etcd, "go.etcd.io/etcd/server/v3"),
            Self::Etcdctl => ("etcdctl", Module::Etcd, "go.etcd.io/etcd/etcdctl/v3"),
            Self::KubeApiserver => (
                "kube-apiserver",
                Module::Kubernetes,
                "k8s.io/kubernetes/cmd/kube-apiserver",
            ),
            Self::Kubectl => ("kubectl", Module::Kubernetes, "k8s.io/kubernetes/cmd/kubectl"),
        };
        Recipe { name, module, package }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Module {
    /// Its folder's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// `go.mod`
    pub(super) fn definition(self) -> &'static str {
        match self {
            Self::Etcd => include_str!("../../../tests/assets/etcd/go.mod"),
            Self::Kubernetes => include_str!("../../../tests/assets/kubernetes/go.mod"),
        }
    }

    /// `go.sum`
    pub(super) fn sums(self) -> &'static str {
        match self {
            Self::Etcd => include_str!("../../../tests/assets/etcd/go.sum"),
            Self::Kubernetes => include_str!("../../../tests/assets/kubernetes/go.sum"),
        }
    }

    /// The linker's flags. Kubernetes takes its own version from variables that its build scripts set; without them it
    /// says v0.0.0, and clients that compare versions misbehave.
    pub(super) fn linker_flags(self) -> String {
        match self {
            Self::Etcd => "-s -w".to_owned(),
            Self::Kubernetes => {
                let (major, minor) = major_and_minor(KUBERNETES_VERSION);
                let base = "k8s.io/component-base/version";
                format!(
                    "-s -w -X {base}.gitVersion=v{KUBERNETES_VERSION} -X {base}.gitMajor={major} -X {base}.gitMinor={minor} \
                     -X k8s.io/client-go/pkg/version.gitVersion=v{KUBERNETES_VERSION}"
                )
            }
        }
    }

    /// The oldest Go that builds it, as its `go.mod` says.
    pub(super) fn go_version(self) -> &'static str {
        let version = self.definition().lines().find_map(|line| line.strip_prefix("go "));
        version.map_or("1", str::trim)
    }

    /// What it builds depends on nothing else than what this covers, so a folder named after it is never stale.
    pub(super) fn digest(self) -> String {
        let parts = [self.definition(), self.sums(), &self.linker_flags()];
        let digest = hexadecimal(&Sha256::digest(parts.join("\0")));
        digest.chars().take(16).collect()
    }
}

fn major_and_minor(version: &str) -> (&str, &str) {
    let mut parts = version.split('.');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}
