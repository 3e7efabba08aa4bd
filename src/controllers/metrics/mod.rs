//! What Prometheus reads.
//!
//! One struct of families for each subject, with a `register` that names them. A label's value is a [`Word`], made from an
//! enum: never the name of an object, a node or a stack, a UID or the text of an error. So the number of series is fixed by
//! the program, not by the cluster.
//!
//! To add a family: a field in the struct of its subject and one line in that struct's `register`; to add a subject: a
//! struct with `register`, and a field and a line in [`Metrics`].

pub mod csr;
pub mod departed;
mod exposition;
mod grants;
mod inventory;
pub mod spread;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::concern::{ConcernName, Observer};

pub use exposition::{Exposition, OPEN_METRICS, PLAIN, expose};
pub use grants::GrantMetrics;
pub use inventory::InventoryMetrics;

/// Before every name: these metrics are of the process `stratum operator`.
const PREFIX: &str = "stratum_operator";

/// A whole number that may go down.
pub type Number = Gauge;
/// A number with a fraction that may go down, such as a time in seconds.
pub type Fraction = Gauge<f64, AtomicU64>;

/// The value of a label: a word of the program itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word(pub &'static str);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.0, encoder)
    }
}

impl From<ConcernName> for Word {
    fn from(name: ConcernName) -> Self {
        Self(name.as_str())
    }
}

/// `{concern}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByConcern {
    /// The concern.
    pub concern: Word,
}

/// `{concern, result}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByConcernResult {
    /// The concern.
    pub concern: Word,
    /// `success` or `failure`.
    pub result: Word,
}

/// `{concern, category}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByConcernCategory {
    /// The concern.
    pub concern: Word,
    /// What kind of failure, from the concern's error enum.
    pub category: Word,
}

/// `{result}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByResult {
    /// How it went.
    pub result: Word,
}

/// `{state}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByState {
    /// The state.
    pub state: Word,
}

/// `{reason}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByReason {
    /// Why.
    pub reason: Word,
}

/// `{role, method, status}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByRequest {
    /// Which client of this process.
    pub role: Word,
    /// The HTTP method.
    pub method: Word,
    /// The class of the answer, such as `2xx`, or `none`.
    pub status: Word,
}

/// Everything this process counts. Clones count into the same families.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// Of the machine, with names of their own.
    machine: Option<Arc<Registry>>,
    /// Requests to the API server.
    pub requests: RequestMetrics,
    /// The election.
    pub leader: LeaderMetrics,
    /// Every concern's passes and watches.
    pub concerns: ConcernMetrics,
    /// The manifests concern.
    pub manifests: ManifestMetrics,
    /// The prune inventory.
    pub inventory: InventoryMetrics,
    /// Certificate requests.
    pub csr: csr::CsrMetrics,
    /// The grants concern.
    pub grants: GrantMetrics,
    /// Nodes of uninstalled machines.
    pub departed: departed::DepartedMetrics,
    /// The spread of CoreDNS.
    pub spread: spread::SpreadMetrics,
}

impl Metrics {
    /// All families, registered.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        register_build(&mut registry);
        Self {
            requests: RequestMetrics::register(&mut registry),
            leader: LeaderMetrics::register(&mut registry),
            concerns: ConcernMetrics::register(&mut registry),
            manifests: ManifestMetrics::register(&mut registry),
            inventory: InventoryMetrics::register(&mut registry),
            csr: csr::CsrMetrics::register(&mut registry),
            grants: GrantMetrics::register(&mut registry),
            departed: departed::DepartedMetrics::register(&mut registry),
            spread: spread::SpreadMetrics::register(&mut registry),
            registry: Arc::new(registry),
            machine: None,
        }
    }

    /// With what `machine` has besides, under names of its own.
    #[must_use]
    pub fn with_machine(self, machine: Registry) -> Self {
        Self {
            machine: Some(Arc::new(machine)),
            ..self
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Requests to the API server, counted where they are sent.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics {
    /// Requests by role, method and class of the answer. A watch is one request.
    pub requests: Family<ByRequest, Counter>,
}

impl RequestMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("requests", "Requests sent to the API server", metrics.requests.clone());
        metrics
    }
}

/// The election over the Lease.
#[derive(Clone, Debug, Default)]
pub struct LeaderMetrics {
    /// 1 while this instance leads.
    pub leader: Number,
    /// The number of the term this instance leads in; 0 while it does not.
    pub term: Number,
    /// How often this instance saw the Lease change its holder.
    pub transitions: Counter,
}

impl LeaderMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader",
            "Whether this instance leads (1) or not (0)",
            metrics.leader.clone(),
        );
        registry.register(
            "leader_term",
            "The number of the term this instance leads in, or 0",
            metrics.term.clone(),
        );
        registry.register(
            "lease_transitions",
            "Changes of the holder of the Lease that this instance saw",
            metrics.transitions.clone(),
        );
        metrics
    }
}

