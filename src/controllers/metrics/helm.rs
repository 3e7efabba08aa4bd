//! Charts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::Word;

/// Label: what was done, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByActionResult {
    /// What was done.
    pub action: Word,
    /// How it ended.
    pub result: Word,
}

/// The concerns of HelmCharts and of their releases.
#[derive(Clone, Debug)]
pub struct HelmMetrics {
    /// Runs of helm, by what for and how they ended.
    pub runs: Family<ByActionResult, Counter>,
    /// How long they took.
    pub duration: Histogram,
}

impl HelmMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            runs: Family::default(),
            duration: Histogram::new([0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]),
        };
        registry.register("helm_runs", "Runs of helm, by action and result", metrics.runs.clone());
        registry.register_with_unit(
            "helm_run_duration",
            "How long runs of helm took",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        metrics
    }
}
