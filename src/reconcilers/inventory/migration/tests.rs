use super::*;
use crate::reconcilers::inventory::document::tests::entry;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn inventory(nodes: &[&str]) -> Inventory {
    let mut inventory = Inventory::default();
    for node in nodes {
        inventory.union_into(node, &entry(&[(node, "u")]));
    }
    inventory
}

fn closed(nodes: &[&str]) -> Inventory {
    Inventory {
        closed_at: Some(NOW),
        ..inventory(nodes)
    }
}

fn recovery(nodes: &[&str]) -> Inventory {
    Inventory {
        recovery: true,
        ..inventory(nodes)
    }
}

fn read() -> LocalRecord {
    LocalRecord::Read(entry(&[("x", "u")]))
}

fn unreadable() -> LocalRecord {
    LocalRecord::Unreadable("EIO".into())
}

struct Case {
    name: &'static str,
    inventory: Option<Inventory>,
    control_plane: &'static [&'static str],
    local: LocalRecord,
    publishes: Option<Entry>,
    retires: bool,
    missing: &'static [&'static str],
    note: Note,
}

/// Node `a` decides, in every state the migration can be in.
#[test]
fn every_partial_state() {
    let ours = || Some(entry(&[("x", "u")]));
    let none = || Some(Entry::default());
    let case = |name, inventory, control_plane, local, publishes, retires, missing, note| Case {
        name,
        inventory,
        control_plane,
        local,
        publishes,
        retires,
        missing,
        note,
    };
    use Note::{Closed, Complete, LocalUnreadable, NoControlPlane, Recovery, Waiting};
    let has = || {
        let mut all = inventory(&["b"]);
        all.union_into("a", &entry(&[("x", "u")]));
        all
    };
    for case in [
        case("alone, a record", None, &["a"], read(), ours(), true, &[], Complete),
        case(
            "alone, no record",
            None,
            &["a"],
            LocalRecord::Absent,
            none(),
            false,
            &[],
            Complete,
        ),
        case(
            "alone, unreadable",
            None,
            &["a"],
            unreadable(),
            None,
            false,
            &["a"],
            LocalUnreadable,
        ),
        case("no Nodes", None, &[], read(), ours(), false, &[], NoControlPlane),
        case(
            "no Nodes, all known",
            Some(has()),
            &[],
            read(),
            None,
            false,
            &[],
            NoControlPlane,
        ),
        case(
            "first of two",
            None,
            &["a", "b"],
            read(),
            ours(),
            false,
            &["b"],
            Waiting,
        ),
        case(
            "last of two",
            Some(inventory(&["b"])),
            &["a", "b"],
            read(),
            ours(),
            true,
            &[],
            Complete,
        ),
        case(
            "all are in, open still",
            Some(has()),
            &["a", "b"],
            read(),
            None,
            true,
            &[],
            Complete,
        ),
        case(
            "in, waits for c",
            Some(has()),
            &["a", "b", "c"],
            read(),
            None,
            false,
            &["c"],
            Waiting,
        ),
        case(
            "own Node not registered",
            Some(inventory(&["b"])),
            &["b"],
            unreadable(),
            None,
            false,
            &["a"],
            LocalUnreadable,
        ),
        case(
            "own Node not registered, joins",
            Some(inventory(&["b"])),
            &["b"],
            read(),
            ours(),
            true,
            &[],
            Complete,
        ),
        case(
            "last of two unreadable",
            Some(inventory(&["b"])),
            &["a", "b"],
            unreadable(),
            None,
            false,
            &["a"],
            LocalUnreadable,
        ),
        case(
            "unreadable after it contributed",
            Some(has()),
            &["a", "b"],
            unreadable(),
            None,
            false,
            &[],
            LocalUnreadable,
        ),
        case(
            "grew after it contributed",
            Some(inventory(&["a", "b"])),
            &["a", "b"],
            read(),
            ours(),
            true,
            &[],
            Complete,
        ),
        case(
            "recovery, c missing",
            Some(recovery(&["b"])),
            &["a", "b", "c"],
            read(),
            ours(),
            true,
            &[],
            Recovery,
        ),
        case(
            "recovery, unreadable",
            Some(recovery(&["b"])),
            &["a", "b"],
            unreadable(),
            None,
            true,
            &[],
            Recovery,
        ),
        case(
            "recovery, no Nodes",
            Some(recovery(&["b"])),
            &[],
            LocalRecord::Absent,
            none(),
            false,
            &[],
            Recovery,
        ),
        case(
            "closed",
            Some(closed(&["a", "b"])),
            &["a", "b"],
            LocalRecord::Absent,
            None,
            false,
            &[],
            Closed,
        ),
        case(
            "closed, joins later",
            Some(closed(&["b"])),
            &["a", "b"],
            read(),
            None,
            true,
            &[],
            Closed,
        ),
        case(
            "closed, joins later unreadable",
            Some(closed(&["b"])),
            &["a", "b"],
            unreadable(),
            None,
            true,
            &[],
            Closed,
        ),
        case(
            "closed, no Nodes",
            Some(closed(&["b"])),
            &[],
            read(),
            None,
            true,
            &[],
            Closed,
        ),
    ] {
        let observed = Observed {
            inventory: case.inventory.clone(),
            control_plane: case.control_plane.iter().map(|name| (*name).to_owned()).collect(),
            node: "a".into(),
            local: case.local,
        };
        let plan = decide(&observed, NOW);
        let closes = matches!(case.note, Complete | Recovery);
        let expected = Plan {
            publish: case.publishes,
            close: closes.then_some(NOW),
            retire: case.retires,
            missing: case.missing.iter().map(|name| (*name).to_owned()).collect(),
            note: case.note,
        };
        assert_eq!(plan, expected, "{}", case.name);

        // Carried out, a second decision has nothing left to write.
        let mut after = observed.clone();
        plan.carry_out("a", &mut after.inventory);
        assert!(!decide(&after, NOW).writes(), "{}: not settled", case.name);
        if let Some(before) = &observed.inventory {
            for (node, known) in before.nodes.iter() {
                let now = &after.inventory.as_ref().unwrap().nodes[node];
                assert!(now.covers(known), "{}: the entry of {node} lost something", case.name);
            }
        }
    }
}

