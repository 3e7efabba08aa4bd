//! A cluster in which anything may happen between two passes: nodes come, go and are cordoned, a scheduler that likes one
//! node or spreads, budgets that refuse, answers that are lost, new leaders. Whatever happens, no eviction may be one that
//! could hurt, and none may be repeated in vain.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::memory::{Answer, Refusal};
use super::tests::{deployment, node, pod};
use super::*;

const NODES: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time goes by, in seconds.
    Wait(i64),
    /// A node goes down, and its pods are made anew elsewhere, or comes back.
    Flip(usize),
    Cordon(usize),
    /// A node is joined again under its name.
    Rejoin(usize),
    /// How full a node is, in thousandths of a core.
    Fill(usize, u16),
    /// The scheduler prefers this node to all others from now on, or the emptiest.
    Prefer(Option<usize>),
    /// What evictions are answered from now on.
    Answers(Outcome),
    NewLeader,
    Scale(usize),
    /// One replica loses its readiness, or all have it.
    Unready(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Granted,
    Refused,
    /// Granted, but the answer is lost.
    Lost,
}

fn step() -> impl Strategy<Value = Step> {
    let index = || 0..NODES;
    prop_oneof![
        6 => (1_i64..1200).prop_map(Step::Wait),
        2 => index().prop_map(Step::Flip),
        2 => index().prop_map(Step::Cordon),
        1 => index().prop_map(Step::Rejoin),
        1 => (index(), 0_u16..3000).prop_map(|(node, cpu)| Step::Fill(node, cpu)),
        3 => proptest::option::of(index()).prop_map(Step::Prefer),
        2 => prop_oneof![Just(Outcome::Granted), Just(Outcome::Refused), Just(Outcome::Lost)].prop_map(Step::Answers),
        1 => Just(Step::NewLeader),
        1 => (0_usize..4).prop_map(Step::Scale),
        1 => any::<bool>().prop_map(Step::Unready),
    ]
}

