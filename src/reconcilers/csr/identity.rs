//! What the cluster remembers of a node's name: which Node has it, who claimed it, until when its certificate lives, and
//! which addresses it was the first to have.
//!
//! A kubelet writes the addresses in its own Node's status, so they prove nothing by themselves. What was recorded for one
//! node is therefore not granted to another: the later one waits, so that a hostile node cannot take what its victim has.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LONGEST_LIFE, NODE_USER, Request, latest_end};
use crate::reconcilers::host_name::Host;
use crate::reconcilers::object::Uid;

/// The record of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The UID of the Node that has, or had last, the name; none before it registers.
    #[serde(default, rename = "nodeUID", skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<Uid>,
    /// The bootstrap request that claimed the name; none for a Node that was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Box<Claim>>,
    /// Until when a client certificate of this name can live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateEnd>,
    /// The addresses and host names of the Node, with when each was first seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Recorded>,
}

/// Who claimed a name, and with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The user: the bootstrap token.
    pub requester: String,
    /// The CertificateSigningRequest's name.
    pub request: String,
    /// Its UID.
    #[serde(rename = "requestUID")]
    pub request_uid: Uid,
    /// SHA-256 of its public key, hexadecimal.
    pub key: String,
    /// When.
    pub at: Timestamp,
}

/// The end of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEnd {
    /// Its last second.
    pub not_after: Timestamp,
    /// Whether that is the latest it can be, since nobody here has seen the certificate.
    pub assumed: bool,
}

/// One address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// The address or host name, in lower case and without a final dot.
    pub address: String,
    /// When it was first in the Node's status.
    pub first_seen: Timestamp,
}

/// A Node as identities follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its UID.
    pub uid: Uid,
    /// Its name.
    pub name: String,
    /// Whether it runs a control plane.
    pub controller: bool,
    /// `status.addresses`, in their order.
    pub addresses: Vec<Host>,
}

/// The record after a look at its Node; `None` when it says that already.
///
/// A Node that is there without a record is adopted, and its certificate assumed to live as long as one can. Addresses
/// that the Node has given up are forgotten, so that another may have them; one that tells none at all (it is starting)
/// keeps what it had.
#[must_use]
pub fn follow(known: Option<&Identity>, node: &NodeView, now: Timestamp) -> Option<Identity> {
    let mut identity = known.cloned().unwrap_or_default();
    identity.node_uid = Some(node.uid.clone());
    if identity.certificate.is_none() {
        identity.certificate = Some(CertificateEnd {
            not_after: latest_end(LONGEST_LIFE, now),
            assumed: true,
        });
    }
    if !node.addresses.is_empty() {
        let first_seen: BTreeMap<&str, Timestamp> = known
            .into_iter()
            .flat_map(|known| &known.addresses)
            .map(|recorded| (recorded.address.as_str(), recorded.first_seen))
            .collect();
        let mut addresses: Vec<Recorded> = Vec::new();
        for host in &node.addresses {
            let address = host.to_string();
            if addresses.iter().all(|recorded| recorded.address != address) {
                addresses.push(Recorded {
                    first_seen: first_seen.get(address.as_str()).copied().unwrap_or(now),
                    address,
                });
            }
        }
        identity.addresses = addresses;
    }
    (known != Some(&identity)).then_some(identity)
}

impl Identity {
    /// The record after `request` claimed the name. It is written before the request is approved, so that the certificate
    /// is counted with even when nobody sees it issued.
    #[must_use]
    pub fn claimed_by(known: Option<&Self>, request: &Request, key: String, now: Timestamp) -> Self {
        Self {
            node_uid: None,
            claim: Some(Box::new(Claim {
                requester: request.requester.clone(),
                request: request.name.clone(),
                request_uid: request.uid.clone(),
                key,
                at: now,
            })),
            certificate: Some(CertificateEnd {
                not_after: request.latest_end(now),
                assumed: true,
            }),
            addresses: known.map(|known| known.addresses.clone()).unwrap_or_default(),
        }
    }

