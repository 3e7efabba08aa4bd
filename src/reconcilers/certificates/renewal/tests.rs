use proptest::prelude::*;

use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A leaf as this program makes them at `at`.
fn made(name: &str, at: Timestamp, life: SignedDuration, signer: Timestamp) -> Leaf {
    Leaf {
        name: name.to_owned(),
        not_before: at - BACKDATE,
        not_after: (at + life).min(signer),
        lifetime: None,
        renewed_by: RenewedBy::Signer { not_after: signer },
        broken: false,
    }
}

fn of(leaves: &[Leaf]) -> Observed {
    Observed {
        leaves: leaves.to_vec(),
        ..Observed::default()
    }
}

fn far() -> Timestamp {
    start() + 10 * YEAR
}

#[test]
fn a_leaf_is_due_in_its_window_and_not_before() {
    for (life, window) in [(YEAR, 90 * DAY), (90 * DAY, 30 * DAY), (9 * MINUTE, 3 * MINUTE)] {
        let leaf = made("apiserver", start(), life, far());
        let due = start() + life - window;
        let moment = SignedDuration::from_millis(1);
        let early = decide(&of(std::slice::from_ref(&leaf)), due - moment, 0.0);
        let why = Waiting::NotDue {
            name: "apiserver".to_owned(),
        };
        assert_eq!(early.action, Action::Wait { until: Some(due), why }, "{life}");
        let now = decide(&of(std::slice::from_ref(&leaf)), due, 0.0);
        let (name, not_after) = ("apiserver".to_owned(), leaf.not_after);
        let because = vec![Because::Due { name, not_after }];
        assert_eq!(now.action, Action::Attempt { because, window }, "{life}");
        // The last of many machines that were made together is a tenth of the window later.
        let last = decide(&of(std::slice::from_ref(&leaf)), due, 1.0);
        let Action::Wait { until: Some(until), .. } = last.action else {
            panic!("{last:?}")
        };
        assert_eq!(until, due + window / 10);
    }
}

#[test]
fn nothing_is_renewed_for_nothing() {
    // The signer ends together with the leaf.
    let clamped = made("admin", start(), YEAR, start() + 200 * DAY);
    let now = start() + 199 * DAY;
    let decision = decide(&of(std::slice::from_ref(&clamped)), now, 0.5);
    let ends = start() + 200 * DAY;
    let concern = clamped.concern(ConcernKind::SignerEnds(ends));
    assert_eq!(
        decision.action,
        Action::Wait {
            until: None,
            why: Waiting::NotWorth
        }
    );
    assert_eq!(decision.concerns, [concern]);
    assert!(
        decision.concerns[0]
            .to_string()
            .contains("its authority ends at 2027-08-03T08:00:00Z")
    );
    // One second more is worth it.
    let mut more = clamped.clone();
    more.renewed_by = RenewedBy::Signer {
        not_after: ends + SignedDuration::from_secs(1),
    };
    assert!(matches!(decide(&of(&[more]), now, 0.5).action, Action::Attempt { .. }));
    // A signer that has ended signs nothing that is of use, not even for a leaf that ended before it.
    let dead = made("admin", start(), 10 * DAY, start() + 20 * DAY);
    let decision = decide(&of(&[dead]), start() + 30 * DAY, 0.5);
    assert!(
        matches!(
            decision.action,
            Action::Wait {
                why: Waiting::NotWorth,
                ..
            }
        ),
        "{decision:?}"
    );
    // Without a key nothing can be signed; another leaf's renewal goes on.
    let keyless = Leaf {
        renewed_by: RenewedBy::Nobody,
        ..made("front-proxy-client", start(), YEAR, far())
    };
    let decision = decide(
        &of(&[keyless, made("apiserver", start(), YEAR, far())]),
        start() + 360 * DAY,
        0.5,
    );
    let Action::Attempt { because, .. } = &decision.action else {
        panic!("{decision:?}")
    };
    assert!(matches!(because.as_slice(), [Because::Due { name, .. }] if name == "apiserver"));
    assert_eq!(decision.concerns[0].kind, ConcernKind::NoSigner);
}

