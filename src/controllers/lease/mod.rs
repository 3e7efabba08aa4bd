//! Holding a Lease: the calls, the waiting and the renewing around the decisions of [`crate::reconcilers::election`]. Who leads
//! ([`super::leader`]) and which operation may change the cluster ([`super::cluster_fence`]) are both held like this.

mod calls;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

pub use calls::LeaseError;
pub(super) use calls::{CALL_LIMIT, Leases, bounded};
use calls::{LeaseWatch, Written, call_limit};

use super::concern::chain;
use super::connection::Fence;
use crate::host::{clock, entropy};
use crate::reconcilers::election::{self, Action, Held, Identity, LossReason, Observed, Timing};

/// How long releasing a Lease may take; without it the Lease just runs out.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// One who wants a Lease, or holds it.
pub(super) struct Tenant {
    leases: Leases,
    /// None: it looks now and then.
    watch: Option<LeaseWatch>,
    pub(super) me: Identity,
    pub(super) observed: Observed,
    timing: Timing,
    /// Whether `observed` may be acted on, or has to be read again first.
    fresh: bool,
    /// The last failure logged, so that an outage is one line.
    logged: Option<String>,
}

impl Tenant {
    /// One who looks at the Lease now and then.
    pub(super) fn new(leases: Leases, me: Identity, timing: Timing) -> Self {
        Self {
            leases,
            watch: None,
            me,
            observed: Observed::new(timing),
            timing,
            fresh: false,
            logged: None,
        }
    }

    /// One who is told when it changes, which takes the rights to list and watch it.
    pub(super) fn watching(leases: Leases, me: Identity, timing: Timing) -> Self {
        let watch = Some(leases.follow());
        Self {
            watch,
            ..Self::new(leases, me, timing)
        }
    }

    /// Reads the Lease.
    pub(super) async fn look(&mut self) -> Result<(), LeaseError> {
        self.read(None).await
    }

    /// Writes `lease`, which was decided on at `now`, to have it; none when somebody else wrote since, and it has to be looked
    /// at again.
    pub(super) async fn take(&mut self, lease: Lease, now: Duration) -> Result<Option<Held>, LeaseError> {
        self.fresh = false;
        match self.leases.write(lease, call_limit(None)).await? {
            Written::Outdated => Ok(None),
            Written::Stored(lease) => {
                let held = Held::of(&lease, now, &self.timing);
                self.observed.note(Some(*lease), clock::since_boot());
                self.fresh = true;
                Ok(Some(held))
            }
        }
    }

    /// Until `until`, a reading of the monotonic clock, or until it is time to look at the Lease again.
    pub(super) async fn wait(&mut self, until: Duration) {
        let pause = until.saturating_sub(clock::since_boot());
        self.wait_for_change(pause, self.retry_pause()).await;
        self.fresh = false;
    }

    /// Renews until the Lease is lost. Can be dropped at any point.
    pub(super) async fn hold(&mut self, mut held: Held, fence: &Fence) -> LossReason {
        let retry_period = self.timing.retry_period;
        let ended = fence.ended();
        let mut renewed = clock::since_boot();
        loop {
            let next = (renewed + self.retry_pause()).saturating_sub(clock::since_boot());
            tokio::select! {
                () = ended.cancelled() => return LossReason::Deadline,
                () = self.wait_for_change(next, next) => {}
            }
            let due = clock::since_boot() >= renewed + retry_period;
            match self.renew(&mut held, fence, due).await {
                Ok(None) if due => renewed = clock::since_boot(),
                Ok(None) => {}
                Ok(Some(reason)) => return reason,
                Err(error) => {
                    self.fresh = false;
                    self.log(&error);
                    // Half a period: several tries fit before the deadline.
                    renewed = clock::since_boot().saturating_sub(retry_period / 2);
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
                    *held = Held::of(&lease, now, &self.timing);
                    self.observed.note(Some(*lease), clock::since_boot());
                    self.logged = None;
                    let alive = fence.extend(held.deadline);
                    return Ok((!alive).then_some(LossReason::Deadline));
                }
            }
        }
    }

    /// Gives the Lease back, if it is ours: also after a write whose answer did not come. Best effort: it runs out by itself.
    pub(super) async fn release(&mut self) {
        let name = self.leases.name();
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
            Ok(Ok(true)) => tracing::info!("released Lease {name}"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "Lease {name} was not released; it runs out by itself");
            }
            Err(_) => tracing::warn!("Lease {name} was not released in time; it runs out by itself"),
        }
    }

    async fn read(&mut self, deadline: Option<Duration>) -> Result<(), LeaseError> {
        let lease = self.leases.read(call_limit(deadline)).await?;
        self.observed.note(lease, clock::since_boot());
        self.fresh = true;
        self.logged = None;
        Ok(())
    }

    async fn wait_for_change(&mut self, pause: Duration, poll: Duration) {
        match &mut self.watch {
            Some(watch) => watch.wait(self.observed.resource_version(), pause, poll).await,
            None => clock::sleep(pause.min(poll)).await,
        }
    }

    pub(super) fn log(&mut self, error: &LeaseError) {
        let text = chain(error);
        if self.logged.as_ref() != Some(&text) {
            tracing::warn!(error = %text, "Lease {} is without an answer; it is tried again", self.leases.name());
            self.logged = Some(text);
        }
    }

    /// client-go's jitter: up to a fifth longer, so that candidates do not move in step.
    pub(super) fn retry_pause(&self) -> Duration {
        entropy::jittered(self.timing.retry_period, 0.2)
    }
}
