//! The manifests concern: reads the manifests folder and the cluster, lets [`crate::reconcilers::manifests`] decide, and
//! carries the plan out.
//!
//! One pass runs at a time, and only while this instance leads. What a pass remembers is in [`State`]; losing it costs
//! requests, never correctness.

mod act;
mod bundled;
mod delete;
mod drift;
mod observe;
pub mod preview;
mod prune;
mod record;
mod seen;
mod sources;
mod stages;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::cluster::CallError;
use super::concern::{Concern, ConcernName, Failure, Wake};
use super::inventory::store::{self, Store, StoreError, Stored};
use super::watching;
use crate::host::folder::{Folder, FolderError, Listing};
use crate::host::watch_folder;
use crate::reconcilers::manifests::apply;
use crate::reconcilers::manifests::memory::Memory;
use crate::reconcilers::manifests::report::{Refusal, Report};
use crate::reconcilers::manifests::resolve::Resolution;
use crate::reconcilers::manifests::resources::ResourceMap;
use crate::reconcilers::manifests::source::SentinelValues;
use crate::reconcilers::object::{GroupResource, StackName};

/// Requests of one stage that are under way at one time. An API server on two cores takes a fifth more writes a second from
/// 16 than from 8, and hardly any more from 32.
const IN_FLIGHT: usize = 16;

/// What the concern is told at start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node's name: its entry in the inventory.
    pub node: String,
    /// The manifests folder.
    pub folder: PathBuf,
    /// Where this node keeps what it has seen of the folder across restarts.
    pub state: PathBuf,
    /// `kube-system`; tests use a namespace of their own.
    pub system_namespace: String,
    /// Applied objects are compared with the cluster once in this time.
    pub resync: Duration,
    /// The largest share of a stack that one pass may delete without a confirmation; none: no brake.
    pub max_share: Option<f64>,
    /// The leader's term, written with every change of the inventory.
    pub term: Option<u64>,
}

/// The concern.
pub struct Manifests {
    settings: Settings,
    /// Identity of what manifests need.
    client: Client,
    /// Identity of the operator itself: roots, and the inventory.
    operator: Client,
    store: Store,
    state: Arc<Mutex<State>>,
    reports: watch::Sender<Option<Report>>,
}

/// What passes remember.
struct State {
    folder: Folder,
    memory: Memory,
    /// What files held when they were last taken at their word.
    seen: seen::Seen,
    parsed: sources::Cache,
    served: Option<Arc<ResourceMap>>,
    /// The last resolution and what it was made of.
    resolution: Option<(ResolutionKey, Arc<Resolution>)>,
    stored: Option<Stored>,
    own: record::Own,
    server: Option<observe::Server>,
    /// The folder's digest and when it was first seen so.
    settled: Option<([u8; 32], Timestamp)>,
    /// Whether the bundled stacks of the folder are the staged ones.
    verified: Option<bundled::Verified>,
    /// When each resource is compared with the cluster next.
    resync: BTreeMap<GroupResource, Timestamp>,
    /// The local record by which a pass without any inventory ConfigMap would have pruned, had its files been read twice.
    /// Writing the superset has opened a migration since; the second read still goes by the record of the first.
    waiting: Option<apply::Record>,
    /// Prune candidates that stay, and until when they are not looked at again.
    kept: Option<(apply::Record, Timestamp, Vec<String>)>,
}

/// The folder's digest, the values of sentinels, and the stacks that are left out.
type ResolutionKey = ([u8; 32], SentinelValues, Vec<StackName>);

/// Everything one pass decides on.
pub struct Observed {
    state: OwnedMutexGuard<State>,
    listing: Arc<Listing>,
    resolution: Arc<Resolution>,
    /// Refusals of files; those of documents are in the resolution.
    refusals: Vec<Refusal>,
    /// The inventory, or why it cannot be read.
    stored: Result<Stored, String>,
    /// What this node had recorded in it when the pass began.
    own: Arc<apply::Record>,
    /// Live objects listed in this pass.
    live: BTreeMap<crate::reconcilers::object::ObjectId, crate::reconcilers::manifests::memory::LiveObject>,
    now: Timestamp,
}