/// Otherwise it would be due from its first moment on, and after that renewal be left alone for longer than it lives.
#[test]
fn windows_and_pauses_are_of_the_shorter_life() {
    let short = Leaf {
        lifetime: Some(YEAR),
        ..made("apiserver", start(), MINUTE * 10, far())
    };
    let at = |leaf: &Leaf, now, last: Option<Timestamp>| {
        let observed = Observed {
            last: last.map(|at| LastAttempt {
                at,
                succeeded: true,
                failures: 0,
            }),
            ..of(std::slice::from_ref(leaf))
        };
        decide(&observed, now, 0.0).action
    };
    assert!(matches!(at(&short, start() + MINUTE, None), Action::Wait { .. }));
    let almost = start() + MINUTE * 9;
    let action = at(&short, almost, Some(start()));
    assert!(matches!(action, Action::Attempt { .. }), "{action:?}");
    // One that lives for a year, where new ones live for ten minutes: it ends first, and is not renewed to end earlier.
    let long = Leaf {
        lifetime: Some(MINUTE * 10),
        ..made("apiserver", start(), YEAR, far())
    };
    assert!(matches!(at(&long, start() + DAY * 300, None), Action::Wait { .. }));
}

#[test]
fn a_leaf_without_its_key_is_made_new_whatever_its_dates_say() {
    let broken = Leaf {
        broken: true,
        ..made("apiserver", start(), YEAR, far())
    };
    let decision = decide(&of(std::slice::from_ref(&broken)), start() + DAY, 0.5);
    let Action::Attempt { because, .. } = &decision.action else {
        panic!("{decision:?}")
    };
    assert!(matches!(because.as_slice(), [Because::Broken { name }] if name == "apiserver"));
    // Also when it would end no later, but not by a signer that is dead or away.
    let clamped = Leaf {
        broken: true,
        ..made("apiserver", start(), YEAR, start() + 200 * DAY)
    };
    let action = decide(&of(std::slice::from_ref(&clamped)), start() + DAY, 0.5).action;
    assert!(matches!(action, Action::Attempt { .. }), "{action:?}");
    let keyless = Leaf {
        renewed_by: RenewedBy::Nobody,
        ..broken
    };
    let action = decide(&of(&[keyless]), start() + DAY, 0.5).action;
    assert!(matches!(action, Action::Wait { .. }), "{action:?}");
}

#[test]
fn the_kubelets_own_are_left_to_it() {
    let kubelet = Leaf {
        renewed_by: RenewedBy::Kubelet,
        ..made("kubelet-client", start(), YEAR, far())
    };
    let decision = decide(&of(std::slice::from_ref(&kubelet)), start() + 300 * DAY, 0.0);
    assert_eq!(
        decision.action,
        Action::Wait {
            until: None,
            why: Waiting::Nothing
        }
    );
    assert_eq!(decision.concerns, []);
    let decision = decide(&of(std::slice::from_ref(&kubelet)), start() + 330 * DAY, 0.0);
    assert_eq!(
        decision.action,
        Action::Wait {
            until: None,
            why: Waiting::Nothing
        }
    );
    assert_eq!(decision.concerns, [kubelet.concern(ConcernKind::KubeletOverdue)]);
}

#[test]
fn what_was_left_undone_is_a_reason() {
    let leaf = made("apiserver", start(), YEAR, far());
    let now = start() + DAY;
    let last = |succeeded, failures| {
        Some(LastAttempt {
            at: start(),
            succeeded,
            failures,
        })
    };
    let mut observed = of(&[leaf]);
    observed.incomplete = true;
    let attempt = |because| Action::Attempt {
        because: vec![because],
        window: SignedDuration::ZERO,
    };
    assert_eq!(decide(&observed, now, 0.0).action, attempt(Because::Incomplete));
    observed.last = last(true, 0);
    assert_eq!(decide(&observed, now, 0.0).action, attempt(Because::Incomplete));
    observed.incomplete = false;
    assert!(matches!(decide(&observed, now, 0.0).action, Action::Wait { .. }));
    // In progress or failed: whether it left something is found out by another.
    observed.last = last(false, 1);
    assert_eq!(decide(&observed, now, 0.0).action, attempt(Because::Unsettled));
    // Not on a machine where nothing is ours.
    observed.leaves.clear();
    assert!(matches!(decide(&observed, now, 0.0).action, Action::Wait { .. }));
    // On one without a readable leaf the marker alone is enough.
    observed.incomplete = true;
    assert!(matches!(decide(&observed, now, 0.0).action, Action::Attempt { .. }));
}

