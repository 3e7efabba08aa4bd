//! The first client certificate of a kubelet: a join token may claim a name that nobody has, and no other.
//!
//! All joiners on one token are the same user, so the token says nothing about which machine asks. The claim does: it
//! holds the key of the request that made it, and is written before the approval.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::identity::{Claim, Identity};
use super::{BOOTSTRAPPERS, Decision, NODE_USER, Reason, Request, Standing, form};
use crate::pki::hexadecimal;
use crate::pki::signing_request::SigningRequest;
use crate::text::is_node_name;

/// What one decision needs to know of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// Whether a Node of the name is registered.
    pub registered: bool,
    /// What is remembered of the name.
    pub identity: Option<&'a Identity>,
}

/// A request that may claim a name, as far as its own content says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The node's name.
    pub node: String,
    /// SHA-256 of its public key, hexadecimal.
    pub key: String,
}

/// Reads a request of [`super::Signer::KubeletClient`] by itself. `Ok(None)` is one that is none of this concern's: decided
/// already, or a node's renewal, which kube-controller-manager approves.
///
/// # Errors
/// Why it is never approved as it is.
pub fn read(request: &Request) -> Result<Option<Claimant>, Reason> {
    match request.standing {
        Standing::Pending => {}
        Standing::Approved | Standing::Issued | Standing::Refused | Standing::Deleted => return Ok(None),
    }
    if request.requester.starts_with(NODE_USER) {
        return Ok(None);
    }
    if !request.groups.iter().any(|group| group == BOOTSTRAPPERS) {
        return Err(Reason::NotABootstrapper(request.requester.clone()));
    }
    let signing = form::check(request, &form::CLIENT)?;
    let common_name = form::common_name(&signing)?;
    let node = common_name
        .strip_prefix(NODE_USER)
        .filter(|name| is_node_name(name))
        .ok_or_else(|| Reason::NodeName(common_name.to_owned()))?;
    if let Some(name) = signing.alternative_names.first() {
        return Err(Reason::Names(name.to_string()));
    }
    Ok(Some(Claimant {
        node: node.to_owned(),
        key: hexadecimal(&Sha256::digest(&signing.public_key)),
    }))
}

/// The node's name in a request, however far that has come.
#[must_use]
pub fn name_of(request: &Request) -> Option<String> {
    let signing = SigningRequest::from_pem(&request.pem).ok()?;
    let name = form::common_name(&signing).ok()?.strip_prefix(NODE_USER)?;
    Some(name.to_owned())
}

/// Decides about a claim. Approved means: write [`Identity::claimed_by`] first, and approve only when that was stored.
#[must_use]
pub fn decide(request: &Request, claimant: &Claimant, world: World<'_>, now: Timestamp) -> Decision {
    if world.registered {
        return Decision::Wait(Reason::Registered(claimant.node.clone()));
    }
    let Some(identity) = world.identity else {
        return Decision::Approve;
    };
    let same = |claim: &Claim| {
        claim.request_uid == request.uid || (claim.requester == request.requester && claim.key == claimant.key)
    };
    match &identity.certificate {
        Some(end) if end.not_after > now && !identity.claim.as_deref().is_some_and(same) => {
            Decision::Wait(Reason::Claimed {
                name: claimant.node.clone(),
                by: identity.holder(&claimant.node),
                until: end.not_after,
            })
        }
        Some(_) | None => Decision::Approve,
    }
}
