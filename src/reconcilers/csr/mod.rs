//! Which certificate signing requests of kubelets are approved.
//!
//! A request is approved or it waits; it is never denied, since somebody else may judge it by what is not known here. Why
//! it waits is a [`Reason`]. [`serving`] and [`bootstrap`] decide; [`identity`] is what the cluster remembers of a node's
//! name, and what makes a node's own word about its addresses worth something.

pub mod bootstrap;
mod form;
pub mod identity;
pub mod network;
pub mod reason;
pub mod serving;

use jiff::{SignedDuration, Timestamp};

use super::object::Uid;

pub use reason::{Reason, ReasonWord};

/// The group of every kubelet, and the organization in its certificates.
pub const NODES: &str = "system:nodes";
/// The group of bootstrap tokens.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// Before a node's name in its user name.
pub const NODE_USER: &str = "system:node:";

/// A signer whose requests are judged here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Signer {
    /// What a kubelet shows to who connects to it.
    KubeletServing,
    /// What a kubelet shows to the API server.
    KubeletClient,
}

impl Signer {
    /// The `signerName` (Kubernetes, "Certificates and Certificate Signing Requests", "Kubernetes signers").
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeletServing => "kubernetes.io/kubelet-serving",
            Self::KubeletClient => "kubernetes.io/kube-apiserver-client-kubelet",
        }
    }
}

/// A CertificateSigningRequest as far as it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// `spec.username`, which the API server fills in.
    pub requester: String,
    /// `spec.groups`, which the API server fills in.
    pub groups: Vec<String>,
    /// `spec.usages`.
    pub usages: Vec<String>,
    /// `spec.request`: PEM.
    pub pem: Vec<u8>,
    /// `spec.expirationSeconds`.
    pub expiration: Option<SignedDuration>,
    /// How far it has come.
    pub standing: Standing,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has decided.
    Pending,
    /// Approved, and the signer has not signed yet.
    Approved,
    /// Its certificate is there.
    Issued,
    /// Somebody denied it, or the signer refused it.
    Refused,
    /// It is being deleted.
    Deleted,
}

/// What is done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is approved.
    Approve,
    /// It is left as it is.
    Wait(Reason),
    /// There is nothing to decide: it is decided, or another controller's.
    Settled,
}

/// The signer's own limit when a request names no lifetime (`--cluster-signing-duration` of kube-controller-manager).
const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

impl Request {
    /// The latest end its certificate may have when it is approved now.
    #[must_use]
    pub fn latest_end(&self, now: Timestamp) -> Timestamp {
        let asked = self.expiration.unwrap_or(LONGEST_LIFE);
        latest_end(asked.min(LONGEST_LIFE), now)
    }
}

fn latest_end(life: SignedDuration, now: Timestamp) -> Timestamp {
    now.checked_add(life).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
