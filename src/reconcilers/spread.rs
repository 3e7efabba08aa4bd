//! Whether one replica of CoreDNS should leave a node that holds all of them.
//!
//! Its pods are kept apart by preference only, so that a cluster of one node has DNS too; a preference is looked at when a
//! pod is placed and never again. One pod is evicted, not all restarted: during a restart each node holds a pod, and the
//! scheduler has no reason to prefer one (siderolabs/docs#781).
//!
//! A decision is made step by step: [`decide`] answers with the question it has when it needs more than it was given, so
//! that Nodes and pods are read only when a move hangs on them.
//!
//! - [`facts`]: what is read of the Deployment, its pods and the Nodes.
//! - [`reason`]: why nothing is evicted.
//! - [`placement`]: whether a Node could take one more replica.
//! - [`resources`], [`quantity`]: what pods ask for.
//! - [`memory`]: what is remembered, so that an eviction that does not help is not repeated.

pub mod facts;
pub mod memory;
#[cfg(test)]
mod model;
pub mod placement;
pub mod quantity;
pub mod reason;
pub mod resources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use self::facts::{DeploymentFacts, NodeFacts, PodFacts};
use self::memory::{Memory, NodeKey, Pace, key_of, later};
use self::placement::{Misfit, Template, has_room, suits};
use self::reason::{Reason, ReasonKind};
use self::resources::Usage;
use crate::reconcilers::object::Uid;

/// The name of the Deployment.
pub const DEPLOYMENT: &str = "coredns";
/// The label, key and value, by which the cluster's DNS Service finds its pods.
pub const DNS_LABEL: (&str, &str) = ("k8s-app", "kube-dns");
/// The pods of so many nodes are looked at in one pass.
const LOOKED_AT: usize = 20;

/// What one decision needs.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The Deployment.
    pub deployment: DeploymentFacts,
    /// The pods its selector finds.
    pub pods: Vec<PodFacts>,
    /// All Nodes; none before [`Question::Nodes`] was asked.
    pub nodes: Option<Vec<NodeFacts>>,
    /// What is taken of a node, by its name, as far as [`Question::PodsOn`] was asked.
    pub usage: BTreeMap<String, Usage>,
    /// What is remembered.
    pub memory: Memory,
    /// How patient to be.
    pub pace: Pace,
    /// Another number in each pass, so that another part of very many nodes is looked at.
    pub turn: usize,
}

/// What is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// One pod is evicted.
    Evict(Eviction),
    /// Nothing is done.
    Stay(Reason),
    /// More must be known first.
    Ask(Question),
}

impl Decision {
    /// The decision in a word, for a metric.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Evict(_) => EVICT,
            Self::Stay(reason) => ReasonKind::from(reason).into(),
            Self::Ask(_) => "ask",
        }
    }
}

/// [`Decision::label`] of an eviction.
pub const EVICT: &str = "evict";

/// Something that must be read to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All Nodes.
    Nodes,
    /// The pods on this node.
    PodsOn(String),
}

/// One eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The Deployment.
    pub deployment: Uid,
    /// The pod.
    pub pod: String,
    /// Its UID, without which it is not evicted.
    pub uid: Uid,
    /// The node that holds all replicas.
    pub from: String,
    /// A node that can take one.
    pub to: String,
    /// Every node that suits a replica, whether there is room or not.
    pub eligible: BTreeSet<NodeKey>,
}

/// Decides whether a replica is evicted, and which.
#[must_use]
pub fn decide(observed: &Observed, now: Timestamp) -> Decision {
    judge(observed, now).unwrap_or_else(Decision::Stay)
}

fn judge(observed: &Observed, now: Timestamp) -> Result<Decision, Reason> {
    let deployment = &observed.deployment;
    let of_it = |pod: &&PodFacts| pod.is_replica_of(&deployment.name);
    let replicas: Vec<&PodFacts> = observed.pods.iter().filter(of_it).collect();
    is_steady(deployment, &replicas)?;
    let from = crowded(&replicas)?;
    is_due(observed, &replicas, from, now)?;
    if let Some(rule) = deployment.template.unjudged {
        let from = from.to_owned();
        return Err(Reason::Unjudged { from, rule });
    }
    let Some(nodes) = &observed.nodes else {
        return Ok(Decision::Ask(Question::Nodes));
    };
    let mut template = deployment.template.clone();
    // Admission may have given the pods more than the template says.
    for pod in &replicas {
        template.asked.raise_to(&pod.asked);
    }
    let others = Others::sort_out(&template, nodes, from);
    others.are_worth_a_try(observed, from, now)?;
    let to = match others.with_room(&template, observed) {
        Room::On(node) => node,
        Room::Unknown(node) => return Ok(Decision::Ask(Question::PodsOn(node))),
        Room::Nowhere(nearest) => {
            let from = from.to_owned();
            return Err(Reason::NoTarget { from, nearest });
        }
    };
    // The one that was placed last: it has served for the shortest time.
    let newest = replicas.iter().max_by_key(|pod| (pod.created, &pod.name));
    let Some(newest) = newest else {
        return Err(Reason::TooFewReplicas { wanted: 0 });
    };
    Ok(Decision::Evict(Eviction {
        deployment: deployment.uid.clone(),
        pod: newest.name.clone(),
        uid: newest.uid.clone(),
        from: from.to_owned(),
        to,
        eligible: others.keys(),
    }))
}

