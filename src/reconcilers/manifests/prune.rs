//! What the record remembers and no file declares any more: why it is deleted, and why it is not.
//!
//! Pruning goes by recorded reference and never by listing a label: controllers copy labels to what they make, and
//! those children are not ours to delete.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::STACK_LABEL;
use super::apply::{Record, Recorded};
use super::memory::LiveObject;
use super::rank::prune_rank;
use super::report::{KeptReason, Suspension};
use super::resolve::is_protected;
use crate::pki::hexadecimal;
use crate::reconcilers::object::{GroupResource, ObjectId, StackName, Uid};

/// Namespaces that Kubernetes itself makes; never pruned, whatever the record says.
const RESERVED_NAMESPACES: [&str; 4] = ["kube-system", "default", "kube-public", "kube-node-lease"];

/// What is recorded and not in the keep-set of the whole pass.
#[must_use]
pub fn candidates(record: &Record, keep: &BTreeSet<ObjectId>) -> Record {
    record
        .iter()
        .filter(|(id, _)| !keep.contains(id))
        .map(|(id, known)| (id.clone(), known.clone()))
        .collect()
}

/// What has to be known of a pass before anything may be deleted in it.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Whether everything declared was read, resolved and applied.
    pub complete: bool,
    /// Whether the folder has been read twice, a second apart, with the same result.
    pub settled: bool,
    /// Whether the folder holds at least one stack, or is known to be the folder this node applied from before.
    pub folder_trusted: bool,
    /// Whether cluster state records that no bundled stack is wanted at all: its own confirmation.
    pub desired_empty: bool,
    /// The largest share of a stack that one pass may delete without a confirmation; none: no brake.
    pub max_share: Option<f64>,
    /// Confirmations on record: the stack and the plan they are for.
    pub confirmed: BTreeSet<(StackName, PlanDigest)>,
}

/// The SHA-256, in lower-case hexadecimal, of what would be deleted of one stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct PlanDigest(pub String);

/// The candidates of each stack. One that moved between stacks counts for every stack that recorded it.
#[must_use]
pub fn by_stack(candidates: &Record) -> BTreeMap<StackName, Vec<&ObjectId>> {
    let mut stacks: BTreeMap<StackName, Vec<&ObjectId>> = BTreeMap::new();
    for (id, recorded) in candidates {
        for stack in &recorded.stacks {
            stacks.entry(stack.clone()).or_default().push(id);
        }
    }
    stacks
}

/// The digest of a stack's prune plan. A confirmation is for one plan and no other.
#[must_use]
pub fn plan_digest(objects: &[&ObjectId]) -> PlanDigest {
    let mut hash = Sha256::new();
    for id in objects {
        hash.update(id.to_string());
        hash.update([b'\n']);
    }
    PlanDigest(hexadecimal(&hash.finalize()))
}

/// Whether a pass with these candidates may delete at all.
///
/// # Errors
/// The first reason why not, in the order: incomplete, unsettled, untrusted folder, brake.
pub fn gate(candidates: &Record, record: &Record, gate: &Gate) -> Result<BTreeSet<StackName>, Suspension> {
    if candidates.is_empty() {
        return Ok(BTreeSet::new());
    }
    if !gate.complete {
        return Err(Suspension::PassIncomplete);
    }
    if !gate.settled {
        return Err(Suspension::Unsettled);
    }
    let mut used = BTreeSet::new();
    for (stack, objects) in by_stack(candidates) {
        let recorded = record.values().filter(|known| known.stacks.contains(&stack)).count();
        if gate.desired_empty {
            continue;
        }
        let confirmed = gate.confirmed.contains(&(stack.clone(), plan_digest(&objects)));
        if confirmed {
            used.insert(stack);
            continue;
        }
        if !gate.folder_trusted {
            return Err(Suspension::FolderEmpty);
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of objects is far below 2^52")]
        let share = objects.len() as f64 / recorded.max(1) as f64;
        if gate.max_share.is_some_and(|limit| share > limit) {
            return Err(Suspension::Held {
                stack,
                deletes: objects.len(),
                recorded,
            });
        }
    }
    Ok(used)
}

/// What the cluster says of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It does not exist.
    Absent,
    /// It exists.
    Live(LiveObject),
    /// Its resource is no longer served, so it cannot exist.
    KindGone,
    /// Its API group could not be asked.
    Unavailable,
}

