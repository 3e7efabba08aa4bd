use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::super::{Held, LossReason, decide, release};
use super::*;

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn wall(seconds: i64) -> Timestamp {
    let noon: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    noon + SignedDuration::from_secs(seconds)
}

fn operation(name: &'static str, node: &str, run: &str) -> Operation {
    Operation {
        name,
        node: node.to_owned(),
        run: run.parse().unwrap(),
        machine: format!("machine-of-{node}"),
        process: "p1".to_owned(),
    }
}

fn me() -> Identity {
    operation("stratum join", "beta", "mine").identity()
}

/// Held by an uninstall on `alpha`, taken and renewed at these dates.
fn held(version: &str, acquired: i64, renewed: i64) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.uid = Some("u".to_owned());
    lease.metadata.resource_version = Some(version.to_owned());
    let date = |seconds| Some(MicroTime(wall(seconds)));
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(operation("stratum uninstall", "alpha", "theirs").identity().to_string()),
        lease_duration_seconds: Some(300),
        lease_transitions: Some(4),
        acquire_time: date(acquired),
        renew_time: date(renewed),
        ..LeaseSpec::default()
    });
    lease
}

fn seen(lease: Option<Lease>, when: Duration) -> Observed {
    let mut observed = Observed::new(TIMING);
    observed.note(lease, when);
    observed
}

fn refused(decision: Decision) -> Busy {
    match decision {
        Decision::Refuse(busy) => busy,
        Decision::Take { .. } | Decision::Watch { .. } => panic!("{decision:?}"),
    }
}

fn until(decision: &Decision) -> Duration {
    match decision {
        Decision::Watch { until, .. } => *until,
        Decision::Take { .. } | Decision::Refuse(_) => panic!("{decision:?}"),
    }
}

#[test]
fn a_holder_is_read_back_as_it_is_written() {
    let operation = operation("stratum join --control-plane", "controller-2", "5f1c-0a");
    let text = operation.identity().to_string();
    assert_eq!(
        text,
        "stratum join --control-plane on controller-2 (run 5f1c-0a.machine-of-controller-2.p1)"
    );
    let holder = Holder::parse(&text);
    assert_eq!(holder.run.as_ref(), Some(&operation.run));
    assert_eq!(
        holder.to_string(),
        "stratum join --control-plane on controller-2 (run 5f1c-0a)"
    );
    for foreign in [
        "somebody",
        "a (run b)",
        "a (run .p)",
        "a (run B.p)",
        "x (run 1.2) y",
        "(run ",
    ] {
        let holder = Holder::parse(foreign);
        assert_eq!((holder.words.as_str(), holder.run), (foreign, None));
    }
    assert_eq!(Holder::parse("two\nlines").to_string(), "two\\nlines");
    for bad in ["", "A", "a.b", "a b", &"a".repeat(65)] {
        assert_eq!(bad.parse::<RunId>(), Err(NotARunId), "{bad:?}");
    }
}

#[test]
fn what_nobody_holds_is_taken() {
    let mut free = held("7", 0, 0);
    free.spec.get_or_insert_default().holder_identity = Some(String::new());
    let mut ours = held("7", 0, 0);
    ours.spec.get_or_insert_default().holder_identity = Some(me().to_string());
    for (lease, want) in [
        (None, TakeReason::Missing),
        (Some(free), TakeReason::Free),
        (Some(ours), TakeReason::Ours),
    ] {
        let Decision::Take { lease, reason } = acquire(&seen(lease, at(9)), &me(), None, at(9), wall(0)) else {
            panic!("{want:?}")
        };
        let spec = lease.spec.unwrap();
        assert_eq!((reason, spec.holder_identity.unwrap()), (want, me().to_string()));
        assert_eq!(spec.lease_duration_seconds, Some(300));
    }
}

