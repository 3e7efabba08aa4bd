//! The cluster fence, taken and held: one operation at a time changes what all nodes share. The decisions are in
//! [`crate::reconcilers::election::fence`].
//!
//! The order is: first the fence, then the node's lock, then the first change; and at each boundary between two steps
//! [`ClusterFence::check`]. Whoever has taken it releases it, however the operation ended, also by a signal
//! ([`unless_interrupted`]). A process that is killed releases nothing: its Lease runs out by itself.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connection::Fence;
use super::lease::{LeaseError, Leases, Tenant};
use super::operator::SYSTEM_NAMESPACE;
use super::progress::tell;
use super::shutdown::Signals;
use crate::host::atomic_file::{Access, create_folder};
use crate::host::layout::Layout;
use crate::host::lock::{self, Attempt, Lock};
use crate::host::{clock, entropy};
use crate::pki::hexadecimal;
use crate::reconcilers::election::fence::{
    self, Busy, Decision, NAME, NotInherited, Operation, RunId, Standing, TIMING,
};
use crate::reconcilers::election::{Held, Identity, LossReason, Timing};

/// Tries before an API server counts as one that does not answer.
const TRIES: u32 = 3;
/// Between two of them.
const PACE: Duration = Duration::from_secs(1);

/// Where the fence is, and how long everything takes around it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// As in every process of the cluster; shorter in tests.
    pub timing: Timing,
    /// A file that is locked for as long as the fence is held: the same for every operation on this machine. Without one, a
    /// Lease that was left by an operation of this machine is taken for that of a living one.
    pub lock: Option<PathBuf>,
}

impl Settings {
    /// The cluster's fence, for operations on the machine with this layout.
    #[must_use]
    pub fn on(layout: &Layout) -> Self {
        Self {
            lock: Some(layout.fence_lock()),
            ..Self::default()
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: SYSTEM_NAMESPACE.to_owned(),
            timing: TIMING,
            lock: None,
        }
    }
}

