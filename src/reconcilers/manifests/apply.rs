//! Which declared objects are sent to the API server in this pass, and in which stage.

use std::collections::BTreeMap;
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
    /// Its UID when it was applied; none when the process ended between writing the record and applying.
    pub uid: Option<Uid>,
    /// The stacks under which nodes recorded it. More than one when it moved.
    pub stacks: std::collections::BTreeSet<StackName>,
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
/// declares it and no other.
#[must_use]
pub fn narrowed(
    wanted: &[Arc<Resolved>],
    recorded: &Record,
    gone: &std::collections::BTreeSet<ObjectId>,
    memory: &Memory,
) -> Record {
    let mut record: Record = recorded
        .iter()
        .filter(|(id, _)| !gone.contains(id))
        .map(|(id, known)| (id.clone(), known.clone()))
        .collect();
    for object in wanted {
        let known = record.remove(&object.id);
        if let Some(stack) = &object.stack {
            let uid = memory
                .applied(&object.id)
                .map(|applied| applied.uid.clone())
                .or(known.and_then(|known| known.uid));
            record.insert(
                object.id.clone(),
                Recorded {
                    uid,
                    stacks: [stack.clone()].into(),
                },
            );
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::super::memory::Applied;
    use super::super::resolve::fixtures::{object, stack};
    use super::*;

    fn applied(object: &Resolved) -> Applied {
        Applied {
            digest: object.digest,
            uid: Uid("u".into()),
            resource_version: "1".into(),
            generation: None,
        }
    }

    #[test]
    fn an_object_that_is_as_it_was_applied_is_not_sent() {
        let wanted = [object("s", "a", "1"), object("s", "b", "1")];
        let mut memory = Memory::default();
        memory.succeed(wanted[0].id.clone(), applied(&wanted[0]));
        let plan = decide(
            &wanted,
            &memory,
            &superset(&wanted, &Record::new()),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(plan.sends(), 1);
        assert_eq!(plan.unchanged.len(), 1);
        assert!(!plan.record_grows);
        let changed = [object("s", "a", "2")];
        let plan = decide(&changed, &memory, &Record::new(), Timestamp::UNIX_EPOCH);
        assert_eq!(plan.sends(), 1);
        assert!(plan.record_grows, "the record lacks it");
    }

    #[test]
    fn an_object_that_moves_to_another_stack_is_recorded_there_before_it_is_sent() {
        let before = superset(&[object("s", "a", "1")], &Record::new());
        let moved = [object("t", "a", "1")];
        assert!(decide(&moved, &Memory::default(), &before, Timestamp::UNIX_EPOCH).record_grows);
        let both = superset(&moved, &before);
        assert_eq!(both[&moved[0].id].stacks, [stack("s"), stack("t")].into());
        let after = narrowed(&moved, &both, &std::collections::BTreeSet::new(), &Memory::default());
        assert_eq!(after[&moved[0].id].stacks, [stack("t")].into());
    }

    #[test]
    fn a_loose_object_is_never_recorded() {
        let mut loose = (*object("s", "a", "1")).clone();
        loose.stack = None;
        let wanted = [Arc::new(loose)];
        assert!(superset(&wanted, &Record::new()).is_empty());
        let recorded = superset(&[object("s", "a", "1")], &Record::new());
        assert!(
            narrowed(
                &wanted,
                &recorded,
                &std::collections::BTreeSet::new(),
                &Memory::default()
            )
            .is_empty()
        );
    }
}
