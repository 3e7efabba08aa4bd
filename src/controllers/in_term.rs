//! A concern of the leader's, which carries nothing out once its term is over.
//!
//! The fence in the connection is what keeps an old term from sending. This is the moment before: a plan that was decided
//! in a term that has ended meanwhile is dropped as a whole, and counted, instead of failing request by request.

use std::sync::Arc;

use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;

use super::concern::{Concern, ConcernName, Wake};
use super::connection::Fence;
use super::metrics::{ByConcern, ConcernMetrics};

/// A concern, for one term.
pub struct InTerm<C> {
    /// The concern itself.
    pub concern: C,
    /// The fence of the term.
    pub fence: Fence,
    /// Where dropped plans are counted.
    pub metrics: ConcernMetrics,
}

impl<C: Concern> Concern for InTerm<C> {
    const NAME: ConcernName = C::NAME;
    const CONCURRENCY: u16 = C::CONCURRENCY;
    type Root = C::Root;
    type Observed = C::Observed;
    type Plan = C::Plan;
    type Error = C::Error;

    fn roots(&self) -> (Api<C::Root>, watcher::Config) {
        self.concern.roots()
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        self.concern.triggers()
    }

    fn wakes(&self) -> BoxStream<'static, ObjectRef<C::Root>> {
        self.concern.wakes()
    }

    fn gone(&self, name: &str) {
        self.concern.gone(name);
    }

    async fn observe(&self, root: Arc<C::Root>) -> Result<C::Observed, C::Error> {
        self.concern.observe(root).await
    }

    fn decide(&self, observed: &C::Observed, now: Timestamp) -> C::Plan {
        self.concern.decide(observed, now)
    }

    async fn act(&self, observed: C::Observed, plan: C::Plan) -> Result<Wake, C::Error> {
        if self.fence.has_ended() {
            let concern = C::NAME.into();
            self.metrics.dropped_plans.get_or_create(&ByConcern { concern }).inc();
            tracing::warn!(
                concern = C::NAME.as_str(),
                "the term ended while a plan was made; it is dropped"
            );
            return Ok(Wake::Resync);
        }
        self.concern.act(observed, plan).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;
    use crate::controllers::concern::{Failure, pass};
    use crate::controllers::metrics::Metrics;
    use crate::host::clock;

    #[derive(Default)]
    struct Acts(AtomicU32);

    #[derive(Debug, thiserror::Error)]
    #[error("never")]
    struct Never;

    impl Failure for Never {
        fn category(&self) -> &'static str {
            "never"
        }
    }

    impl Concern for Acts {
        const NAME: ConcernName = ConcernName::Manifests;
        const CONCURRENCY: u16 = 1;
        type Root = Namespace;
        type Observed = ();
        type Plan = ();
        type Error = Never;

        fn roots(&self) -> (Api<Namespace>, watcher::Config) {
            unreachable!("only passes are made here")
        }

        fn triggers(&self) -> BoxStream<'static, ()> {
            futures::stream::pending().boxed()
        }

        async fn observe(&self, _root: Arc<Namespace>) -> Result<(), Never> {
            Ok(())
        }

        fn decide(&self, _observed: &(), _now: Timestamp) {}

        async fn act(&self, _observed: (), _plan: ()) -> Result<Wake, Never> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Wake::Resync)
        }
    }

    #[tokio::test]
    async fn a_plan_of_an_ended_term_is_dropped_and_counted() {
        let metrics = Metrics::new().concerns;
        let in_term = InTerm {
            concern: Acts::default(),
            fence: Fence::until(clock::since_boot() + Duration::from_secs(60)),
            metrics: metrics.clone(),
        };
        let dropped = || {
            let concern = ConcernName::Manifests.into();
            metrics.dropped_plans.get_or_create(&ByConcern { concern }).get()
        };
        let root = Arc::new(Namespace::default());
        pass(&in_term, Arc::clone(&root)).await.unwrap();
        assert_eq!((in_term.concern.0.load(Ordering::Relaxed), dropped()), (1, 0));
        in_term.fence.revoke();
        pass(&in_term, root).await.unwrap();
        assert_eq!((in_term.concern.0.load(Ordering::Relaxed), dropped()), (1, 1));
    }
}
