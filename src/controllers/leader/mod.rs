//! Leading: stands for the Lease, does the leader's work while it holds it, and hands it over.
//!
//! The decisions are in [`crate::reconcilers::election`], the calls in [`super::lease`]. Here: the order of ends.
//! - Lost: first the fence, so that nothing more is sent, then the work.
//! - Clean stop: first the work, then the fence, then the Lease is released, so that a successor finds nothing running.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::connection::Fence;
use super::lease::{self, CALL_LIMIT, LeaseError, Leases, Tenant};
use crate::host::{clock, entropy};
use crate::pki::hexadecimal;
use crate::reconcilers::election::{self, Action, Held, Identity, LEADERSHIP, LossReason};
use crate::reconcilers::inventory::CONFIG_MAP;
use crate::reconcilers::inventory::records::TERM_ANNOTATION;

/// The name of the Lease, in the system namespace.
pub const LEASE: &str = "stratum-operator";

/// How long work may take to notice that its term is lost. It can send nothing by then.
const LOST_GRACE: Duration = Duration::from_secs(1);

/// Who stands, and where.
#[derive(Clone, Debug)]
pub struct CampaignSettings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The first part of our identity in it.
    pub node: String,
    /// How long the leader's work may go on after `stop`.
    pub drain: Duration,
}

/// What the leader's work is given.
#[derive(Clone, Debug)]
pub struct Term {
    /// Grows with each new holder.
    pub number: u64,
    /// How the Lease names us.
    pub identity: String,
    /// For clients of this term: see [`super::connection::client`].
    pub fence: Fence,
    /// Cancelled when the work is to end, cleanly or because the term is lost.
    pub stop: CancellationToken,
}

/// Where a campaign stands, for metrics, health and readiness.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// Somebody else leads, or nobody does yet.
    Standing {
        /// The holder, as far as is known.
        holder: Option<String>,
    },
    /// We lead.
    Leading(Term),
    /// The campaign is over.
    Over,
}

/// How a campaign ended well.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Stopped before it led.
    NeverLed,
    /// Led, and the work returned this; the Lease is released.
    Finished(T),
    /// Led, and the work was dropped because it did not end in time after the stop; the Lease is released.
    Dropped,
}

/// How a campaign ended badly.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// Exit code 4. Nothing of the term is sent any more.
    #[error("leadership lost in term {term}: the Lease {LEASE} is gone from us, {reason}")]
    LeadershipLost {
        /// The term's number.
        term: u64,
        /// Why.
        reason: LossReason,
    },
    /// A bug in the leader's work.
    #[error("the leader's work broke off")]
    Work(#[source] JoinError),
}

/// Stands for the Lease with an unfenced `client`; once it is held, runs `work` as a task of its own until it returns,
/// the Lease is lost, or `stop`.
///
/// # Errors
/// [`CampaignError::LeadershipLost`] when the Lease is lost; the process should end, and be started again.
pub async fn campaign<F, W>(
    settings: &CampaignSettings,
    client: Client,
    status: &watch::Sender<Leadership>,
    stop: CancellationToken,
    work: F,
) -> Result<Outcome<W::Output>, CampaignError>
where
    F: FnOnce(Term) -> W,
    W: Future + Send + 'static,
    W::Output: Send + 'static,
{
    let mut candidate = Candidate::new(settings, client);
    let standing = stop.run_until_cancelled(candidate.stand(status)).await;
    let Some(held) = standing else {
        // A write of ours may have arrived without its answer.
        candidate.tenant.release().await;
        status.send_replace(Leadership::Over);
        return Ok(Outcome::NeverLed);
    };
    let term = Term {
        number: u64::try_from(held.number).unwrap_or(0),
        identity: candidate.tenant.me.to_string(),
        fence: Fence::until(held.deadline),
        stop: stop.child_token(),
    };
    tracing::info!(term = term.number, identity = %term.identity, "leading");
    status.send_replace(Leadership::Leading(term.clone()));
    let task = AbortOnDropHandle::new(tokio::spawn(work(term.clone())));
    let result = candidate.lead(held, &term, settings.drain, task).await;
    status.send_replace(Leadership::Over);
    result
}

