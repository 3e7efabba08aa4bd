//! Which Nodes are deleted because their machine has been taken out of the cluster.
//!
//! Nothing is concluded from silence: a machine behind a broken network is silent too. The one reason to delete a Node is
//! the mark its machine left when it was uninstalled, and it counts for that machine only, for as long as nothing was heard
//! of it since, and only while the API server lets nobody else write it (the admission policy [`POLICY`]).
//!
//! The times of a mark, of a heartbeat and of a Lease are all by the clock of the machine itself, so they compare well
//! however wrong it goes.

mod mark;
mod policy;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::node::{NodeFacts, ReadyStatus};
use super::object::Uid;
use crate::text::MachineId;

pub use mark::{MARK, Mark, NotAMark};
pub use policy::{Answer, DENIAL, POLICY, answer};

/// How long nothing may have been heard of a machine. Its Lease, which is renewed every 10 s and counts as lost after 40,
/// is stale by then, and so is everything that was under way when it was marked.
pub const SILENCE: SignedDuration = SignedDuration::from_mins(2);
/// So many Nodes may be deleted in [`PACE`].
pub const AT_ONCE: usize = 5;
/// The time [`AT_ONCE`] is about.
pub const PACE: Duration = Duration::from_secs(60);
/// Up to so many Nodes may be marked at once, however few Nodes there are.
const FEW: usize = 3;
/// No more than so many, however many there are.
const MANY: usize = 50;
/// Between [`FEW`] and [`MANY`]: one of so many Nodes.
const SHARE: usize = 4;

/// What one decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// When it was looked.
    pub at: Timestamp,
    /// How many Nodes there are, marked or not.
    pub nodes: usize,
    /// Every Node that carries the annotation.
    pub marked: Vec<Marked>,
    /// Nodes that were deleted in the last [`PACE`].
    pub recent: usize,
}

/// A Node that carries the annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// As the watch had it.
    pub known: Arc<NodeFacts>,
    /// As the API server had it when it was asked just now; none when what is known says already that it stays.
    pub reading: Option<Reading>,
}

/// What the API server said of a Node just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its facts.
    pub facts: NodeFacts,
    /// The state that was read.
    pub resource_version: String,
    /// The last time its kubelet said whether it is ready.
    pub heartbeat: Option<Timestamp>,
    /// The last renewal of its Lease in `kube-node-lease`; none when there is no Lease, or none that was ever renewed.
    pub lease: Option<Timestamp>,
    /// How the API server took it when the operator tried to change the mark; none when it was not tried.
    pub answer: Option<Answer>,
}

/// What is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The Nodes to delete, in this order.
    pub delete: Vec<Deletion>,
    /// The marked Nodes that stay, and why.
    pub kept: Vec<(Arc<str>, Kept)>,
    /// When to look again even if nothing changes.
    pub again: Option<Duration>,
}

/// A Node to delete, if it still is as it was when this was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// The state it was decided on.
    pub resource_version: String,
    /// The mark that is believed.
    pub mark: Mark,
}

