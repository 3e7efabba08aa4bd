//! What is counted of join grants.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};

use super::{ByReason, ByState, Number};

/// The grants in Secret `stratum-certs`, as this instance last read or wrote it.
#[derive(Clone, Debug, Default)]
pub struct GrantMetrics {
    /// Grants by state: `live`; `foreign` for keys that look like grants, are none, and are left alone.
    pub grants: Family<ByState, Number>,
    /// Entries this instance dropped, by the reason.
    pub dropped: Family<ByReason, Counter>,
    /// How large the Secret's data is.
    pub size: Number,
}

impl GrantMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "grants",
            "Join grants of controllers whose token lives, and keys that look like grants and are none",
            metrics.grants.clone(),
        );
        registry.register(
            "grants_dropped",
            "Entries of join grants that were dropped, by reason",
            metrics.dropped.clone(),
        );
        registry.register_with_unit(
            "grants_secret_size",
            "The size of the Secret with the join grants",
            Unit::Bytes,
            metrics.size.clone(),
        );
        metrics
    }
}
