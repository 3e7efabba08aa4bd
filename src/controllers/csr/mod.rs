//! The approvers of kubelets' certificate requests: [`serving`] and [`bootstrap`], on every instance.
//!
//! What they share is here: requests as they are judged, the approval itself, whose turn it is, and what is told of those
//! that wait.

pub mod bootstrap;
pub mod explain;
mod fair;
mod network;
mod objects;
pub mod self_check;
pub mod serving;
mod waiting;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use tokio::sync::watch;

use self::fair::Fair;
use self::waiting::Waiting;
use super::cluster::{CallError, CallErrorKind};
use super::concern::{Failure, Wake};
use super::events::{EventKind, Events};
use super::hands;
use super::identities::Identities;
use super::leader::Leadership;
use super::light::Light;
use super::metrics::csr::CsrMetrics;
use super::mirror::Change;
use super::nodes::Nodes;
use super::operator::Context;
use crate::host::{clock, entropy};
use crate::reconcilers::csr::{Reason, Request, Signer};

pub use network::{Answer, Networks};

/// Approvals under way at one time: what an API server on two cores takes without getting slower.
const AT_ONE_TIME: usize = 16;
/// How much later than the leader the other instances approve, so that they need not: three approvals of one request are
/// two refusals. Up to as much again, so that not all of them come at the same moment.
const AFTER_THE_LEADER: Duration = Duration::from_millis(800);
/// When a request that waits is judged anew, if nothing that matters to it changes.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// When a request that has just been noted as waiting is judged once more: what changed after it was judged and before it was
/// noted woke nobody.
const ONCE_MORE: Duration = Duration::from_millis(50);

/// A request object as it is watched.
pub type Root = Light<CertificateSigningRequest>;

/// Why a request could not be handled now.
#[derive(Debug, thiserror::Error)]
pub enum CsrError {
    /// The approval.
    #[error("approving the request")]
    Approve(#[source] CallError),
    /// The claim of its name.
    #[error("writing the NodeIdentity of {node}")]
    Identity {
        /// Whose.
        node: String,
        /// Why.
        #[source]
        source: CallError,
    },
}

impl Failure for CsrError {
    fn category(&self) -> &'static str {
        match self {
            Self::Approve(_) => "approve",
            Self::Identity { .. } => "identity",
        }
    }
}

/// What both approvers need.
pub struct Approver {
    client: Client,
    signer: Signer,
    events: Events,
    metrics: CsrMetrics,
    leadership: watch::Receiver<Leadership>,
    nodes: Nodes,
    identities: Identities,
    turns: Fair<(String, String)>,
    /// Since when a follower holds an approvable request back for the leader, by the request's name.
    held: Mutex<HashMap<String, Duration>>,
    waiting: Waiting,
}

impl Approver {
    /// An approver of one signer's requests, on what this process knows of Nodes and their identities.
    #[must_use]
    pub fn new(context: &Context, signer: Signer) -> Self {
        Self {
            client: context.client.clone(),
            signer,
            events: context.events(),
            metrics: context.metrics.csr.clone(),
            leadership: context.leadership.clone(),
            nodes: context.nodes.clone(),
            identities: context.identities.clone(),
            turns: Fair::new(AT_ONE_TIME),
            held: Mutex::default(),
            waiting: Waiting::default(),
        }
    }

    fn roots(&self) -> (Api<Root>, watcher::Config) {
        let own = watcher::Config::default()
            .fields(&format!("spec.signerName={}", self.signer.name()))
            .page_size(500);
        (Api::all(self.client.clone()), own)
    }

    /// The requests that wait and are about a node of which something has changed.
    fn wakes(self: &Arc<Self>) -> BoxStream<'static, ObjectRef<Root>> {
        let changes = stream::select(self.nodes.changes(), self.identities.changes());
        let this = Arc::clone(self);
        let woken = move |change| match change {
            Change::Of(node) => this.waiting.of(&node),
            Change::OfAny => this.waiting.all(),
        };
        changes
            .flat_map(move |change| stream::iter(woken(change)))
            .map(|request| ObjectRef::new(&request))
            .boxed()
    }

    /// Whether this instance should approve now; if not, when to look again. A leader does not wait, and nobody waits for
    /// a leader that does not come.
    fn hold_back(&self, request: &Request) -> Option<Duration> {
        let leads = matches!(&*self.leadership.borrow(), Leadership::Leading(_));
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::since_boot();
        let until = *held
            .entry(request.name.clone())
            .or_insert_with(|| now + AFTER_THE_LEADER.mul_f64(1.0 + entropy::fraction()));
        (!leads && now < until).then(|| until.saturating_sub(now))
    }

    /// Until Nodes and identities have been listed; before that, one that is missing means nothing.
    async fn ready(&self) {
        self.nodes.ready().await;
        self.identities.ready().await;
    }

    /// Approves, in the turn of who asks and for whom.
    async fn approve(&self, root: &Root, request: &Request, node: &str) -> Result<Wake, CsrError> {
        let _turn = self.turns.turn((request.requester.clone(), node.to_owned())).await;
        match hands::approve_request(&self.client, &objects::approved(root, clock::now())).await {
            Ok(()) => {
                self.metrics.approved(self.signer, objects::age(root, clock::now()));
                tracing::info!(request = request.name, requester = request.requester, node, "approved");
            }
            // Another instance was faster, or somebody denied it, or it is gone: the watch tells.
            Err(error) if matches!(error.kind(), CallErrorKind::Conflict | CallErrorKind::NotFound) => {}
            Err(error) => return Err(CsrError::Approve(error)),
        }
        Ok(Wake::Resync)
    }

    /// Tells why a request waits: once in the log, as an Event, and in the metrics.
    async fn wait(&self, root: &Root, request: &Request, node: Option<&str>, reason: &Reason) -> Wake {
        let is_news = self.waiting.put(&request.name, node, reason);
        if is_news {
            self.metrics.waits(self.signer, reason);
            self.metrics.pending(self.signer, self.waiting.len());
            let why = reason.to_string();
            tracing::info!(
                request = request.name,
                requester = request.requester,
                reason = reason.word(),
                why,
                "waits"
            );
            if self.waiting.may_tell(&request.requester, clock::since_boot()) {
                let regarding = objects::reference(root);
                self.events
                    .publish(regarding, EventKind::Warning, objects::event_reason(reason), why)
                    .await;
            }
        }
        match (reason.may_pass(), is_news) {
            (true, true) => Wake::After(ONCE_MORE),
            (true, false) => Wake::After(LOOK_AGAIN),
            (false, _) => Wake::Resync,
        }
    }

    /// A request that is decided, or gone.
    fn settled(&self, name: &str) -> Wake {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        if self.waiting.remove(name) {
            self.metrics.pending(self.signer, self.waiting.len());
        }
        Wake::Resync
    }
}
