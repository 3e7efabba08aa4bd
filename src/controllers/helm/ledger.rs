//! Which releases were made for which HelmChart: a ConfigMap of the system namespace.
//!
//! helm keeps a release where it installs it, and whoever may write Secrets there can make one up, with any objects in it and
//! any label. What is uninstalled for a HelmChart that is gone is therefore what stands here, where only administrators write.

use std::collections::BTreeMap;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::controllers::hands;
use crate::reconcilers::helm::{ChartId, ReleaseId};

/// The ConfigMap's name.
pub(super) const NAME: &str = "stratum-helm-releases";

/// What is remembered of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    /// The namespace of its HelmChart.
    pub namespace: String,
    /// The name of its HelmChart.
    pub name: String,
    /// The ServiceAccount, of the HelmChart's namespace, that made it; none: the deployer did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// When it was made first.
    pub since: Timestamp,
}

impl Remembered {
    /// Its HelmChart.
    #[must_use]
    pub fn owner(&self) -> ChartId {
        ChartId::new(&self.namespace, &self.name)
    }
}

/// The record, on one cluster.
#[derive(Clone)]
pub(super) struct Ledger {
    client: Client,
    namespace: String,
}

impl Ledger {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
        }
    }

    /// All that is remembered. An entry that cannot be read is left alone, and so is its release.
    pub(super) async fn read(&self) -> Result<BTreeMap<ReleaseId, Remembered>, CallError> {
        let path = self.path();
        let found = cluster::fetch::<ConfigMap>(&self.client, &path, "application/json").await;
        let data = match found {
            Ok(found) => found.data.unwrap_or_default(),
            Err(error) if error.kind() == CallErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        let parse = |(key, text): (String, String)| {
            let (namespace, name) = key.split_once('.')?;
            let release = ReleaseId {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            match serde_json::from_str(&text) {
                Ok(remembered) => Some((release, remembered)),
                Err(error) => {
                    tracing::warn!(key, %error, "an entry of ConfigMap {NAME} cannot be read; its release is left alone");
                    None
                }
            }
        };
        Ok(data.into_iter().filter_map(parse).collect())
    }

    /// Remembers a release, before it is made.
    pub(super) async fn remember(&self, release: &ReleaseId, what: &Remembered) -> Result<(), CallError> {
        let value = json!(what).to_string();
        hands::merge_config_map_key(&self.client, &self.namespace, NAME, &key(release), &value).await
    }

    /// Forgets one that is gone.
    pub(super) async fn forget(&self, release: &ReleaseId) -> Result<(), CallError> {
        let patch = json!({"data": {key(release): null}});
        hands::merge(&self.client, &self.path(), &patch).await.map(|_| ())
    }

    fn path(&self) -> String {
        let collection = cluster::collection_path("", "v1", "configmaps", Some(&self.namespace));
        format!("{collection}/{NAME}")
    }
}

/// A namespace has no dot in its name.
fn key(release: &ReleaseId) -> String {
    format!("{}.{}", release.namespace, release.name)
}

/// A definition's creation, of which every HelmChart is younger.
pub(super) async fn defined_at(client: &Client) -> Result<Option<Timestamp>, CallError> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let collection = cluster::collection_path("apiextensions.k8s.io", "v1", "customresourcedefinitions", None);
    let path = format!("{collection}/{}.{}", super::object::CHARTS, super::object::GROUP);
    let request = cluster::request(Method::GET, &path, "application/json", None);
    let answer = cluster::call(client, request).await?;
    let definition: CustomResourceDefinition =
        serde_json::from_slice(&answer.body).map_err(|source| CallError::Unreadable {
            method: Method::GET,
            path,
            source,
        })?;
    Ok(definition.metadata.creation_timestamp.map(|time| time.0))
}