/// What can go wrong in a pass as a whole.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifests folder cannot be read. That is never the absence of its files.
    #[error("cannot read the manifests folder")]
    Folder(#[source] FolderError),
    /// The cluster cannot be read.
    #[error("cannot read the cluster")]
    Cluster(#[source] CallError),
    /// The inventory cannot be read or written.
    #[error("cannot keep the inventory")]
    Inventory(#[source] StoreError),
    /// What was seen cannot be kept on disk.
    #[error("cannot keep what was seen of the manifests folder")]
    Seen(#[source] crate::host::atomic_file::Error),
    /// A task of this process failed.
    #[error("reading the manifests folder was cut short")]
    Task(#[source] tokio::task::JoinError),
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Folder(_) => "folder",
            Self::Cluster(_) => "cluster",
            Self::Inventory(_) => "inventory",
            Self::Seen(_) => "seen",
            Self::Task(_) => "task",
        }
    }
}

impl Manifests {
    /// Builds the concern; its reports can be followed. `client` applies and prunes, `operator` keeps the inventory.
    #[must_use]
    pub fn new(settings: Settings, client: Client, operator: Client) -> (Self, watch::Receiver<Option<Report>>) {
        let (reports, follow) = watch::channel(None);
        let state = State {
            folder: Folder::new(settings.folder.clone()),
            memory: Memory::default(),
            seen: seen::Seen::load(&settings.state),
            parsed: sources::Cache::default(),
            served: None,
            resolution: None,
            stored: None,
            own: record::Own::default(),
            server: None,
            settled: None,
            verified: None,
            resync: BTreeMap::new(),
            waiting: None,
            kept: None,
        };
        let store = Store::new(operator.clone(), &settings.system_namespace);
        (
            Self {
                settings,
                client,
                operator,
                store,
                state: Arc::new(Mutex::new(state)),
                reports,
            },
            follow,
        )
    }

    /// One pass, outside of the frame: when it wants to run again, and what it did.
    ///
    /// # Errors
    /// When the folder, the cluster or the inventory cannot be read or written.
    pub async fn pass_and_report(&self) -> Result<(Wake, Report), Error> {
        let observed = self.observe_folder().await?;
        let plan = self.plan(&observed);
        self.carry_out(observed, plan).await
    }

    fn plan(&self, observed: &Observed) -> apply::Plan {
        let (memory, own) = (&observed.state.memory, &observed.own);
        apply::decide(&observed.resolution.wanted, memory, own, observed.now)
    }
}

impl Concern for Manifests {
    const NAME: ConcernName = ConcernName::Manifests;
    const CONCURRENCY: u16 = 1;
    type Root = Namespace;
    type Observed = Observed;
    type Plan = apply::Plan;
    type Error = Error;

    fn roots(&self) -> (Api<Namespace>, watcher::Config) {
        watching::the_namespace(&self.operator, &self.settings.system_namespace)
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        let inventory: Api<ConfigMap> = Api::namespaced(self.operator.clone(), &self.settings.system_namespace);
        let state = Arc::clone(&self.state);
        let inventory = watcher(inventory, watching::only(store::NAME))
            .default_backoff()
            .touched_objects()
            .filter_map(move |event| {
                let state = Arc::clone(&state);
                async move {
                    let seen = event.ok()?.metadata.resource_version;
                    let mut state = state.lock().await;
                    // Our own write comes back as an event too; only somebody else's makes what we hold stale.
                    let ours = state.stored.as_ref().and_then(|stored| stored.resource_version.clone());
                    if record::is_at_least(ours.as_deref(), seen.as_deref()) {
                        return None;
                    }
                    state.stored = None;
                    Some(())
                }
            });
        futures::stream::select(watch_folder::watch(self.settings.folder.clone()), inventory).boxed()
    }

    async fn observe(&self, _root: Arc<Namespace>) -> Result<Observed, Error> {
        self.observe_folder().await
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> apply::Plan {
        self.plan(observed)
    }

    async fn act(&self, observed: Observed, plan: apply::Plan) -> Result<Wake, Error> {
        self.carry_out(observed, plan).await.map(|(wake, _)| wake)
    }
}
