//! The concern that brings this node's local record into the inventory. It runs on every instance, leader or not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{info, warn};

use super::local_record;
use super::store::{self, Store, StoreError, Stored};
use crate::controllers::cluster::{CONTROL_PLANE_LABEL, CallError, control_plane_nodes};
use crate::controllers::concern::{Concern, ConcernName, Failure, Wake, chain};
use crate::controllers::watching;
use crate::host;
use crate::reconcilers::inventory::migration::{self, LocalRecord, Note, Observed};
use crate::reconcilers::inventory::records::Documents;

/// How soon to look again while the migration is open: nothing tells of a local record that was repaired.
const WHILE_OPEN: Duration = Duration::from_secs(30);

/// Where the migration stands, for metrics and status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Why it is so; none before the first pass.
    pub note: Option<Note>,
    /// The nodes that have not contributed.
    pub missing: Vec<String>,
    /// The size of the ConfigMap's data, in bytes; 0 without one.
    pub bytes: usize,
    /// Why this node's own record cannot be read.
    pub unreadable: Option<String>,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The inventory could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The control-plane Nodes could not be listed.
    #[error("cannot list the control-plane Nodes")]
    Nodes(#[source] CallError),
    /// The local record could not be put aside.
    #[error("the inventory is complete, but this node's record could not be put aside")]
    Retire(#[source] std::io::Error),
    /// A task of ours ended early, as at a shutdown.
    #[error("interrupted while at this node's record")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl Failure for SyncError {
    fn category(&self) -> &'static str {
        match self {
            Self::Store(_) => "inventory",
            Self::Nodes(_) => "cluster",
            Self::Retire(_) => "local_record",
            Self::Interrupted(_) => "task",
        }
    }
}

/// The concern.
pub struct InventorySync {
    client: Client,
    store: Store,
    namespace: String,
    node: String,
    manifests: PathBuf,
    standing: watch::Sender<Standing>,
}

/// What a pass saw: the ConfigMap, and what the migration goes by.
pub struct Seen {
    stored: Stored,
    migration: Observed,
}

impl InventorySync {
    /// The concern for this `node`, whose manifests folder is `manifests`. `client` is not fenced by a term.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        node: impl Into<String>,
        manifests: PathBuf,
    ) -> (Self, watch::Receiver<Standing>) {
        let (standing, receiver) = watch::channel(Standing::default());
        let namespace = namespace.into();
        let sync = Self {
            store: Store::new(client.clone(), &namespace),
            client,
            namespace,
            node: node.into(),
            manifests,
            standing,
        };
        (sync, receiver)
    }

    fn report(&self, seen: &Observed, plan: &migration::Plan, bytes: usize) {
        let now = Standing {
            note: Some(plan.note),
            missing: plan.missing.clone(),
            bytes,
            unreadable: match &seen.local {
                LocalRecord::Unreadable(reason) if plan.note == Note::LocalUnreadable => Some(reason.clone()),
                LocalRecord::Unreadable(_) | LocalRecord::Absent | LocalRecord::Read(_) => None,
            },
        };
        self.standing.send_if_modified(|known| {
            let moved = known.note != now.note || known.missing != now.missing || known.unreadable != now.unreadable;
            if moved {
                let note: &'static str = plan.note.into();
                match &now.unreadable {
                    Some(reason) => warn!(note, missing = ?now.missing, reason, "pruning is suspended: this node's record cannot be read; repair it, or remove it to forget what it names"),
                    None => info!(note, missing = ?now.missing, "the migration to the cluster's inventory"),
                }
            }
            let changed = *known != now;
            *known = now;
            changed
        });
    }
}

impl Concern for InventorySync {
    const NAME: ConcernName = ConcernName::InventorySync;
    const CONCURRENCY: u16 = 1;
    type Root = Namespace;
    type Observed = Seen;
    type Plan = (migration::Plan, Timestamp);
    type Error = SyncError;

    fn roots(&self) -> (Api<Namespace>, watcher::Config) {
        watching::the_namespace(&self.client, &self.namespace)
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        let config_maps: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(self.client.clone(), &self.namespace);
        let inventory = watching::signals(config_maps, watching::only(store::NAME), "the inventory");
        let controllers = watcher::Config::default().labels(CONTROL_PLANE_LABEL);
        let mut names = Names::default();
        let all_nodes: Api<PartialObjectMeta<Node>> = Api::all(self.client.clone());
        let nodes = watcher::watcher(all_nodes, controllers)
            .default_backoff()
            .filter_map(move |event| {
                let named = read(event).map(|event| named(&event));
                std::future::ready(named.is_some_and(|event| names.changed(event)).then_some(()))
            });
        select(inventory, nodes).boxed()
    }

