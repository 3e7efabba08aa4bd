//! Reading and changing the inventory ConfigMap: compare-and-swap on its resourceVersion, so that no writer's entry is
//! ever lost, however many write at one time.

use std::collections::BTreeMap;

use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::controllers::{contention, hands};
use crate::host::clock;
use crate::reconcilers::inventory::records::{self, DocumentError, Documents, TooLarge};

/// The ConfigMap's name.
pub const NAME: &str = "stratum-addon-inventory";

/// Tries before a writer gives up. Fifty writers at one time need three on average, and seldom eight.
const TRIES: u32 = 60;

/// Why the inventory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server.
    #[error("cannot reach the inventory in ConfigMap {NAME}")]
    Call(#[source] CallError),
    /// Somebody edited it to something that is no inventory. Nothing is written while that stands.
    #[error("ConfigMap {NAME} cannot be read; correct it by hand with kubectl edit")]
    Unreadable(#[source] DocumentError),
    /// It would not fit. Nothing is written.
    #[error(
        "the inventory in ConfigMap {NAME} would not fit; split off objects into another cluster tool or fewer stacks"
    )]
    TooLarge(#[source] TooLarge),
    /// A later leader has written. This one must not.
    #[error("term {ours} ended: the inventory was written in term {stored}")]
    StaleTerm {
        /// The term of this writer.
        ours: u64,
        /// The term on record.
        stored: u64,
    },
    /// The change itself was refused by its author.
    #[error("the inventory is left as it is: {0}")]
    Refused(String),
    /// Every try lost a race.
    #[error("the inventory in ConfigMap {NAME} could not be written in {TRIES} tries; others write it all the time")]
    Contended,
}

/// The ConfigMap as it was read or written last.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Its resourceVersion; none when it does not exist.
    pub resource_version: Option<String>,
    /// What it says.
    pub documents: Documents,
    data: BTreeMap<String, String>,
    metadata: Metadata,
    rest: Map<String, Value>,
}

impl Stored {
    /// The size of its data, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text: usize = self.data.iter().map(|(key, value)| key.len() + value.len()).sum();
        text + self.binary_bytes()
    }

    /// The size of its binary data, which is somebody else's and counts for the limit too.
    fn binary_bytes(&self) -> usize {
        let binary = self.rest.get("binaryData").and_then(Value::as_object);
        let decoded = |text: &str| text.trim_end_matches('=').len() * 3 / 4;
        binary
            .into_iter()
            .flatten()
            .map(|(key, value)| key.len() + value.as_str().map_or(0, decoded))
            .sum()
    }

    /// The whole object to write.
    fn body(&self, namespace: &str) -> Value {
        let mut body = json!({"metadata": self.metadata, "data": self.data});
        body["metadata"]["name"] = NAME.into();
        body["metadata"]["namespace"] = namespace.into();
        body["metadata"]["resourceVersion"] = self.resource_version.clone().into();
        if let Value::Object(fields) = &mut body {
            fields.extend(self.rest.clone());
            fields.insert("apiVersion".to_owned(), "v1".into());
            fields.insert("kind".to_owned(), "ConfigMap".into());
        }
        body
    }
}

/// What is not ours (owners, finalizers, binary data) is carried along: a replace drops whatever it does not name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Option<String>,
    /// As it was read. What is written names [`Stored::resource_version`], which a write moves on.
    #[serde(skip_serializing)]
    resource_version: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Deserialize)]
