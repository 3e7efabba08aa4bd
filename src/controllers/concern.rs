//! The frame every concern hangs in: one `kube_runtime::Controller`, written once.
//!
//! A concern says what its root is, what wakes it, and its three moments: observe, decide, act. The frame adds what must
//! be the same everywhere: bounded concurrency, a growing wait per object after failures, a resync when nothing
//! happens, metrics and logs by category, and a shutdown that ends.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span, warn};

use crate::host::{clock, entropy};

/// The first wait after a failure; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait after failures.
const LAST_WAIT: Duration = Duration::from_secs(300);
/// When nothing happens, an object is looked at again after this time and up to a fifth more: watches can lose events.
const RESYNC: Duration = Duration::from_secs(600);
/// How long running reconciles may take to end once the concern is told to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// The name of a concern: its metric label, its span, its line in a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum ConcernName {
    /// Plain YAML from the manifests folder.
    Manifests,
    /// This node's record in the cluster's prune inventory.
    InventorySync,
    /// The shared watch of Nodes, which is no concern and waited for like one.
    Nodes,
    /// The shared watch of NodeIdentities, likewise.
    Identities,
    /// Requests of kubelets for serving certificates.
    ServingCsrs,
    /// Requests of joiners for their first client certificates.
    BootstrapCsrs,
    /// What is remembered of node names.
    NodeIdentities,
    /// The entries of controllers' join grants.
    Grants,
    /// Nodes whose machine has been uninstalled.
    DepartedNodes,
    /// CoreDNS's replicas on more than one node.
    CorednsSpread,
}

impl ConcernName {
    /// The name as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// When a concern wants to look again at an object that has been reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// At the frame's own pace, or when something changes.
    Resync,
    /// After this time, or when something changes.
    After(Duration),
}

/// An error of a concern.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// A stable word from an enum, never a text with names in it: it becomes a metric label.
    fn category(&self) -> &'static str;
}

/// One concern of the operator.
pub trait Concern: Send + Sync + 'static {
    /// Its name.
    const NAME: ConcernName;
    /// How many objects of the root kind may be reconciled at one time; 0 is as many as there are.
    const CONCURRENCY: u16;
    /// The kind whose objects are reconciled.
    type Root: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static;
    /// Everything one decision needs, owned.
    type Observed: Send + Sync;
    /// What was decided.
    type Plan: Send;
    /// What can go wrong while observing or acting.
    type Error: Failure;

    /// Where the roots are, and which of them.
    fn roots(&self) -> (Api<Self::Root>, watcher::Config);

    /// What wakes all roots besides their own changes.
    fn triggers(&self) -> BoxStream<'static, ()> {
        futures::stream::pending().boxed()
    }

    /// The roots that something else than their own change wakes, one by one.
    fn wakes(&self) -> BoxStream<'static, ObjectRef<Self::Root>> {
        futures::stream::pending().boxed()
    }

    /// Told of a root that is gone: some time after its deletion, when it would have been looked at again.
    fn gone(&self, _name: &str) {}

    /// Reads the world.
    fn observe(&self, root: Arc<Self::Root>) -> impl Future<Output = Result<Self::Observed, Self::Error>> + Send;

    /// Decides. No client, no clock, no file.
    fn decide(&self, observed: &Self::Observed, now: Timestamp) -> Self::Plan;

    /// Carries the plan out; does nothing for what is already true.
    fn act(&self, observed: Self::Observed, plan: Self::Plan)
    -> impl Future<Output = Result<Wake, Self::Error>> + Send;
}

/// Told what happens in a frame; metrics and readiness implement it.
pub trait Observer: Send + Sync + 'static {
    /// The concern's watch has listed once.
    fn watch_ready(&self, concern: ConcernName);
    /// The concern's watch failed and is being restarted.
    fn watch_failed(&self, concern: ConcernName);
    /// A reconcile ended; `failure` is its category.
    fn reconciled(&self, concern: ConcernName, took: Duration, failure: Option<&'static str>);
}

struct Context<C: Concern> {
    concern: Arc<C>,
    observer: Arc<dyn Observer>,
    waits: Mutex<Waits<ObjectRef<C::Root>>>,
}

