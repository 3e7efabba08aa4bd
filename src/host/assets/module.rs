//! The Go modules that pin sources: `tests/assets/NAME`, kept in this executable.

use sha2::{Digest, Sha256};

use super::tool::{ETCD_VERSION, KUBERNETES_VERSION};
use crate::pki::hexadecimal;

/// The name of the image it stands for.
const PAUSE_VERSION: &str = "3.10";

/// A Go module that pins sources: `tests/assets/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Module {
    /// etcd's programs.
    Etcd,
    /// Kubernetes' programs.
    Kubernetes,
    /// containerd's programs.
    Containerd,
    /// runc.
    Runc,
    /// The reference network plugins.
    Cni,
    /// The command line of container runtimes.
    Crictl,
    /// CoreDNS.
    Coredns,
    /// The reference container registry.
    Registry,
    /// Our own program that waits.
    Pause,
}

/// The files of a module.
struct Files {
    go_mod: &'static str,
    go_sum: &'static str,
    /// A program of our own, when the module is one.
    main_go: Option<&'static str>,
}

macro_rules! files {
    ($name:literal) => {
        Files {
            go_mod: include_str!(concat!("../../../tests/assets/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../../../tests/assets/", $name, "/go.sum")),
            main_go: None,
        }
    };
}

impl Module {
    /// Its folder's name.
    pub(super) fn name(self) -> &'static str {
        self.into()
    }

    fn files(self) -> Files {
        match self {
            Self::Etcd => files!("etcd"),
            Self::Kubernetes => files!("kubernetes"),
            Self::Containerd => files!("containerd"),
            Self::Runc => files!("runc"),
            Self::Cni => files!("cni"),
            Self::Crictl => files!("crictl"),
            Self::Coredns => files!("coredns"),
            Self::Registry => files!("registry"),
            Self::Pause => Files {
                main_go: Some(include_str!("../../../tests/assets/pause/main.go")),
                ..files!("pause")
            },
        }
    }

    /// `go.mod`
    pub(super) fn definition(self) -> &'static str {
        self.files().go_mod
    }

    /// What a build needs: names and contents of the module's files.
    pub(super) fn sources(self) -> Vec<(&'static str, &'static str)> {
        let Files {
            go_mod,
            go_sum,
            main_go,
        } = self.files();
        let main_go = main_go.map(|text| ("main.go", text));
        [("go.mod", go_mod), ("go.sum", go_sum)]
            .into_iter()
            .chain(main_go)
            .collect()
    }

    /// Whether a C compiler takes part. The executable is static all the same: it runs on nodes and in images that have
    /// no C library, or another one.
    pub(super) fn needs_c(self) -> bool {
        match self {
            // Its first steps in a container have to come before the Go runtime starts threads.
            Self::Runc => true,
            Self::Etcd
            | Self::Kubernetes
            | Self::Containerd
            | Self::Cni
            | Self::Crictl
            | Self::Coredns
            | Self::Registry
            | Self::Pause => false,
        }
    }

    /// Build tags, separated by commas; mostly none.
    pub(super) fn tags(self) -> &'static str {
        match self {
            // Without it a pod with the runtime's own seccomp profile is refused, and no other pod is confined.
            Self::Runc => "seccomp",
            Self::Etcd
            | Self::Kubernetes
            | Self::Containerd
            | Self::Cni
            | Self::Crictl
            | Self::Coredns
            | Self::Registry
            | Self::Pause => "",
        }
    }

    /// The version of what it builds, without a `v`.
    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Etcd => ETCD_VERSION,
            Self::Kubernetes => KUBERNETES_VERSION,
            Self::Containerd => self.required("github.com/containerd/containerd/v2"),
            Self::Runc => self.required("github.com/opencontainers/runc"),
            Self::Cni => self.required("github.com/containernetworking/plugins"),
            Self::Crictl => self.required("sigs.k8s.io/cri-tools"),
            Self::Coredns => self.required("github.com/coredns/coredns"),
            Self::Registry => self.required("github.com/distribution/distribution/v3"),
            Self::Pause => PAUSE_VERSION,
        }
    }

    /// The version that `go.mod` requires of another module, without the `v`; empty if it names none.
    fn required(self, path: &str) -> &'static str {
        let version = self.definition().lines().find_map(|line| {
            let line = line.trim().trim_start_matches("require ");
            line.strip_prefix(path)?.strip_prefix(" v")
        });
        version.map_or("", |rest| rest.split_whitespace().next().unwrap_or_default())
    }

    /// The linker's flags. Some programs take their own version from variables that their build scripts set. Without them
    /// Kubernetes says v0.0.0, and clients that compare versions misbehave.
    pub(super) fn linker_flags(self) -> String {
        let version = self.version();
        let more = match self {
            Self::Etcd | Self::Cni | Self::Coredns | Self::Pause => String::new(),
            Self::Kubernetes => {
                let (major, minor) = major_and_minor(version);
                let base = "k8s.io/component-base/version";
                format!(
                    " -X {base}.gitVersion=v{version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor} \
                     -X k8s.io/client-go/pkg/version.gitVersion=v{version}"
                )
            }
            Self::Containerd => format!(" -X github.com/containerd/containerd/v2/version.Version=v{version}"),
            Self::Runc => " -extldflags -static".to_owned(),
            Self::Crictl => format!(" -X sigs.k8s.io/cri-tools/pkg/version.Version=v{version}"),
            Self::Registry => format!(" -X github.com/distribution/distribution/v3/version.version=v{version}"),
        };
        format!("-s -w{more}")
    }

    /// The oldest Go that builds it, as its `go.mod` says.
    pub(super) fn go_version(self) -> &'static str {
        let version = self.definition().lines().find_map(|line| line.strip_prefix("go "));
        version.map_or("1", str::trim)
    }

    /// What it builds depends on nothing else than what this covers, so a folder named after it is never stale.
    pub(super) fn digest(self) -> String {
        let linker_flags = self.linker_flags();
        let Files {
            go_mod,
            go_sum,
            main_go,
        } = self.files();
        let mut parts = vec![go_mod, go_sum, &linker_flags];
        parts.extend(main_go);
        // Not pushed when empty: the folders of modules that have none were named before there were tags.
        parts.extend(Some(self.tags()).filter(|tags| !tags.is_empty()));
        let digest = hexadecimal(&Sha256::digest(parts.join("\0")));
        digest.chars().take(16).collect()
    }
}

fn major_and_minor(version: &str) -> (&str, &str) {
    let mut parts = version.split('.');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}
