//! The concern that moves one replica of CoreDNS off a node that holds all of them. The leader's.
//!
//! Its pods are watched by their label, as metadata only; Nodes and the pods on one of them are read when a move hangs on
//! it. There is no watch of all pods. The shared watch of Nodes tells of new ones and of those that become Ready; a cordon,
//! a taint or room that goes is found by looking again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use tracing::{info, warn};

use super::cluster::{CallError, collection_path, fetch, pages};
use super::concern::{Concern, ConcernName, Failure, Wake, chain};
use super::events::{EventKind, Events};
use super::hands;
use super::metrics::spread::SpreadMetrics;
use super::metrics::{ByReason, ByResult, Word};
use super::nodes::Nodes;
use super::watching;
use crate::host::clock;
use crate::reconcilers::spread::facts::{DeploymentFacts, NodeFacts, PodFacts};
use crate::reconcilers::spread::memory::{Answer, Memory, Pace, Refusal};
use crate::reconcilers::spread::reason::Reason;
use crate::reconcilers::spread::resources::{PlacedPod, Usage};
use crate::reconcilers::spread::{DEPLOYMENT, DNS_LABEL, Decision, Eviction, Observed, Question, decide};

/// How soon to look again when no node could take a replica: nothing tells of an uncordoned node or of pods that leave.
const ROOM_MAY_COME: Duration = Duration::from_secs(120);
/// The shortest and the longest wait for a time that a decision names: clocks are set, and watches lose events.
const WAITS: [SignedDuration; 2] = [SignedDuration::from_secs(1), SignedDuration::from_mins(10)];
/// Pods that have ended take nothing of their node.
const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";
const JSON: &str = "application/json";
/// How the API server names a PodDisruptionBudget as the cause of a refusal.
const BUDGET: &str = "DisruptionBudget";

/// The concern.
pub struct Spread {
    client: Client,
    nodes: Nodes,
    namespace: String,
    events: Events,
    metrics: SpreadMetrics,
    pace: Pace,
    memory: Mutex<Memory>,
    turn: AtomicUsize,
    last: Mutex<Option<&'static str>>,
}