#[test]
fn who_comes_second_is_told_who_is_first_since_when_and_until_when() {
    let observed = seen(Some(held("7", -100, -20)), at(9));
    let busy = refused(acquire(&observed, &me(), None, at(9), wall(0)));
    assert_eq!(busy.since, Some(wall(-100)));
    assert_eq!(busy.until, wall(280));
    assert_eq!(
        busy.to_string(),
        "the cluster is being changed by stratum uninstall on alpha (run theirs) since 2026-06-01T11:58:20Z, which holds Lease stratum-maintenance until 2026-06-01T12:04:40Z and renews it while it runs"
    );
    // Another process of the same run is no holder either.
    let twin = Operation {
        process: "p2".to_owned(),
        ..operation("stratum uninstall", "alpha", "theirs")
    };
    refused(acquire(&observed, &twin.identity(), None, at(9), wall(0)));
    let mut plain = held("7", 0, 0);
    plain.spec.get_or_insert_default().acquire_time = None;
    assert_eq!(
        refused(acquire(&seen(Some(plain), at(9)), &me(), None, at(9), wall(3))).since,
        None
    );
}

/// Who has the machine's lock knows that whoever else stands there from this machine has ended. A node's name says nothing:
/// names are chosen.
#[test]
fn what_a_killed_operation_of_this_machine_left_is_taken_at_once() {
    let observed = seen(Some(held("7", -1, -1)), at(9));
    let me = operation("stratum certs rotate", "alpha", "mine").identity();
    let Decision::Take { lease, reason } = acquire(&observed, &me, Some("machine-of-alpha"), at(9), wall(0)) else {
        panic!("it lives")
    };
    let spec = lease.spec.unwrap();
    assert_eq!((reason, spec.lease_transitions), (TakeReason::Died, Some(5)));
    assert_eq!(spec.holder_identity.as_deref(), Some(me.as_str()));
    for alone_on in [None, Some("machine-of-beta"), Some("alpha"), Some("")] {
        refused(acquire(&observed, &me, alone_on, at(9), wall(0)));
    }
    // Somebody who names no machine is nobody's dead process.
    let mut foreign = held("7", -1, -1);
    foreign.spec.get_or_insert_default().holder_identity = Some("somebody".to_owned());
    refused(acquire(&seen(Some(foreign), at(9)), &me, Some(""), at(9), wall(0)));
}

/// The dates are of another machine's clock: they never hand the fence over, and never keep it for longer than we watch.
#[test]
fn dates_that_cannot_be_right_are_watched_and_our_own_clock_decides() {
    let ahead = seen(Some(held("7", 6, 6)), at(9));
    assert_eq!(until(&acquire(&ahead, &me(), None, at(9), wall(0))), at(309));
    for renewed in [-301, -100_000, 100_000] {
        let observed = seen(Some(held("7", renewed, renewed)), at(9));
        let decision = acquire(&observed, &me(), None, at(9), wall(0));
        assert_eq!(until(&decision), at(309), "{renewed}");
        assert_eq!(
            until(&acquire(&observed, &me(), None, at(308), wall(299))),
            at(309),
            "{renewed}"
        );
        let Decision::Take { lease, reason } = acquire(&observed, &me(), None, at(309), wall(300)) else {
            panic!("{renewed}")
        };
        let spec = lease.spec.unwrap();
        assert_eq!((reason, spec.lease_transitions), (TakeReason::Expired, Some(5)));
        // One renewal shows that it lives, whatever its clock says.
        let mut observed = observed;
        observed.note(Some(held("8", renewed, renewed + 20)), at(29));
        let busy = refused(acquire(&observed, &me(), None, at(30), wall(21)));
        assert!(busy.until <= wall(21 + 299), "{renewed}: {busy:?}");
    }
    // Clocks that agree but for a little.
    for renewed in [-299, 0, 5] {
        let observed = seen(Some(held("7", renewed, renewed)), at(9));
        let busy = refused(acquire(&observed, &me(), None, at(9), wall(0)));
        assert!(busy.until <= wall(300), "{busy:?}");
    }
    // Without any date there is only our clock.
    let mut dateless = held("7", 0, 0);
    dateless.spec.get_or_insert_default().renew_time = None;
    assert_eq!(
        until(&acquire(&seen(Some(dateless), at(9)), &me(), None, at(9), wall(0))),
        at(309)
    );
}

