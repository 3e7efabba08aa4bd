use super::super::node::Ready;
use super::*;

const MACHINE: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "ffffffffffffffffffffffffffffffff";

/// Minute `minute` of a day, and `second`.
fn time(minute: i64, second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(minute * 60 + second)
}

/// Marked in minute 10, the kubelet's last words a few seconds before, not Ready as the cluster saw it a minute later.
fn facts(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.into(),
        uid: Uid(format!("u-{name}")),
        created: Some(time(1, 0)),
        terminating: false,
        control_plane: false,
        uninstalled: Some(format!("{} {MACHINE}", time(10, 0))),
        addresses: Vec::new(),
        ready: ready(ReadyStatus::Unknown, time(11, 0)),
        machine_id: Some(MACHINE.to_owned()),
    }
}

fn ready(status: ReadyStatus, since: Timestamp) -> Option<Ready> {
    Some(Ready {
        status,
        since: Some(since),
    })
}

fn reading(facts: NodeFacts) -> Reading {
    Reading {
        facts,
        resource_version: "7".to_owned(),
        heartbeat: Some(time(9, 50)),
        lease: Some(time(9, 55)),
        answer: Some(Answer::InForce),
    }
}

/// Node `w1` among ten.
fn observed(known: NodeFacts, reading: Option<Reading>) -> Observed {
    Observed {
        at: time(20, 0),
        nodes: 10,
        marked: vec![Marked {
            known: Arc::new(known),
            reading,
        }],
        recent: 0,
    }
}

/// Decides about `w1` with one thing changed.
fn with(change: impl FnOnce(&mut Observed)) -> Plan {
    let mut observed = observed(facts("w1"), Some(reading(facts("w1"))));
    change(&mut observed);
    decide(&observed)
}

fn with_facts(change: impl FnOnce(&mut NodeFacts)) -> Plan {
    let mut changed = facts("w1");
    change(&mut changed);
    let plan = decide(&observed(changed.clone(), Some(reading(changed.clone()))));
    let only_known = decide(&observed(changed, None));
    assert_eq!(plan, only_known, "what is known is enough to keep it");
    plan
}

fn with_reading(change: impl FnOnce(&mut Reading)) -> Plan {
    with(|observed| change(observed.marked[0].reading.as_mut().unwrap()))
}

fn kept(kept: Kept, again: Option<u64>) -> Plan {
    Plan {
        delete: Vec::new(),
        kept: vec![("w1".into(), kept)],
        again: again.map(Duration::from_secs),
    }
}

fn deleted(name: &str) -> Deletion {
    Deletion {
        name: name.into(),
        uid: Uid(format!("u-{name}")),
        resource_version: "7".to_owned(),
        mark: facts(name).uninstalled.unwrap().parse().unwrap(),
    }
}

fn goes(plan: &Plan) -> bool {
    *plan
        == Plan {
            delete: vec![deleted("w1")],
            ..Plan::default()
        }
}

#[test]
fn a_marked_silent_worker_goes() {
    assert!(goes(&with(|_| {})));
    assert!(goes(&with(|observed| observed.at = time(12, 0))));
    assert!(goes(&with_reading(|read| read.facts.ready = None)));
    assert!(goes(&with_reading(|read| read.heartbeat = None)));
    assert!(goes(&with_reading(|read| read.heartbeat = Some(time(10, 0)))));
    assert!(goes(&with_reading(|read| read.lease = Some(time(10, 0)))));
    assert!(goes(&with_reading(|read| read.facts.created = None)));
    assert!(goes(&with_reading(|read| read.facts.created = Some(time(10, 0)))));
    // Its kubelet itself said that it is not ready, and then it was uninstalled.
    assert!(goes(&with_reading(
        |read| read.facts.ready = ready(ReadyStatus::False, time(10, 0))
    )));
}

#[test]
fn nothing_marked_nothing_done() {
    assert_eq!(with(|observed| observed.marked.clear()), Plan::default());
}