/// What is the same for every concern. The frame's [`Observer`].
#[derive(Clone, Debug)]
pub struct ConcernMetrics {
    /// How long passes took, by result.
    pub duration: Family<ByConcernResult, Histogram, fn() -> Histogram>,
    /// Passes that failed, by category.
    pub errors: Family<ByConcernCategory, Counter>,
    /// When the last pass without a failure ended.
    pub last_success: Family<ByConcern, Fraction>,
    /// 1 once the concern's watch has listed.
    pub watch_ready: Family<ByConcern, Number>,
    /// How often the concern's watch was begun again after a failure.
    pub watch_restarts: Family<ByConcern, Counter>,
    /// Plans that were not carried out because the term they were made in had ended.
    pub dropped_plans: Family<ByConcern, Counter>,
}

impl ConcernMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor(duration_histogram),
            errors: Family::default(),
            last_success: Family::default(),
            watch_ready: Family::default(),
            watch_restarts: Family::default(),
            dropped_plans: Family::default(),
        };
        registry.register_with_unit(
            "reconcile_duration",
            "How long a concern's passes take",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Passes of a concern that failed",
            metrics.errors.clone(),
        );
        registry.register_with_unit(
            "reconcile_last_success_timestamp",
            "Unix time at which a concern's last pass without a failure ended",
            Unit::Seconds,
            metrics.last_success.clone(),
        );
        registry.register(
            "watch_ready",
            "Whether a concern's watch has listed its objects once (1) or not yet (0)",
            metrics.watch_ready.clone(),
        );
        registry.register(
            "watch_restarts",
            "Times a concern's watch was begun again after a failure",
            metrics.watch_restarts.clone(),
        );
        registry.register(
            "dropped_plans",
            "Plans that were dropped because their term had ended",
            metrics.dropped_plans.clone(),
        );
        metrics
    }
}

impl Observer for ConcernMetrics {
    fn watch_ready(&self, concern: ConcernName) {
        let labels = ByConcern {
            concern: concern.into(),
        };
        self.watch_ready.get_or_create(&labels).set(1);
    }

    fn watch_failed(&self, concern: ConcernName) {
        let labels = ByConcern {
            concern: concern.into(),
        };
        self.watch_restarts.get_or_create(&labels).inc();
    }

    fn reconciled(&self, concern: ConcernName, took: Duration, failure: Option<&'static str>) {
        let concern = concern.into();
        let result = Word(if failure.is_none() { "success" } else { "failure" });
        self.duration
            .get_or_create(&ByConcernResult { concern, result })
            .observe(took.as_secs_f64());
        match failure {
            Some(category) => {
                let category = Word(category);
                self.errors
                    .get_or_create(&ByConcernCategory { concern, category })
                    .inc();
            }
            None => {
                let now = crate::host::clock::now().as_duration().as_secs_f64();
                self.last_success.get_or_create(&ByConcern { concern }).set(now);
            }
        }
    }
}

/// The manifests concern.
#[derive(Clone, Debug, Default)]
pub struct ManifestMetrics {
    /// Objects of the last pass by what it found them to be.
    pub objects: Family<ByState, Number>,
    /// Objects sent to the API server, by result.
    pub applies: Family<ByResult, Counter>,
    /// Objects to be deleted because no file declares them, by result.
    pub prunes: Family<ByResult, Counter>,
    /// 1 for each reason that holds pruning back now, 0 for those that did before.
    pub prune_suspended: Family<ByReason, Number>,
    /// When the last pass ended in which nothing was refused.
    pub last_success: Fraction,
}

impl ManifestMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "manifest_objects",
            "Declared objects in the last pass, by state",
            metrics.objects.clone(),
        );
        registry.register(
            "manifest_applies",
            "Objects sent to the API server, by result",
            metrics.applies.clone(),
        );
        registry.register(
            "prunes",
            "Deletions of objects no file declares any more, by result",
            metrics.prunes.clone(),
        );
        registry.register(
            "prune_suspended",
            "Whether pruning is held back for this reason (1) or not (0)",
            metrics.prune_suspended.clone(),
        );
        registry.register_with_unit(
            "manifest_last_success_timestamp",
            "Unix time at which the last pass without a refusal ended",
            Unit::Seconds,
            metrics.last_success.clone(),
        );
        metrics
    }
}

/// `stratum_operator_build_info{version} 1`.
fn register_build(registry: &mut Registry) {
    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Build {
        version: Word,
    }
    let family: Family<Build, Number> = Family::default();
    let version = Word(env!("CARGO_PKG_VERSION"));
    family.get_or_create(&Build { version }).set(1);
    registry.register("build_info", "The version of this program", family);
}

/// From a pass with nothing to do to a first pass over thousands of objects, in seconds.
fn duration_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0])
}
