//! The election on a real API server: who leads, how leadership passes on, and that a term that is over sends nothing.

mod election;
mod operator;
mod outage;
mod process;
mod rights;
mod series;
mod status;

use std::path::Path;
use std::time::Duration;

use stratum::controllers::connection::{self, ClientSettings};
use stratum::controllers::leader::{CampaignError, CampaignSettings, Leadership, Outcome, Term, campaign};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a test waits for a leader that must first wait for a whole Lease to run out.
const EXPIRY: Duration = Duration::from_secs(25);
/// How long a test waits for what should be instant, on a machine that does other things too.
const SOON: Duration = Duration::from_secs(8);

/// A campaign in this process, whose work is to wait for its end.
struct Candidate {
    status: watch::Receiver<Leadership>,
    stop: CancellationToken,
    task: JoinHandle<Result<Outcome<()>, CampaignError>>,
}

impl Candidate {
    async fn new(kubeconfig: &Path, namespace: &str, node: &str) -> Self {
        let client = connection::client(&ClientSettings::new(kubeconfig, "election"), None)
            .await
            .unwrap();
        let settings = CampaignSettings {
            namespace: namespace.to_owned(),
            node: node.to_owned(),
            drain: Duration::from_secs(5),
        };
        let stop = CancellationToken::new();
        let (sender, status) = watch::channel(Leadership::Standing { holder: None });
        let task = tokio::spawn({
            let stop = stop.clone();
            async move {
                let work = |term: Term| async move { term.stop.cancelled().await };
                campaign(&settings, client, &sender, stop, work).await
            }
        });
        Self { status, stop, task }
    }

    /// Waits until it leads.
    async fn leads(&mut self, limit: Duration) -> Term {
        let leading = self.status.wait_for(|status| matches!(status, Leadership::Leading(_)));
        let status = tokio::time::timeout(limit, leading)
            .await
            .expect("it leads in time")
            .unwrap();
        match &*status {
            Leadership::Leading(term) => term.clone(),
            Leadership::Standing { .. } | Leadership::Over => unreachable!(),
        }
    }

    /// Waits until it has seen a holder, so that it knows of the Lease.
    async fn has_seen_a_holder(&mut self) {
        let standing = self
            .status
            .wait_for(|status| matches!(status, Leadership::Standing { holder: Some(_) }));
        tokio::time::timeout(SOON, standing).await.unwrap().unwrap();
    }

    fn is_leading(&self) -> bool {
        matches!(&*self.status.borrow(), Leadership::Leading(_))
    }

    /// Stops it, and waits for its end.
    async fn stop(self) -> Outcome<()> {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.task).await.unwrap().unwrap().unwrap()
    }

    /// Waits for its failure.
    async fn fails(self, limit: Duration) -> CampaignError {
        tokio::time::timeout(limit, self.task)
            .await
            .expect("it notices in time")
            .unwrap()
            .expect_err("it lost the Lease")
    }
}