/// Why a marked Node stays. The discriminant is a metric label; `Display` goes on from "Node NAME stays: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(KeptReason),
    derive(strum::IntoStaticStr, strum::EnumIter, Hash),
    strum(serialize_all = "snake_case")
)]
pub enum Kept {
    /// The annotation is no mark.
    #[error("its annotation {MARK} cannot be read: {0}; remove it")]
    NotAMark(NotAMark),
    /// It is a control-plane Node.
    #[error(
        "it is a control-plane Node, and deleting it would leave its etcd member behind; if that is gone too, delete the Node by hand"
    )]
    ControlPlane,
    /// It is being deleted already.
    #[error("it is being deleted already, and a finalizer holds it")]
    Terminating,
    /// It is Ready.
    #[error("it is Ready; if the machine is meant to be back, remove the annotation {MARK}")]
    Ready,
    /// It does not say which machine it is.
    #[error("it does not say which machine it is (status.nodeInfo.machineID); if it is gone, delete the Node by hand")]
    MachineUnknown,
    /// Another machine has its name now.
    #[error("machine {marked} was uninstalled, but this is machine {found}; remove the annotation {MARK}")]
    OtherMachine {
        /// The machine that was marked.
        marked: MachineId,
        /// What the Node says.
        found: String,
    },
    /// The mark is older than the Node.
    #[error("it was registered at {created}, after the mark of {at}; remove the annotation {MARK}")]
    OlderThanNode {
        /// The time of the mark.
        at: Timestamp,
        /// When the Node was registered.
        created: Timestamp,
    },
    /// It has been Ready since it was marked.
    #[error(
        "it was Ready until {ready}, after the mark of {at}; uninstall the machine again, or delete the Node by hand"
    )]
    OlderThanReady {
        /// The time of the mark.
        at: Timestamp,
        /// When it ceased to be Ready.
        ready: Timestamp,
    },
    /// Its kubelet has spoken since it was marked: the machine lives, and perhaps cannot be reached now.
    #[error(
        "its kubelet spoke at {sign}, after the mark of {at}; uninstall the machine again, or delete the Node by hand"
    )]
    AliveAfter {
        /// The time of the mark.
        at: Timestamp,
        /// The last that was heard.
        sign: Timestamp,
    },
    /// There is no Lease that could be stale.
    #[error(
        "it has no Lease in kube-node-lease, so nothing shows that its kubelet is silent; if it is gone, delete the Node by hand"
    )]
    NoLease,
    /// It was marked, or heard of, a moment ago.
    #[error("it was marked a moment ago, and is looked at again at {until}")]
    Settling {
        /// When it has been silent for long enough.
        until: Timestamp,
    },
    /// It has not been read anew; the next look does.
    #[error("it has not been read anew yet")]
    NotRead,
    /// Anybody could have written the mark.
    #[error(
        "anybody could have written the mark: ValidatingAdmissionPolicy {POLICY} or its binding is missing, changed or not in force yet; apply the stack departed-nodes"
    )]
    PolicyAbsent,
    /// Whether anybody could have written the mark is not known.
    #[error(
        "ValidatingAdmissionPolicy {POLICY} could not be seen to protect the mark, because something else refused first: {0}"
    )]
    PolicyUnproven(String),
    /// Too many Nodes are marked at once.
    #[error(
        "{marked} of {nodes} Nodes are marked at once, more than {limit}, so none is deleted; delete by hand those that are gone, or remove the annotation {MARK}"
    )]
    TooMany {
        /// How many are marked.
        marked: usize,
        /// How many Nodes there are.
        nodes: usize,
        /// How many may be.
        limit: usize,
    },
    /// It is its turn soon.
    #[error("{AT_ONCE} Nodes are deleted in a minute at most, and its turn comes")]
    Queued,
}

impl Kept {
    /// When to look again even if nothing changes.
    fn again(&self, at: Timestamp) -> Option<Duration> {
        match self {
            Self::Settling { until } => {
                let wait = Duration::try_from(until.duration_since(at)).unwrap_or_default();
                // A mark from a far future is not waited for to the second.
                Some(wait.clamp(Duration::from_secs(1), 10 * PACE))
            }
            Self::NotRead => Some(Duration::from_secs(1)),
            // Policies come and go without any Node changing.
            Self::PolicyAbsent | Self::PolicyUnproven(_) | Self::TooMany { .. } | Self::Queued => Some(PACE),
            Self::NotAMark(_)
            | Self::ControlPlane
            | Self::Terminating
            | Self::Ready
            | Self::MachineUnknown
            | Self::OtherMachine { .. }
            | Self::OlderThanNode { .. }
            | Self::OlderThanReady { .. }
            | Self::AliveAfter { .. }
            | Self::NoLease => None,
        }
    }
}

/// How many of `nodes` Nodes may be marked at once. More than that is no everyday work but a fault or an attack, or somebody
/// takes the cluster down and needs no help.
#[must_use]
pub fn limit(nodes: usize) -> usize {
    (nodes / SHARE).clamp(FEW, MANY)
}

