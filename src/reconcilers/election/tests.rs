use k8s_openapi::api::coordination::v1::LeaseSpec;

use super::*;

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn wall() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn me() -> Identity {
    Identity::new("a", "1")
}

fn lease(holder: Option<&str>, duration: Option<i32>, transitions: Option<i32>) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.uid = Some("u".to_owned());
    lease.metadata.resource_version = Some("7".to_owned());
    lease.spec = Some(LeaseSpec {
        holder_identity: holder.map(str::to_owned),
        lease_duration_seconds: duration,
        lease_transitions: transitions,
        ..LeaseSpec::default()
    });
    lease
}

fn seen(lease: Option<Lease>, when: Duration) -> Observed {
    let mut observed = Observed::new(LEADERSHIP);
    observed.note(lease, when);
    observed
}

fn stand_at(observed: &Observed, now: Duration) -> Action {
    decide(observed, None, &me(), now, wall())
}

fn taken(action: Action) -> (TakeReason, i32, Lease) {
    match action {
        Action::Take { lease, reason } => (reason, transitions(&lease), *lease),
        Action::Renew(_) | Action::Wait { .. } | Action::Lost(_) => panic!("not taken: {action:?}"),
    }
}

#[test]
fn a_candidate_takes_what_is_free() {
    for (lease, want) in [
        (None, (TakeReason::Missing, 0)),
        (Some(lease(None, None, None)), (TakeReason::Free, 1)),
        (Some(lease(Some(""), Some(1), Some(4))), (TakeReason::Free, 5)),
        (Some(lease(Some(""), Some(1), Some(-9))), (TakeReason::Free, 1)),
        (
            Some(lease(Some(""), None, Some(i32::MAX))),
            (TakeReason::Free, i32::MAX),
        ),
        (Some(lease(Some("a_1"), None, Some(4))), (TakeReason::Ours, 4)),
        (Some(lease(Some("a_1"), None, Some(-9))), (TakeReason::Ours, 0)),
    ] {
        let (reason, number, _) = taken(stand_at(&seen(lease.clone(), at(3)), at(3)));
        assert_eq!((reason, number), want, "{lease:?}");
    }
    let mut known = Observed::new(LEADERSHIP);
    known.remember(41);
    assert_eq!(
        taken(stand_at(&known, at(0))).1,
        42,
        "a term recorded elsewhere is not used again"
    );
    known.note(Some(lease(None, None, Some(3))), at(0));
    assert_eq!(taken(stand_at(&known, at(0))).1, 42, "by no lower Lease either");
    let (.., empty) = taken(stand_at(&seen(Some(Lease::default()), at(0)), at(0)));
    assert_eq!(holder(&empty), Some("a_1"), "a Lease without a spec is free");
}

#[test]
fn expiry_counts_from_the_last_change_seen_here() {
    let mut observed = seen(Some(lease(Some("b"), Some(15), Some(2))), at(100));
    assert_eq!(stand_at(&observed, at(114)), Action::Wait { until: at(115) });
    observed.note(Some(lease(Some("b"), Some(15), Some(2))), at(114));
    let (reason, number, _) = taken(stand_at(&observed, at(115)));
    assert_eq!((reason, number), (TakeReason::Expired, 3), "an equal read is no change");

    let mut renewed = lease(Some("b"), Some(15), Some(2));
    renewed.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::MIN));
    renewed.metadata.resource_version = Some("8".to_owned());
    observed.note(Some(renewed), at(114));
    assert_eq!(
        stand_at(&observed, at(116)),
        Action::Wait { until: at(129) },
        "the date written does not matter"
    );
}

#[test]
fn a_lease_made_anew_is_another_one_at_whatever_version() {
    let mut observed = seen(Some(lease(Some("b"), Some(15), Some(2))), at(100));
    let mut anew = lease(Some("b"), Some(15), Some(2));
    anew.metadata.uid = Some("other".to_owned());
    observed.note(Some(anew), at(110));
    assert_eq!(stand_at(&observed, at(116)), Action::Wait { until: at(125) });
}

