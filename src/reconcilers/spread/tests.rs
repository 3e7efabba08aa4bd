//! Every state of CoreDNS and its nodes, and what is decided in it.

use jiff::SignedDuration;
use serde_json::json;

use super::memory::{Answer, Refusal};
use super::*;

/// A Deployment of two replicas with nothing going on.
pub(super) fn deployment() -> DeploymentFacts {
    serde_json::from_value(json!({
        "metadata": {"name": "coredns", "uid": "d", "generation": 3},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "template": {
                "metadata": {"creationTimestamp": null, "labels": {"k8s-app": "kube-dns"}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
                    "containers": [{"name": "coredns", "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}}}],
                },
            },
        },
        "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2},
    }))
    .unwrap()
}

/// A replica that is Ready, an hour old.
pub(super) fn pod(name: &str, node: &str) -> PodFacts {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "uid": format!("uid of {name}"), "creationTimestamp": "2026-01-01T11:00:00Z",
            "labels": {"k8s-app": "kube-dns", "pod-template-hash": "7f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "coredns-7f", "uid": "r", "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "coredns", "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

/// A Node with room.
pub(super) fn node(name: &str) -> NodeFacts {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("uid of {name}"), "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
    .unwrap()
}

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

/// Two replicas on node `a`, and an empty node `b`.
fn world() -> Observed {
    Observed {
        deployment: deployment(),
        pods: vec![pod("coredns-1", "a"), pod("coredns-2", "a")],
        nodes: Some(vec![node("a"), node("b")]),
        usage: [("b".to_owned(), Usage::default())].into(),
        memory: Memory::default(),
        pace: Pace::default(),
        turn: 0,
    }
}

fn used(cpu: &str, pods: usize) -> Usage {
    let mut usage = Usage::default();
    let pod = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
    usage.count(&serde_json::from_value(pod).unwrap());
    usage.pods = pods;
    usage
}

fn evicted(decision: Decision) -> Eviction {
    match decision {
        Decision::Evict(eviction) => eviction,
        other => panic!("{other:?}"),
    }
}

fn stays(decision: Decision) -> Reason {
    match decision {
        Decision::Stay(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_replica_leaves_the_node_that_holds_all() {
    let mut world = world();
    world.pods[0].created = noon() - minutes(6);
    let eviction = evicted(decide(&world, noon()));
    assert_eq!(
        (eviction.pod.as_str(), eviction.from.as_str(), eviction.to.as_str()),
        ("coredns-1", "a", "b")
    );
    assert_eq!(eviction.uid.0, "uid of coredns-1", "the newest");
    assert_eq!(eviction.eligible, [key_of(&node("b"))].into());
}

type Change = fn(&mut Observed);

#[test]
fn nothing_is_moved_unless_all_is_well() {
    let cases: &[(&str, Change, &str)] = &[
        ("as it is", |_| (), "evict"),
        (
            "another label",
            |w| w.deployment.selector.match_labels = Some([("k8s-app".to_owned(), "dns".to_owned())].into()),
            "not_core_dns",
        ),
        (
            "no label",
            |w| w.deployment.selector.match_labels = None,
            "not_core_dns",
        ),
        (
            "scaled to 0",
            |w| {
                w.deployment.replicas = replicas(0);
                w.pods.clear();
            },
            "too_few_replicas",
        ),
        (
            "scaled to 1",
            |w| {
                w.deployment.replicas = replicas(1);
                w.pods.truncate(1);
            },
            "too_few_replicas",
        ),
        (
            "scaled to 1 a moment ago",
            |w| w.deployment.replicas.wanted = 1,
            "too_few_replicas",
        ),
        (
            "3 replicas on one of 2 nodes",
            |w| {
                w.deployment.replicas = replicas(3);
                w.pods.push(pod("coredns-3", "a"));
            },
            "evict",
        ),
        (
            "3 replicas, 2 and 1",
            |w| {
                w.deployment.replicas = replicas(3);
                w.pods.push(pod("coredns-3", "b"));
            },
            "spread",
        ),
        ("one each", |w| w.pods[1].node = Some("b".to_owned()), "spread"),
        ("being deleted", |w| w.deployment.is_leaving = true, "rollout"),
        ("paused", |w| w.deployment.is_paused = true, "rollout"),
        ("changed a moment ago", |w| w.deployment.generation = 4, "rollout"),
        (
            "one of the old template",
            |w| w.deployment.replicas.updated = 1,
            "rollout",
        ),
        (
            "one more of the old template",
            |w| w.deployment.replicas.total = 3,
            "rollout",
        ),
        (
            "scaled up a moment ago",
            |w| w.deployment.replicas.wanted = 3,
            "rollout",
        ),
        ("one pod is leaving", |w| w.pods[1].is_leaving = true, "rollout"),
        ("one pod has left", |w| w.pods.truncate(1), "rollout"),
        ("one pod too many", |w| w.pods.push(pod("coredns-3", "a")), "rollout"),
        (
            "two templates",
            |w| {
                w.pods[1].template_hash = Some("8a".to_owned());
                w.pods[1].replica_set = Some("coredns-8a".to_owned());
            },
            "rollout",
        ),
        ("one is not Ready", |w| w.pods[1].is_ready = false, "not_all_ready"),
        (
            "one is not Ready by the Deployment",
            |w| w.deployment.replicas.ready = 1,
            "not_all_ready",
        ),
        (
            "one is not Ready for long",
            |w| w.deployment.replicas.available = 1,
            "not_all_ready",
        ),
        (
            "one waits for a node",
            |w| {
                w.pods[1].node = None;
                w.pods[1].is_ready = false;
            },
            "not_all_ready",
        ),
        (
            "a foreign pod on another node",
            |w| {
                let mut foreign = pod("stray", "b");
                foreign.replica_set = None;
                w.pods.push(foreign);
            },
            "evict",
        ),
        (
            "a pod that failed on another node",
            |w| {
                let mut failed = pod("coredns-0", "b");
                failed.has_ended = true;
                w.pods.push(failed);
            },
            "evict",
        ),
        (
            "a foreign pod for the second replica",
            |w| w.pods[1].replica_set = Some("coredns-blue-7f".to_owned()),
            "rollout",
        ),
        (
            "a rule that is not judged",
            |w| w.deployment.template.unjudged = Some("required podAffinity"),
            "unjudged",
        ),
        (
            "a pod of this minute",
            |w| w.pods[1].created = noon() - minutes(1),
            "settling",
        ),
        (
            "a pod of the future",
            |w| w.pods[1].created = noon() + minutes(1),
            "settling",
        ),
        ("no other node", |w| w.nodes = Some(vec![node("a")]), "no_target"),
        ("no node at all", |w| w.nodes = Some(Vec::new()), "no_target"),
        ("Nodes were not read", |w| w.nodes = None, "ask"),
        ("pods of the other node were not read", |w| w.usage.clear(), "ask"),
    ];
    for (name, change, label) in cases {
        let mut world = world();
        change(&mut world);
        let decision = decide(&world, noon());
        assert_eq!(decision.label(), *label, "{name}: {decision:?}");
        if let Decision::Stay(reason) = decision {
            assert!(
                !reason.to_string().is_empty() && !reason.to_string().contains('\n'),
                "{name}"
            );
        }
    }
}

fn replicas(count: i32) -> facts::Replicas {
    facts::Replicas {
        wanted: count,
        total: count,
        updated: count,
        ready: count,
        available: count,
    }
}

#[test]
fn nodes_are_read_only_when_a_move_hangs_on_them() {
    let cases: &[(&str, Change)] = &[
        ("spread", |w| w.pods[1].node = Some("b".to_owned())),
        ("a rollout", |w| w.deployment.generation = 4),
        ("settling", |w| w.pods[1].created = noon()),
        ("unjudged", |w| w.deployment.template.unjudged = Some("x")),
    ];
    for (name, change) in cases {
        let mut world = world();
        world.nodes = None;
        change(&mut world);
        assert!(matches!(decide(&world, noon()), Decision::Stay(_)), "{name}");
    }
    let mut world = world();
    world.nodes = None;
    assert_eq!(decide(&world, noon()), Decision::Ask(Question::Nodes));
    world.nodes = Some(vec![node("a"), node("c"), node("b")]);
    world.usage.clear();
    assert_eq!(decide(&world, noon()), Decision::Ask(Question::PodsOn("b".to_owned())));
    world.usage.insert("b".to_owned(), used("1950m", 7));
    assert_eq!(decide(&world, noon()), Decision::Ask(Question::PodsOn("c".to_owned())));
    world.usage.insert("c".to_owned(), used("1900m", 7));
    assert_eq!(evicted(decide(&world, noon())).to, "c");
}

#[test]
fn the_nearest_node_is_named_with_what_it_lacks() {
    let mut world = world();
    let mut cordoned = node("b");
    cordoned.is_cordoned = true;
    let mut down = node("c");
    down.is_ready = false;
    world.nodes = Some(vec![node("a"), down, cordoned]);
    let reason = stays(decide(&world, noon()));
    let text = "node a holds all replicas, and no other node can take one; the nearest is b: it is cordoned";
    assert_eq!(reason.to_string(), text);
    world.nodes = Some(vec![node("a"), node("b")]);
    world.usage.insert("b".to_owned(), used("1950m", 7));
    let reason = stays(decide(&world, noon())).to_string();
    assert!(
        reason.ends_with("b: it has 50m cpu left, and one replica needs 100m"),
        "{reason}"
    );
    world.usage.insert("b".to_owned(), used("1", 110));
    let reason = stays(decide(&world, noon())).to_string();
    assert!(
        reason.ends_with("b: it has 0 pods left, and one replica needs 1"),
        "{reason}"
    );
    world.nodes = Some(vec![node("a")]);
    let reason = stays(decide(&world, noon())).to_string();
    assert_eq!(reason, "node a holds all replicas, and there is no other node");
}

/// Admission gave the pods a sidecar that the template does not know.
#[test]
fn a_replica_needs_what_its_pods_need() {
    let mut world = world();
    world.usage.insert("b".to_owned(), used("1500m", 7));
    assert_eq!(decide(&world, noon()).label(), "evict");
    world.pods[0].asked = serde_json::from_value::<resources::PodResources>(
        json!({"containers": [{"resources": {"requests": {"cpu": "600m"}}}]}),
    )
    .unwrap()
    .effective();
    assert_eq!(decide(&world, noon()).label(), "no_target");
}

#[test]
fn of_very_many_nodes_another_part_is_looked_at_each_time() {
    let mut world = world();
    let names: Vec<String> = (0..50).map(|number| format!("n{number:02}")).collect();
    world.nodes = Some(names.iter().map(|name| node(name)).collect());
    let mut looked_at = BTreeSet::new();
    for turn in 0..3 {
        world.turn = turn;
        world.usage.clear();
        while let Decision::Ask(Question::PodsOn(name)) = decide(&world, noon()) {
            assert!(world.usage.insert(name.clone(), used("2", 7)).is_none(), "asked twice");
            looked_at.insert(name);
        }
        assert_eq!(world.usage.len(), LOOKED_AT);
        assert_eq!(decide(&world, noon()).label(), "no_target");
    }
    assert_eq!(looked_at.len(), 50);
}

/// What a pass does with the answer of an eviction, and time that goes by.
struct Story {
    world: Observed,
    now: Timestamp,
}

impl Story {
    fn new() -> Self {
        Self {
            world: world(),
            now: noon(),
        }
    }

    fn decide(&mut self) -> Decision {
        for name in ["a", "b", "c"] {
            self.world.usage.insert(name.to_owned(), Usage::default());
        }
        let decision = decide(&self.world, self.now);
        if let Decision::Stay(Reason::Spread { .. }) = decision {
            self.world.memory.seen_spread();
        }
        decision
    }

    fn label(&mut self) -> &'static str {
        self.decide().label()
    }

    /// Evicts a pod, with this answer.
    fn evict(&mut self, answer: Answer) -> Eviction {
        let eviction = evicted(self.decide());
        self.world.memory.record(&eviction, answer, self.now, &self.world.pace);
        eviction
    }

    /// Evicts a pod, whose replacement comes up on `node`.
    fn replace(&mut self, node: &str) {
        let eviction = self.evict(Answer::Granted);
        self.land(&eviction, node);
    }

    fn land(&mut self, eviction: &Eviction, node: &str) {
        self.world.pods.retain(|pod| pod.uid != eviction.uid);
        let mut replacement = pod(&format!("coredns-{}", self.now.as_second()), node);
        replacement.created = self.now;
        self.world.pods.push(replacement);
    }

    fn after(&mut self, time: i64) -> &mut Self {
        self.now += minutes(time);
        self
    }
}

fn refused(refusal: Refusal) -> Answer {
    Answer::Refused {
        refusal,
        retry_after: SignedDuration::ZERO,
    }
}

#[test]
fn an_eviction_that_does_not_help_is_the_last() {
    let mut story = Story::new();
    story.replace("a");
    assert_eq!(story.label(), "settling");
    assert_eq!(story.after(4).label(), "settling");
    let reason = stays(story.after(1).decide());
    assert_eq!(
        reason.to_string(),
        "an evicted replica came back to node a, although b could have taken it; no other is evicted until a new node can"
    );
    for _ in 0..100 {
        assert_eq!(story.after(60).label(), "gave_up");
    }
    // The nodes there were come and go.
    let nodes = story.world.nodes.clone();
    story.world.nodes.as_mut().unwrap()[1].is_ready = false;
    assert_eq!(story.label(), "no_target");
    story.world.nodes = nodes;
    assert_eq!(story.label(), "gave_up");
    // A new one is a reason to try again, once.
    story.world.nodes.as_mut().unwrap().push(node("c"));
    story.replace("a");
    assert_eq!(story.after(200).label(), "gave_up");
    // So is a machine that joined again.
    story.world.nodes.as_mut().unwrap()[1].uid = Uid("another".to_owned());
    assert_eq!(story.label(), "evict");
}

#[test]
fn what_helped_may_be_done_again_but_less_and_less_often() {
    let mut story = Story::new();
    let mut waits = Vec::new();
    for _ in 0..4 {
        story.replace("b");
        assert_eq!(story.label(), "spread");
        // The other node goes down, and everything is on one again.
        let begin = story.now;
        story.world.pods = vec![pod("coredns-1", "a"), pod("coredns-2", "a")];
        while story.label() != "evict" {
            story.after(1);
        }
        waits.push(story.now.duration_since(begin).as_mins());
    }
    assert_eq!(waits, [10, 20, 40, 80]);
}

#[test]
fn a_refused_eviction_is_tried_again_ever_more_seldom() {
    for refusal in [Refusal::Budget, Refusal::ServerError, Refusal::Forbidden, Refusal::Gone] {
        let mut story = Story::new();
        let mut tries = 0;
        for _ in 0..120 {
            match story.label() {
                "evict" => {
                    story.evict(refused(refusal));
                    tries += 1;
                }
                label => assert_eq!(label, "refused"),
            }
            story.after(1);
        }
        // After 0, 1, 3, 7, 15, 31, 47 ... minutes.
        assert_eq!(tries, 11, "{refusal}");
        story.after(16).replace("b");
        assert_eq!(story.label(), "spread", "{refusal}");
    }
}

#[test]
fn an_eviction_without_an_answer_may_have_been_carried_out() {
    let mut story = Story::new();
    let eviction = story.evict(refused(Refusal::Unanswered));
    story.land(&eviction, "a");
    assert_eq!(story.label(), "refused");
    assert_eq!(story.after(1).label(), "settling");
    assert_eq!(story.after(10).label(), "gave_up");
    // Or not.
    let mut story = Story::new();
    story.evict(refused(Refusal::Unanswered));
    for (minutes, label) in [(0, "refused"), (1, "settling"), (4, "cooling_down"), (5, "evict")] {
        assert_eq!(story.after(minutes).label(), label, "{minutes} minutes later");
    }
}

/// A leader that knows nothing yet does not go on where another was stopped.
#[test]
fn a_new_leader_does_not_move_what_was_placed_a_moment_ago() {
    let mut story = Story::new();
    let mut evictions = 0;
    for minute in 0..60 {
        story.world.memory = Memory::default();
        if story.label() == "evict" {
            story.replace("a");
            evictions += 1;
        }
        assert!(evictions <= 1 + minute / 5, "in minute {minute}");
        story.after(1);
    }
    assert_eq!(evictions, 12, "a new leader each minute");
}

#[test]
fn both_nodes_are_guarded_apart() {
    let mut story = Story::new();
    story.replace("a");
    assert_eq!(story.after(30).label(), "gave_up");
    // Somebody moves both by hand.
    story.world.pods = vec![pod("coredns-1", "b"), pod("coredns-2", "b")];
    story.replace("b");
    assert_eq!(story.after(60).label(), "gave_up");
    story.world.pods = vec![pod("coredns-1", "a"), pod("coredns-2", "a")];
    assert_eq!(story.after(600).label(), "gave_up");
}