/// Decides about every marked Node.
#[must_use]
pub fn decide(observed: &Observed) -> Plan {
    let Observed {
        at,
        nodes,
        marked,
        recent,
    } = observed;
    let limit = limit(*nodes);
    let too_many = (marked.len() > limit).then_some(Kept::TooMany {
        marked: marked.len(),
        nodes: *nodes,
        limit,
    });
    let mut plan = Plan::default();
    for node in marked {
        let verdict = match (&node.reading, &too_many) {
            (_, Some(held)) => believe(&node.known, *at).and(Err(held.clone())),
            (Some(reading), None) => judge(reading, *at),
            (None, None) => believe(&node.known, *at).and(Err(Kept::NotRead)),
        };
        match verdict {
            Ok(deletion) => plan.delete.push(deletion),
            Err(kept) => plan.kept.push((Arc::clone(&node.known.name), kept)),
        }
    }
    // Whoever has waited longest comes first.
    plan.delete
        .sort_by(|one, other| (one.mark.at, &one.name).cmp(&(other.mark.at, &other.name)));
    let room = AT_ONCE.saturating_sub(*recent).min(plan.delete.len());
    let queued = plan.delete.split_off(room);
    plan.kept
        .extend(queued.into_iter().map(|deletion| (deletion.name, Kept::Queued)));
    plan.again = plan.kept.iter().filter_map(|(_, kept)| kept.again(*at)).min();
    plan
}

fn judge(reading: &Reading, at: Timestamp) -> Result<Deletion, Kept> {
    let mark = believe(&reading.facts, at)?;
    listen(reading, &mark)?;
    match &reading.answer {
        Some(Answer::InForce) => Ok(Deletion {
            name: Arc::clone(&reading.facts.name),
            uid: reading.facts.uid.clone(),
            resource_version: reading.resource_version.clone(),
            mark,
        }),
        Some(Answer::Granted) => Err(Kept::PolicyAbsent),
        Some(Answer::Refused(reason)) => Err(Kept::PolicyUnproven(reason.clone())),
        None => Err(Kept::NotRead),
    }
}

/// The mark of a Node, if what is known of it speaks for the mark.
///
/// # Errors
/// Why the Node stays.
pub fn believe(facts: &NodeFacts, at: Timestamp) -> Result<Mark, Kept> {
    let text = facts.uninstalled.as_deref().unwrap_or_default();
    let mark: Mark = text.parse().map_err(Kept::NotAMark)?;
    if facts.control_plane {
        return Err(Kept::ControlPlane);
    }
    if facts.terminating {
        return Err(Kept::Terminating);
    }
    if facts.is_ready() {
        return Err(Kept::Ready);
    }
    match &facts.machine_id {
        None => return Err(Kept::MachineUnknown),
        Some(found) if found != mark.machine.as_str() => {
            return Err(Kept::OtherMachine {
                marked: mark.machine,
                found: found.clone(),
            });
        }
        Some(_) => {}
    }
    if let Some(created) = facts.created.filter(|created| *created > mark.at) {
        return Err(Kept::OlderThanNode { at: mark.at, created });
    }
    // Unknown is what the cluster concluded later, by its own clock; what the kubelet itself said last is its heartbeat.
    let ended = facts.ready.filter(|ready| ready.status == ReadyStatus::False);
    if let Some(ready) = ended.and_then(|ready| ready.since).filter(|since| *since > mark.at) {
        return Err(Kept::OlderThanReady { at: mark.at, ready });
    }
    let until = mark.at.saturating_add(SILENCE).unwrap_or(Timestamp::MAX);
    if at < until {
        return Err(Kept::Settling { until });
    }
    Ok(mark)
}

/// Whether nothing was heard of the machine since its mark. As the mark is [`SILENCE`] old by then, so is the Lease at least.
///
/// # Errors
/// Why the Node stays.
pub fn listen(reading: &Reading, mark: &Mark) -> Result<(), Kept> {
    let lease = reading.lease.ok_or(Kept::NoLease)?;
    let sign = reading.heartbeat.map_or(lease, |heartbeat| heartbeat.max(lease));
    if sign > mark.at {
        return Err(Kept::AliveAfter { at: mark.at, sign });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