#[test]
fn a_close_keeps_its_time() {
    let later = NOW + jiff::SignedDuration::from_secs(5);
    let mut inventory = Some(closed(&["a"]));
    let plan = Plan {
        publish: None,
        close: Some(later),
        retire: false,
        missing: Vec::new(),
        note: Note::Complete,
    };
    plan.carry_out("a", &mut inventory);
    assert_eq!(inventory.unwrap().closed_at, Some(NOW));
}

#[test]
fn an_own_entry_is_never_begun_without_the_local_record() {
    let mut open = Some(inventory(&["b"]));
    contribute_first(&mut open, "a", &read()).unwrap();
    assert_eq!(open.unwrap().nodes["a"], entry(&[("x", "u")]));
    let mut none = None;
    assert!(contribute_first(&mut none, "a", &unreadable()).is_err());
    assert_eq!(none, None);
    let mut after = Some(closed(&["b"]));
    contribute_first(&mut after, "a", &read()).unwrap();
    assert!(
        !after.unwrap().nodes.contains_key("a"),
        "closed: the local record is stale"
    );
}

#[test]
fn a_prune_goes_by_the_cluster_only_once_it_is_closed() {
    let control_plane: BTreeSet<String> = ["a".to_owned(), "c".to_owned()].into();
    let choose = |state: ClusterState<'_>, local: &LocalRecord| prune_record(state, &control_plane, "a", local);
    let both = closed(&["a", "b"]);
    assert_eq!(
        choose(ClusterState::Readable(Some(&both)), &read()),
        PruneRecord::Cluster(both.references())
    );
    for open in [inventory(&["a", "b"]), recovery(&["a"])] {
        assert_eq!(
            choose(ClusterState::Readable(Some(&open)), &read()),
            PruneRecord::Open {
                missing: vec!["c".into()]
            }
        );
    }
    assert_eq!(
        choose(ClusterState::Readable(None), &read()),
        PruneRecord::Open {
            missing: vec!["a".into(), "c".into()]
        },
        "a ConfigMap that only holds the desired generation is not the time before the inventory"
    );
    assert_eq!(
        choose(ClusterState::NoConfigMap, &read()),
        PruneRecord::Local(entry(&[("x", "u")]))
    );
    assert_eq!(
        choose(ClusterState::NoConfigMap, &LocalRecord::Absent),
        PruneRecord::Local(Entry::default())
    );
    assert_eq!(
        choose(ClusterState::NoConfigMap, &unreadable()),
        PruneRecord::LocalUnreadable { problem: "EIO".into() }
    );
}
