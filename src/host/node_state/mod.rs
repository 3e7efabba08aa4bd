//! `node.yaml`: what this node is. Everything rendered on it (static pods, the kubelet's configuration, certificates) is
//! derived from this file and the binary, so that rendering again is always possible and hand edits do not last.
//!
//! [`NodeState`] is the meaning; the file around it carries a version, and a version this binary does not know is refused
//! instead of being half understood.

#[cfg(test)]
pub(crate) mod examples;
mod file;
mod profile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use file::{Error, load, parse, save, schema};
pub use profile::{ForeignProfile, Profile, UnknownProfile, require_node_profile};

use crate::pki::key::KeyKind;

/// The API server's port on every controller, and the one an endpoint has unless it says another.
pub const API_SERVER_PORT: u16 = 6443;
/// The DNS domain of a cluster for which none is chosen.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// Everything this node was told when it was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeState {
    /// The name of its Node object.
    pub node_name: String,
    /// Controller or worker.
    pub role: Role,
    /// What of the profiles this binary registers it follows.
    pub profile: Profile,
    /// Its own addresses, the first being the one others use; two, of either family, in a dual-stack cluster.
    pub addresses: Vec<IpAddr>,
    /// The cluster's networks.
    pub networks: Networks,
    /// Where the API servers are reached from elsewhere.
    pub endpoint: Endpoint,
    /// An address that the controllers share, announced by kube-vip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vip: Option<Vip>,
    /// More names and addresses for the API server's certificate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_names: Vec<String>,
    /// Its member of etcd; controllers have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
    /// Labels the kubelet registers its Node with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints the kubelet registers its Node with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The kind of the keys that are made for it.
    #[serde(default)]
    #[schemars(with = "String")]
    pub keys: KeyKind,
}

/// What a node is for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// It has a control plane and an etcd member.
    Controller,
    /// It runs pods only.
    Worker,
}

/// The cluster's networks, as this node was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Networks {
    /// Ranges of Services, the first being the one the cluster's own Services are in. Empty on a worker that joined without
    /// being told.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub services: Vec<IpNet>,
    /// Ranges of pods. Empty on a worker.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub pods: Vec<IpNet>,
    /// The DNS domain of Services.
    pub domain: String,
    /// The address of the cluster's DNS, learned from the cluster by a worker that was told no range of Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned_dns: Option<IpAddr>,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    /// A DNS name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// An address that the controllers share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vip {
    /// The address.
    pub address: IpAddr,
    /// The interface it is announced on.
    pub interface: String,
}

/// This node's member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Etcd {
    /// Who signs etcd's certificates.
    pub authority: EtcdAuthority,
    /// The members it starts with, itself among them. Only read while its data folder is empty.
    pub initial_cluster: Vec<Member>,
    /// Whether it joins members that run already.
    pub initial_cluster_state: InitialClusterState,
}

/// Who signs etcd's certificates.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum EtcdAuthority {
    /// An authority of its own, so that a rotation of the cluster's authority leaves etcd alone.
    #[default]
    Own,
    /// The cluster's authority, as older clusters have it.
    Root,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// The member's name, which is its node's.
    pub name: String,
    /// Where the other members reach it.
    pub address: IpAddr,
}

/// etcd's `--initial-cluster-state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum InitialClusterState {
    /// It founds the cluster.
    New,
    /// It joins one.
    Existing,
}

/// A taint, as the kubelet takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: TaintEffect,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display, strum::EnumString)]
pub enum TaintEffect {
    /// Nothing new is scheduled.
    NoSchedule,
    /// Nothing new is scheduled if there is another node.
    PreferNoSchedule,
    /// What does not tolerate it is evicted.
    NoExecute,
}

impl NodeState {
    /// The address others use for this node.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.addresses
            .first()
            .copied()
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    /// Loopback in the family of [`NodeState::address`], as kubeadm has it for etcd: a node of IPv6 alone need not have the
    /// other.
    #[must_use]
    pub fn loopback(&self) -> IpAddr {
        match self.address() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    /// Where a controller reaches its own API server.
    #[must_use]
    pub fn own_api_server(&self) -> SocketAddr {
        SocketAddr::from((self.loopback(), API_SERVER_PORT))
    }

    /// Whether it has a control plane.
    #[must_use]
    pub fn is_controller(&self) -> bool {
        match self.role {
            Role::Controller => true,
            Role::Worker => false,
        }
    }
}

impl Networks {
    /// The address of the DNS of a cluster with the usual range of Services.
    pub const USUAL_DNS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));

    /// The address of Service `default/kubernetes` in each range: its first.
    #[must_use]
    pub fn api_server_services(&self) -> Vec<IpAddr> {
        self.services.iter().filter_map(|range| nth(*range, 1)).collect()
    }

    /// The address of the cluster's DNS: the tenth of the first range of Services, which is the authority where it is
    /// known; else the learned one; else that of the default range, as in every cluster before ranges were recorded.
    #[must_use]
    pub fn dns(&self) -> IpAddr {
        let ranged = self.services.first().and_then(|range| nth(*range, 10));
        ranged.or(self.learned_dns).unwrap_or(Self::USUAL_DNS)
    }

    /// Whether Services have addresses of both families.
    #[must_use]
    pub fn is_dual_stack(&self) -> bool {
        let four = |range: &&IpNet| matches!(range, IpNet::V4(_));
        let fours = self.services.iter().filter(four).count();
        fours > 0 && fours < self.services.len()
    }
}

/// The address `number` places into a range, if it is that long.
fn nth(range: IpNet, number: u32) -> Option<IpAddr> {
    let address = match range.network() {
        IpAddr::V4(four) => IpAddr::V4(four.to_bits().checked_add(number)?.into()),
        IpAddr::V6(six) => IpAddr::V6(six.to_bits().checked_add(number.into())?.into()),
    };
    range.contains(&address).then_some(address)
}

impl std::fmt::Display for Endpoint {
    /// `HOST:PORT`, an IPv6 address in brackets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.parse::<Ipv6Addr>() {
            Ok(six) => write!(formatter, "[{six}]:{}", self.port),
            Err(_) => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

impl Taint {
    /// What keeps ordinary pods off controllers.
    #[must_use]
    pub fn control_plane() -> Self {
        Self {
            key: "node-role.kubernetes.io/control-plane".to_owned(),
            value: None,
            effect: TaintEffect::NoSchedule,
        }
    }
}

impl std::fmt::Display for Taint {
    /// `KEY=VALUE:EFFECT`
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.value.as_deref().unwrap_or_default();
        write!(formatter, "{}={value}:{}", self.key, self.effect)
    }
}
