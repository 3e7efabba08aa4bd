//! Serving certificates: approved when the requester is the node itself and every name in it is its own.

use super::identity::{Holders, NodeView};
use super::network::Network;
use super::{Decision, NODE_USER, NODES, Reason, Request, Standing, form};
use crate::pki::name::AlternativeName;
use crate::reconcilers::host_name::Host;
use crate::text::is_node_name;

/// What one decision needs to know of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The requester's Node, if it is registered.
    pub node: Option<&'a NodeView>,
    /// Who had which address first.
    pub holders: &'a Holders,
    /// The cluster's own addresses, or why they are not known.
    pub network: Result<&'a Network, &'a str>,
}

/// The name of the node that a request is about, by its user; the one whose changes may change the decision.
#[must_use]
pub fn node_of(request: &Request) -> Option<&str> {
    request
        .requester
        .strip_prefix(NODE_USER)
        .filter(|name| is_node_name(name))
}

/// Decides about a request of [`super::Signer::KubeletServing`].
#[must_use]
pub fn decide(request: &Request, world: World<'_>) -> Decision {
    match request.standing {
        Standing::Pending => match check(request, world) {
            Ok(()) => Decision::Approve,
            Err(reason) => Decision::Wait(reason),
        },
        Standing::Approved | Standing::Issued | Standing::Refused | Standing::Deleted => Decision::Settled,
    }
}

fn check(request: &Request, world: World<'_>) -> Result<(), Reason> {
    let name = node_of(request).ok_or_else(|| Reason::Requester(request.requester.clone()))?;
    if !request.groups.iter().any(|group| group == NODES) {
        return Err(Reason::Groups(request.requester.clone()));
    }
    let signing = form::check(request, &form::SERVING)?;
    let common_name = form::common_name(&signing)?;
    if common_name != request.requester {
        return Err(Reason::CommonName {
            found: format!("{common_name:?}"),
            wanted: request.requester.clone(),
        });
    }
    let hosts = signing
        .alternative_names
        .iter()
        .map(host)
        .collect::<Result<Vec<_>, _>>()?;
    if hosts.is_empty() {
        return Err(Reason::NoNames);
    }
    let network = world
        .network
        .map_err(|problem| Reason::NetworkUnknown(problem.to_owned()))?;
    let node = world.node.ok_or_else(|| Reason::NoNode(name.to_owned()))?;
    if node.addresses.is_empty() {
        return Err(Reason::NoAddresses(name.to_owned()));
    }
    hosts
        .iter()
        .try_for_each(|host| own(host, node, network, world.holders))
}

/// Whether a host is the node's own.
fn own(host: &Host, node: &NodeView, network: &Network, holders: &Holders) -> Result<(), Reason> {
    network.check(host, node.controller)?;
    if !node.addresses.contains(host) {
        return Err(Reason::NotItsOwn {
            host: host.clone(),
            node: node.name.clone(),
        });
    }
    match holders.holder(host) {
        Some(holder) if holder == node.name => Ok(()),
        Some(holder) => Err(Reason::HeldByAnother {
            host: host.clone(),
            holder: holder.to_owned(),
        }),
        None => Err(Reason::NotRecorded(host.clone())),
    }
}

fn host(name: &AlternativeName) -> Result<Host, Reason> {
    match name {
        AlternativeName::Ip(address) => Ok(Host::Address(address.to_canonical())),
        AlternativeName::Dns(text) => match Host::compared(text) {
            Ok(host @ Host::Name(_)) => Ok(host),
            // An address written as a name is neither.
            Ok(Host::Address(_)) | Err(_) => Err(Reason::HostName(text.clone())),
        },
        AlternativeName::Other(text) => Err(Reason::OtherName(text.clone())),
    }
}
