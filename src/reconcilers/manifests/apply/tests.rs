use super::super::memory::Applied;
use super::super::report::RefusalReason;
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

/// Every record of two objects and every memory of them: told without making it, and made.
#[test]
fn whether_a_record_is_narrow_is_told_as_it_is_made() {
    let mut loose = (*object("s", "c", "1")).clone();
    loose.stack = None;
    let wanted = [object("s", "a", "1"), object("s", "b", "1"), Arc::new(loose)];
    let entries = || {
        let uids: [&[&str]; 4] = [&[], &["u"], &["v"], &["u", "v"]];
        let stacks: [&[&str]; 4] = [&[], &["s"], &["t"], &["s", "t"]];
        uids.into_iter().flat_map(move |uids| {
            stacks.map(|stacks| Recorded {
                uids: uids.iter().map(|uid| Uid((*uid).into())).collect(),
                stacks: stacks.iter().map(|name| stack(name)).collect(),
            })
        })
    };
    let entries: Vec<Option<Recorded>> = std::iter::once(None).chain(entries().map(Some)).collect();
    let mut narrow = 0;
    for (one, is_applied) in entries.iter().flat_map(|one| [(one, true), (one, false)]) {
        let mut memory = Memory::default();
        if is_applied {
            memory.succeed(wanted[0].id.clone(), applied(&wanted[0]));
        }
        for (other, third) in entries
            .iter()
            .flat_map(|other| [(other, None), (other, Some(Recorded::default()))])
        {
            let ids = wanted.iter().map(|object| object.id.clone());
            let mut record: Record = ids
                .zip([one.clone(), other.clone(), third])
                .filter_map(|(id, recorded)| Some((id, recorded?)))
                .collect();
            // What nothing declares any more stays until it is pruned.
            record.insert(object("t", "z", "1").id.clone(), Recorded::default());
            let made = narrowed(&wanted, &record, &BTreeSet::new(), &memory);
            assert_eq!(is_narrow(&wanted, &record, &memory), made == record, "{record:?}");
            narrow += usize::from(made == record);
        }
    }
    // Not recorded, recorded elsewhere only (8), or here only: then with any UIDs (4), or once applied with its own (1).
    assert_eq!(
        narrow,
        (1 + 8 + 4 + 1 + 8 + 1) * (1 + 8 + 4),
        "each time with any of the other"
    );
}

#[test]
fn what_could_not_be_recorded_is_not_recorded_afterwards() {
    let before = superset(&[object("s", "a", "1")], &Record::new());
    let wanted = [object("t", "a", "1"), object("s", "new", "1")];
    let none = std::collections::BTreeSet::new();
    assert_eq!(narrowed(&wanted, &before, &none, &Memory::default()), before);
}

#[test]
fn an_object_that_failed_waits_for_its_time_and_is_refused_meanwhile() {
    let wanted = [object("s", "a", "1")];
    let id = &wanted[0].id;
    let mut memory = Memory::default();
    let refusal = wanted[0].refusal(RefusalReason::Rejected, "no");
    memory.fail(id.clone(), wanted[0].digest, refusal.clone(), Timestamp::UNIX_EPOCH);
    let due = memory.failed(id).unwrap().retry_at;
    let early = decide(&wanted, &memory, &Record::new(), Timestamp::UNIX_EPOCH);
    assert_eq!((early.sends(), early.unchanged.len()), (0, 0));
    assert_eq!(early.waiting, [refusal], "a pass in which it waits is no complete one");
    let again = decide(&wanted, &memory, &Record::new(), due);
    assert_eq!(
        (again.sends(), again.waiting.len()),
        (1, 0),
        "at its time, not after it"
    );
    let changed = decide(&[object("s", "a", "2")], &memory, &Record::new(), Timestamp::UNIX_EPOCH);
    assert_eq!(
        (changed.sends(), changed.waiting.len()),
        (1, 0),
        "new content does not wait"
    );
}

#[test]
fn an_object_that_failed_since_it_was_applied_is_sent_also_when_its_file_is_the_old_one_again() {
    let (old, new) = (object("s", "a", "1"), object("s", "a", "2"));
    let mut memory = Memory::default();
    memory.succeed(old.id.clone(), applied(&old));
    let refusal = new.refusal(RefusalReason::Unanswered, "no answer, so perhaps it was applied");
    memory.fail(new.id.clone(), new.digest, refusal, Timestamp::UNIX_EPOCH);
    let plan = decide(&[old], &memory, &Record::new(), Timestamp::UNIX_EPOCH);
    assert_eq!((plan.sends(), plan.unchanged.len()), (1, 0));
}

#[test]
fn objects_are_sent_by_stage() {
    let mut namespace = (*object("s", "n", "")).clone();
    namespace.id.resource.resource = "namespaces".into();
    namespace.id.namespace = None;
    let wanted = [object("s", "a", ""), Arc::new(namespace), object("s", "b", "")];
    let plan = decide(&wanted, &Memory::default(), &Record::new(), Timestamp::UNIX_EPOCH);
    let stages: Vec<_> = plan
        .stages
        .iter()
        .map(|(stage, objects)| (*stage, objects.len()))
        .collect();
    assert_eq!(stages, [(Stage::Definitions, 1), (Stage::Objects, 2)]);
}

#[test]
fn the_record_after_a_pass_has_the_uids_of_the_pass_and_lacks_what_is_gone() {
    let [a, b, c] = ["a", "b", "c"].map(|name| object("s", name, ""));
    let mut before = superset(&[Arc::clone(&a), Arc::clone(&b), Arc::clone(&c)], &Record::new());
    for known in before.values_mut() {
        known.uids.insert(Uid("before".into()));
    }
    let mut memory = Memory::default();
    memory.succeed(a.id.clone(), applied(&a));
    let wanted = [Arc::clone(&a), Arc::clone(&b)];
    let uids = |record: &Record, id: &ObjectId| record.get(id).map(|known| known.uids.clone());

    let after = narrowed(&wanted, &before, &BTreeSet::new(), &memory);
    assert_eq!(uids(&after, &a.id), Some([Uid("u".into())].into()), "as it was applied");
    let old = Some([Uid("before".into())].into());
    assert_eq!(uids(&after, &b.id), old, "declared and not applied in this process");
    assert_eq!(uids(&after, &c.id), old, "declared no more, and still there");
    let after = narrowed(&wanted, &before, &[c.id.clone()].into(), &memory);
    assert_eq!(after.keys().collect::<Vec<_>>(), [&a.id, &b.id], "pruned");
}
