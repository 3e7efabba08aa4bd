//! Whether this process is alive, and whether it is ready.
//!
//! Alive: its tasks get to run, and it does not believe in a term that has ended. Ready: the API server has answered, and
//! every watch of the scopes that are active has listed once. An instance that does not lead is ready without the
//! leader's watches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::concern::{ConcernName, Observer};
use super::leader::Leadership;
use super::metrics::{ConcernMetrics, Metrics};
use crate::host::clock;

/// How often the heart beats.
const BEAT: Duration = Duration::from_secs(1);
/// Without a beat for so long, the process is wedged.
const WEDGED: Duration = Duration::from_secs(15);
/// How long a campaign may take to notice that its term has ended.
const NOTICE: Duration = Duration::from_secs(5);

/// The state behind `/healthz` and `/readyz`. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    beat: AtomicU64,
    leadership: watch::Receiver<Leadership>,
    /// Whether the API server has answered.
    reached: std::sync::atomic::AtomicBool,
    /// The watches of active scopes, and whether they have listed.
    watches: Mutex<BTreeMap<ConcernName, bool>>,
}

impl Health {
    /// Not ready, and alive.
    #[must_use]
    pub fn new(leadership: watch::Receiver<Leadership>) -> Self {
        let health = Self {
            inner: Arc::new(Inner {
                beat: AtomicU64::new(0),
                leadership,
                reached: false.into(),
                watches: Mutex::default(),
            }),
        };
        health.beat();
        health
    }

    /// Beats for ever. Run it where the work runs, so that it stops when that does.
    pub async fn keep_beating(self) {
        loop {
            self.beat();
            clock::sleep(BEAT).await;
        }
    }

    /// The API server has answered.
    pub fn reached(&self) {
        self.inner.reached.store(true, Ordering::Relaxed);
    }

    /// The watch of `concern` is begun: readiness waits for it.
    pub fn expect(&self, concern: ConcernName) {
        self.watches().entry(concern).or_insert(false);
    }

    /// What is wrong with this process, if anything; a supervisor should start it anew.
    #[must_use]
    pub fn sick(&self) -> Option<String> {
        let now = clock::since_boot();
        let silent = now.saturating_sub(Duration::from_millis(self.inner.beat.load(Ordering::Relaxed)));
        if silent >= WEDGED {
            return Some(format!("no task has run for {} s", silent.as_secs()));
        }
        match &*self.inner.leadership.borrow() {
            Leadership::Leading(term) if now >= term.fence.deadline() + NOTICE => Some(format!(
                "term {} ended {} s ago and the work of it still runs",
                term.number,
                now.saturating_sub(term.fence.deadline()).as_secs()
            )),
            Leadership::Leading(_) | Leadership::Standing { .. } | Leadership::Over => None,
        }
    }

    /// What this process still waits for; empty when it is ready.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.inner.reached.load(Ordering::Relaxed) {
            missing.push("the API server has not answered yet".to_owned());
        }
        for (concern, ready) in &*self.watches() {
            if !ready {
                missing.push(format!("the watch of {} has not listed yet", concern.as_str()));
            }
        }
        missing
    }

    fn beat(&self) {
        let now = u64::try_from(clock::since_boot().as_millis()).unwrap_or(u64::MAX);
        self.inner.beat.store(now, Ordering::Relaxed);
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, BTreeMap<ConcernName, bool>> {
        self.inner.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The observer of every concern's frame: metrics, and readiness.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Told everything.
    pub metrics: ConcernMetrics,
    /// Told of watches.
    pub health: Health,
}

impl Watched {
    /// Tells both.
    #[must_use]
    pub fn new(metrics: &Metrics, health: &Health) -> Self {
        Self {
            metrics: metrics.concerns.clone(),
            health: health.clone(),
        }
    }
}

impl Observer for Watched {
    fn watch_ready(&self, concern: ConcernName) {
        self.metrics.watch_ready(concern);
        self.health.watches().insert(concern, true);
    }

    fn watch_failed(&self, concern: ConcernName) {
        self.metrics.watch_failed(concern);
    }

    fn reconciled(&self, concern: ConcernName, took: Duration, failure: Option<&'static str>) {
        self.metrics.reconciled(concern, took, failure);
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::connection::Fence;
    use super::super::leader::Term;
    use super::*;

    #[tokio::test]
    async fn ready_counts_the_watches_that_were_begun() {
        let (_sender, receiver) = watch::channel(Leadership::Over);
        let health = Health::new(receiver);
        assert_eq!(health.missing().len(), 1);
        health.reached();
        assert!(health.missing().is_empty());
        health.expect(ConcernName::Manifests);
        assert_eq!(health.missing(), ["the watch of manifests has not listed yet"]);
        let metrics = super::super::metrics::Metrics::new().concerns;
        let watched = Watched {
            metrics,
            health: health.clone(),
        };
        watched.watch_ready(ConcernName::Manifests);
        health.expect(ConcernName::Manifests);
        assert!(health.missing().is_empty());
    }

    #[tokio::test]
    async fn a_term_that_outlives_its_deadline_is_sick() {
        let term = |deadline| {
            Leadership::Leading(Term {
                number: 3,
                identity: "a_1".to_owned(),
                fence: Fence::until(deadline),
                stop: CancellationToken::new(),
            })
        };
        let now = clock::since_boot();
        let (sender, receiver) = watch::channel(term(now + Duration::from_secs(9)));
        let health = Health::new(receiver);
        assert_eq!(health.sick(), None);
        sender.send_replace(term(now.saturating_sub(NOTICE)));
        assert!(health.sick().unwrap().starts_with("term 3 ended"));
    }
}