/// Why an operation does not begin, or a step of it does not. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// Another operation has it.
    #[error(
        "{0}: wait for it, then try again; if it was killed, the Lease runs out by itself, or at once by 'kubectl -n kube-system delete lease {NAME}'"
    )]
    Busy(Busy),
    /// Another operation on this machine has it.
    #[error("the cluster is being changed by {0} on this machine: wait for it, then try again")]
    Here(lock::Holder),
    /// The lock of this machine cannot be taken.
    #[error("cannot tell whether another operation on this machine changes the cluster")]
    Lock(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The run of a step has it no more.
    #[error("this step does not begin: {0}")]
    NotInherited(#[from] NotInherited),
    /// It cannot be told who has it.
    #[error("cannot take the cluster fence (Lease {NAME})")]
    Unanswered(#[source] LeaseError),
}

/// That the fence was lost in the middle of an operation, which ends between two steps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster fence was lost: of Lease {NAME}, {reason}; stopped between two steps, run it again")]
pub struct Lost {
    /// Why.
    pub reason: LossReason,
}

/// That a signal ended an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{signal}: stopped in the middle; what was done stays, run it again")]
pub struct Interrupted {
    /// Which.
    pub signal: &'static str,
}

/// Does `work`, which is done under the fence, until it ends or a signal asks for the end. It is dropped then, wherever it is:
/// as if the process had been killed, but that the caller can still release the fence.
///
/// # Errors
/// [`Interrupted`].
pub async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<T, Interrupted> {
    // Where signals cannot be taken over they kill, as without a fence.
    let Ok(mut signals) = Signals::take_over() else {
        return Ok(work.await);
    };
    tokio::select! {
        done = work => Ok(done),
        signal = signals.next() => Err(Interrupted { signal }),
    }
}

/// An operation that begins now, in this process.
#[must_use]
pub fn operation(name: &'static str, node: &str) -> Operation {
    Operation {
        name,
        node: node.to_owned(),
        run: RunId::of(entropy::bytes()),
        machine: clock::boot_id(),
        process: hexadecimal(&entropy::bytes::<4>()),
    }
}

/// The fence, which is renewed until this is released.
#[derive(Debug)]
pub struct ClusterFence {
    run: RunId,
    fence: Fence,
    loss: watch::Receiver<Option<LossReason>>,
    stop: DropGuard,
    task: JoinHandle<()>,
    /// After everything else: who has it next believes that we have ended.
    lock: Option<Lock>,
}

impl ClusterFence {
    /// Takes the fence for an operation. Somebody whose Lease looks given up is watched for as long as that takes, which
    /// `progress` is told.
    ///
    /// # Errors
    /// When somebody else has it, or the API server does not answer.
    pub async fn acquire(
        client: Client,
        settings: &Settings,
        operation: &Operation,
        progress: &mut (dyn Write + Send),
    ) -> Result<Self, FenceError> {
        let lock = lock_machine(settings, operation)?;
        // Without a name of the machine nothing is known of others on it.
        let known = lock.is_some() && !operation.machine.is_empty();
        let alone_on = known.then_some(operation.machine.as_str());
        let mut tenant = tenant(client, settings, operation.identity());
        let held = match stand(&mut tenant, alone_on, progress).await {
            Ok(held) => held,
            Err(error) => {
                // A write may have arrived without its answer.
                tenant.release().await;
                return Err(error);
            }
        };
        let fence = Fence::until(held.deadline);
        let (lost, loss) = watch::channel(None);
        let stop = CancellationToken::new();
        let task = tokio::spawn(keep(tenant, held, fence.clone(), lost, stop.clone()));
        Ok(Self {
            run: operation.run.clone(),
            fence,
            loss,
            stop: stop.drop_guard(),
            task,
            lock,
        })
    }

    /// Which run has it, for the steps that inherit it: see [`Inherited`].
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Whether the next step may begin.
    ///
    /// # Errors
    /// [`Lost`], for good.
    pub fn check(&self) -> Result<(), Lost> {
        if !self.fence.has_ended() {
            return Ok(());
        }
        let reason = self.loss.borrow().unwrap_or(LossReason::Deadline);
        Err(Lost { reason })
    }

    /// Gives the fence back, as far as the API server answers.
    pub async fn release(self) {
        drop(self.stop);
        // A task that broke off has nothing to give back.
        let _ = self.task.await;
        drop(self.lock);
    }
}

/// Renews until the fence is lost or to be given back.
async fn keep(
    mut tenant: Tenant,
    held: Held,
    fence: Fence,
    lost: watch::Sender<Option<LossReason>>,
    stop: CancellationToken,
) {
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        reason = tenant.hold(held, &fence) => Some(reason),
    };
    if let Some(reason) = ended {
        // First the reason: whoever sees the end asks for it.
        lost.send_replace(Some(reason));
        fence.revoke();
        tracing::error!(%reason, "the cluster fence was lost");
        // The step it is in may go on: what is still ours keeps others out until the operation has ended.
        stop.cancelled().await;
    }
    fence.revoke();
    tenant.release().await;
}

fn tenant(client: Client, settings: &Settings, me: Identity) -> Tenant {
    Tenant::new(Leases::new(client, &settings.namespace, NAME), me, settings.timing)
}

/// The lock that tells operations of this machine from dead ones.
fn lock_machine(settings: &Settings, operation: &Operation) -> Result<Option<Lock>, FenceError> {
    let Some(path) = &settings.lock else {
        return Ok(None);
    };
    if let Some(folder) = path.parent() {
        create_folder(folder, Access::Secret).map_err(|error| FenceError::Lock(error.into()))?;
    }
    match Lock::attempt(path, operation.name) {
        Ok(Attempt::Taken(lock)) => Ok(Some(lock)),
        Ok(Attempt::Held(holder)) => Err(FenceError::Here(holder)),
        Err(error) => Err(FenceError::Lock(error.into())),
    }
}

async fn stand(
    tenant: &mut Tenant,
    alone_on: Option<&str>,
    progress: &mut (dyn Write + Send),
) -> Result<Held, FenceError> {
    let mut failures = Failures::default();
    let mut told = false;
    loop {
        if let Err(error) = tenant.look().await {
            failures.another(error).await?;
            continue;
        }
        let now = clock::since_boot();
        match fence::acquire(&tenant.observed, &tenant.me, alone_on, now, clock::now()) {
            Decision::Take { lease, reason } => {
                let reason: &str = reason.into();
                match tenant.take(*lease, now).await {
                    Ok(Some(held)) => {
                        tracing::info!(reason, "took the cluster fence");
                        return Ok(held);
                    }
                    Ok(None) => {}
                    Err(error) => failures.another(error).await?,
                }
            }
            Decision::Refuse(busy) => return Err(FenceError::Busy(busy)),
            Decision::Watch { until, holder } => {
                // It answered: over minutes there may be a failure now and then.
                failures = Failures::default();
                if !told {
                    told = true;
                    let who = holder.map_or_else(|| "an operation that is not known".to_owned(), |who| who.to_string());
                    let left = until.saturating_sub(now).as_secs();
                    tell(
                        progress,
                        format_args!(
                            "{who} has not renewed Lease {NAME}, or its clock is wrong: watching it for {left} s"
                        ),
                    );
                }
                tenant.wait(until).await;
            }
        }
    }
}

#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// Waits before another try, unless there were enough.
    async fn another(&mut self, error: LeaseError) -> Result<(), FenceError> {
        self.0 += 1;
        if self.0 >= TRIES || error.is_refusal() {
            return Err(FenceError::Unanswered(error));
        }
        clock::sleep(PACE).await;
        Ok(())
    }
}

/// The fence of a run, as one of its steps has it, which is another process: it neither renews nor releases it.
pub struct Inherited {
    tenant: Tenant,
    run: RunId,
}

impl Inherited {
    /// Inherits the fence from `run`. If it cannot be told yet whether that run lives, its next renewal is waited for.
    ///
    /// # Errors
    /// When that run does not have it, or the API server does not answer.
    pub async fn of(client: Client, settings: &Settings, run: &RunId) -> Result<Self, FenceError> {
        // It never writes, so it needs no name of its own.
        let mut inherited = Self {
            tenant: tenant(client, settings, Identity::new("step", &run.to_string())),
            run: run.clone(),
        };
        inherited.check().await?;
        Ok(inherited)
    }

    /// Whether the next step may begin. Asks the API server.
    ///
    /// # Errors
    /// As [`Inherited::of`].
    pub async fn check(&mut self) -> Result<(), FenceError> {
        let mut failures = Failures::default();
        loop {
            if let Err(error) = self.tenant.look().await {
                failures.another(error).await?;
                continue;
            }
            match fence::inherit(&self.tenant.observed, &self.run, clock::since_boot(), clock::now()) {
                Standing::Inherited => return Ok(()),
                Standing::Not(why) => return Err(why.into()),
                Standing::Watch { until } => self.tenant.wait(until).await,
            }
        }
    }
}
