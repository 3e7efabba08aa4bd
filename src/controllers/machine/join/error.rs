//! Why a machine did not join.

use super::super::wish::Misfit;
use super::super::{claim, install};
use crate::controllers::bootstrap;
use crate::controllers::cluster::CallError;
use crate::controllers::cluster_fence::Lost;
use crate::controllers::connection::ConnectionError;
use crate::controllers::grants::join::JoinError;
use crate::controllers::joining::discovery::DiscoveryError;
use crate::host::etcd::members::Member;
use crate::host::{atomic_file, etcd, https, node_pki, node_state};

/// Why a machine did not join.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster was not found, or did not prove itself.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// What a controller needs is not to be had.
    #[error(transparent)]
    Grant(#[from] JoinError),
    /// Nobody could reach this machine.
    #[error("{0}")]
    Address(Misfit),
    /// The grant does not say how the cluster is made.
    #[error(
        "the grant of this token says nothing of the cluster's settings: make another token with a controller of this version"
    )]
    NoClusterFile,
    /// What it says of it cannot be used.
    #[error("the cluster's settings in the grant cannot be used")]
    ClusterFile(#[source] node_state::Error),
    /// The name is taken, or its certificate is not to be had.
    #[error(transparent)]
    Claim(#[from] claim::Error),
    /// A label no kubelet may set.
    #[error("{0}")]
    Label(Misfit),
    /// That it joins cannot be written down, or not be forgotten.
    #[error("cannot note that this machine is joining")]
    Note(#[source] atomic_file::Error),
    /// Files of this machine.
    #[error(transparent)]
    Install(#[from] install::Error),
    /// Certificates of this machine.
    #[error("cannot prepare this machine's certificates")]
    Pki(#[source] node_pki::Error),
    /// A client cannot be made of them.
    #[error("cannot make a client of this machine's certificates")]
    Client(#[source] https::Error),
    /// The kubelet's kubeconfig cannot be used.
    #[error("cannot use this machine's kubeconfig")]
    Kubeconfig(#[source] ConnectionError),
    /// A client cannot be made of a certificate in memory.
    #[error(transparent)]
    Bootstrap(bootstrap::Error),
    /// The cluster does not tell where its controllers are.
    #[error("cannot ask the cluster for its controllers")]
    Controllers(#[source] CallError),
    /// etcd does not answer or refuses.
    #[error("cannot become a member of etcd")]
    Etcd(#[source] etcd::Error),
    /// Somebody else has the name or address in etcd.
    #[error("etcd has a member {member} already: if its machine is gone, remove it (etcdctl member remove {})", member.id.0)]
    MemberTaken {
        /// Which.
        member: Member,
    },
    /// Another operation may change the members of etcd by now.
    #[error(transparent)]
    Fence(#[from] Lost),
    /// Another one is still joining.
    #[error(
        "another member of etcd is still joining, {member}: etcd takes one at a time; try again when it has its vote; if its machine is gone, remove it (etcdctl member list, etcdctl member remove)"
    )]
    NotItsTurn {
        /// Which.
        member: Member,
    },
}

impl Error {
    /// Whether it stopped because it lost the cluster fence.
    #[must_use]
    pub fn is_lost_fence(&self) -> bool {
        matches!(self, Self::Fence(_))
    }
}