#[test]
fn a_record_from_the_future_holds_nothing_up() {
    let mut observed = of(&[made("apiserver", start(), YEAR, far())]);
    let at = start() + 3 * YEAR;
    observed.last = Some(LastAttempt {
        at,
        succeeded: true,
        failures: 0,
    });
    assert!(matches!(
        decide(&observed, start() + 360 * DAY, 0.9).action,
        Action::Attempt { .. }
    ));
}

#[test]
fn pauses_of_a_years_leaf() {
    let leaf = made("apiserver", start(), YEAR, far());
    let pause_of = |left: SignedDuration, failures| {
        let at = leaf.not_after - left;
        let mut observed = of(std::slice::from_ref(&leaf));
        observed.last = Some(LastAttempt {
            at,
            succeeded: false,
            failures,
        });
        match decide(&observed, at, 0.0).action {
            Action::Wait { until: Some(until), .. } => until.duration_since(at),
            other => panic!("{other:?}"),
        }
    };
    let hours = SignedDuration::from_hours;
    let pauses: Vec<_> = (1..10).map(|failures| pause_of(80 * DAY, failures).as_mins()).collect();
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 360, 360]);
    assert_eq!(pause_of(hours(8), 99), hours(2), "a quarter of what is left");
    assert_eq!(pause_of(MINUTE, 99), SignedDuration::from_mins(5));
    assert_eq!(pause_of(-9 * DAY, 99), hours(1), "after the end");
}

/// What a machine with one leaf does from `start` on, until `end`. `renew` makes a new leaf at that time, or
/// fails. Returns when it was tried.
fn live(
    leaf: &mut Leaf,
    end: Timestamp,
    random: f64,
    mut renew: impl FnMut(Timestamp) -> Option<Leaf>,
) -> Vec<(Timestamp, bool)> {
    let (mut now, mut tried) = (start(), Vec::new());
    let mut observed = of(std::slice::from_ref(leaf));
    while now < end {
        assert!(tried.len() < 10_000, "busy");
        match decide(&observed, now, random).action {
            Action::Attempt { .. } => {
                let made = renew(now);
                let failures = match (&made, observed.last) {
                    (Some(_), _) => 0,
                    (None, last) => last.map_or(0, |last| last.failures) + 1,
                };
                tried.push((now, made.is_some()));
                observed.last = Some(LastAttempt {
                    at: now,
                    succeeded: made.is_some(),
                    failures,
                });
                if let Some(made) = made {
                    *leaf = made;
                    observed.leaves = vec![leaf.clone()];
                }
            }
            Action::Wait { until: None, .. } => return tried,
            Action::Wait { until: Some(until), .. } => {
                assert!(until > now, "a wait that is over");
                now = until;
            }
        }
    }
    tried
}

fn lives() -> impl Strategy<Value = SignedDuration> {
    (60_i64..10 * 365 * 24 * 3600)
        .prop_map(SignedDuration::from_secs)
        .prop_union_minutes()
}

trait OrMinutes: Strategy<Value = SignedDuration> + Sized + 'static {
    /// Half of them live for minutes.
    fn prop_union_minutes(self) -> BoxedStrategy<SignedDuration> {
        prop_oneof![self, (60_i64..3600).prop_map(SignedDuration::from_secs)].boxed()
    }
}

impl<S: Strategy<Value = SignedDuration> + 'static> OrMinutes for S {}

