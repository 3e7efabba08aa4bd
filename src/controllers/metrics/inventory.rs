//! The prune inventory.

use prometheus_client::registry::{Registry, Unit};

use super::Number;

/// The prune inventory, as this instance last read or wrote it.
#[derive(Clone, Debug, Default)]
pub struct InventoryMetrics {
    /// How large its ConfigMap is.
    pub size: Number,
    /// Control-plane nodes that have not contributed.
    pub nodes_missing: Number,
}

impl InventoryMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_with_unit(
            "inventory_size",
            "The size of the prune inventory's ConfigMap",
            Unit::Bytes,
            metrics.size.clone(),
        );
        registry.register(
            "inventory_nodes_missing",
            "Control-plane nodes that have not contributed to the prune inventory",
            metrics.nodes_missing.clone(),
        );
        metrics
    }
}