/// The times in the Lease are for people: since when this holder has it, and when it last said so.
#[test]
fn a_term_tells_when_it_was_acquired_and_when_it_was_renewed() {
    let times = |lease: &Lease| {
        let spec = lease.spec.clone().unwrap();
        (spec.acquire_time.map(|at| at.0), spec.renew_time.map(|at| at.0))
    };
    let on = |second| Some(Timestamp::from_second(second).unwrap());
    let mut before = lease(Some(""), Some(1), Some(2));
    let spec = before.spec.get_or_insert_default();
    spec.acquire_time = on(3).map(MicroTime);
    spec.renew_time = on(4).map(MicroTime);
    let first = decide(&seen(Some(before), at(0)), None, &me(), at(0), on(10).unwrap());
    let (.., first) = taken(first);
    assert_eq!(times(&first), (on(10), on(10)));
    let held = Held::of(&first, at(0), &LEADERSHIP);
    let action = decide(&seen(Some(first), at(0)), Some(&held), &me(), at(2), on(12).unwrap());
    let Action::Renew(renewed) = action else {
        panic!("{action:?}")
    };
    assert_eq!(times(&renewed), (on(10), on(12)));
    let released = release(&seen(Some(*renewed), at(2)), &me(), on(13).unwrap()).unwrap();
    assert_eq!(times(&released), (on(13), on(13)));
}

#[test]
fn a_nonsense_duration_neither_shortens_nor_locks() {
    for (duration, until) in [
        (None, 15),
        (Some(0), 15),
        (Some(-4), 15),
        (Some(1), 15),
        (Some(40), 40),
        (Some(i32::MAX), 60),
    ] {
        let observed = seen(Some(lease(Some("b"), duration, None)), at(0));
        assert_eq!(
            stand_at(&observed, at(0)),
            Action::Wait { until: at(until) },
            "{duration:?}"
        );
    }
}

#[test]
fn a_deleted_lease_does_not_hand_over_before_its_holder_must_have_stopped() {
    let mut observed = seen(Some(lease(Some("b"), Some(15), Some(6))), at(10));
    observed.note(None, at(12));
    assert_eq!(stand_at(&observed, at(24)), Action::Wait { until: at(25) });
    let (reason, number, written) = taken(stand_at(&observed, at(25)));
    assert_eq!((reason, number), (TakeReason::Missing, 7), "terms go on counting");
    assert_eq!(written.metadata.resource_version, None, "it is created");
}

#[test]
fn a_leader_renews_only_its_own_lease_and_only_in_time() {
    let mine = lease(Some("a_1"), Some(15), Some(3));
    let held = Held::of(&mine, at(50), &LEADERSHIP);
    assert_eq!(held.deadline, at(60));
    let mut remade = mine.clone();
    remade.metadata.uid = Some("other".to_owned());
    for (now, lease, want) in [
        (60, Some(mine.clone()), LossReason::Deadline),
        (61, Some(mine.clone()), LossReason::Deadline),
        (51, Some(lease(Some("b"), Some(15), Some(4))), LossReason::Taken),
        (51, Some(lease(None, None, None)), LossReason::Erased),
        (51, Some(lease(Some(""), None, None)), LossReason::Erased),
        (51, None, LossReason::Deleted),
        (51, Some(remade), LossReason::Deleted),
    ] {
        let action = decide(&seen(lease.clone(), at(50)), Some(&held), &me(), at(now), wall());
        assert_eq!(action, Action::Lost(want), "{lease:?}");
    }

    let mut edited = lease(Some("a_1"), Some(-1), Some(99));
    edited.metadata.labels = Some([("team".to_owned(), "x".to_owned())].into());
    let action = decide(&seen(Some(edited), at(50)), Some(&held), &me(), at(51), wall());
    let Action::Renew(renewed) = action else {
        panic!("{action:?}")
    };
    let spec = renewed.spec.clone().unwrap_or_default();
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(15), Some(3))
    );
    assert!(renewed.metadata.labels.is_some(), "what is not ours stays");
}

#[test]
fn a_release_frees_only_what_is_ours() {
    let mine = seen(Some(lease(Some("a_1"), Some(15), Some(3))), at(0));
    let released = release(&mine, &me(), wall()).unwrap();
    assert_eq!(holder(&released), None);
    assert_eq!(transitions(&released), 3);
    assert_eq!(released.spec.unwrap().lease_duration_seconds, Some(1));
    assert!(release(&seen(Some(lease(Some("b"), None, None)), at(0)), &me(), wall()).is_none());
    assert!(release(&Observed::new(LEADERSHIP), &me(), wall()).is_none());
}

#[test]
fn a_renewal_is_a_change_even_when_the_wall_clock_stands_still() {
    let mut mine = lease(Some("a_1"), Some(15), Some(3));
    mine.spec.get_or_insert_default().renew_time = Some(MicroTime(wall()));
    let held = Held::of(&mine, at(0), &LEADERSHIP);
    let Action::Renew(renewed) = decide(&seen(Some(mine.clone()), at(0)), Some(&held), &me(), at(1), wall()) else {
        panic!("not renewed")
    };
    assert_ne!(renewed.spec, mine.spec);
}
