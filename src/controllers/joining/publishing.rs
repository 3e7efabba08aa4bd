//! Publishing `cluster-info`, its signatures, and what whoever joins may do.

use std::collections::BTreeMap;

use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tokens;
use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::controllers::{contention, hands};
use crate::host::clock;
use crate::pki::certificate::Certificate;
use crate::reconcilers::election::fence;
use crate::reconcilers::grants;
use crate::reconcilers::joining::access::{self, Declared};
use crate::reconcilers::joining::cluster_info::{self, NAME, NAMESPACE};
use crate::reconcilers::joining::token::Found;

/// Tries before a write gives up. Its other writers are kube-controller-manager and other commands like this.
const TRIES: u32 = 30;

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// ConfigMap cluster-info could not be read or written.
    #[error("cannot read or write ConfigMap {NAMESPACE}/{NAME}")]
    ConfigMap(#[source] CallError),
    /// Without all tokens it cannot be signed.
    #[error("cannot list the bootstrap tokens that ConfigMap {NAMESPACE}/{NAME} is signed under")]
    Tokens(#[source] CallError),
    /// A binding could not be written.
    #[error("cannot bind what whoever joins may do: {name}")]
    Access {
        /// The object.
        name: String,
        /// What the API server said.
        #[source]
        source: CallError,
    },
    /// There is nothing to sign.
    #[error(
        "there is no ConfigMap {NAMESPACE}/{NAME}, by which joiners find the cluster: 'stratum up' on a controller publishes it once the API server is ready"
    )]
    Missing,
    /// Every try lost a race.
    #[error("ConfigMap {NAMESPACE}/{NAME} could not be written in {TRIES} tries; others write it all the time")]
    Contended,
}

/// Publishes that the API servers are at `server` (a URL) and belong to the authorities of `bundle`, with a signature for
/// every token in the same write, and lets everybody read it. Does nothing where that is so already.
///
/// # Errors
/// When the API server refuses or does not answer. It can be repeated.
pub async fn publish_cluster_info(
    client: &Client,
    system_namespace: &str,
    server: &str,
    bundle: &[Certificate],
) -> Result<(), PublishError> {
    for declared in access::standing(system_namespace, grants::NAME, fence::NAME) {
        apply(client, &declared).await?;
    }
    let content = cluster_info::render(server, bundle);
    write(client, system_namespace, Some(&content)).await.map(|_| ())
}

/// Signs what is published under the tokens there are now, so that one which was just made works at once.
///
/// # Errors
/// When nothing is published, or the API server refuses or does not answer.
pub async fn sign_cluster_info(client: &Client, system_namespace: &str) -> Result<(), PublishError> {
    match write(client, system_namespace, None).await? {
        Some(_) => Ok(()),
        None => Err(PublishError::Missing),
    }
}

/// The data of ConfigMap cluster-info; none when there is none.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn read_cluster_info(client: &Client) -> Result<Option<BTreeMap<String, String>>, PublishError> {
    Ok(read(client).await?.map(|found| found.data))
}

pub(super) async fn apply(client: &Client, declared: &Declared) -> Result<(), PublishError> {
    let Declared { id, version, body } = declared;
    let applied = hands::apply(client, id, version, body.to_string().as_bytes()).await;
    applied.map(|_| ()).map_err(|source| PublishError::Access {
        name: id.name.clone(),
        source,
    })
}

#[derive(Deserialize)]
struct ConfigMap {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

fn collection() -> String {
    cluster::collection_path("", "v1", "configmaps", Some(NAMESPACE))
}

async fn read(client: &Client) -> Result<Option<ConfigMap>, PublishError> {
    match cluster::fetch(client, &format!("{}/{NAME}", collection()), "application/json").await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
        Err(error) => Err(PublishError::ConfigMap(error)),
    }
}

/// Brings content and signatures to what they should be; none when there is nothing to sign.
async fn write(client: &Client, namespace: &str, content: Option<&str>) -> Result<Option<()>, PublishError> {
    for lost in 1..=TRIES {
        let began = clock::monotonic();
        let found = read(client).await?;
        if found.is_none() && content.is_none() {
            return Ok(None);
        }
        // After the ConfigMap: a token that is made in between is signed for by whoever makes it.
        let tokens = tokens::list(client, namespace).await.map_err(PublishError::Tokens)?;
        let written = change(client, found, content, &tokens).await;
        match written {
            Ok(()) => return Ok(Some(())),
            Err(error) if matches!(error.kind(), CallErrorKind::Conflict | CallErrorKind::NotFound) => {
                // Written, made or deleted by somebody else since it was read; or the namespace is not there yet, which
                // the API server makes itself.
                contention::wait(began.elapsed(), lost).await;
            }
            Err(error) => return Err(PublishError::ConfigMap(error)),
        }
    }
    Err(PublishError::Contended)
}

async fn change(
    client: &Client,
    found: Option<ConfigMap>,
    content: Option<&str>,
    tokens: &[Found],
) -> Result<(), CallError> {
    let none = BTreeMap::new();
    let data = found.as_ref().map_or(&none, |found| &found.data);
    let changes = cluster_info::changes(data, content, tokens, clock::now());
    if changes.is_empty() {
        return Ok(());
    }
    let data: Value = json!(changes);
    match found {
        Some(found) => {
            let version = found.metadata.resource_version;
            let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
            hands::merge(client, &format!("{}/{NAME}", collection()), &patch).await?;
        }
        None => {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"name": NAME, "namespace": NAMESPACE},
            });
            hands::store(client, &collection(), NAME, false, &body).await?;
        }
    }
    Ok(())
}
