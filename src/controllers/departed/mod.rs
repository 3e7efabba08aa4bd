//! The concern that deletes the Nodes of uninstalled machines, and the mark by which a machine asks for it.
//!
//! Nothing is asked of the API server while no Node is marked. Of a marked Node that might go everything is read anew, and
//! the admission policy is tried on that very Node.

mod mark;
mod read;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::runtime::watcher;
use kube::{Api, Client};
use strum::IntoEnumIterator;
use tracing::{info, warn};

use super::cluster::{CallError, CallErrorKind};
use super::concern::{Concern, ConcernName, Failure, Wake};
use super::events::{EventKind, Events};
use super::hands;
use super::identities::Identities;
use super::metrics::departed::DepartedMetrics;
use super::metrics::{ByReason, ByResult, Word};
use super::nodes::{self, Nodes};
use super::watching;
use crate::host::clock;
use crate::reconcilers::departed::{self, Deletion, Kept, KeptReason, Marked, Observed, PACE, Plan};
use crate::reconcilers::object::Uid;

pub use mark::{Marking, mark, unmark};

/// How long a pass waits for the first list of Nodes.
const PATIENCE: Duration = Duration::from_secs(10);
/// When a Node that changed while it was to be deleted is looked at again.
const AFTER_A_CHANGE: Duration = Duration::from_secs(1);

/// What the concern is told at start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the root of the concern is; `kube-system`.
    pub system_namespace: String,
    /// The wall clock; tests shift it.
    pub now: fn() -> Timestamp,
}

/// What the concern has in common with others.
#[derive(Clone)]
pub struct Shared {
    /// The Nodes.
    pub nodes: Nodes,
    /// What is remembered of their names, written in the term.
    pub identities: Identities,
    /// Where it tells of its decisions.
    pub events: Events,
    /// What it counts.
    pub metrics: DepartedMetrics,
}

/// The concern.
pub struct DepartedNodes {
    client: Client,
    shared: Shared,
    settings: Settings,
    memory: Mutex<Memory>,
}

/// What passes remember. Losing it costs another few deletions in one minute, and a line in the log said twice.
#[derive(Default)]
struct Memory {
    /// When Nodes were deleted, by a clock that only runs forward.
    deleted: Vec<Duration>,
    /// Nodes that were deleted, or may have been, and whose name is not released yet.
    unreleased: BTreeMap<Arc<str>, Uid>,
    /// What the log says of each Node that stays.
    logged: BTreeMap<Arc<str>, KeptReason>,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum DepartedError {
    /// The shared watch has not listed the Nodes.
    #[error("the Nodes have not been listed yet")]
    NotListed,
    /// A marked Node or its Lease cannot be read, or whether the policy is in force.
    #[error("cannot find out about the marked Node {node}")]
    Look {
        /// The Node.
        node: Arc<str>,
        /// What was asked.
        #[source]
        source: CallError,
    },
    /// A Node cannot be deleted.
    #[error("cannot delete the Node {node}, whose machine was uninstalled")]
    Delete {
        /// The Node.
        node: Arc<str>,
        /// What was asked.
        #[source]
        source: CallError,
    },
    /// What goes with a Node cannot be let go.
    #[error("the name of the deleted Node {node} could not be released")]
    Release {
        /// The Node.
        node: Arc<str>,
        /// What was asked.
        #[source]
        source: CallError,
    },
}

impl Failure for DepartedError {
    fn category(&self) -> &'static str {
        match self {
            Self::NotListed => "not_listed",
            Self::Look { .. } => "cluster",
            Self::Delete { .. } => "delete",
            Self::Release { .. } => "release",
        }
    }
}

/// How the deletion of a Node went; a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Outcome {
    /// It is deleted.
    Deleted,
    /// Somebody else deleted it.
    Gone,
    /// It changed after it was read, and stays for now.
    Changed,
    /// The API server refused or did not answer.
    Failed,
}