proptest! {
    /// It never ends, is renewed no more than twice in the time it lives, and what was to be waited for comes.
    #[test]
    fn a_leaf_that_can_be_renewed_never_ends(life in lives(), random in 0.0..1.0_f64) {
        let signer = start() + life * 50;
        let mut leaf = made("leaf", start(), life, signer);
        let mut ends = leaf.not_after;
        let tried = live(&mut leaf, start() + life * 12, random, |now| {
            assert!(now < ends, "it ended before");
            let new = made("leaf", now, life, signer);
            ends = new.not_after;
            Some(new)
        });
        prop_assert!((12..=24).contains(&tried.len()), "{} in 12 lives", tried.len());
    }

    /// Failures are neither given up nor repeated without a pause, before the end and after it.
    #[test]
    fn a_failure_is_tried_again_but_never_busily(life in lives(), random in 0.0..1.0_f64) {
        let mut leaf = made("leaf", start(), life, start() + life * 50);
        let (end, life) = (leaf.not_after, leaf.life());
        let tried = live(&mut leaf, end + life.min(30 * DAY), random, |_| None);
        let shortest = FIRST_PAUSE.min(life / 60).max(SHORTEST_PAUSE);
        let longest = LONGEST_PAUSE + LONGEST_PAUSE / 5;
        for pair in tried.windows(2) {
            let pause = pair[1].0.duration_since(pair[0].0);
            prop_assert!(pause >= shortest && pause <= longest, "{pause:?}");
        }
        let before = tried.iter().filter(|(at, _)| *at < end).count();
        prop_assert!(before >= 6, "{before} before the end");
    }

    /// Close to the signer's end it comes to rest, and no attempt would have moved the end to where it was.
    #[test]
    fn renewals_cease_where_the_signer_ends(life in lives(), signer in 0.1..3.0_f64, random in 0.0..1.0_f64) {
        let signer = start() + life.mul_f64(signer);
        let mut leaf = made("leaf", start(), life, signer);
        let mut last = leaf.not_after;
        live(&mut leaf, start() + life * 6, random, |now| {
            let new = made("leaf", now, life, signer);
            assert!(new.not_after > last, "for nothing");
            last = new.not_after;
            Some(new)
        });
        prop_assert_eq!(last, leaf.not_after);
        prop_assert!(last <= signer);
    }

    /// A renewal that says it succeeded and moves nothing is repeated at a walk.
    #[test]
    fn a_success_that_moves_nothing_is_not_repeated_at_once(life in lives(), random in 0.0..1.0_f64) {
        let mut leaf = made("leaf", start(), life, start() + life * 50);
        let same = leaf.clone();
        let tried = live(&mut leaf, start() + life, random, |_| Some(same.clone()));
        let most = usize::try_from(life.as_hours() / 24).unwrap_or(0).max(8);
        prop_assert!(tried.len() <= most, "{}", tried.len());
    }

    /// Anything at all is decided, and every attempt has a reason.
    #[test]
    fn every_attempt_has_a_reason(
        before in -4_000_000_000_i64..4_000_000_000, after in -4_000_000_000_i64..200_000_000_000,
        signer in -4_000_000_000_i64..200_000_000_000, now in -4_000_000_000_i64..200_000_000_000,
        last in proptest::option::of((-4_000_000_000_i64..200_000_000_000, any::<bool>(), any::<u32>())),
        incomplete: bool, random in any::<f64>(),
    ) {
        let at = |second| Timestamp::from_second(second).unwrap();
        let leaf = Leaf {
            name: "leaf".to_owned(),
            not_before: at(before),
            not_after: at(after),
            lifetime: None,
            renewed_by: RenewedBy::Signer { not_after: at(signer) },
            broken: false,
        };
        let last = last.map(|(second, succeeded, failures)| LastAttempt { at: at(second), succeeded, failures });
        let decision = decide(&Observed { leaves: vec![leaf], last, incomplete }, at(now), random);
        match &decision.action {
            Action::Attempt { because, window } => {
                prop_assert!(!because.is_empty() && !window.is_negative());
            }
            Action::Wait { until, .. } => prop_assert!(until.is_none_or(|until| until > at(now))),
        }
        prop_assert!(!decision.action.to_string().is_empty());
    }
}
