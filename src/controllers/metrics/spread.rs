//! The concern that spreads CoreDNS.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{ByReason, ByResult, Number};

/// CoreDNS's replicas on its nodes.
#[derive(Clone, Debug, Default)]
pub struct SpreadMetrics {
    /// Evictions that were asked for, by what became of them.
    pub evictions: Family<ByResult, Counter>,
    /// 1 for the last decision, 0 for those before it.
    pub decision: Family<ByReason, Number>,
}

impl SpreadMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "spread_evictions",
            "Evictions of CoreDNS replicas off a node that holds all, by result",
            metrics.evictions.clone(),
        );
        registry.register(
            "spread_decision",
            "Whether this is what was last decided about CoreDNS (1) or not (0)",
            metrics.decision.clone(),
        );
        metrics
    }
}
