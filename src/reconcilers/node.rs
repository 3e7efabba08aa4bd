//! What the concerns know of a Node, and nothing else of it: a whole Node is 5 to 20 KiB and says most of it again every
//! few minutes. All concerns share these values.

use std::sync::Arc;

use jiff::Timestamp;

use super::object::Uid;

/// A Node, as far as anybody here asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID; a Node that was deleted and registered anew has another one.
    pub uid: Uid,
    /// When it was registered, by the API server's clock.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted and a finalizer still holds it.
    pub terminating: bool,
    /// Whether it is labelled `node-role.kubernetes.io/control-plane`, with whatever value.
    pub control_plane: bool,
    /// The annotation `stratum.ciq.com/uninstalled-at` as it stands.
    pub uninstalled: Option<String>,
    /// `status.addresses`. A kubelet writes its own: what stands here is a claim.
    pub addresses: Vec<NodeAddress>,
    /// The condition `Ready`; none when it was never told.
    pub ready: Option<Ready>,
    /// `status.nodeInfo.machineID`; none when it is missing or empty. A claim of its kubelet as well.
    pub machine_id: Option<String>,
}

impl NodeFacts {
    /// Whether the Node is Ready now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.is_some_and(|ready| ready.status == ReadyStatus::True)
    }
}

/// An entry of `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// What it is said to be.
    pub kind: AddressKind,
    /// The address or name as it stands.
    pub address: String,
}

/// The type of a [`NodeAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressKind {
    /// `Hostname`, which may be an IP address.
    Hostname,
    /// `InternalIP`
    InternalIp,
    /// `ExternalIP`
    ExternalIp,
    /// `InternalDNS`
    InternalDns,
    /// `ExternalDNS`
    ExternalDns,
    /// One this version does not know.
    Other,
}

/// The condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What it says.
    pub status: ReadyStatus,
    /// Since when it says so.
    pub since: Option<Timestamp>,
}

/// The status of the condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyStatus {
    /// Ready.
    True,
    /// Its kubelet says that it is not.
    False,
    /// The cluster has not heard of it for a while.
    Unknown,
}