#[test]
fn what_is_known_of_a_node_can_keep_it() {
    let at = time(10, 0);
    for wrong in [
        None,
        Some(""),
        Some("true"),
        Some(MACHINE),
        Some("1970-01-01T00:10:00Z"),
    ] {
        let plan = with_facts(|facts| facts.uninstalled = wrong.map(str::to_owned));
        let error = wrong.unwrap_or_default().parse::<Mark>().unwrap_err();
        assert_eq!(plan, kept(Kept::NotAMark(error), None));
    }
    assert_eq!(
        with_facts(|facts| facts.control_plane = true),
        kept(Kept::ControlPlane, None)
    );
    assert_eq!(
        with_facts(|facts| facts.terminating = true),
        kept(Kept::Terminating, None)
    );
    for since in [time(2, 0), time(15, 0)] {
        let plan = with_facts(|facts| facts.ready = ready(ReadyStatus::True, since));
        assert_eq!(plan, kept(Kept::Ready, None));
    }
    assert_eq!(
        with_facts(|facts| facts.machine_id = None),
        kept(Kept::MachineUnknown, None)
    );
    let other = Kept::OtherMachine {
        marked: MACHINE.parse().unwrap(),
        found: OTHER.to_owned(),
    };
    assert_eq!(
        with_facts(|facts| facts.machine_id = Some(OTHER.to_owned())),
        kept(other, None)
    );
    let created = time(10, 1);
    let younger = Kept::OlderThanNode { at, created };
    assert_eq!(with_facts(|facts| facts.created = Some(created)), kept(younger, None));
    let ended = time(10, 1);
    let since = Kept::OlderThanReady { at, ready: ended };
    let plan = with_facts(|facts| facts.ready = ready(ReadyStatus::False, ended));
    assert_eq!(plan, kept(since, None));
}

/// Among them a Node that lives behind a partition: the cluster does not hear it, and its last words were after the mark.
#[test]
fn a_sign_of_life_after_the_mark_keeps_a_node() {
    let at = time(10, 0);
    let sign = time(10, 1);
    let alive = || kept(Kept::AliveAfter { at, sign }, None);
    assert_eq!(with_reading(|read| read.heartbeat = Some(sign)), alive());
    assert_eq!(with_reading(|read| read.lease = Some(sign)), alive());
    // However much later it is.
    let plan = with(|observed| {
        observed.at = time(100_000, 0);
        observed.marked[0].reading.as_mut().unwrap().lease = Some(sign);
    });
    assert_eq!(plan, alive());
    assert_eq!(with_reading(|read| read.lease = None), kept(Kept::NoLease, None));
}

/// What was read just now counts, not what the watch had.
#[test]
fn what_was_read_counts() {
    let plan = with_reading(|read| read.facts.ready = ready(ReadyStatus::True, time(19, 0)));
    assert_eq!(plan, kept(Kept::Ready, None));
    let plan = with(|observed| {
        observed.marked[0].known = Arc::new(NodeFacts {
            terminating: true,
            ..facts("w1")
        })
    });
    assert!(goes(&plan));
    let unread = with(|observed| observed.marked[0].reading = None);
    assert_eq!(unread, kept(Kept::NotRead, Some(1)));
}

#[test]
fn a_fresh_mark_waits_and_so_does_one_from_the_future() {
    let until = time(12, 0);
    for (now, again) in [
        (time(11, 59), 1),
        (time(11, 0), 60),
        (time(10, 0), 120),
        (time(9, 0), 180),
        (time(0, 0), 600),
    ] {
        let plan = with(|observed| observed.at = now);
        assert_eq!(plan, kept(Kept::Settling { until }, Some(again)), "{now}");
    }
    let last = format!("{} {MACHINE}", Timestamp::MAX);
    let plan = with_facts(|facts| facts.uninstalled = Some(last));
    let until = Timestamp::MAX;
    assert_eq!(plan, kept(Kept::Settling { until }, Some(600)));
}

