//! Which marked Nodes go, with the policy in force.

use std::sync::Arc;

use http::Method;
use jiff::SignedDuration;
use kube::Client;
use serde_json::{Value, json};
use stratum::controllers::cluster::CONTROL_PLANE_LABEL;
use stratum::controllers::concern::{self, Concern};
use stratum::controllers::departed::{Marking, mark, unmark};
use stratum::controllers::identities::Identities;
use stratum::controllers::identities::follow::FollowNodes;
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::reconcilers::departed::{Kept, KeptReason, MARK};
use tokio_util::sync::CancellationToken;

use super::bed::{
    Bed, MACHINE, Nobody, OTHER_MACHINE, SOON, annotate, decide, kept, mark_of, node, pass, register, renew, speak,
};
use crate::support::requests::send;
use crate::support::wait_for;

/// Nodes that are not marked, so that many may be.
async fn crowd(bed: &Bed) {
    let node = |number: u32| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: idle-{number}}}\n");
    bed.cluster
        .apply(&(0..40).map(node).collect::<Vec<_>>().join("---\n"))
        .await;
}

async fn patch(client: &Client, path: &str, body: &Value) {
    send(client, Method::PATCH, path, body)
        .await
        .unwrap_or_else(|status| panic!("{path}: {status:?}"));
}

