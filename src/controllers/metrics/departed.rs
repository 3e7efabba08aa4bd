//! Nodes whose machine has been uninstalled.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{ByReason, ByResult, Number};

/// The concern of departed Nodes.
#[derive(Clone, Debug, Default)]
pub struct DepartedMetrics {
    /// Nodes that were to be deleted, by result.
    pub nodes: Family<ByResult, Counter>,
    /// Marked Nodes that stay, by reason, as the last pass found them.
    pub kept: Family<ByReason, Number>,
}

impl DepartedMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "departed_nodes",
            "Nodes to be deleted because their machine was uninstalled, by result",
            metrics.nodes.clone(),
        );
        registry.register(
            "marked_nodes_kept",
            "Nodes marked as uninstalled that stay for this reason",
            metrics.kept.clone(),
        );
        metrics
    }
}
