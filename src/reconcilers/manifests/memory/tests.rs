use std::collections::BTreeSet;

use super::super::report::RefusalReason;
use super::super::resolve::fixtures::object;
use super::*;
use crate::reconcilers::object::GroupResource;

fn id() -> ObjectId {
    ObjectId {
        resource: GroupResource::new("", "configmaps"),
        namespace: Some("default".into()),
        name: "a".into(),
    }
}

fn refusal() -> Refusal {
    Refusal {
        file: "s/a.yaml".into(),
        line: None,
        object: None,
        stack: None,
        reason: RefusalReason::Rejected,
        message: String::new(),
    }
}

#[test]
fn waits_grow_per_object_and_an_early_failure_does_not_count() {
    let mut memory = Memory::default();
    let start = Timestamp::UNIX_EPOCH;
    memory.fail(id(), [0; 32], refusal(), start);
    let first = memory.failed(&id()).unwrap().retry_at;
    assert_eq!(first.duration_since(start).as_secs(), 2);
    memory.fail(id(), [0; 32], refusal(), start);
    assert_eq!(memory.failed(&id()).unwrap().times, 1, "woken early by another event");
    memory.fail(id(), [0; 32], refusal(), first);
    let second = memory.failed(&id()).unwrap();
    assert_eq!((second.times, second.retry_at.duration_since(first).as_secs()), (2, 4));
    memory.fail(id(), [1; 32], refusal(), first);
    assert_eq!(memory.failed(&id()).unwrap().times, 1, "new content starts anew");
    for _ in 0..40 {
        let at = memory.failed(&id()).unwrap().retry_at;
        memory.fail(id(), [1; 32], refusal(), at);
        let failed = memory.failed(&id()).unwrap();
        assert!(failed.retry_at.duration_since(at).as_secs() <= 300);
    }
}

fn applied() -> Applied {
    Applied {
        digest: [0; 32],
        uid: Uid("u".into()),
        resource_version: "1".into(),
        generation: None,
    }
}

fn named(name: &str) -> ObjectId {
    ObjectId {
        name: name.into(),
        ..id()
    }
}

#[test]
fn a_success_ends_the_waits_and_what_is_forgotten_is_sent_as_if_new() {
    let mut memory = Memory::default();
    memory.fail(id(), [0; 32], refusal(), Timestamp::UNIX_EPOCH);
    memory.succeed(id(), applied());
    assert_eq!(memory.failed(&id()), None);
    assert_eq!(memory.applied(&id()), Some(&applied()));
    memory.fail(id(), [0; 32], refusal(), Timestamp::UNIX_EPOCH);
    memory.forget(&id());
    assert_eq!((memory.applied(&id()), memory.failed(&id())), (None, None));
}

#[test]
fn what_is_declared_no_more_is_not_remembered() {
    let mut memory = Memory::default();
    for name in ["a", "b"] {
        memory.succeed(named(name), applied());
        memory.fail(named(name), [0; 32], refusal(), Timestamp::UNIX_EPOCH);
    }
    let declared: BTreeSet<ObjectId> = [named("b")].into();
    memory.retain(|id| declared.contains(id));
    assert_eq!((memory.applied(&named("a")), memory.failed(&named("a"))), (None, None));
    assert!(memory.applied(&named("b")).is_some() && memory.failed(&named("b")).is_some());
}

#[test]
fn the_earliest_retry_is_the_next() {
    let mut memory = Memory::default();
    assert_eq!(memory.next_retry(), None);
    let start = Timestamp::UNIX_EPOCH;
    let later = start + jiff::SignedDuration::from_secs(10);
    memory.fail(named("late"), [0; 32], refusal(), later);
    memory.fail(named("early"), [0; 32], refusal(), start);
    memory.fail(named("late too"), [0; 32], refusal(), later);
    assert_eq!(memory.next_retry(), Some(start + jiff::SignedDuration::from_secs(2)));
}

/// A live object as [`object`] was applied, with what a test changes in it.
fn live(change: impl FnOnce(&mut LiveObject)) -> LiveObject {
    let declared = declared();
    let mut live = LiveObject {
        uid: Some(Uid("u".into())),
        resource_version: "1".into(),
        labels: declared.labels,
        annotations: declared.annotations,
        ..LiveObject::default()
    };
    change(&mut live);
    live
}

fn declared() -> Resolved {
    let mut declared = (*object("s", "a", "")).clone();
    declared.annotations.insert("note".into(), "1".into());
    declared
}

#[test]
fn drift_of_a_kind_without_a_generation_is_any_change() {
    let drift = |live: Option<&LiveObject>| drift(&applied(), &declared(), live);
    assert_eq!(drift(None), Drift::Gone);
    assert_eq!(drift(Some(&live(|_| {}))), Drift::None);
    assert_eq!(
        drift(Some(&live(|live| live.resource_version = "2".into()))),
        Drift::Changed
    );
    assert_eq!(
        drift(Some(&live(|live| live.uid = Some(Uid("other".into()))))),
        Drift::Replaced
    );
    assert_eq!(drift(Some(&live(|live| live.uid = None))), Drift::Replaced);
    assert_eq!(
        drift(Some(&live(
            |live| (live.generation, live.resource_version) = (Some(1), "2".into())
        ))),
        Drift::Changed,
        "nothing to compare its generation with"
    );
}

#[test]
fn drift_of_a_kind_with_a_generation_is_a_change_of_what_is_declared() {
    let applied = Applied {
        generation: Some(3),
        ..applied()
    };
    let drift = |change: fn(&mut LiveObject)| {
        let live = live(|live| {
            (live.generation, live.resource_version) = (Some(3), "2".into());
            change(live);
        });
        drift(&applied, &declared(), Some(&live))
    };
    assert_eq!(drift(|_| {}), Drift::None, "its status changed");
    assert_eq!(drift(|live| live.generation = Some(4)), Drift::Changed);
    assert_eq!(
        drift(|live| live.generation = None),
        Drift::Changed,
        "its version moved, and nothing says what for"
    );
    let set = |live: &mut BTreeMap<String, String>, value: &str| live.values_mut().for_each(|had| *had = value.into());
    assert_eq!(drift(|live| live.labels.clear()), Drift::Changed);
    assert_eq!(drift(|live| live.annotations.clear()), Drift::Changed);
    let labels = live(|live| set(&mut live.labels, "other"));
    let annotations = live(|live| set(&mut live.annotations, "other"));
    for changed in [labels, annotations] {
        let changed = LiveObject {
            generation: Some(3),
            ..changed
        };
        assert_eq!(super::drift(&applied, &declared(), Some(&changed)), Drift::Changed);
    }
    assert_eq!(
        drift(|live| {
            live.labels.insert("more".into(), "x".into());
            live.annotations.insert("more".into(), "x".into());
        }),
        Drift::None,
        "what others add is theirs"
    );
}
