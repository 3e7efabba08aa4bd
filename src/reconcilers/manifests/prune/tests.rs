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

fn reserved() -> Reserved {
    let lease = ObjectId {
        resource: GroupResource::new("coordination.k8s.io", "leases"),
        name: "stratum-operator".into(),
        ..inventory()
    };
    Reserved {
        objects: [inventory(), lease].into(),
        resources: [GroupResource::new("stratum.ciq.com", "nodeidentities")].into(),
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
    assert_eq!(
        gate(&gone, &record, &empty),
        Ok(BTreeSet::new()),
        "desired-empty is its own confirmation, and uses up no other"
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
    let at_most = Gate {
        max_share: Some(2.0 / 3.0),
        ..open()
    };
    assert!(
        gate(&gone, &record, &at_most).is_ok(),
        "the share itself is still allowed"
    );
    let more = candidates(&record, &BTreeSet::new());
    assert!(
        gate(&more, &record, &confirmed).is_err(),
        "another plan needs another confirmation"
    );
}

/// The operator may delete half of a stack: `s` and `t` each lose two of three.
#[test]
fn a_confirmation_is_for_one_plan_of_one_stack() {
    let objects = ["s", "t"].map(|stack| ["a", "b", "c"].map(|name| object(stack, &format!("{stack}{name}"), "")));
    let record = superset(&objects.concat(), &Record::new());
    let keep = objects.each_ref().map(|stack| stack[0].id.clone()).into();
    let gone = candidates(&record, &keep);
    let digests = by_stack(&gone)
        .into_iter()
        .map(|(stack, ids)| (stack, plan_digest(&ids)));
    let digests: BTreeMap<StackName, PlanDigest> = digests.collect();
    let gate = |confirmed: &[(&str, &PlanDigest)]| {
        let brake = Gate {
            max_share: Some(0.5),
            confirmed: confirmed
                .iter()
                .map(|(name, digest)| (stack(name), (*digest).clone()))
                .collect(),
            ..open()
        };
        super::gate(&gone, &record, &brake)
    };
    let held = |name: &str| {
        Err(Suspension::Held {
            stack: stack(name),
            deletes: 2,
            recorded: 3,
        })
    };
    let (s, t) = (&digests[&stack("s")], &digests[&stack("t")]);
    assert_eq!(gate(&[("s", s)]), held("t"));
    assert_eq!(gate(&[("s", t), ("t", t)]), held("s"), "the plan of another stack");
    assert_eq!(
        gate(&[("t", s), ("t", t)]),
        held("s"),
        "this plan, confirmed for another stack"
    );
    let other = PlanDigest("0".repeat(64));
    assert_eq!(
        gate(&[("s", &other), ("t", t)]),
        held("s"),
        "another plan of this stack"
    );
    assert_eq!(gate(&[("s", s), ("t", t)]), Ok([stack("s"), stack("t")].into()));
}

/// A brake that counts the deletions of one stack for another would hold small changes of large clusters.
#[test]
fn the_share_is_that_of_each_stack() {
    let record = superset(
        &["a", "b", "c", "d"].map(|name| object(if name < "c" { "s" } else { "t" }, name, "")),
        &Record::new(),
    );
    let keep = [object("s", "a", "").id.clone(), object("t", "c", "").id.clone()].into();
    let gone = candidates(&record, &keep);
    let half = Gate {
        max_share: Some(0.5),
        ..open()
    };
    assert_eq!(gate(&gone, &record, &half), Ok(BTreeSet::new()));
}

#[test]
fn an_object_between_two_stacks_counts_for_both() {
    let moved = superset(
        &[object("t", "a", "")],
        &superset(&[object("s", "a", "")], &Record::new()),
    );
    let stacks: Vec<StackName> = by_stack(&moved).into_keys().collect();
    assert_eq!(stacks, [stack("s"), stack("t")]);
}

/// A confirmation outlives the release that took it. The digest is `sha256sum` of the two lines.
#[test]
fn the_digest_of_a_plan_stays_what_it_is() {
    let (a, b) = (object("s", "a", ""), object("s", "b", ""));
    let digest = plan_digest(&[&a.id, &b.id]);
    assert_eq!(
        digest.0,
        "f0032ee48af52c2958a2c452f3d0553e28da9b83c975d074c9b028519be7d1a8"
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
    let judge =
        |recorded: &Recorded, liveness: Liveness| super::judge(&id, recorded, &liveness, &Contents::Empty, &reserved());

    assert_eq!(judge(&known, Liveness::Live(live("u"))), delete);
    assert_eq!(
        judge(&known, Liveness::Live(live("other"))),
        Verdict::Forget,
        "re-created by a user"
    );
    let nameless = LiveObject { uid: None, ..live("u") };
    assert_eq!(
        judge(&known, Liveness::Live(nameless)),
        Verdict::Keep(KeptReason::NotOurs),
        "nothing to tell it by"
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
    labelled.labels.insert(STACK_LABEL.into(), "other".into());
    assert_eq!(
        judge(&unknown, Liveness::Live(labelled.clone())),
        Verdict::Keep(KeptReason::NotOurs),
        "another stack's"
    );
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
    let judge = |contents: Contents| judge(&namespace, &known, &Liveness::Live(live("u")), &contents, &reserved());
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
            judge(&id, &known, &Liveness::Live(live("u")), &Contents::Empty, &reserved()),
            Verdict::Keep(KeptReason::Reserved)
        );
    }
    assert_eq!(
        judge(
            &inventory(),
            &known,
            &Liveness::Live(live("u")),
            &Contents::Empty,
            &reserved()
        ),
        Verdict::Keep(KeptReason::Reserved)
    );
}

#[test]
fn what_the_operator_lives_by_is_never_pruned_and_its_like_is() {
    let known = Recorded {
        uids: [Uid("u".into())].into(),
        stacks: [stack("s")].into(),
    };
    let verdict = |group: &str, resource: &str, namespace: Option<&str>, name: &str| {
        let id = ObjectId {
            resource: GroupResource::new(group, resource),
            namespace: namespace.map(str::to_owned),
            name: name.into(),
        };
        judge(&id, &known, &Liveness::Live(live("u")), &Contents::Empty, &reserved())
    };
    let system = inventory().namespace;
    let (lease, system) = (("coordination.k8s.io", "leases"), system.as_deref());
    for kept in [
        verdict(lease.0, lease.1, system, "stratum-operator"),
        verdict("stratum.ciq.com", "nodeidentities", None, "any"),
    ] {
        assert_eq!(kept, Verdict::Keep(KeptReason::Reserved));
    }
    for other in [
        verdict(lease.0, lease.1, system, "other"),
        verdict(lease.0, lease.1, Some("elsewhere"), "stratum-operator"),
        verdict("example.com", "leases", system, "stratum-operator"),
        verdict("example.com", "nodeidentities", None, "any"),
    ] {
        assert!(matches!(other, Verdict::Delete { .. }), "{other:?}");
    }
}

#[test]
fn only_the_namespaces_of_the_core_group_are_reserved_or_hold_others() {
    let known = Recorded {
        uids: [Uid("u".into())].into(),
        stacks: [stack("s")].into(),
    };
    let id = |group: &str, resource: &str| ObjectId {
        resource: GroupResource::new(group, resource),
        namespace: None,
        name: "default".into(),
    };
    for other in [id("example.com", "namespaces"), id("", "persistentvolumes")] {
        let verdict = judge(
            &other,
            &known,
            &Liveness::Live(live("u")),
            &Contents::Empty,
            &reserved(),
        );
        assert!(matches!(verdict, Verdict::Delete { .. }), "{other}");
        assert!(!holds_others(&other), "{other}");
    }
    assert!(holds_others(&id("", "namespaces")));
    assert!(holds_others(&id("apiextensions.k8s.io", "customresourcedefinitions")));
}

#[test]
fn what_is_deleted_goes_in_waves_by_rank() {
    let id = |group: &str, resource: &str| ObjectId {
        resource: GroupResource::new(group, resource),
        namespace: None,
        name: "a".into(),
    };
    let all = [
        id("", "namespaces"),
        id("", "configmaps"),
        id("apps", "deployments"),
        id("", "secrets"),
    ];
    let waves = waves(all.into_iter().map(|id| (id, ())).collect());
    let waves: Vec<Vec<String>> = waves
        .into_values()
        .map(|wave| wave.into_iter().map(|(id, ())| id.resource.to_string()).collect())
        .collect();
    let expected: [&[&str]; 3] = [
        &["apps/deployments"],
        &["core/configmaps", "core/secrets"],
        &["core/namespaces"],
    ];
    assert_eq!(waves, expected);
}