#[test]
fn a_lease_that_is_deleted_while_it_is_watched_keeps_its_holders_time() {
    let mut observed = seen(Some(held("7", -1000, -1000)), at(9));
    observed.note(None, at(20));
    let decision = acquire(&observed, &me(), None, at(20), wall(0));
    assert_eq!(
        decision,
        Decision::Watch {
            until: at(309),
            holder: None
        }
    );
    let taken = acquire(&observed, &me(), None, at(309), wall(0));
    assert!(
        matches!(
            taken,
            Decision::Take {
                reason: TakeReason::Missing,
                ..
            }
        ),
        "{taken:?}"
    );
}

/// What the holder does is the election's, with other times.
#[test]
fn a_holder_stops_long_before_anybody_may_follow() {
    let taken = acquire(&seen(None, at(9)), &me(), None, at(9), wall(0));
    let Decision::Take { lease, .. } = taken else {
        panic!("{taken:?}")
    };
    let held = Held::of(&lease, at(9), &TIMING);
    assert_eq!(held.deadline, at(209));
    let mut observed = Observed::new(TIMING);
    observed.note(Some(*lease.clone()), at(10));
    let now = |seconds| decide(&observed, Some(&held), &me(), at(seconds), wall(0));
    assert!(matches!(now(208), Action::Renew(_)));
    assert_eq!(now(209), Action::Lost(LossReason::Deadline));
    let other = operation("stratum join", "gamma", "third").identity();
    // Whoever saw its last write as it was made.
    let mut follower = Observed::new(TIMING);
    follower.note(Some(*lease), at(9));
    assert!(!matches!(
        acquire(&follower, &other, None, at(308), wall(0)),
        Decision::Take { .. }
    ));
    assert!(release(&observed, &other, wall(0)).is_none());
    assert!(release(&observed, &me(), wall(0)).is_some());
}

#[test]
fn a_step_inherits_from_its_own_run_and_from_no_other() {
    let run: RunId = "theirs".parse().unwrap();
    let stands = |observed: &Observed, now, date| inherit(observed, &run, at(now), wall(date));
    assert_eq!(stands(&seen(None, at(9)), 9, 0), Standing::Not(NotInherited::Free));
    let mut free = held("7", 0, 0);
    free.spec.get_or_insert_default().holder_identity = Some(String::new());
    assert_eq!(
        stands(&seen(Some(free), at(9)), 9, 0),
        Standing::Not(NotInherited::Free)
    );

    let observed = seen(Some(held("7", -100, -20)), at(9));
    assert_eq!(stands(&observed, 9, 0), Standing::Inherited);
    let mine: RunId = "mine".parse().unwrap();
    let other = inherit(&observed, &mine, at(9), wall(0));
    let Standing::Not(NotInherited::Other(holder)) = other else {
        panic!("{other:?}")
    };
    assert_eq!(holder.run, Some(run.clone()));

    // Not renewed any more: the step ends where its run does.
    assert_eq!(stands(&observed, 208, 170), Standing::Inherited);
    assert_eq!(stands(&observed, 209, 0), Standing::Not(NotInherited::Expired));
    // Dates that cannot be right: one renewal is waited for.
    for renewed in [-201, 60] {
        let mut observed = seen(Some(held("7", renewed, renewed)), at(9));
        assert_eq!(stands(&observed, 9, 0), Standing::Watch { until: at(209) }, "{renewed}");
        observed.note(Some(held("8", renewed, renewed + 20)), at(29));
        assert_eq!(stands(&observed, 30, 21), Standing::Inherited, "{renewed}");
    }
}
