//! The cluster fence on a real API server, with times that are a fiftieth of the product's.

mod dying;
mod holding;
mod rights;

use std::time::Duration;

use stratum::controllers::cluster_fence::{self, ClusterFence, FenceError, Settings};
use stratum::controllers::concern::chain;
use stratum::reconcilers::election::Timing;
use stratum::reconcilers::election::fence::{NAME, Operation};

use crate::support::{Cluster, wait_for};

/// How long a test waits for what should be there at once, on a machine that does other things too.
const SOON: Duration = Duration::from_secs(20);

const SHORT: Timing = Timing {
    duration: Duration::from_secs(6),
    renew_deadline: Duration::from_secs(4),
    retry_period: Duration::from_millis(400),
    longest_believed: Duration::from_secs(6),
};

/// A system namespace with a fence of its own.
struct Bed<'a> {
    cluster: &'a Cluster,
    settings: Settings,
}

impl<'a> Bed<'a> {
    async fn new(cluster: &'a Cluster, purpose: &str) -> Self {
        let settings = Settings {
            namespace: cluster.namespace(purpose).await,
            timing: SHORT,
            lock: None,
        };
        Self { cluster, settings }
    }

    /// What an operation on `node` gets, and what it was told meanwhile.
    async fn try_acquire(&self, operation: &Operation) -> (Result<ClusterFence, FenceError>, String) {
        let mut told = Vec::new();
        let client = self.cluster.client().await;
        let acquired = ClusterFence::acquire(client, &self.settings, operation, &mut told).await;
        (acquired, String::from_utf8(told).unwrap())
    }

    async fn acquire(&self, operation: &Operation) -> ClusterFence {
        let (acquired, told) = self.try_acquire(operation).await;
        assert_eq!(told, "");
        acquired.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// The Lease as it is.
    async fn lease(&self) -> serde_json::Value {
        let arguments = ["get", "lease", NAME, "-o", "json"];
        let text = self.cluster.kubectl_in(&self.settings.namespace, &arguments).await;
        serde_json::from_str(&text).unwrap()
    }

    async fn patch(&self, patch: &str) {
        let arguments = ["patch", "lease", NAME, "--type=merge", "-p", patch];
        self.cluster.kubectl_in(&self.settings.namespace, &arguments).await;
    }

    async fn delete(&self) {
        let arguments = ["delete", "lease", NAME];
        self.cluster.kubectl_in(&self.settings.namespace, &arguments).await;
    }

    async fn is_free(&self) -> bool {
        self.lease().await["spec"]["holderIdentity"] == ""
    }

    /// Waits until the holder has renewed it so often.
    async fn renewals(&self, count: usize) {
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() <= count {
            let before = seen.len();
            let another = || async {
                let renewed = self.lease().await["spec"]["renewTime"].to_string();
                (!seen.contains(&renewed)).then_some(renewed)
            };
            let renewed = wait_for("a renewal", SOON, another).await;
            seen.insert(renewed);
            assert!(seen.len() > before);
        }
    }
}

fn operation(node: &str) -> Operation {
    cluster_fence::operation("stratum join", node)
}