/// What could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SpreadError {
    /// The Deployment.
    #[error("cannot read the Deployment")]
    Deployment(#[source] CallError),
    /// The replicas.
    #[error("cannot list the Deployment's pods")]
    Replicas(#[source] CallError),
    /// The Nodes.
    #[error("cannot list the Nodes")]
    Nodes(#[source] CallError),
    /// The pods on a node.
    #[error("cannot list the pods on node {node}")]
    Pods {
        /// The node.
        node: String,
        /// Why.
        #[source]
        source: CallError,
    },
}

impl Failure for SpreadError {
    fn category(&self) -> &'static str {
        match self {
            Self::Deployment(_) => "deployment",
            Self::Replicas(_) => "replicas",
            Self::Nodes(_) => "nodes",
            Self::Pods { .. } => "pods",
        }
    }
}

impl Spread {
    /// The concern for Deployment `coredns` of `namespace`, in one term. What it remembers begins and ends with the value.
    #[must_use]
    pub fn new(
        client: Client,
        nodes: Nodes,
        namespace: impl Into<String>,
        events: Events,
        metrics: SpreadMetrics,
        pace: Pace,
    ) -> Self {
        Self {
            client,
            nodes,
            namespace: namespace.into(),
            events,
            metrics,
            pace,
            memory: Mutex::default(),
            turn: AtomicUsize::new(0),
            last: Mutex::default(),
        }
    }

    async fn deployment(&self) -> Result<DeploymentFacts, SpreadError> {
        let collection = collection_path("apps", "v1", "deployments", Some(&self.namespace));
        let path = format!("{collection}/{DEPLOYMENT}");
        fetch(&self.client, &path, JSON).await.map_err(SpreadError::Deployment)
    }

    async fn replicas(&self, selector: &str) -> Result<Vec<PodFacts>, SpreadError> {
        let collection = collection_path("", "v1", "pods", Some(&self.namespace));
        let selected = pages::selector("labelSelector", selector);
        pages::all(&self.client, &collection, &selected, JSON)
            .await
            .map_err(SpreadError::Replicas)
    }

    async fn all_nodes(&self) -> Result<Vec<NodeFacts>, SpreadError> {
        let collection = collection_path("", "v1", "nodes", None);
        pages::all(&self.client, &collection, "", JSON)
            .await
            .map_err(SpreadError::Nodes)
    }

    async fn usage(&self, node: &str) -> Result<Usage, SpreadError> {
        let collection = collection_path("", "v1", "pods", None);
        let selected = pages::selector("fieldSelector", &format!("spec.nodeName={node},{ALIVE}"));
        let pods: Vec<PlacedPod> = pages::all(&self.client, &collection, &selected, JSON)
            .await
            .map_err(|source| SpreadError::Pods {
                node: node.to_owned(),
                source,
            })?;
        let mut usage = Usage::default();
        for pod in &pods {
            usage.count(pod);
        }
        Ok(usage)
    }

    /// Counts a decision, and logs it when it is not the last one again.
    fn note(&self, decision: &Decision) {
        let label = decision.label();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == Some(label) {
            return;
        }
        let gauge = |label| {
            let reason = Word(label);
            self.metrics.decision.get_or_create(&ByReason { reason })
        };
        if let Some(before) = last.replace(label) {
            gauge(before).set(0);
        }
        gauge(label).set(1);
        match decision {
            Decision::Stay(reason) => info!(decision = label, %reason, "CoreDNS stays as it is"),
            Decision::Evict(Eviction { pod, from, to, .. }) => {
                info!(decision = label, pod, from, to, "CoreDNS is spread");
            }
            Decision::Ask(question) => info!(decision = label, ?question, "something more must be read"),
        }
    }

    async fn stay(&self, deployment: &DeploymentFacts, reason: &Reason, now: Timestamp) -> Wake {
        match reason {
            Reason::Spread { .. } => {
                self.memory().seen_spread();
                Wake::Resync
            }
            Reason::GaveUp { .. } | Reason::Unjudged { .. } => {
                self.tell(deployment, EventKind::Warning, "ReplicasNotSpread", reason.to_string())
                    .await;
                Wake::Resync
            }
            Reason::NoTarget { .. } => Wake::After(ROOM_MAY_COME),
            Reason::Settling { until, .. } | Reason::CoolingDown { until, .. } | Reason::Refused { until, .. } => {
                wait(now, *until)
            }
            Reason::NotCoreDns
            | Reason::TooFewReplicas { .. }
            | Reason::Rollout { .. }
            | Reason::NotAllReady { .. } => Wake::Resync,
        }
    }

    async fn evict(&self, observed: &Observed, eviction: &Eviction) -> Wake {
        let result = hands::evict(&self.client, &self.namespace, &eviction.pod, &eviction.uid).await;
        let (answer, label) = match &result {
            Ok(()) => (Answer::Granted, "granted"),
            Err(error) => {
                let (refusal, retry_after) = refusal_of(error);
                (Answer::Refused { refusal, retry_after }, refusal.into())
            }
        };
        let by_result = ByResult { result: Word(label) };
        self.metrics.evictions.get_or_create(&by_result).inc();
        // The wait begins with the answer, which may have taken long.
        let now = clock::now();
        let until = {
            let mut memory = self.memory();
            memory.record(eviction, answer, now, &self.pace);
            memory
                .attempt(&eviction.deployment, &eviction.from)
                .map(|attempt| attempt.until)
        };
        let Eviction { pod, from, to, .. } = eviction;
        let deployment = &observed.deployment;
        match result {
            Ok(()) => {
                let note =
                    format!("evicted pod {pod} from node {from}, which held all replicas; node {to} can take the next");
                self.tell(deployment, EventKind::Normal, "ReplicaEvicted", note).await;
                wait(now, now + self.pace.settle)
            }
            Err(error) => {
                let until = until.unwrap_or(now);
                warn!(pod, from, error = %chain(&error), %until, "CoreDNS could not be spread");
                let why = reason_of(&error);
                let note = format!("pod {pod} could not be evicted from node {from}, which holds all replicas: {why}");
                self.tell(deployment, EventKind::Warning, "EvictionRefused", note).await;
                wait(now, until)
            }
        }
    }

    async fn tell(&self, deployment: &DeploymentFacts, kind: EventKind, reason: &'static str, note: String) {
        let regarding = ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(deployment.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: Some(deployment.uid.0.clone()),
            ..ObjectReference::default()
        };
        self.events.publish(regarding, kind, reason, note).await;
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Concern for Spread {
    const NAME: ConcernName = ConcernName::CorednsSpread;
    const CONCURRENCY: u16 = 1;
    type Root = PartialObjectMeta<Deployment>;
    type Observed = Observed;
    type Plan = (Decision, Timestamp);
    type Error = SpreadError;

    fn roots(&self) -> (Api<Self::Root>, watcher::Config) {
        let deployments = Api::namespaced(self.client.clone(), &self.namespace);
        (deployments, watching::only(DEPLOYMENT))
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), &self.namespace);
        let only = watcher::Config::default().labels(&format!("{}={}", DNS_LABEL.0, DNS_LABEL.1));
        let replicas = watching::signals(pods, only, "CoreDNS pods");
        select(replicas, self.nodes.changes().map(|_| ())).boxed()
    }

    async fn observe(&self, _root: Arc<Self::Root>) -> Result<Observed, SpreadError> {
        let deployment = self.deployment().await?;
        let pods = self.replicas(&deployment.selector_text()).await?;
        let mut observed = Observed {
            deployment,
            pods,
            nodes: None,
            usage: BTreeMap::new(),
            memory: self.memory().clone(),
            pace: self.pace,
            turn: self.turn.fetch_add(1, Ordering::Relaxed),
        };
        let now = clock::now();
        // Each question is asked once: its answer is kept.
        while let Decision::Ask(question) = decide(&observed, now) {
            match question {
                Question::Nodes => observed.nodes = Some(self.all_nodes().await?),
                Question::PodsOn(node) => {
                    let usage = self.usage(&node).await?;
                    observed.usage.insert(node, usage);
                }
            }
        }
        Ok(observed)
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Self::Plan {
        (decide(observed, now), now)
    }

    async fn act(&self, observed: Observed, (decision, now): Self::Plan) -> Result<Wake, SpreadError> {
        self.note(&decision);
        Ok(match decision {
            Decision::Evict(eviction) => self.evict(&observed, &eviction).await,
            Decision::Stay(reason) => self.stay(&observed.deployment, &reason, now).await,
            // A wait ended between observing and deciding.
            Decision::Ask(_) => wait(now, now),
        })
    }
}

fn wait(now: Timestamp, until: Timestamp) -> Wake {
    let [shortest, longest] = WAITS;
    let wait = until.duration_since(now).clamp(shortest, longest);
    Wake::After(Duration::try_from(wait).unwrap_or(ROOM_MAY_COME))
}

/// What kind of refusal an error is, and how long the API server asks to wait.
fn refusal_of(error: &CallError) -> (Refusal, SignedDuration) {
    match error {
        CallError::Refused { status, .. } => {
            let details = status.details.as_ref();
            let causes = details.map(|details| details.causes.as_slice()).unwrap_or_default();
            let names_budget = causes.iter().any(|cause| cause.reason == BUDGET);
            let seconds = details.map_or(0, |details| details.retry_after_seconds);
            let retry_after = SignedDuration::from_secs(i64::from(seconds));
            (Refusal::of(status.code, names_budget), retry_after)
        }
        CallError::Unanswered { .. } | CallError::Unreadable { .. } => (Refusal::Unanswered, SignedDuration::ZERO),
    }
}

/// What the API server said, with the budget it names.
fn reason_of(error: &CallError) -> String {
    let mut reason = error.reason();
    if let CallError::Refused { status, .. } = error {
        for cause in status.details.iter().flat_map(|details| &details.causes) {
            reason = format!("{reason} {}", cause.message);
        }
    }
    reason
}
