//! Leading: stands for the Lease, does the leader's work while it holds it, and hands it over.
//!
//! The decisions are in [`crate::reconcilers::election`]. Here: the calls, the waiting, and the order of ends.
//! - Lost: first the fence, so that nothing more is sent, then the work.
//! - Clean stop: first the work, then the fence, then the Lease is released, so that a successor finds nothing running.

mod lease;

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::lease::{LeaseError, LeaseWatch, Leases, Written, call_limit};
use super::concern::chain;
use super::connection::Fence;
use crate::host::{clock, entropy};
use crate::reconcilers::election::{self, Action, Held, Identity, LossReason, Observed, RETRY_PERIOD};

/// The name of the Lease, in the system namespace.
pub const LEASE: &str = "stratum-operator";

/// How long work may take to notice that its term is lost. It can send nothing by then.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// How long releasing the Lease may take; without it the Lease just runs out.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

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
        candidate.fresh = false;
        candidate.release().await;
        status.send_replace(Leadership::Over);
        return Ok(Outcome::NeverLed);
    };
    let term = Term {
        number: u64::try_from(held.number).unwrap_or(0),
        identity: candidate.me.to_string(),
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
    leases: Leases,
    watch: LeaseWatch,
    me: Identity,
    observed: Observed,
    /// Whether `observed` may be acted on, or has to be read again first.
    fresh: bool,
    /// The last failure logged, so that an outage is one line.
    logged: Option<String>,
}

impl Candidate {
    fn new(settings: &CampaignSettings, client: Client) -> Self {
        let random: [u8; 8] = entropy::bytes();
        let leases = Leases::new(client, &settings.namespace);
        Self {
            watch: leases.follow(),
            leases,
            me: Identity::new(&settings.node, &format!("{:016x}", u64::from_be_bytes(random))),
            observed: Observed::default(),
            fresh: false,
            logged: None,
        }
    }

    /// Until the Lease is ours.
    async fn stand(&mut self, status: &watch::Sender<Leadership>) -> Held {
        while let Err(error) = self.recall().await {
            self.log(&error);
            clock::sleep(retry_pause()).await;
        }
        loop {
            if let Err(error) = self.read(None).await {
                self.log(&error);
                clock::sleep(retry_pause()).await;
                continue;
            }
            publish(status, self.observed.holder());
            let now = clock::since_boot();
            match election::decide(&self.observed, None, &self.me, now, clock::now()) {
                Action::Take { lease, reason } => {
                    let reason: &str = reason.into();
                    match self.leases.write(*lease, call_limit(None)).await {
                        Ok(Written::Stored(lease)) => {
                            tracing::info!(reason, "took the Lease");
                            let held = Held::of(&lease, now);
                            self.observed.note(Some(*lease), clock::since_boot());
                            return held;
                        }
                        Ok(Written::Outdated) => self.fresh = false,
                        Err(error) => {
                            self.fresh = false;
                            self.log(&error);
                            clock::sleep(retry_pause()).await;
                        }
                    }
                }
                Action::Wait { until } => {
                    let pause = until.saturating_sub(clock::since_boot());
                    self.watch
                        .wait(self.observed.resource_version(), pause, retry_pause())
                        .await;
                    self.fresh = false;
                }
                // A candidate neither renews nor loses; read again.
                Action::Renew(_) | Action::Lost(_) => self.fresh = false,
            }
        }
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
            reason = self.hold(held, &term.fence) => {
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
        self.release().await;
        outcome.map_err(CampaignError::Work)
    }

    /// Renews until the Lease is lost. Can be dropped at any point.
    async fn hold(&mut self, mut held: Held, fence: &Fence) -> LossReason {
        let ended = fence.ended();
        self.fresh = true;
        let mut renewed = clock::since_boot();
        loop {
            let next = (renewed + retry_pause()).saturating_sub(clock::since_boot());
            let known = self.observed.resource_version().map(str::to_owned);
            tokio::select! {
                () = ended.cancelled() => return LossReason::Deadline,
                () = self.watch.wait(known.as_deref(), next, next) => {}
            }
            let due = clock::since_boot() >= renewed + RETRY_PERIOD;
            match self.renew(&mut held, fence, due).await {
                Ok(None) if due => renewed = clock::since_boot(),
                Ok(None) => {}
                Ok(Some(reason)) => return reason,
                Err(error) => {
                    self.fresh = false;
                    self.log(&error);
                    // Half a period: several tries fit before the deadline.
                    renewed = clock::since_boot().saturating_sub(RETRY_PERIOD / 2);
                }
            }
        }
    }

    /// One look, and one renewal if it is due. `Some` when the term is over.
    async fn renew(&mut self, held: &mut Held, fence: &Fence, due: bool) -> Result<Option<LossReason>, LeaseError> {
        // Woken early means that somebody else wrote: look before anything else.
        self.fresh &= due;
        loop {
            if !self.fresh {
                self.read(Some(held.deadline)).await?;
            }
            let now = clock::since_boot();
            let lease = match election::decide(&self.observed, Some(held), &self.me, now, clock::now()) {
                Action::Lost(reason) => return Ok(Some(reason)),
                Action::Renew(lease) => lease,
                Action::Take { .. } | Action::Wait { .. } => return Ok(Some(LossReason::Taken)),
            };
            if !due {
                return Ok(None);
            }
            match self.leases.write(*lease, call_limit(Some(held.deadline))).await? {
                Written::Outdated => self.fresh = false,
                Written::Stored(lease) => {
                    *held = Held::of(&lease, now);
                    self.observed.note(Some(*lease), clock::since_boot());
                    self.logged = None;
                    let alive = fence.extend(held.deadline);
                    return Ok((!alive).then_some(LossReason::Deadline));
                }
            }
        }
    }

    /// Gives the Lease back, if it is ours. Best effort: it runs out by itself.
    async fn release(&mut self) {
        let releasing = async {
            loop {
                if !self.fresh {
                    self.read(None).await?;
                }
                let Some(lease) = election::release(&self.observed, &self.me, clock::now()) else {
                    return Ok::<bool, LeaseError>(false);
                };
                match self.leases.write(lease, call_limit(None)).await? {
                    Written::Stored(_) => return Ok(true),
                    Written::Outdated => self.fresh = false,
                }
            }
        };
        match tokio::time::timeout(RELEASE_LIMIT, releasing).await {
            Ok(Ok(true)) => tracing::info!("released the Lease"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "the Lease was not released; it runs out by itself")
            }
            Err(_) => tracing::warn!("the Lease was not released in time; it runs out by itself"),
        }
    }

    async fn recall(&mut self) -> Result<(), LeaseError> {
        if let Some(number) = self.leases.recorded_term().await? {
            self.observed.remember(number);
        }
        Ok(())
    }

    async fn read(&mut self, deadline: Option<Duration>) -> Result<(), LeaseError> {
        let lease = self.leases.read(call_limit(deadline)).await?;
        self.observed.note(lease, clock::since_boot());
        self.fresh = true;
        self.logged = None;
        Ok(())
    }

    fn log(&mut self, error: &LeaseError) {
        let text = chain(error);
        if self.logged.as_ref() != Some(&text) {
            tracing::warn!(error = %text, "the election goes on without an answer");
            self.logged = Some(text);
        }
    }
}

/// client-go's jitter: up to a fifth longer, so that candidates do not move in step.
fn retry_pause() -> Duration {
    entropy::jittered(RETRY_PERIOD, 0.2)
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