    async fn observe(&self, _root: Arc<Namespace>) -> Result<Seen, SyncError> {
        let manifests = self.manifests.clone();
        let local = tokio::task::spawn_blocking(move || local_record(&manifests));
        let (stored, control_plane, local) = tokio::join!(self.store.load(), control_plane_nodes(&self.client), local);
        let stored = stored?;
        Ok(Seen {
            migration: Observed {
                inventory: stored.documents.inventory.clone(),
                control_plane: control_plane.map_err(SyncError::Nodes)?,
                node: self.node.clone(),
                local: local.map_err(SyncError::Interrupted)?,
            },
            stored,
        })
    }

    fn decide(&self, observed: &Seen, now: Timestamp) -> Self::Plan {
        (migration::decide(&observed.migration, now), now)
    }

    async fn act(&self, observed: Seen, (mut plan, now): Self::Plan) -> Result<Wake, SyncError> {
        let Seen { mut stored, migration } = observed;
        if plan.writes() {
            // After a lost race the step is decided anew, on what the other writer left.
            let mut fresh = migration.clone();
            let last = &mut plan;
            let change = |documents: &mut Documents| {
                fresh.inventory = documents.inventory.clone();
                *last = migration::decide(&fresh, now);
                last.carry_out(&fresh.node, &mut documents.inventory);
                Ok(())
            };
            stored = self.store.commit(Some(stored), None, change).await?;
        }
        // Only now: the close is stored.
        if plan.retire {
            let manifests = self.manifests.clone();
            tokio::task::spawn_blocking(move || host::local_record::retire(&manifests))
                .await
                .map_err(SyncError::Interrupted)?
                .map_err(SyncError::Retire)?;
        }
        self.report(&migration, &plan, stored.bytes());
        Ok(match plan.note {
            Note::Closed | Note::Complete | Note::Recovery => Wake::Resync,
            Note::Waiting | Note::LocalUnreadable | Note::NoControlPlane => Wake::After(WHILE_OPEN),
        })
    }
}

/// An event of a watch that works; a failure is logged, and the watch is restarted by its backoff.
fn read<K>(event: watcher::Result<Event<K>>) -> Option<Event<K>> {
    event
        .inspect_err(
            |error| warn!(error = %chain(error), "the watch of control-plane Nodes failed and is being restarted"),
        )
        .ok()
}

fn named<K: kube::Resource>(event: &Event<K>) -> Event<String> {
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    match event {
        Event::Apply(object) => Event::Apply(name(object)),
        Event::Delete(object) => Event::Delete(name(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(name(object)),
        Event::InitDone => Event::InitDone,
    }
}

/// The names a watch has shown. Every heartbeat of a Node is an event, and only a new or a lost name matters here.
#[derive(Default)]
struct Names {
    known: BTreeSet<String>,
    listing: BTreeSet<String>,
}

impl Names {
    fn changed(&mut self, event: Event<String>) -> bool {
        match event {
            Event::Apply(name) => self.known.insert(name),
            Event::Delete(name) => self.known.remove(&name),
            Event::Init => {
                self.listing.clear();
                false
            }
            Event::InitApply(name) => {
                self.listing.insert(name);
                false
            }
            Event::InitDone => {
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listing));
                before != self.known
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_or_a_lost_node_wakes() {
        let mut names = Names::default();
        let mut see = |event: Event<&str>| {
            names.changed(match event {
                Event::Apply(name) => Event::Apply(name.to_owned()),
                Event::Delete(name) => Event::Delete(name.to_owned()),
                Event::Init => Event::Init,
                Event::InitApply(name) => Event::InitApply(name.to_owned()),
                Event::InitDone => Event::InitDone,
            })
        };
        for (event, wakes) in [
            (Event::Init, false),
            (Event::InitApply("a"), false),
            (Event::InitDone, true),
            (Event::Apply("a"), false),
            (Event::Apply("b"), true),
            (Event::Apply("b"), false),
            (Event::Init, false),
            (Event::InitApply("a"), false),
            (Event::InitApply("b"), false),
            (Event::InitDone, false),
            (Event::Delete("b"), true),
            (Event::Init, false),
            (Event::InitDone, true),
        ] {
            assert_eq!(see(event.clone()), wakes, "{event:?}");
        }
    }
}