struct ConfigMap {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl ConfigMap {
    fn read(mut self) -> Result<Stored, StoreError> {
        let documents = records::parse(&self.data, &self.metadata.annotations).map_err(StoreError::Unreadable)?;
        // The API server keeps its own; sending them back only costs bytes.
        self.metadata.rest.remove("managedFields");
        Ok(Stored {
            resource_version: self.metadata.resource_version.clone(),
            documents,
            data: self.data,
            metadata: self.metadata,
            rest: self.rest,
        })
    }
}

/// Where the inventory is.
#[derive(Clone)]
pub struct Store {
    client: Client,
    namespace: String,
}

impl Store {
    /// The inventory of a namespace, `kube-system` in every real cluster.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
        }
    }

    fn path(&self) -> String {
        cluster::collection_path("", "v1", "configmaps", Some(&self.namespace))
    }

    /// Reads it; one that does not exist is empty and has no resourceVersion.
    ///
    /// # Errors
    /// When the API server does not answer, or a document cannot be read.
    pub async fn load(&self) -> Result<Stored, StoreError> {
        let path = format!("{}/{NAME}", self.path());
        match cluster::fetch::<ConfigMap>(&self.client, &path, "application/json").await {
            Ok(config_map) => config_map.read(),
            Err(error) if error.kind() == CallErrorKind::NotFound => Ok(Stored::default()),
            Err(error) => Err(StoreError::Call(error)),
        }
    }

    /// Changes it. `change` may be called more than once, each time with what is stored then, and must derive everything
    /// from that; it is written only when it differs. `known` saves the first read. `term` is the leader's, none for a write
    /// that every instance may make.
    ///
    /// # Errors
    /// As [`Store::load`]; when the change is refused, too large, or of an ended term.
    pub async fn commit(
        &self,
        known: Option<Stored>,
        term: Option<u64>,
        mut change: impl FnMut(&mut Documents) -> Result<(), StoreError> + Send,
    ) -> Result<Stored, StoreError> {
        let mut known = known;
        for lost in 1..=TRIES {
            let began = clock::monotonic();
            let stored = match known.take() {
                Some(stored) => stored,
                None => self.load().await?,
            };
            if let Some(written) = self.swap(stored, term, &mut change).await? {
                return Ok(written);
            }
            contention::wait(began.elapsed(), lost).await;
        }
        Err(StoreError::Contended)
    }

    /// One try; `None` when another writer was faster.
    async fn swap(
        &self,
        mut stored: Stored,
        term: Option<u64>,
        change: &mut (impl FnMut(&mut Documents) -> Result<(), StoreError> + Send),
    ) -> Result<Option<Stored>, StoreError> {
        let mut after = stored.documents.clone();
        if let Some(ours) = term {
            if ours < after.term {
                return Err(StoreError::StaleTerm {
                    ours,
                    stored: after.term,
                });
            }
            after.term = ours;
        }
        change(&mut after)?;
        let mut compared = after.clone();
        compared.term = stored.documents.term;
        if compared == stored.documents && stored.resource_version.is_some() {
            return Ok(Some(stored));
        }
        records::render(
            &stored.documents,
            &after,
            &mut stored.data,
            &mut stored.metadata.annotations,
        )
        .map_err(StoreError::Unreadable)?;
        let others = stored.binary_bytes();
        records::forecast(&stored.data, others, &stored.documents, &after).map_err(StoreError::TooLarge)?;
        let body = stored.body(&self.namespace);
        let exists = stored.resource_version.is_some();
        match hands::store(&self.client, &self.path(), NAME, exists, &body).await {
            Ok(live) => {
                stored.resource_version = Some(live.resource_version);
                stored.metadata.uid = live.uid.map(|uid| uid.0);
                stored.documents = after;
                Ok(Some(stored))
            }
            Err(error) if error.kind() == CallErrorKind::Conflict => Ok(None),
            // Deleted between the read and the write; the next try creates it. To a create the same answer says that
            // the namespace is missing, which no further try would change.
            Err(error) if error.kind() == CallErrorKind::NotFound && exists => Ok(None),
            Err(error) => Err(StoreError::Call(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_put_into_the_config_map_is_written_back() {
        let read: ConfigMap = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"b": "AA=="}, "data": {"note": "mine"},
            "metadata": {
                "name": NAME, "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"l": "1"},
                "finalizers": ["x/y"], "managedFields": [{}], "annotations": {"a": "1"},
            },
        }))
        .unwrap();
        assert_eq!(
            read.clone().read().unwrap().body("n"),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"b": "AA=="}, "data": {"note": "mine"},
                "metadata": {
                    "name": NAME, "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"l": "1"},
                    "finalizers": ["x/y"], "annotations": {"a": "1"},
                },
            })
        );
        let mut written = read.read().unwrap();
        written.resource_version = Some("8".to_owned());
        assert_eq!(
            written.body("n")["metadata"]["resourceVersion"],
            "8",
            "the next write follows the last one"
        );
        let new = Stored::default().body("n");
        assert_eq!(new["metadata"]["name"], NAME);
        assert!(
            new["metadata"]["resourceVersion"].is_null(),
            "a create names no version"
        );
    }
}
