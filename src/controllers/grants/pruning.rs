//! The concern that drops the entries of grants that are gone, also when nobody mints. The leader's.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use tracing::{info, warn};

use super::store::{self, Read, Written};
use crate::controllers::cluster::CallError;
use crate::controllers::concern::{Concern, ConcernName, Failure, Wake};
use crate::controllers::metrics::{ByReason, ByState, GrantMetrics, Word};
use crate::controllers::watching;
use crate::reconcilers::grants::NAME;
use crate::reconcilers::grants::plan::{Prune, prune_expired_grants};
use crate::reconcilers::grants::token::{SECRET_TYPE, Tokens};

/// How soon to look again after a lost race. The other's write wakes, too.
const AFTER_LOST_RACE: Duration = Duration::from_secs(1);
/// Past the end of a token, so that it has ended at the next look.
const PAST_THE_END: Duration = Duration::from_secs(1);
/// The longest wait for the end of a token: the wall clock may jump.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// What can go wrong. Nothing is dropped then.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The Secret could not be read.
    #[error("cannot read Secret {NAME}; its grants stay as they are")]
    Secret(#[source] CallError),
    /// A list that failed does not say that there are no tokens.
    #[error("cannot list all bootstrap tokens; the grants in Secret {NAME} stay as they are")]
    Tokens(#[source] CallError),
    /// The Secret could not be written.
    #[error("cannot drop grants from Secret {NAME}")]
    Write(#[source] CallError),
}

impl Failure for PruneError {
    fn category(&self) -> &'static str {
        match self {
            Self::Secret(_) => "secret",
            Self::Tokens(_) => "tokens",
            Self::Write(_) => "write",
        }
    }
}

/// The concern.
pub struct GrantPruning {
    client: Client,
    namespace: String,
    metrics: GrantMetrics,
}

/// What a pass saw: the Secret, and then all tokens.
pub struct Seen(Option<(Read, Tokens)>);

impl GrantPruning {
    /// The concern for the Secret in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: impl Into<String>, metrics: GrantMetrics) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            metrics,
        }
    }

    /// Metadata only: neither ciphertext nor tokens are sent for a watch, or kept.
    fn secrets(&self) -> Api<PartialObjectMeta<Secret>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn count(&self, plan: &Prune) {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        for (state, count) in [("live", plan.live), ("foreign", plan.foreign.len())] {
            let state = Word(state);
            self.metrics.grants.get_or_create(&ByState { state }).set(number(count));
        }
        self.metrics.size.set(number(plan.bytes));
        for (id, gone) in &plan.update.drop {
            let reason = Word(gone.into());
            self.metrics.dropped.get_or_create(&ByReason { reason }).inc();
            info!(token = %id, reason = reason.0, "dropped the grant of a token from Secret {NAME}: {gone}");
        }
        for key in &plan.foreign {
            warn!(%key, "a key of Secret {NAME} looks like a grant and is none; it is left alone, and whoever put it there has to remove it (kubectl -n {} patch secret {NAME} --type=merge -p '{{\"data\":{{\"{key}\":null}}}}')", self.namespace);
        }
    }
}

impl Concern for GrantPruning {
    const NAME: ConcernName = ConcernName::Grants;
    const CONCURRENCY: u16 = 1;
    type Root = PartialObjectMeta<Secret>;
    type Observed = Seen;
    type Plan = Option<Prune>;
    type Error = PruneError;

    fn roots(&self) -> (Api<Self::Root>, watcher::Config) {
        (self.secrets(), watching::only(NAME))
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        let tokens = watcher::Config::default().fields(&format!("type={SECRET_TYPE}"));
        watching::signals(self.secrets(), tokens, "bootstrap tokens").boxed()
    }

    async fn observe(&self, _root: Arc<Self::Root>) -> Result<Seen, PruneError> {
        let read = store::read(&self.client, &self.namespace).await;
        let Some(read) = read.map_err(PruneError::Secret)? else {
            return Ok(Seen(None));
        };
        // Only now: see the head of the module. And only if it matters, so that no token is read without need.
        let tokens = if read.stored.has_entries() {
            let listed = store::list_tokens(&self.client, &self.namespace).await;
            listed.map_err(PruneError::Tokens)?
        } else {
            Tokens::default()
        };
        Ok(Seen(Some((read, tokens))))
    }

    fn decide(&self, observed: &Seen, now: Timestamp) -> Option<Prune> {
        let Seen(Some((read, tokens))) = observed else {
            return None;
        };
        Some(prune_expired_grants(&read.stored, tokens, now))
    }

    async fn act(&self, observed: Seen, plan: Option<Prune>) -> Result<Wake, PruneError> {
        let (Seen(Some((read, _))), Some(plan)) = (observed, plan) else {
            self.count(&Prune::default());
            return Ok(Wake::Resync);
        };
        if !plan.update.is_nothing() {
            let written = store::write(&self.client, &self.namespace, Some(&read), &plan.update).await;
            match written.map_err(PruneError::Write)? {
                Written::Stored => {}
                Written::LostRace => return Ok(Wake::After(AFTER_LOST_RACE)),
            }
        }
        self.count(&plan);
        Ok(match plan.next_end {
            Some(end) => Wake::After((end + PAST_THE_END).min(LONGEST_WAIT)),
            None => Wake::Resync,
        })
    }
}