struct Cluster {
    now: Timestamp,
    nodes: Vec<NodeFacts>,
    filled: Vec<u16>,
    pods: Vec<PodFacts>,
    made: usize,
    wanted: usize,
    unready: bool,
    preferred: Option<usize>,
    outcome: Outcome,
    memory: Memory,
    /// Evictions of this leader that were carried out since the replicas were last seen spread.
    carried_out: Vec<Eviction>,
    last_granted: Option<Timestamp>,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self {
            now: "2026-01-01T12:00:00Z".parse().unwrap(),
            nodes: (0..NODES).map(|index| node(&format!("n{index}"))).collect(),
            filled: vec![0; NODES],
            pods: Vec::new(),
            made: 0,
            wanted: 2,
            unready: false,
            preferred: Some(0),
            outcome: Outcome::Granted,
            memory: Memory::default(),
            carried_out: Vec::new(),
            last_granted: None,
        };
        cluster.schedule();
        cluster
    }

    fn has_room(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        node.is_ready && !node.is_cordoned && self.filled[index] <= 1900
    }

    /// Makes and places what is missing.
    fn schedule(&mut self) {
        self.pods.truncate(self.wanted);
        while self.pods.len() < self.wanted {
            self.made += 1;
            let mut new = pod(&format!("p{}", self.made), "");
            new.created = self.now;
            self.pods.push(new);
        }
        for index in 0..self.pods.len() {
            if self.pods[index].node.is_none() {
                self.pods[index].node = self.place();
            }
            let placed = self.pods[index].node.is_some();
            self.pods[index].is_ready = placed && !(self.unready && index == 0);
        }
    }

    fn place(&self) -> Option<String> {
        let on = |index: &usize| {
            let name = Some(&self.nodes[*index].name);
            self.pods.iter().filter(|pod| pod.node.as_ref() == name).count()
        };
        let emptiest = (0..NODES).filter(|index| self.has_room(*index)).min_by_key(on);
        let index = self.preferred.filter(|index| self.has_room(*index)).or(emptiest)?;
        Some(self.nodes[index].name.clone())
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Wait(seconds) => self.now += SignedDuration::from_secs(seconds),
            Step::Flip(index) => {
                let name = self.nodes[index].name.clone();
                self.nodes[index].is_ready = !self.nodes[index].is_ready;
                if !self.nodes[index].is_ready {
                    self.pods.retain(|pod| pod.node.as_ref() != Some(&name));
                }
            }
            Step::Cordon(index) => self.nodes[index].is_cordoned = !self.nodes[index].is_cordoned,
            Step::Rejoin(index) => {
                self.made += 1;
                self.nodes[index].uid = Uid(format!("again {}", self.made));
            }
            Step::Fill(index, cpu) => self.filled[index] = cpu,
            Step::Prefer(index) => self.preferred = index,
            Step::Answers(outcome) => self.outcome = outcome,
            Step::NewLeader => {
                self.memory = Memory::default();
                self.carried_out.clear();
                self.last_granted = None;
            }
            Step::Scale(count) => self.wanted = count,
            Step::Unready(unready) => self.unready = unready,
        }
        self.schedule();
    }

    fn observed(&self) -> Observed {
        let mut deployment = deployment();
        let count = |pods: usize| i32::try_from(pods).unwrap();
        deployment.replicas = facts::Replicas {
            wanted: count(self.wanted),
            total: count(self.pods.len()),
            updated: count(self.pods.len()),
            ready: count(self.pods.iter().filter(|pod| pod.is_ready).count()),
            available: count(self.pods.iter().filter(|pod| pod.is_ready).count()),
        };
        let usage = |index: usize| {
            let pod = serde_json::json!({"spec": {"containers": [{"resources": {"requests": {"cpu": format!("{}m", self.filled[index])}}}]}});
            let mut usage = Usage::default();
            usage.count(&serde_json::from_value(pod).unwrap());
            (self.nodes[index].name.clone(), usage)
        };
        Observed {
            deployment,
            pods: self.pods.clone(),
            nodes: Some(self.nodes.clone()),
            usage: (0..NODES).map(usage).collect(),
            memory: self.memory.clone(),
            pace: Pace::default(),
            turn: 0,
        }
    }

    /// One pass, and what must hold of an eviction.
    fn pass(&mut self) -> Result<(), TestCaseError> {
        let pace = Pace::default();
        let eviction = match decide(&self.observed(), self.now) {
            Decision::Stay(Reason::Spread { .. }) => {
                self.memory.seen_spread();
                self.carried_out.clear();
                return Ok(());
            }
            Decision::Stay(_) => return Ok(()),
            Decision::Ask(question) => return Err(TestCaseError::fail(format!("{question:?}"))),
            Decision::Evict(eviction) => eviction,
        };
        prop_assert!(self.pods.len() >= 2 && self.pods.iter().all(|pod| pod.is_ready));
        prop_assert!(self.pods.iter().all(|pod| pod.node.as_ref() == Some(&eviction.from)));
        prop_assert!(
            self.pods
                .iter()
                .any(|pod| pod.uid == eviction.uid && pod.name == eviction.pod)
        );
        let target = self.nodes.iter().position(|node| node.name == eviction.to).unwrap();
        prop_assert!(eviction.to != eviction.from && self.has_room(target));
        let settled = |time: Timestamp| self.now.duration_since(time) >= pace.settle;
        prop_assert!(self.pods.iter().all(|pod| settled(pod.created)));
        prop_assert!(self.last_granted.is_none_or(settled));
        for before in self.carried_out.iter().filter(|before| before.from == eviction.from) {
            prop_assert!(
                !eviction.eligible.is_subset(&before.eligible),
                "in vain again: {eviction:?}"
            );
        }
        let refusal = match self.outcome {
            Outcome::Granted => None,
            Outcome::Refused => Some(Refusal::Budget),
            Outcome::Lost => Some(Refusal::Unanswered),
        };
        let retry_after = SignedDuration::ZERO;
        let answer = refusal.map_or(Answer::Granted, |refusal| Answer::Refused { refusal, retry_after });
        self.memory.record(&eviction, answer, self.now, &pace);
        if self.outcome != Outcome::Refused {
            self.pods.retain(|pod| pod.uid != eviction.uid);
            self.schedule();
            self.last_granted = Some(self.now);
            self.carried_out.push(eviction);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_eviction_hurts_or_is_repeated_in_vain(steps in proptest::collection::vec(step(), 1..200)) {
        let mut cluster = Cluster::new();
        for step in steps {
            cluster.take(step);
            cluster.pass()?;
        }
    }
}
