//! Which declared objects are sent to the API server in this pass, and in which stage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::memory::Memory;
use super::rank::Stage;
use super::report::Refusal;
use super::resolve::Resolved;
use crate::reconcilers::object::{ObjectId, StackName, Uid};

/// What the inventory remembers of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its UID when it was applied; none when the process ended between writing the record and applying, more than one
    /// when nodes recorded it at different times.
    pub uids: BTreeSet<Uid>,
    /// The stacks under which nodes recorded it. More than one when it moved.
    pub stacks: BTreeSet<StackName>,
}

/// A set of recorded objects.
pub type Record = BTreeMap<ObjectId, Recorded>;

/// What is sent, in the order of the stages, and what is not.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Objects to send, by stage.
    pub stages: BTreeMap<Stage, Vec<Arc<Resolved>>>,
    /// Objects that are as this process applied them.
    pub unchanged: Vec<Arc<Resolved>>,
    /// Objects whose last try failed and whose next one is not due; each is a refusal of this pass too.
    pub waiting: Vec<Refusal>,
    /// Whether the record lacks one of the objects, so that the superset has to be written before anything is sent.
    pub record_grows: bool,
}

impl Plan {
    /// How many objects are sent.
    #[must_use]
    pub fn sends(&self) -> usize {
        self.stages.values().map(Vec::len).sum()
    }
}

/// Decides the sends of a pass: what is new, what changed since this process applied it, and what drift or a due
/// retry has marked (the caller forgets those in `memory`).
///
/// `recorded` is this node's own entry of the inventory.
#[must_use]
pub fn decide(wanted: &[Arc<Resolved>], memory: &Memory, recorded: &Record, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for object in wanted {
        if let Some(stack) = &object.stack
            && !recorded
                .get(&object.id)
                .is_some_and(|known| known.stacks.contains(stack))
        {
            plan.record_grows = true;
        }
        match memory.failed(&object.id) {
            Some(failed) if failed.digest == object.digest && now < failed.retry_at => {
                plan.waiting.push(failed.refusal.clone());
                continue;
            }
            Some(_) | None => {}
        }
        let known = memory
            .applied(&object.id)
            .is_some_and(|applied| applied.digest == object.digest);
        if known && memory.failed(&object.id).is_none() {
            plan.unchanged.push(Arc::clone(object));
        } else {
            plan.stages
                .entry(Stage::of(&object.id.resource))
                .or_default()
                .push(Arc::clone(object));
        }
    }
    plan
}

/// The record that has to stand in the cluster before anything is sent: all that is remembered, and all that will be
/// applied from a stack. A process killed after this write leaves references without objects, never objects without
/// references.
#[must_use]
pub fn superset(wanted: &[Arc<Resolved>], recorded: &Record) -> Record {
    let mut superset = recorded.clone();
    for object in wanted {
        if let Some(stack) = &object.stack {
            superset
                .entry(object.id.clone())
                .or_default()
                .stacks
                .insert(stack.clone());
        }
    }
    superset
}

/// The record after a pass: what is declared, with the UIDs of this pass, and what is remembered and still there.
///
/// `gone` names references that were pruned or forgotten. A declared object is recorded under the stack that
/// declares it and no other. One that is not recorded so yet was not applied, since the superset could not be written: it
/// stays as it is.
#[must_use]
pub fn narrowed(wanted: &[Arc<Resolved>], recorded: &Record, gone: &BTreeSet<ObjectId>, memory: &Memory) -> Record {
    let mut record: Record = recorded
        .iter()
        .filter(|(id, _)| !gone.contains(id))
        .map(|(id, known)| (id.clone(), known.clone()))
        .collect();
    for object in wanted {
        let known = record.remove(&object.id);
        // A loose object leaves the record.
        let (Some(known), Some(stack)) = (known, &object.stack) else {
            continue;
        };
        let recorded = if known.stacks.contains(stack) {
            let now = memory
                .applied(&object.id)
                .map(|applied| BTreeSet::from([applied.uid.clone()]));
            Recorded {
                uids: now.unwrap_or(known.uids),
                stacks: [stack.clone()].into(),
            }
        } else {
            known
        };
        record.insert(object.id.clone(), recorded);
    }
    record
}

/// Whether the record is what [`narrowed`] would make of it when nothing is gone: told without making another one, since
/// in most passes it is.
#[must_use]
pub fn is_narrow(wanted: &[Arc<Resolved>], recorded: &Record, memory: &Memory) -> bool {
    wanted.iter().all(|object| {
        let (known, stack) = match (recorded.get(&object.id), &object.stack) {
            (None, _) => return true,
            (Some(_), None) => return false,
            (Some(known), Some(stack)) => (known, stack),
        };
        let Recorded { uids, stacks } = known;
        let mut applied = memory.applied(&object.id).into_iter();
        !stacks.contains(stack) || (stacks.iter().eq([stack]) && applied.all(|applied| uids.iter().eq([&applied.uid])))
    })
}

#[cfg(test)]
mod tests;