#[test]
fn without_the_policy_nothing_is_believed() {
    let answered = |answer: Option<Answer>| with_reading(|read| read.answer = answer);
    assert_eq!(answered(Some(Answer::Granted)), kept(Kept::PolicyAbsent, Some(60)));
    let rbac = "nodes \"w1\" is forbidden: User \"stratum:operator\" cannot patch resource".to_owned();
    assert_eq!(
        answered(Some(Answer::Refused(rbac.clone()))),
        kept(Kept::PolicyUnproven(rbac), Some(60))
    );
    assert_eq!(answered(None), kept(Kept::NotRead, Some(1)));
}

/// `count` Nodes to delete among `nodes`; the higher the number, the older the mark.
fn crowd(count: i64, nodes: usize) -> Observed {
    let marked = (0..count).map(|number| {
        let name = format!("w{number:02}");
        let facts = NodeFacts {
            uninstalled: Some(format!(
                "{} {MACHINE}",
                time(10, 0) - SignedDuration::from_millis(number)
            )),
            ..facts(&name)
        };
        Marked {
            known: Arc::new(facts.clone()),
            reading: Some(reading(facts)),
        }
    });
    Observed {
        marked: marked.collect(),
        ..observed_of(nodes)
    }
}

fn observed_of(nodes: usize) -> Observed {
    Observed {
        at: time(20, 0),
        nodes,
        marked: Vec::new(),
        recent: 0,
    }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.delete.iter().map(|deletion| &*deletion.name).collect()
}

#[test]
fn a_few_at_a_time_and_the_oldest_mark_first() {
    let mut observed = crowd(8, 100);
    let plan = decide(&observed);
    assert_eq!(names(&plan), ["w07", "w06", "w05", "w04", "w03"]);
    let queued: Vec<_> = plan.kept.iter().map(|(name, kept)| (&**name, kept.clone())).collect();
    assert_eq!(queued, ["w02", "w01", "w00"].map(|name| (name, Kept::Queued)));
    assert_eq!(plan.again, Some(PACE));
    observed.recent = 3;
    assert_eq!(names(&decide(&observed)), ["w07", "w06"]);
    for recent in [AT_ONCE, AT_ONCE + 9] {
        observed.recent = recent;
        assert_eq!(names(&decide(&observed)).len(), 0);
    }
}

#[test]
fn many_at_once_are_not_believed() {
    // Marked, of so many Nodes: whether any goes.
    for (marked, nodes, any) in [
        (1, 1, true),
        (3, 3, true),
        (4, 4, false),
        (4, 15, false),
        (4, 16, true),
        (5, 16, false),
        (25, 100, true),
        (26, 100, false),
        (50, 5000, true),
        (51, 5000, false),
    ] {
        let plan = decide(&crowd(marked, nodes));
        assert_eq!(!plan.delete.is_empty(), any, "{marked} of {nodes}");
        if !any {
            let marked = usize::try_from(marked).unwrap();
            let held = Kept::TooMany {
                marked,
                nodes,
                limit: limit(nodes),
            };
            assert_eq!(plan.kept.len(), marked);
            assert!(plan.kept.iter().all(|(_, kept)| *kept == held), "{:?}", plan.kept);
            assert_eq!(plan.again, Some(PACE));
        }
    }
    // A Node that stays for a reason of its own says that one.
    let mut observed = crowd(4, 4);
    let known = NodeFacts {
        control_plane: true,
        ..facts("w00")
    };
    observed.marked[0].known = Arc::new(known);
    assert_eq!(decide(&observed).kept[0].1, Kept::ControlPlane);
}

#[test]
fn every_reason_says_what_to_do_in_one_line() {
    let says = |kept: Kept| kept.to_string();
    for (kept, word) in [
        (Kept::NotAMark("x".parse::<Mark>().unwrap_err()), "remove it"),
        (Kept::Ready, MARK),
        (Kept::PolicyAbsent, "apply the stack departed-nodes"),
        (Kept::PolicyUnproven("no".to_owned()), "refused first: no"),
        (
            Kept::TooMany {
                marked: 4,
                nodes: 9,
                limit: 3,
            },
            "4 of 9 Nodes",
        ),
        (Kept::Queued, "5 Nodes"),
    ] {
        let text = says(kept);
        assert!(text.contains(word) && !text.contains('\n'), "{text}");
    }
}