    /// The record after a client certificate of its name was seen; `None` when it changes nothing.
    #[must_use]
    pub fn after_certificate(&self, not_after: Timestamp) -> Option<Self> {
        let known = self.certificate.as_ref();
        // An assumed end gives way to the real one. Of two real ones the later counts: both certificates live.
        let later = known.is_none_or(|known| known.assumed || known.not_after < not_after);
        later.then(|| Self {
            certificate: Some(CertificateEnd {
                not_after,
                assumed: false,
            }),
            ..self.clone()
        })
    }

    /// Whether nothing lives under the name any more, if it has no Node: its certificate has ended.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.certificate.as_ref().is_none_or(|end| end.not_after <= now)
    }

    /// Whether this is the claim of a request from which nothing has come: no certificate and no Node.
    #[must_use]
    pub fn is_unused_claim_of(&self, request: &Uid) -> bool {
        let assumed = self.certificate.as_ref().is_some_and(|end| end.assumed);
        assumed && self.node_uid.is_none() && self.claim.as_ref().is_some_and(|claim| claim.request_uid == *request)
    }

    /// Who has the name, for a person.
    #[must_use]
    pub fn holder(&self, name: &str) -> String {
        self.claim
            .as_ref()
            .map_or_else(|| format!("{NODE_USER}{name}"), |claim| claim.requester.clone())
    }
}

/// Who had each address first.
///
/// There are thousands of names with a few addresses each, and nearly every address is one name's alone: texts are shared,
/// and a vector of one takes no more room than that one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// By address, every name that has it and since when.
    names: BTreeMap<Arc<str>, Vec<(Arc<str>, Timestamp)>>,
    /// By name, its addresses.
    addresses: BTreeMap<Arc<str>, Box<[Arc<str>]>>,
}

impl Holders {
    /// Takes a name's record in, or a newer one in its place.
    pub fn insert(&mut self, name: &str, identity: &Identity) {
        self.remove(name);
        let name: Arc<str> = name.into();
        let recorded = identity.addresses.iter();
        let mut addresses: Vec<_> = recorded
            .map(|one| (self.shared(&one.address), one.first_seen))
            .collect();
        // A node's name is its own before it, or anybody else, tells it as an address.
        addresses.retain(|(address, _)| **address != *name);
        addresses.push((Arc::clone(&name), Timestamp::MIN));
        for (address, since) in &addresses {
            let names = self
                .names
                .entry(Arc::clone(address))
                .or_insert_with(|| Vec::with_capacity(1));
            names.push((Arc::clone(&name), *since));
        }
        let addresses = addresses.into_iter().map(|(address, _)| address).collect();
        self.addresses.insert(name, addresses);
    }

    /// Forgets a name.
    pub fn remove(&mut self, name: &str) {
        for address in self.addresses.remove(name).into_iter().flatten() {
            if let Some(names) = self.names.get_mut(&address) {
                names.retain(|(other, _)| **other != *name);
                if names.is_empty() {
                    self.names.remove(&address);
                }
            }
        }
    }

    /// The part about these hosts.
    #[must_use]
    pub fn of(&self, hosts: &[Host]) -> Self {
        let mut part = Self::default();
        for host in hosts {
            if let Some((address, names)) = self.names.get_key_value(host.to_string().as_str()) {
                part.names.insert(Arc::clone(address), names.clone());
            }
        }
        part
    }

    /// The name that had an address first. Two at the same moment are told apart by their names, so that all instances
    /// agree.
    #[must_use]
    pub fn holder(&self, host: &Host) -> Option<&str> {
        let names = self.names.get(host.to_string().as_str())?;
        let first = names.iter().min_by_key(|(name, at)| (*at, Arc::clone(name)))?;
        Some(&first.0)
    }

    /// The text of an address that is known already, or a new one.
    fn shared(&self, address: &str) -> Arc<str> {
        let known = self.names.get_key_value(address);
        known.map_or_else(|| address.into(), |(known, _)| Arc::clone(known))
    }
}