/// What a Namespace or CustomResourceDefinition would take with it, besides what is pruned before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing.
    Empty,
    /// At least this object.
    Holds(ObjectId),
    /// Nobody knows: this API group does not answer.
    Unknown {
        /// The group.
        group: String,
    },
}

/// What happens to one candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delete it, if it still is this very object in this very state.
    Delete {
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: String,
    },
    /// Drop the reference: there is nothing of ours to delete.
    Forget,
    /// Leave the object and its reference.
    Keep(KeptReason),
}

/// Judges one candidate. What [`holds_others`] is judged after the rest has been deleted, by what is left in it.
#[must_use]
pub fn judge(
    id: &ObjectId,
    recorded: &Recorded,
    liveness: &Liveness,
    contents: &Contents,
    reserved: &Reserved,
) -> Verdict {
    if reserved.holds(id) {
        return Verdict::Keep(KeptReason::Reserved);
    }
    let live = match liveness {
        Liveness::Absent | Liveness::KindGone => return Verdict::Forget,
        Liveness::Unavailable => return Verdict::Keep(KeptReason::GroupUnavailable),
        Liveness::Live(live) => live,
    };
    let Some(uid) = live.uid.clone() else {
        return Verdict::Keep(KeptReason::NotOurs);
    };
    if recorded.uids.is_empty() {
        let label = live.labels.get(STACK_LABEL);
        if !label.is_some_and(|label| recorded.stacks.iter().any(|stack| stack.as_str() == label)) {
            return Verdict::Keep(KeptReason::NotOurs);
        }
    } else if !recorded.uids.contains(&uid) {
        // Deleted and created again by somebody else under the same name.
        return Verdict::Forget;
    }
    if is_protected(&live.annotations) {
        return Verdict::Keep(KeptReason::Protected);
    }
    match contents {
        Contents::Empty => Verdict::Delete {
            uid,
            resource_version: live.resource_version.clone(),
        },
        Contents::Holds(example) => Verdict::Keep(KeptReason::HoldsOthers(example.to_string())),
        Contents::Unknown { group } => Verdict::Keep(KeptReason::ContentsUnknown(group.clone())),
    }
}

/// What the operator itself lives by, and no stack takes along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Single objects.
    pub objects: BTreeSet<ObjectId>,
    /// All objects of these.
    pub resources: BTreeSet<GroupResource>,
}

impl Reserved {
    fn holds(&self, id: &ObjectId) -> bool {
        let namespace = id.resource.group.is_empty() && id.resource.resource == "namespaces";
        (namespace && RESERVED_NAMESPACES.contains(&id.name.as_str()))
            || self.objects.contains(id)
            || self.resources.contains(&id.resource)
    }
}

/// Whether what a Namespace or CustomResourceDefinition holds has to be looked at before it may go.
#[must_use]
pub fn holds_others(id: &ObjectId) -> bool {
    matches!(
        (id.resource.group.as_str(), id.resource.resource.as_str()),
        ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions")
    )
}

/// Groups deletions into waves: a wave begins when the one before has been answered.
#[must_use]
pub fn waves<T>(deletes: Vec<(ObjectId, T)>) -> BTreeMap<u8, Vec<(ObjectId, T)>> {
    let mut waves: BTreeMap<u8, Vec<(ObjectId, T)>> = BTreeMap::new();
    for (id, delete) in deletes {
        waves.entry(prune_rank(&id.resource)).or_default().push((id, delete));
    }
    waves
}

#[cfg(test)]
mod tests;
