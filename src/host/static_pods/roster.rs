//! The components that run as static pods.

use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator;

use super::super::images::Image;
use super::super::node_state::{API_SERVER_PORT, NodeState};

/// A component, in the order they are started in.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Component {
    /// This node's member of etcd.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers of Kubernetes itself.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// Announces the shared address, where there is one.
    KubeVip,
}

impl Component {
    /// The name of its pod, container and process: `kube-apiserver`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The name of its manifest in the folder: `kube-apiserver.yaml`.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("{}.yaml", self.name())
    }

    /// The image it runs.
    #[must_use]
    pub const fn image(self) -> Image {
        match self {
            Self::Etcd => Image::Etcd,
            Self::KubeApiserver => Image::KubeApiserver,
            Self::KubeControllerManager => Image::KubeControllerManager,
            Self::KubeScheduler => Image::KubeScheduler,
            Self::KubeVip => Image::KubeVip,
        }
    }

    /// The port on loopback that it answers on once it serves. etcd's is that of its metrics and health: the client port
    /// is bound before the store is read, this one after. kube-vip listens nowhere.
    #[must_use]
    pub const fn listener(self) -> Option<u16> {
        match self {
            Self::Etcd => Some(2381),
            Self::KubeApiserver => Some(API_SERVER_PORT),
            Self::KubeControllerManager => Some(10257),
            Self::KubeScheduler => Some(10259),
            Self::KubeVip => None,
        }
    }

    /// Whether it has a listener that a caller can wait for.
    #[must_use]
    pub const fn has_listener(self) -> bool {
        self.listener().is_some()
    }
}

/// Which component's manifest a file of this name is, in the folder or in a snapshot of it. `None` for a derived file, a
/// leftover and everything else.
#[must_use]
pub fn manifest_name(file_name: &str) -> Option<Component> {
    file_name.strip_suffix(".yaml")?.parse().ok()
}

/// The components of a node, in start order: kube-vip exactly with a VIP, and none at all on a worker.
#[must_use]
pub fn names_for(state: &NodeState) -> Vec<Component> {
    let has = |component: &Component| match component {
        Component::Etcd | Component::KubeApiserver | Component::KubeControllerManager | Component::KubeScheduler => {
            true
        }
        Component::KubeVip => state.vip.is_some(),
    };
    if state.is_controller() {
        Component::iter().filter(has).collect()
    } else {
        Vec::new()
    }
}
