//! The cluster's memory of node names: NodeIdentity objects, written by the operator alone.
//!
//! [`Identities`] is what this process knows of them, by one watch, and the only writer. [`follow`] is the concern that
//! keeps each in step with its Node.

pub mod follow;
mod object;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use serde_json::json;

use super::cluster::{self, CallError, CallErrorKind};
use super::concern::{ConcernName, Observer};
use super::hands;
use super::light::Light;
use super::mirror::{Change, Kept, Mirror};
use crate::reconcilers::csr::identity::{Holders, Identity};
use crate::reconcilers::host_name::Host;
use crate::reconcilers::object::{GroupResource, ObjectId, Uid};

pub use follow::view;
pub use object::{NodeIdentity, NodeIdentitySpec};

/// The group of this project's own kinds.
pub const GROUP: &str = "stratum.ciq.com";
/// The resource's name in paths and rights.
pub const RESOURCE: &str = "nodeidentities";

/// A record as it was read or written last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What it says.
    pub identity: Identity,
    /// Its resourceVersion, which the next write must name.
    pub resource_version: String,
    /// Its UID.
    pub uid: Uid,
}

/// All records. Clones share what is known.
#[derive(Clone)]
pub struct Identities {
    client: Client,
    known: Mirror<Stored>,
    holders: Arc<RwLock<Holders>>,
}

impl Identities {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let holders: Arc<RwLock<Holders>> = Arc::default();
        let index = Arc::clone(&holders);
        Self {
            client,
            known: Mirror::indexed(move |kept, change| {
                index_holders(&mut index.write().unwrap_or_else(PoisonError::into_inner), kept, change);
            }),
            holders,
        }
    }

    /// The same knowledge, written with another client: a leader's, which is fenced by its term.
    #[must_use]
    pub fn written_by(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// What is remembered of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Stored>> {
        self.known.get(name)
    }

    /// The names of all records.
    #[must_use]
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        self.known.all().into_iter().map(|(name, _)| name).collect()
    }

    /// Whether all records are known.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.known.is_ready()
    }

    /// Waits until [`Identities::is_ready`].
    pub async fn ready(&self) {
        self.known.ready().await;
    }

    /// Every changed record from now on, by its name.
    #[must_use]
    pub fn changes(&self) -> futures::stream::BoxStream<'static, Change> {
        self.known.changes()
    }

    /// Who had these hosts first, and nothing about others.
    #[must_use]
    pub fn holders_of(&self, hosts: &[Host]) -> Holders {
        let all = self.holders.read().unwrap_or_else(PoisonError::into_inner);
        all.of(hosts)
    }

    /// Watches, and does not end.
    pub async fn watch(self, observer: Arc<dyn Observer>) {
        let api: Api<Light<NodeIdentity>> = Api::all(self.client.clone());
        let keep = |object: Light<NodeIdentity>| stored(object.0);
        let all = watcher::Config::default();
        self.known
            .follow(api, all, keep, ConcernName::Identities, observer)
            .await;
    }

    /// Stores a record: creates it, or replaces the one in `known`.
    ///
    /// # Errors
    /// When somebody else wrote meanwhile (409), or the API server refuses or does not answer.
    pub async fn store(&self, name: &str, known: Option<&Stored>, identity: Identity) -> Result<(), CallError> {
        let body = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "NodeIdentity",
            "metadata": {"name": name, "resourceVersion": known.map(|known| &known.resource_version)},
            "spec": identity,
        });
        let live = hands::store(&self.client, &Self::path(), name, known.is_some(), &body).await?;
        let stored = Stored {
            identity,
            resource_version: live.resource_version,
            uid: live.uid.unwrap_or_else(|| Uid(String::new())),
        };
        self.known.put(name, Some(stored));
        Ok(())
    }

    /// Forgets a name, if its record still is the one in `known`. One that is gone already is fine.
    ///
    /// # Errors
    /// When somebody else wrote meanwhile (409), or the API server refuses or does not answer.
    pub async fn forget(&self, name: &str, known: &Stored) -> Result<(), CallError> {
        match hands::delete(&self.client, &id(name), "v1", &known.uid, &known.resource_version).await {
            Err(error) if error.kind() != CallErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.known.put(name, None);
        Ok(())
    }

    /// The path of all records.
    #[must_use]
    pub fn path() -> String {
        cluster::collection_path(GROUP, "v1", RESOURCE, None)
    }

    /// Reads a record from the API server, past what is known here.
    ///
    /// # Errors
    /// When the API server refuses or does not answer; a name without a record is none.
    pub async fn read(&self, name: &str) -> Result<Option<Stored>, CallError> {
        let path = cluster::object_path(&id(name), "v1");
        match cluster::fetch::<NodeIdentity>(&self.client, &path, "application/json").await {
            Ok(object) => Ok(Some(stored(object))),
            Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn index_holders(holders: &mut Holders, kept: &Kept<Stored>, change: &Change) {
    match change {
        Change::Of(name) => match kept.get(name) {
            Some(stored) => holders.insert(name, &stored.identity),
            None => holders.remove(name),
        },
        Change::OfAny => {
            *holders = Holders::default();
            for (name, stored) in kept {
                holders.insert(name, &stored.identity);
            }
        }
    }
}

fn id(name: &str) -> ObjectId {
    ObjectId {
        resource: GroupResource::new(GROUP, RESOURCE),
        namespace: None,
        name: name.to_owned(),
    }
}

fn stored(object: NodeIdentity) -> Stored {
    let mut identity = object.spec.identity;
    // Kept for as long as the record is there.
    identity.addresses.shrink_to_fit();
    Stored {
        identity,
        resource_version: object.metadata.resource_version.unwrap_or_default(),
        uid: Uid(object.metadata.uid.unwrap_or_default()),
    }
}