impl DepartedNodes {
    /// The concern. `client` is fenced by the term.
    #[must_use]
    pub fn new(client: Client, shared: Shared, settings: Settings) -> Self {
        Self {
            client,
            shared,
            settings,
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nodes that were deleted in the last [`PACE`].
    fn recent(&self) -> usize {
        let now = clock::since_boot();
        let mut memory = self.memory();
        memory.deleted.retain(|at| now.saturating_sub(*at) < PACE);
        memory.deleted.len()
    }

    async fn delete(&self, deletion: &Deletion) -> Result<Outcome, DepartedError> {
        let Deletion {
            name,
            uid,
            resource_version,
            mark,
        } = deletion;
        let deleted = hands::delete(&self.client, &nodes::id(name), "v1", uid, resource_version).await;
        let outcome = match &deleted {
            Ok(()) => Outcome::Deleted,
            Err(error) => match error.kind() {
                CallErrorKind::NotFound => Outcome::Gone,
                CallErrorKind::Conflict => Outcome::Changed,
                CallErrorKind::Forbidden
                | CallErrorKind::Invalid
                | CallErrorKind::Refused
                | CallErrorKind::Unanswered => Outcome::Failed,
            },
        };
        let result = Word(outcome.into());
        self.shared.metrics.nodes.get_or_create(&ByResult { result }).inc();
        if outcome == Outcome::Changed {
            info!(
                node = &**name,
                "a Node changed while it was to be deleted, and stays for now"
            );
            return Ok(outcome);
        }
        {
            // An unanswered request may have been carried out.
            let mut memory = self.memory();
            memory.deleted.push(clock::since_boot());
            memory.unreleased.insert(Arc::clone(name), uid.clone());
        }
        deleted.or_else(|source| match outcome {
            Outcome::Deleted | Outcome::Gone | Outcome::Changed => Ok(()),
            Outcome::Failed => Err(DepartedError::Delete {
                node: Arc::clone(name),
                source,
            }),
        })?;
        if outcome == Outcome::Deleted {
            let note = format!(
                "Node {name} is deleted: its machine {} was uninstalled at {}. A kubelet that runs there after all does not register again by itself; restart it, or join the machine anew",
                mark.machine, mark.at
            );
            info!(node = &**name, uid = %uid, mark = %mark, "{note}");
            self.shared
                .events
                .publish(reference(name, uid), EventKind::Normal, "NodeDeparted", note)
                .await;
        }
        Ok(outcome)
    }

    /// Releases the names of deleted Nodes, of earlier passes too; never that of a Node which is still there.
    async fn release(&self) -> Result<(), DepartedError> {
        let unreleased = self.memory().unreleased.clone();
        for (node, uid) in unreleased {
            match self.release_one(&node, &uid).await {
                Ok(true) => {
                    self.memory().unreleased.remove(&node);
                }
                Ok(false) => {}
                Err(source) => return Err(DepartedError::Release { node, source }),
            }
        }
        Ok(())
    }

    /// Whether nothing is left to do.
    async fn release_one(&self, name: &str, uid: &Uid) -> Result<bool, CallError> {
        let found = nodes::look(&self.client, name).await?;
        if let Some(node) = found.filter(|node| node.facts.uid == *uid) {
            // A finalizer may hold a deleted Node for a while.
            return Ok(!node.facts.terminating);
        }
        let Shared { nodes, identities, .. } = &self.shared;
        // Whoever still sees the Node would remember its name anew.
        let is_seen = nodes.get(name).is_some_and(|facts| facts.uid == *uid);
        if is_seen || !identities.is_ready() {
            return Ok(false);
        }
        // Another machine may have claimed the name by now.
        match identities.get(name) {
            Some(known) if known.identity.node_uid.as_ref() == Some(uid) => identities.forget(name, &known).await?,
            Some(_) | None => {}
        }
        Ok(true)
    }

    /// Tells of the Nodes that stay: metrics, the log when the reason is news, and Events.
    async fn tell(&self, kept: &[(Arc<str>, Kept)]) {
        for reason in KeptReason::iter() {
            let count = kept.iter().filter(|(_, kept)| KeptReason::from(kept) == reason).count();
            let reason = Word(reason.into());
            let gauge = self.shared.metrics.kept.get_or_create(&ByReason { reason });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let reasons = kept
            .iter()
            .map(|(name, kept)| (Arc::clone(name), KeptReason::from(kept)));
        let before = std::mem::replace(&mut self.memory().logged, reasons.collect());
        for (name, kept) in kept {
            let reason = KeptReason::from(kept);
            let word: &'static str = reason.into();
            let news = before.get(name) != Some(&reason);
            let kind = match kept {
                // In the course of things.
                Kept::Settling { .. } | Kept::NotRead | Kept::Queued | Kept::Terminating => {
                    if news {
                        info!(node = &**name, reason = word, "Node {name} stays: {kept}");
                    }
                    continue;
                }
                Kept::Ready
                | Kept::NotAMark(_)
                | Kept::ControlPlane
                | Kept::MachineUnknown
                | Kept::OtherMachine { .. }
                | Kept::OlderThanNode { .. }
                | Kept::OlderThanReady { .. }
                | Kept::AliveAfter { .. }
                | Kept::NoLease
                | Kept::PolicyAbsent
                | Kept::PolicyUnproven(_)
                | Kept::TooMany { .. } => EventKind::Warning,
            };
            if news {
                warn!(node = &**name, reason = word, "Node {name} stays: {kept}");
            }
            if let Some(facts) = self.shared.nodes.get(name) {
                let note = format!("marked as uninstalled, and stays: {kept}");
                self.shared
                    .events
                    .publish(reference(name, &facts.uid), kind, "MarkedNodeStays", note)
                    .await;
            }
        }
    }
}

impl Concern for DepartedNodes {
    const NAME: ConcernName = ConcernName::DepartedNodes;
    const CONCURRENCY: u16 = 1;
    type Root = Namespace;
    type Observed = Observed;
    type Plan = Plan;
    type Error = DepartedError;

    fn roots(&self) -> (Api<Namespace>, watcher::Config) {
        watching::the_namespace(&self.client, &self.settings.system_namespace)
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        // Any Node: how many there are counts as well.
        self.shared.nodes.changes().map(|_| ()).boxed()
    }

    async fn observe(&self, _root: Arc<Namespace>) -> Result<Observed, DepartedError> {
        let listed = tokio::time::timeout(PATIENCE, self.shared.nodes.ready()).await;
        listed.map_err(|_| DepartedError::NotListed)?;
        let at = (self.settings.now)();
        let known = self.shared.nodes.all();
        let nodes = known.len();
        let known: Vec<_> = known
            .into_iter()
            .map(|(_, facts)| facts)
            .filter(|facts| facts.uninstalled.is_some())
            .collect();
        let held = known.len() > departed::limit(nodes);
        let mut marked = Vec::new();
        for known in known {
            if held {
                marked.push(Marked { known, reading: None });
                continue;
            }
            let node = Arc::clone(&known.name);
            let read = read::anew(&self.client, known, at).await;
            marked.extend(read.map_err(|source| DepartedError::Look { node, source })?);
        }
        Ok(Observed {
            at,
            nodes,
            marked,
            recent: self.recent(),
        })
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> Plan {
        departed::decide(observed)
    }

    async fn act(&self, _observed: Observed, plan: Plan) -> Result<Wake, DepartedError> {
        let Plan {
            delete,
            kept,
            mut again,
        } = plan;
        self.tell(&kept).await;
        // One Node that cannot be deleted holds up no other.
        let mut result = Ok(());
        for deletion in &delete {
            match self.delete(deletion).await {
                Ok(Outcome::Changed) => again = Some(AFTER_A_CHANGE),
                Ok(Outcome::Deleted | Outcome::Gone | Outcome::Failed) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.and(self.release().await)?;
        if !self.memory().unreleased.is_empty() {
            again = Some(again.map_or(PACE, |wait| wait.min(PACE)));
        }
        Ok(again.map_or(Wake::Resync, Wake::After))
    }
}

fn reference(name: &str, uid: &Uid) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.0.clone()),
        ..ObjectReference::default()
    }
}