/// Whether this is CoreDNS with more than one replica, all of them Ready, and nothing going on.
fn is_steady(deployment: &DeploymentFacts, pods: &[&PodFacts]) -> Result<(), Reason> {
    if deployment.selected_label(DNS_LABEL.0) != Some(DNS_LABEL.1) {
        return Err(Reason::NotCoreDns);
    }
    let counts = deployment.replicas;
    let wanted = counts.wanted;
    if wanted < 2 {
        return Err(Reason::TooFewReplicas { wanted });
    }
    let templates: BTreeSet<_> = pods.iter().map(|pod| &pod.template_hash).collect();
    let leaving = pods.iter().find(|pod| pod.is_leaving);
    let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let sign = if deployment.is_leaving {
        "the Deployment is being deleted".to_owned()
    } else if deployment.is_paused {
        "its rollout is paused".to_owned()
    } else if deployment.generation != deployment.observed_generation {
        "its last change has not been taken up yet".to_owned()
    } else if counts.updated != wanted || counts.total != wanted {
        let (updated, total) = (counts.updated, counts.total);
        format!("{wanted} replicas are wanted, there are {total}, and {updated} are of the current template")
    } else if let Some(pod) = leaving {
        format!("pod {} is being deleted", pod.name)
    } else if count != wanted {
        format!("{wanted} replicas are wanted, and there are {count} pods")
    } else if templates.len() > 1 {
        "its pods are of more than one template".to_owned()
    } else {
        let seen = i32::try_from(pods.iter().filter(|pod| pod.is_ready).count()).unwrap_or(i32::MAX);
        let ready = seen.min(counts.ready).min(counts.available);
        return if ready == wanted {
            Ok(())
        } else {
            Err(Reason::NotAllReady { ready, wanted })
        };
    };
    Err(Reason::Rollout { sign })
}

/// The one node on which all pods are.
fn crowded<'a>(pods: &[&'a PodFacts]) -> Result<&'a str, Reason> {
    let nodes: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.node.as_deref()).collect();
    match nodes.first() {
        Some(&only) if nodes.len() == 1 => Ok(only),
        Some(_) | None => Err(Reason::Spread { nodes: nodes.len() }),
    }
}

/// Whether it is time to look for another node.
fn is_due(observed: &Observed, pods: &[&PodFacts], from: &str, now: Timestamp) -> Result<(), Reason> {
    let Observed { memory, pace, .. } = observed;
    if let Some(attempt) = memory.attempt(&observed.deployment.uid, from)
        && let Some(refusal) = attempt.refusal
        && now < attempt.until
    {
        return Err(Reason::Refused {
            from: from.to_owned(),
            refusal,
            until: attempt.until,
        });
    }
    let placed = pods.iter().map(|pod| later(pod.created, pace.settle));
    let evicted = memory.pause(pace).map(|(settled, _)| settled);
    match placed.chain(evicted).max() {
        Some(until) if now < until => Err(Reason::Settling {
            from: from.to_owned(),
            until,
        }),
        Some(_) | None => Ok(()),
    }
}

/// The other nodes: those that suit a replica, and of the rest the nearest to it.
struct Others<'a> {
    eligible: Vec<&'a NodeFacts>,
    nearest: Option<(String, Misfit)>,
}

enum Room {
    On(String),
    Unknown(String),
    Nowhere(Option<(String, Misfit)>),
}

impl<'a> Others<'a> {
    fn sort_out(template: &Template, nodes: &'a [NodeFacts], from: &str) -> Self {
        let mut others = Self {
            eligible: Vec::new(),
            nearest: None,
        };
        for node in nodes.iter().filter(|node| node.name != from) {
            match suits(template, node) {
                Ok(()) => others.eligible.push(node),
                Err(misfit) => nearer(&mut others.nearest, &node.name, misfit),
            }
        }
        others.eligible.sort_by(|a, b| a.name.cmp(&b.name));
        others
    }

    fn keys(&self) -> BTreeSet<NodeKey> {
        self.eligible.iter().map(|node| key_of(node)).collect()
    }

    /// Whether there is a node that suits and that has not been tried in vain, and the last move is long enough ago.
    ///
    /// A node that was tried and has more room since is not a new one: pods come and go all the time.
    fn are_worth_a_try(&self, observed: &Observed, from: &str, now: Timestamp) -> Result<(), Reason> {
        let from = from.to_owned();
        if self.eligible.is_empty() {
            let nearest = self.nearest.clone();
            return Err(Reason::NoTarget { from, nearest });
        }
        let memory = &observed.memory;
        if let Some(attempt) = memory.attempt(&observed.deployment.uid, &from)
            && self.keys().is_subset(&attempt.tried(&observed.pods))
        {
            let tried = self.eligible.iter().map(|node| node.name.clone()).collect();
            return Err(Reason::GaveUp { from, tried });
        }
        match memory.pause(&observed.pace) {
            Some((_, until)) if now < until => Err(Reason::CoolingDown { from, until }),
            Some(_) | None => Ok(()),
        }
    }

    /// The first node with room, of a part of them.
    fn with_room(&self, template: &Template, observed: &Observed) -> Room {
        let many = self.eligible.len();
        let first = if many > LOOKED_AT {
            observed.turn.wrapping_mul(LOOKED_AT) % many
        } else {
            0
        };
        let mut nearest = None;
        for node in self.eligible.iter().cycle().skip(first).take(many.min(LOOKED_AT)) {
            let Some(usage) = observed.usage.get(&node.name) else {
                return Room::Unknown(node.name.clone());
            };
            match has_room(&template.asked, node, usage) {
                Ok(()) => return Room::On(node.name.clone()),
                Err(misfit) => nearer(&mut nearest, &node.name, misfit),
            }
        }
        Room::Nowhere(nearest)
    }
}

/// Keeps the node that is nearer to being fit.
fn nearer(nearest: &mut Option<(String, Misfit)>, node: &str, misfit: Misfit) {
    if nearest
        .as_ref()
        .is_none_or(|(_, known)| known.nearness() < misfit.nearness())
    {
        *nearest = Some((node.to_owned(), misfit));
    }
}