/// Runs a concern until `stop`.
pub async fn run<C: Concern>(concern: Arc<C>, observer: Arc<dyn Observer>, stop: CancellationToken) {
    let (api, config) = concern.roots();
    let controller = Controller::new(api, config)
        .with_config(controller::Config::default().concurrency(C::CONCURRENCY))
        .reconcile_all_on(concern.triggers())
        .reconcile_on(concern.wakes())
        .graceful_shutdown_on(stop.clone().cancelled_owned());
    let store = controller.store();
    let told = Arc::clone(&concern);
    let context = Arc::new(Context {
        concern,
        observer: Arc::clone(&observer),
        waits: Mutex::new(Waits::new()),
    });
    let ready = async {
        if store.wait_until_ready().await.is_ok() {
            observer.watch_ready(C::NAME);
        }
        std::future::pending::<()>().await;
    };
    let results = controller
        .run(drive::<C>, after_failure::<C>, context)
        .for_each(|result| {
            match result {
                Ok(_) | Err(controller::Error::ReconcilerFailed(..)) => {}
                Err(controller::Error::ObjectNotFound(root)) => told.gone(&root.name),
                Err(controller::Error::QueueError(error)) => {
                    observer.watch_failed(C::NAME);
                    warn!(concern = C::NAME.as_str(), error = %chain(&error), "a watch failed and is being restarted");
                }
                Err(controller::Error::RunnerError(error)) => {
                    warn!(concern = C::NAME.as_str(), error = %chain(&error), "the reconcile queue failed");
                }
            }
            std::future::ready(())
        });
    let drained = async {
        stop.cancelled().await;
        clock::sleep(DRAIN).await;
        warn!(
            concern = C::NAME.as_str(),
            "still running after {} s; dropped",
            DRAIN.as_secs()
        );
    };
    // Dropping the controller's stream aborts what still runs.
    tokio::select! {
        () = results => {}
        () = ready => {}
        () = drained => {}
    }
}

async fn drive<C: Concern>(root: Arc<C::Root>, context: Arc<Context<C>>) -> Result<Action, C::Error> {
    let started = clock::monotonic();
    let reference = ObjectRef::from_obj(&*root);
    // The object stands in kube-runtime's own span around this one.
    let span = info_span!("reconcile", concern = C::NAME.as_str());
    let result = pass(&*context.concern, root).instrument(span).await;
    let failure = result.as_ref().err().map(Failure::category);
    context.observer.reconciled(C::NAME, started.elapsed(), failure);
    let wake = result?;
    context
        .waits
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .succeeded(&reference);
    Ok(Action::requeue(match wake {
        Wake::Resync => RESYNC.mul_f64(1.0 + entropy::fraction() / 5.0),
        Wake::After(wait) => wait,
    }))
}

/// One pass of a concern over one root: observe, decide, act.
///
/// # Errors
/// When observing or acting fails.
pub async fn pass<C: Concern>(concern: &C, root: Arc<C::Root>) -> Result<Wake, C::Error> {
    let observed = concern.observe(root).await?;
    let plan = concern.decide(&observed, clock::now());
    concern.act(observed, plan).await
}

fn after_failure<C: Concern>(root: Arc<C::Root>, error: &C::Error, context: Arc<Context<C>>) -> Action {
    let reference = ObjectRef::from_obj(&*root);
    let wait = context
        .waits
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .failed(reference, clock::monotonic());
    warn!(concern = C::NAME.as_str(), category = error.category(), error = %chain(error), retry_in = ?wait, "reconcile failed");
    Action::requeue(wait.mul_f64(1.0 + entropy::fraction() / 5.0))
}

/// An error and its sources, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Waits that grow for each object by itself. kube-runtime has none of its own.
struct Waits<K> {
    failures: HashMap<K, (u32, Instant)>,
}

impl<K: std::hash::Hash + Eq> Waits<K> {
    fn new() -> Self {
        Self {
            failures: HashMap::new(),
        }
    }

    fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// The wait after one more failure at monotonic time `now`. A failure before the end of the last wait (another event
    /// woke the object) does not count: else a busy object would wait longest.
    fn failed(&mut self, key: K, now: Instant) -> Duration {
        let (times, not_before) = self.failures.entry(key).or_insert((0, now));
        if now >= *not_before {
            *times = times.saturating_add(1);
        }
        let wait = FIRST_WAIT
            .saturating_mul(1 << times.saturating_sub(1).min(16))
            .min(LAST_WAIT);
        *not_before = now + wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_for_each_object_by_itself() {
        let mut waits = Waits::new();
        let start = clock::monotonic();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(waits.failed("a", after(1)), FIRST_WAIT);
        assert_eq!(waits.failed("a", after(1)), FIRST_WAIT, "woken early");
        assert_eq!(waits.failed("a", after(2)), FIRST_WAIT * 2);
        assert_eq!(waits.failed("b", after(2)), FIRST_WAIT);
        waits.succeeded(&"a");
        assert_eq!(waits.failed("a", after(3)), FIRST_WAIT);
        let mut now = after(10);
        for _ in 0..40 {
            now += LAST_WAIT;
            assert!(waits.failed("b", now) <= LAST_WAIT);
        }
        assert_eq!(waits.failed("b", now + LAST_WAIT), LAST_WAIT);
    }
}
