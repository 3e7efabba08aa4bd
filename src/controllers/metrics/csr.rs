//! What the approvers of kubelets' certificate requests count.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::{Number, Word};
use crate::reconcilers::csr::{Reason, Signer};

/// `{signer, decision, reason}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByDecision {
    /// The signer.
    pub signer: Word,
    /// `approve` or `wait`.
    pub decision: Word,
    /// Why it waits; `none` for an approval.
    pub reason: Word,
}

/// `{signer}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BySigner {
    /// The signer.
    pub signer: Word,
}

/// Certificate requests of kubelets.
#[derive(Clone, Debug)]
pub struct CsrMetrics {
    /// Decisions; one that is made again about the same request counts when it says something new.
    decisions: Family<ByDecision, Counter>,
    /// From a request's creation to its approval.
    latency: Family<BySigner, Histogram, fn() -> Histogram>,
    /// Requests that wait.
    pending: Family<BySigner, Number>,
    /// Whether bootstrap tokens may have any name from the stock approver.
    stock_approval: Number,
}

/// 4 ms to 17 minutes.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.004, 4.0, 10))
}

fn signer(signer: Signer) -> Word {
    Word(signer.into())
}

impl CsrMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            decisions: Family::default(),
            latency: Family::new_with_constructor(latency_histogram),
            pending: Family::default(),
            stock_approval: Number::default(),
        };
        registry.register(
            "csr_decisions",
            "Decisions about certificate requests of kubelets, by reason",
            metrics.decisions.clone(),
        );
        registry.register_with_unit(
            "csr_approval_latency",
            "From the creation of a certificate request to its approval by this instance",
            Unit::Seconds,
            metrics.latency.clone(),
        );
        registry.register(
            "csr_pending",
            "Certificate requests that this instance leaves waiting",
            metrics.pending.clone(),
        );
        registry.register(
            "csr_stock_approval_granted",
            "Whether kube-controller-manager approves any name for bootstrap tokens (1), past this operator, or not (0)",
            metrics.stock_approval.clone(),
        );
        metrics
    }

    /// This instance approved a request of this age.
    pub fn approved(&self, of: Signer, age: Duration) {
        let signer = signer(of);
        self.latency
            .get_or_create(&BySigner { signer })
            .observe(age.as_secs_f64());
        self.count(of, "approve", "none");
    }

    /// A request waits, for a reason that is news.
    pub fn waits(&self, of: Signer, reason: &Reason) {
        self.count(of, "wait", reason.word());
    }

    /// So many requests wait now.
    pub fn pending(&self, of: Signer, count: usize) {
        let signer = signer(of);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.pending.get_or_create(&BySigner { signer }).set(count);
    }

    /// Whether the stock approval was found to be granted.
    pub fn stock_approval(&self, granted: bool) {
        self.stock_approval.set(granted.into());
    }

    fn count(&self, of: Signer, decision: &'static str, reason: &'static str) {
        let labels = ByDecision {
            signer: signer(of),
            decision: Word(decision),
            reason: Word(reason),
        };
        self.decisions.get_or_create(&labels).inc();
    }
}
