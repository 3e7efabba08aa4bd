use super::super::apply::superset;
use super::super::resolve::fixtures::{object, stack};
use super::super::{PRUNE_ANNOTATION, PRUNE_DISABLED};
use super::*;
use crate::reconcilers::object::GroupResource;

fn open() -> Gate {
    Gate {
        complete: true,
        settled: true,
        folder_trusted: true,
        desired_empty: false,
        max_share: None,
        confirmed: BTreeSet::new(),
    }
}

fn inventory() -> ObjectId {
    ObjectId {
        resource: GroupResource::new("", "configmaps"),
        namespace: Some("kube-system".into()),
        name: "stratum-addon-inventory".into(),
    }
}

fn four() -> Record {
    superset(
        &[
            object("s", "a", ""),
            object("s", "b", ""),
            object("s", "c", ""),
            object("t", "d", ""),
        ],
        &Record::new(),
    )
}

#[test]
fn nothing_is_deleted_in_a_pass_that_is_not_known_to_be_whole() {
    let record = four();
    let gone = candidates(&record, &BTreeSet::new());
    assert_eq!(gone.len(), 4);
    for (closed, why) in [
        (
            Gate {
                complete: false,
                ..open()
            },
            Suspension::PassIncomplete,
        ),
        (
            Gate {
                settled: false,
                ..open()
            },
            Suspension::Unsettled,
        ),
        (
            Gate {
                folder_trusted: false,
                ..open()
            },
            Suspension::FolderEmpty,
        ),
    ] {
        assert_eq!(gate(&gone, &record, &closed), Err(why.clone()));
        assert_eq!(
            gate(&Record::new(), &record, &closed),
            Ok(BTreeSet::new()),
            "no candidate, no reason"
        );
    }
    assert!(gate(&gone, &record, &open()).is_ok());
    let empty = Gate {
        folder_trusted: false,
        desired_empty: true,
        max_share: Some(0.1),
        ..open()
    };
    assert!(
        gate(&gone, &record, &empty).is_ok(),
        "desired-empty is its own confirmation"
    );
}

#[test]
fn the_brake_holds_a_large_share_until_that_plan_is_confirmed() {
    let record = four();
    let keep = [object("s", "a", "").id.clone(), object("t", "d", "").id.clone()].into();
    let gone = candidates(&record, &keep);
    assert!(
        gate(
            &gone,
            &record,
            &Gate {
                max_share: Some(0.7),
                ..open()
            }
        )
        .is_ok()
    );
    let brake = Gate {
        max_share: Some(0.5),
        ..open()
    };
    assert_eq!(
        gate(&gone, &record, &brake),
        Err(Suspension::Held {
            stack: stack("s"),
            deletes: 2,
            recorded: 3
        })
    );
    let digest = plan_digest(&by_stack(&gone)[&stack("s")]);
    let confirmed = Gate {
        confirmed: [(stack("s"), digest)].into(),
        ..brake
    };
    assert_eq!(gate(&gone, &record, &confirmed), Ok([stack("s")].into()));
    let more = candidates(&record, &BTreeSet::new());
    assert!(
        gate(&more, &record, &confirmed).is_err(),
        "another plan needs another confirmation"
    );
}

fn live(uid: &str) -> LiveObject {
    LiveObject {
        uid: Some(Uid(uid.into())),
        resource_version: "7".into(),
        ..LiveObject::default()
    }
}

#[test]
fn only_the_very_object_that_was_applied_is_deleted() {
    let id = object("s", "a", "").id.clone();
    let known = Recorded {
        uids: [Uid("u".into())].into(),
        stacks: [stack("s")].into(),
    };
    let unknown = Recorded {
        uids: BTreeSet::new(),
        ..known.clone()
    };
    let delete = Verdict::Delete {
        uid: Uid("u".into()),
        resource_version: "7".into(),
    };
    let judge = |recorded: &Recorded, liveness: Liveness| {
        super::judge(&id, recorded, &liveness, &Contents::Empty, &inventory())
    };

    assert_eq!(judge(&known, Liveness::Live(live("u"))), delete);
    assert_eq!(
        judge(&known, Liveness::Live(live("other"))),
        Verdict::Forget,
        "re-created by a user"
    );
    assert_eq!(judge(&known, Liveness::Absent), Verdict::Forget);
    assert_eq!(judge(&known, Liveness::KindGone), Verdict::Forget);
    assert_eq!(
        judge(&known, Liveness::Unavailable),
        Verdict::Keep(KeptReason::GroupUnavailable)
    );
    assert_eq!(
        judge(&unknown, Liveness::Live(live("u"))),
        Verdict::Keep(KeptReason::NotOurs)
    );
    let mut labelled = live("u");
    labelled.labels.insert(STACK_LABEL.into(), "s".into());
    assert_eq!(judge(&unknown, Liveness::Live(labelled)), delete);
    let mut protected = live("u");
    protected
        .annotations
        .insert(PRUNE_ANNOTATION.into(), PRUNE_DISABLED.into());
    assert_eq!(
        judge(&known, Liveness::Live(protected)),
        Verdict::Keep(KeptReason::Protected)
    );
}

#[test]
fn a_namespace_goes_only_when_nothing_would_go_with_it() {
    let namespace = ObjectId {
        resource: GroupResource::new("", "namespaces"),
        namespace: None,
        name: "n".into(),
    };
    let known = Recorded {
        uids: [Uid("u".into())].into(),
        stacks: [stack("s")].into(),
    };
    let judge = |contents: Contents| judge(&namespace, &known, &Liveness::Live(live("u")), &contents, &inventory());
    assert!(matches!(judge(Contents::Empty), Verdict::Delete { .. }));
    assert_eq!(
        judge(Contents::Holds(inventory())),
        Verdict::Keep(KeptReason::HoldsOthers(inventory().to_string()))
    );
    assert_eq!(
        judge(Contents::Unknown {
            group: "metrics.k8s.io".into()
        }),
        Verdict::Keep(KeptReason::ContentsUnknown("metrics.k8s.io".into()))
    );
}

#[test]
fn the_namespaces_of_kubernetes_and_the_inventory_are_never_pruned() {
    let known = Recorded {
        uids: [Uid("u".into())].into(),
        stacks: [stack("s")].into(),
    };
    for name in RESERVED_NAMESPACES {
        let id = ObjectId {
            resource: GroupResource::new("", "namespaces"),
            namespace: None,
            name: name.into(),
        };
        assert_eq!(
            judge(&id, &known, &Liveness::Live(live("u")), &Contents::Empty, &inventory()),
            Verdict::Keep(KeptReason::Reserved)
        );
    }
    assert_eq!(
        judge(
            &inventory(),
            &known,
            &Liveness::Live(live("u")),
            &Contents::Empty,
            &inventory()
        ),
        Verdict::Keep(KeptReason::Reserved)
    );
}
