//! Why nothing is evicted, in words for whoever looks at the cluster at night.

use jiff::Timestamp;

use super::DNS_LABEL;
use super::memory::Refusal;
use super::placement::Misfit;

/// Why nothing is evicted. The discriminant is a metric label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(ReasonKind),
    derive(strum::IntoStaticStr, strum::EnumIter, Hash),
    strum(serialize_all = "snake_case")
)]
pub enum Reason {
    /// It only has the name.
    #[error(
        "the Deployment does not select pods by the label {}={}, so it is not taken for CoreDNS",
        DNS_LABEL.0, DNS_LABEL.1
    )]
    NotCoreDns,
    /// There is nothing to spread.
    #[error("{wanted} replicas are wanted; there is nothing to spread")]
    TooFewReplicas {
        /// How many are wanted.
        wanted: i32,
    },
    /// Its pods are changing.
    #[error("its pods are changing: {sign}")]
    Rollout {
        /// By what it is seen.
        sign: String,
    },
    /// A replica is missing or not Ready.
    #[error("only {ready} of {wanted} replicas are Ready for long enough")]
    NotAllReady {
        /// How many are.
        ready: i32,
        /// How many there should be.
        wanted: i32,
    },
    /// More than one node has replicas.
    #[error("the replicas are on {nodes} nodes")]
    Spread {
        /// On how many.
        nodes: usize,
    },
    /// The template has a rule whose outcome cannot be told.
    #[error(
        "node {from} holds all replicas, but where else one may run depends on {rule}, which the operator does not judge; evict one by hand if it should move"
    )]
    Unjudged {
        /// The node.
        from: String,
        /// The rule.
        rule: &'static str,
    },
    /// Pods were placed a moment ago, perhaps by an eviction.
    #[error("node {from} holds all replicas, and one was placed there a moment ago; looked at again at {until:.0}")]
    Settling {
        /// The node.
        from: String,
        /// Until when.
        until: Timestamp,
    },
    /// No other node can take a replica.
    #[error("node {from} holds all replicas, and {}", none_other(nearest.as_ref()))]
    NoTarget {
        /// The node.
        from: String,
        /// The node that is nearest to being fit, and what it lacks; none: there is no other node.
        nearest: Option<(String, Misfit)>,
    },
    /// The last eviction did not help.
    #[error(
        "an evicted replica came back to node {from}, although {} could have taken it; no other is evicted until a new node can",
        tried.join(", ")
    )]
    GaveUp {
        /// The node.
        from: String,
        /// Where it could have gone.
        tried: Vec<String>,
    },
    /// Another eviction was granted not long ago.
    #[error("node {from} holds all replicas again so soon after one was moved; tried again at {until:.0}")]
    CoolingDown {
        /// The node.
        from: String,
        /// Until when.
        until: Timestamp,
    },
    /// The last eviction was refused.
    #[error(
        "node {from} holds all replicas, and the last eviction did not succeed: {refusal}; tried again at {until:.0}"
    )]
    Refused {
        /// The node.
        from: String,
        /// Why.
        refusal: Refusal,
        /// Until when nothing is tried.
        until: Timestamp,
    },
}

fn none_other(nearest: Option<&(String, Misfit)>) -> String {
    match nearest {
        None => "there is no other node".to_owned(),
        Some((node, misfit)) => format!("no other node can take one; the nearest is {node}: {misfit}"),
    }
}
