//! The container images of a cluster, by the names and versions everything else takes from here: static pods, the bundled
//! stacks, containerd's sandbox and the payload.
//!
//! Names are kubeadm's, so that a mirror set up for a kubeadm cluster serves this one too. Nothing here fetches.

/// An image this program names.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Image {
    /// The cluster's store.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers of Kubernetes itself.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// Service addresses on each node.
    KubeProxy,
    /// The cluster's DNS.
    Coredns,
    /// The sandbox of every pod; containerd keeps it pinned.
    Pause,
    /// Announces the address the controllers share.
    KubeVip,
}

impl Image {
    /// Its short name, which is also the program inside and the archive in the payload: `kube-apiserver`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// `REPOSITORY:TAG`, under which it is imported and named in pods.
    #[must_use]
    pub const fn reference(self) -> &'static str {
        match self {
            Self::Etcd => "registry.k8s.io/etcd:3.7.3-0",
            Self::KubeApiserver => "registry.k8s.io/kube-apiserver:v1.37.2",
            Self::KubeControllerManager => "registry.k8s.io/kube-controller-manager:v1.37.2",
            Self::KubeScheduler => "registry.k8s.io/kube-scheduler:v1.37.2",
            Self::KubeProxy => "registry.k8s.io/kube-proxy:v1.37.2",
            Self::Coredns => "registry.k8s.io/coredns/coredns:v1.14.0",
            Self::Pause => "registry.k8s.io/pause:3.10",
            Self::KubeVip => "ghcr.io/kube-vip/kube-vip:v1.0.1",
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::super::assets::{ETCD_VERSION, KUBERNETES_VERSION};
    use super::*;

    /// The programs that tests run and the images that nodes run are of the same versions.
    #[test]
    fn images_have_the_versions_of_the_programs() {
        for image in Image::iter() {
            let (repository, tag) = image.reference().rsplit_once(':').unwrap();
            assert!(repository.ends_with(&format!("/{}", image.name())), "{image}");
            match image {
                Image::KubeApiserver | Image::KubeControllerManager | Image::KubeScheduler | Image::KubeProxy => {
                    assert_eq!(tag, format!("v{KUBERNETES_VERSION}"), "{image}")
                }
                Image::Etcd => assert_eq!(tag, format!("{ETCD_VERSION}-0"), "{image}"),
                Image::Coredns | Image::Pause | Image::KubeVip => {}
            }
            assert_eq!(image.name().parse(), Ok(image));
        }
    }
}