/// Marked Nodes that stay, each for the reason of its name.
async fn those_that_stay(bed: &Bed) -> Vec<(&'static str, KeptReason)> {
    let now = clock::now;
    let second = SignedDuration::from_secs(1);

    let kubelet = bed.leave("ready-again").await;
    speak(&kubelet, "ready-again", MACHINE, "True", now()).await;

    // Alive, and cut off: the cluster concludes that it is not there, but its last words came after its mark.
    let kubelet = bed.leave("behind-a-partition").await;
    speak(&kubelet, "behind-a-partition", MACHINE, "Unknown", now() + second).await;
    let kubelet = bed.leave("renewed").await;
    renew(&kubelet, "renewed", now() + second).await;

    let kubelet = bed.leave("another-machine").await;
    speak(&kubelet, "another-machine", OTHER_MACHINE, "False", now() - 60 * second).await;

    bed.leave("control-plane").await;
    let label = json!({"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}});
    patch(&bed.admin, &node("control-plane"), &label).await;

    let kubelet = bed.join("garbage").await;
    patch(&kubelet, &node("garbage"), &annotate(MARK, Some("yesterday"))).await;

    let kubelet = bed.cluster.kubelet("says-nothing").await;
    register(&kubelet, "says-nothing", json!({"name": "says-nothing"})).await;
    let machine = MACHINE.parse().unwrap();
    let refused = mark(&kubelet, "says-nothing", &machine, now()).await.unwrap();
    assert_eq!(refused, Marking::OtherMachine(None));
    let value = mark_of(now());
    patch(&kubelet, &node("says-nothing"), &annotate(MARK, Some(&value))).await;

    bed.leave("without-lease").await;
    bed.cluster
        .kubectl(&["delete", "lease", "without-lease", "-n", "kube-node-lease"])
        .await;

    // Joined anew under its name, with the mark of before.
    let kubelet = bed.leave("rejoined").await;
    let value = mark_of(now() - 30 * second);
    bed.cluster.kubectl(&["delete", "node", "rejoined"]).await;
    register(
        &kubelet,
        "rejoined",
        json!({"name": "rejoined", "annotations": {MARK: value}}),
    )
    .await;
    speak(&kubelet, "rejoined", MACHINE, "False", now() - 60 * second).await;

    vec![
        ("ready-again", KeptReason::Ready),
        ("behind-a-partition", KeptReason::AliveAfter),
        ("renewed", KeptReason::AliveAfter),
        ("another-machine", KeptReason::OtherMachine),
        ("control-plane", KeptReason::ControlPlane),
        ("garbage", KeptReason::NotAMark),
        ("says-nothing", KeptReason::MachineUnknown),
        ("without-lease", KeptReason::NoLease),
        ("rejoined", KeptReason::OlderThanNode),
    ]
}

#[tokio::test]
async fn of_the_marked_nodes_only_those_go_that_are_gone() {
    let bed = Bed::protected().await;
    crowd(&bed).await;
    let staying = those_that_stay(&bed).await;
    bed.leave("gone").await;
    settle(&bed, &staying).await;
    let mut before = Vec::new();
    for (name, _) in &staying {
        before.push(bed.uid(name).await);
    }

    let operator = bed.concern().await;
    let plan = pass(&operator).await;
    let names: Vec<_> = plan.delete.iter().map(|deletion| &*deletion.name).collect();
    assert_eq!(names, ["gone"], "{plan:?}");
    assert!(bed.node("gone").await.is_none());
    assert_eq!(plan.kept.len(), staying.len(), "{plan:?}");
    for ((name, reason), uid) in staying.iter().zip(before) {
        assert_eq!(KeptReason::from(kept(&plan, name)), *reason, "{name}: {plan:?}");
        assert_eq!(bed.uid(name).await, uid, "{name}");
    }
    assert_eq!((bed.counted("deleted"), bed.counted("changed")), (1, 0));
    told(&bed).await;
    races(&bed).await;
    back_again(&bed).await;
    in_its_frame(&bed).await;
}

/// Waits until the shared watch has seen all of it.
async fn settle(bed: &Bed, staying: &[(&str, KeptReason)]) {
    for (name, _) in staying {
        bed.shows(name, |facts| facts.uninstalled.is_some()).await;
    }
    bed.shows("ready-again", |facts| facts.is_ready()).await;
    bed.shows("control-plane", |facts| facts.control_plane).await;
    bed.shows("another-machine", |facts| {
        facts.machine_id.as_deref() == Some(OTHER_MACHINE)
    })
    .await;
    let rejoined = bed.uid("rejoined").await.unwrap();
    bed.shows("rejoined", |facts| facts.uid.0 == rejoined && facts.ready.is_some())
        .await;
}

/// What a person sees of it.
async fn told(bed: &Bed) {
    let events = |name: &'static str| async move {
        let field = format!("--field-selector=involvedObject.name={name}");
        let format = "-o=jsonpath={range .items[*]}{.type} {.reason} {.message}{\"\\n\"}{end}";
        bed.cluster.kubectl(&["get", "events", "-A", &field, format]).await
    };
    let gone = events("gone").await;
    assert!(
        gone.starts_with("Normal NodeDeparted Node gone is deleted: its machine 0123"),
        "{gone}"
    );
    assert!(gone.contains("does not register again by itself; restart it"), "{gone}");
    let machine = events("another-machine").await;
    assert!(machine.starts_with("Warning MarkedNodeStays "), "{machine}");
    assert!(
        machine.contains("this is machine ffffffffffffffffffffffffffffffff"),
        "{machine}"
    );
}

/// What changes between the look and the deletion stays.
async fn races(bed: &Bed) {
    let operator = bed.concern().await;
    let speaker = bed.leave("speaks-up").await;
    let joiner = bed.leave("joins-anew").await;
    bed.leave("deleted-by-hand").await;
    let (observed, plan) = decide(&operator).await;
    assert_eq!(plan.delete.len(), 3, "{plan:?}");

    let second = SignedDuration::from_secs(1);
    speak(&speaker, "speaks-up", MACHINE, "Unknown", clock::now() + second).await;
    bed.cluster
        .kubectl(&["delete", "node", "joins-anew", "deleted-by-hand"])
        .await;
    register(&joiner, "joins-anew", json!({"name": "joins-anew"})).await;
    let before = (bed.uid("speaks-up").await, bed.uid("joins-anew").await);
    operator.act(observed, plan).await.unwrap();
    assert_eq!((bed.uid("speaks-up").await, bed.uid("joins-anew").await), before);
    assert!(before.0.is_some() && before.1.is_some());
    assert_eq!(
        (bed.counted("changed"), bed.counted("gone"), bed.counted("failed")),
        (2, 1, 0)
    );
    let plan = pass(&operator).await;
    assert!(plan.delete.is_empty(), "{plan:?}");
    assert!(matches!(kept(&plan, "speaks-up"), Kept::AliveAfter { .. }), "{plan:?}");
}

/// As the operator runs it, beside the concern that remembers names: the mark alone wakes it, and the name is free afterwards
/// and stays free.
async fn in_its_frame(bed: &Bed) {
    let stop = CancellationToken::new();
    let client = bed.cluster.client_as(Identity::Operator).await;
    let remembering = FollowNodes::new(client, "kube-system", bed.nodes.clone(), bed.identities.clone());
    let operator = bed.concern().await;
    let running = [
        tokio::spawn(concern::run(Arc::new(operator), Arc::new(Nobody), stop.clone())),
        tokio::spawn(concern::run(Arc::new(remembering), Arc::new(Nobody), stop.clone())),
    ];
    let remembered = |name: &'static str| async move {
        let path = format!("{}/{name}", Identities::path());
        send(&bed.admin, Method::GET, &path, &Value::Null).await.is_ok()
    };
    let kubelet = bed.join("last").await;
    let adopted = || async { remembered("last").await.then_some(()) };
    wait_for("the name to be remembered", SOON, adopted).await;
    mark(&kubelet, "last", &MACHINE.parse().unwrap(), clock::now())
        .await
        .unwrap();
    let gone = || async { bed.node("last").await.is_none().then_some(()) };
    wait_for("the Node to be deleted", SOON, gone).await;
    let free = || async { (!remembered("last").await).then_some(()) };
    wait_for("the name to be free", SOON, free).await;
    // A Node that comes later is remembered later.
    bed.join("later").await;
    let adopted = || async { remembered("later").await.then_some(()) };
    wait_for("a later name to be remembered", SOON, adopted).await;
    assert!(!remembered("last").await);
    // Of a Node that an administrator deletes the name is not free.
    bed.cluster.kubectl(&["delete", "node", "later"]).await;
    let gone = || async { bed.nodes.get("later").is_none().then_some(()) };
    wait_for("the watch to see it", SOON, gone).await;
    stop.cancel();
    for running in running {
        running.await.unwrap();
    }
    assert!(remembered("later").await);
}

/// A machine that joins again takes its mark off.
async fn back_again(bed: &Bed) {
    let kubelet = bed.cluster.kubelet("ready-again").await;
    unmark(&kubelet, "ready-again").await.unwrap();
    bed.shows("ready-again", |facts| facts.uninstalled.is_none()).await;
    let plan = pass(&bed.concern().await).await;
    assert!(plan.kept.iter().all(|(name, _)| &**name != "ready-again"), "{plan:?}");

    // Neither of the two has a Node to work on.
    let nobody = bed.cluster.kubelet("nobody").await;
    unmark(&nobody, "nobody").await.unwrap();
    let machine = MACHINE.parse().unwrap();
    let marked = mark(&nobody, "nobody", &machine, clock::now()).await.unwrap();
    assert_eq!(marked, Marking::NoNode);
}