struct Candidate {
    client: Client,
    namespace: String,
    tenant: Tenant,
}

impl Candidate {
    fn new(settings: &CampaignSettings, client: Client) -> Self {
        let random: [u8; 8] = entropy::bytes();
        let me = Identity::new(&settings.node, &hexadecimal(&random));
        let leases = Leases::new(client.clone(), &settings.namespace, LEASE);
        Self {
            client,
            namespace: settings.namespace.clone(),
            tenant: Tenant::watching(leases, me, LEADERSHIP),
        }
    }

    /// Until the Lease is ours.
    async fn stand(&mut self, status: &watch::Sender<Leadership>) -> Held {
        while let Err(error) = self.recall().await {
            self.failed(&error).await;
        }
        loop {
            if let Err(error) = self.tenant.look().await {
                self.failed(&error).await;
                continue;
            }
            let tenant = &mut self.tenant;
            publish(status, tenant.observed.holder());
            let now = clock::since_boot();
            match election::decide(&tenant.observed, None, &tenant.me, now, clock::now()) {
                Action::Take { lease, reason } => {
                    let reason: &str = reason.into();
                    match tenant.take(*lease, now).await {
                        Ok(Some(held)) => {
                            tracing::info!(reason, "took the Lease");
                            return held;
                        }
                        Ok(None) => {}
                        Err(error) => self.failed(&error).await,
                    }
                }
                Action::Wait { until } => tenant.wait(until).await,
                // A candidate neither renews nor loses; read again.
                Action::Renew(_) | Action::Lost(_) => {}
            }
        }
    }

    async fn failed(&mut self, error: &LeaseError) {
        self.tenant.log(error);
        clock::sleep(self.tenant.retry_pause()).await;
    }

    /// Leads until one of the ends, and brings it to that end.
    async fn lead<T: Send + 'static>(
        &mut self,
        held: Held,
        term: &Term,
        drain: Duration,
        mut task: AbortOnDropHandle<T>,
    ) -> Result<Outcome<T>, CampaignError> {
        let drained = async {
            term.stop.cancelled().await;
            clock::sleep(drain).await;
        };
        let outcome = tokio::select! {
            biased;
            reason = self.tenant.hold(held, &term.fence) => {
                term.fence.revoke();
                term.stop.cancel();
                tracing::error!(term = term.number, %reason, "leadership lost");
                // Its result is of no interest: what it could not send, it did not do.
                let _ = tokio::time::timeout(LOST_GRACE, &mut task).await;
                return Err(CampaignError::LeadershipLost { term: term.number, reason });
            }
            result = &mut task => result.map(Outcome::Finished),
            () = drained => {
                tracing::warn!(term = term.number, "the leader's work did not end within {} s; dropped", drain.as_secs());
                Ok(Outcome::Dropped)
            }
        };
        term.fence.revoke();
        drop(task);
        self.tenant.release().await;
        outcome.map_err(CampaignError::Work)
    }

    /// The number of the last term that wrote the inventory; it outlives a Lease that somebody deletes.
    async fn recall(&mut self) -> Result<(), LeaseError> {
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let read = config_maps.get_metadata_opt(CONFIG_MAP);
        let found = lease::bounded("reading the last term before the", LEASE, CALL_LIMIT, read).await?;
        let number = found
            .and_then(|found| found.metadata.annotations?.remove(TERM_ANNOTATION))
            .and_then(|text| text.parse().ok());
        if let Some(number) = number {
            self.tenant.observed.remember(number);
        }
        Ok(())
    }
}

fn publish(status: &watch::Sender<Leadership>, holder: Option<&str>) {
    status.send_if_modified(|status| match status {
        Leadership::Standing { holder: known } if known.as_deref() == holder => false,
        Leadership::Standing { .. } | Leadership::Leading(_) | Leadership::Over => {
            *status = Leadership::Standing {
                holder: holder.map(str::to_owned),
            };
            true
        }
    });
}
