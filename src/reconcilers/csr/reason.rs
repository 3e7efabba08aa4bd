//! Why a request waits, in words.

use jiff::Timestamp;

use crate::reconcilers::host_name::Host;

/// Why a request is not approved, or not yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(ReasonWord),
    doc = "A [`Reason`] without its particulars: a metric label and an Event's reason."
)]
#[strum_discriminants(derive(Hash, PartialOrd, Ord, strum::IntoStaticStr, strum::EnumIter))]
#[strum_discriminants(strum(serialize_all = "snake_case"))]
pub enum Reason {
    /// The user that asks is no node.
    #[error("{0:?} asks for it, which is no node; only system:node:NAME may ask for the certificate of NAME")]
    Requester(String),
    /// The user's groups do not say that it is a node.
    #[error("{0:?} is not in group system:nodes")]
    Groups(String),
    /// The PKCS#10 in it cannot be granted.
    #[error("{0}")]
    Unreadable(String),
    /// The subject's CN is not the one it must be.
    #[error("its common name is {found}, which must be {wanted:?}")]
    CommonName {
        /// What stands there.
        found: String,
        /// What belongs there.
        wanted: String,
    },
    /// A CN that names no node.
    #[error("its common name {0:?} is not system:node: and a node's name")]
    NodeName(String),
    /// The subject's O are not exactly `system:nodes`.
    #[error("its organizations are {0:?}, which must be exactly [\"system:nodes\"]")]
    Organizations(Vec<String>),
    /// Usages that are not exactly those of a kubelet's certificate.
    #[error("its usages are {found:?}, which must be {wanted}")]
    Usages {
        /// What it asks for.
        found: Vec<String>,
        /// What it may ask for.
        wanted: &'static str,
    },
    /// Extensions a kubelet does not ask for.
    #[error("it asks for {0}")]
    Extension(String),
    /// A serving certificate without names.
    #[error("it names no address and no host name")]
    NoNames,
    /// A client certificate with names.
    #[error("it names {0}; a client certificate has no alternative names")]
    Names(String),
    /// An e-mail address, a URI or something stranger among the names.
    #[error("it names {0}; only host names and addresses are granted")]
    OtherName(String),
    /// A DNS name that no host can have: a wildcard, an empty one, one with odd characters.
    #[error("{0:?} is no host name")]
    HostName(String),
    /// A name that stands for the API server or for every host.
    #[error("{0} is a name of the cluster's own, not of a node")]
    ReservedName(Host),
    /// An address that is the same on every host, or of no host.
    #[error("{address} is one of the {kind} addresses, not a node's own")]
    ReservedAddress {
        /// Which.
        address: Host,
        /// Which kind.
        kind: &'static str,
    },
    /// An address of the service network.
    #[error("{0} lies in the service network")]
    ServiceAddress(Host),
    /// Where the API server is reached.
    #[error("{0} is an address of the API server, which this node does not run")]
    ApiServer(Host),
    /// A shared address.
    #[error("{0} is the control plane's shared address")]
    Shared(Host),
    /// There is no Node of this name yet.
    #[error("Node {0} is not registered yet")]
    NoNode(String),
    /// The Node tells no addresses yet.
    #[error("Node {0} has no addresses in its status yet")]
    NoAddresses(String),
    /// The Node does not have this name or address.
    #[error("{host} is not in the addresses of Node {node}")]
    NotItsOwn {
        /// Which.
        host: Host,
        /// Whose it is not.
        node: String,
    },
    /// Nobody has recorded yet that it is this node's.
    #[error("{0} is not recorded for this node yet")]
    NotRecorded(Host),
    /// Another node had it first.
    #[error(
        "{host} was node {holder}'s before; if that machine is gone: kubectl delete node {holder}, then stratum node forget {holder}"
    )]
    HeldByAnother {
        /// Which.
        host: Host,
        /// Whose it is.
        holder: String,
    },
    /// What the cluster's own addresses are could not be read.
    #[error("the cluster's own addresses are not known: {0}")]
    NetworkUnknown(String),
    /// A node's bootstrap request that was not made with a bootstrap token.
    #[error("{0:?} is not in group system:bootstrappers; a join needs a bootstrap token")]
    NotABootstrapper(String),
    /// The name is a Node's.
    #[error(
        "Node {0} is registered; a join token may claim only a new name. To let a machine take it: kubectl delete node {0} && stratum node forget {0}"
    )]
    Registered(String),
    /// The name is claimed.
    #[error("the name {name} is claimed by {by} until {until}; to free it before: stratum node forget {name}")]
    Claimed {
        /// Which name.
        name: String,
        /// The user that claimed it, or the node itself.
        by: String,
        /// The end of the certificate that claims it.
        until: Timestamp,
    },
}

impl Reason {
    /// Whether the request can become approvable as it is: something else has to change first, and may.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoNode(_)
            | Self::NoAddresses(_)
            | Self::NotItsOwn { .. }
            | Self::NotRecorded(_)
            | Self::HeldByAnother { .. }
            | Self::NetworkUnknown(_)
            | Self::ServiceAddress(_)
            | Self::ApiServer(_)
            | Self::Shared(_)
            | Self::Registered(_)
            | Self::Claimed { .. } => true,
            Self::Requester(_)
            | Self::Groups(_)
            | Self::Unreadable(_)
            | Self::CommonName { .. }
            | Self::NodeName(_)
            | Self::Organizations(_)
            | Self::Usages { .. }
            | Self::Extension(_)
            | Self::NoNames
            | Self::Names(_)
            | Self::OtherName(_)
            | Self::HostName(_)
            | Self::ReservedName(_)
            | Self::ReservedAddress { .. }
            | Self::NotABootstrapper(_) => false,
        }
    }

    /// Its word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        ReasonWord::from(self).into()
    }
}
