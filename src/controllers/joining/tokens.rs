//! Bootstrap tokens on the API server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::Client;
use serde::Deserialize;
use zeroize::Zeroize;

use super::publishing::{self, PublishError};
use crate::controllers::cluster::{self, CallError, CallErrorKind, pages};
use crate::controllers::hands;
use crate::host::entropy;
use crate::reconcilers::bootstrap_token::{BootstrapToken, SECRET_TYPE, TokenId};
use crate::reconcilers::joining::access;
use crate::reconcilers::joining::token::{self, Found, Kind};
use crate::reconcilers::object::{GroupResource, ObjectId, Uid};

/// Ids that are tried before it is given up: of two thousand million, one is taken by chance at most.
const TRIES: u32 = 5;
/// Enough for the 22 characters of a token, some of which are thrown away.
const RANDOM_BYTES: usize = 64;

/// A token that is not there.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The API server refuses or does not answer.
    #[error("cannot make a bootstrap token")]
    Call(#[source] CallError),
    /// Every id that was tried is taken.
    #[error("every one of {TRIES} random token ids is taken; something is wrong with this machine's randomness")]
    Taken,
}

/// Makes a token; its secret half is known to nobody but the caller and the cluster. Returns it with its Secret's UID.
///
/// # Errors
/// When the API server refuses or does not answer. An unanswered request may have made one that nobody knows.
pub async fn create(
    client: &Client,
    namespace: &str,
    kind: Kind,
    end: Option<Timestamp>,
    description: Option<&str>,
) -> Result<(BootstrapToken, Uid), CreateError> {
    let collection = secrets(namespace);
    for _ in 0..TRIES {
        let mut random = entropy::bytes::<RANDOM_BYTES>();
        let token = BootstrapToken::from_random(&random);
        random.zeroize();
        let Some(token) = token else { continue };
        let secret = token::secret(namespace, &token, kind, end, description);
        match hands::store(client, &collection, &token.id().secret_name(), false, &secret).await {
            Ok(live) => return Ok((token, live.uid.unwrap_or_else(|| Uid(String::new())))),
            Err(error) if error.kind() == CallErrorKind::Conflict => {}
            Err(error) => return Err(CreateError::Call(error)),
        }
    }
    Err(CreateError::Taken)
}

/// All bootstrap tokens that the cluster takes for ones and that are not being deleted, by id. Reads their secret halves.
///
/// # Errors
/// When a page fails: a token that is not in it would look deleted.
pub async fn list(client: &Client, namespace: &str) -> Result<Vec<Found>, CallError> {
    let selector = pages::selector("fieldSelector", &format!("type={SECRET_TYPE}"));
    let all: Vec<Secret> = pages::all(client, &secrets(namespace), &selector, "application/json").await?;
    let mut found: Vec<Found> = all.iter().filter_map(Secret::token).collect();
    found.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(found)
}

/// A token that is not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The API server refuses or does not answer.
    #[error("cannot delete token {id}")]
    Call {
        /// The token.
        id: TokenId,
        /// What the API server said.
        #[source]
        source: CallError,
    },
    /// It is deleted, but its signature is left.
    #[error(
        "token {id} is deleted, but its signature is left on cluster-info, where it opens nothing; kube-controller-manager or the next 'stratum token create' takes it away"
    )]
    Signature {
        /// The token.
        id: TokenId,
        /// Why.
        #[source]
        source: PublishError,
    },
}

/// Deletes a token: it lets nobody in and opens no grant any more (an API server that has just let somebody in remembers
/// that for ten seconds); the grant's entry the operator drops. Its binding and its signature go with it. Says whether there
/// was one.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn delete(client: &Client, namespace: &str, id: &TokenId) -> Result<bool, DeleteError> {
    let secret = ObjectId {
        resource: GroupResource::new("", "secrets"),
        namespace: Some(namespace.to_owned()),
        name: id.secret_name(),
    };
    let call = |source| DeleteError::Call { id: id.clone(), source };
    let was_there = remove(client, &secret).await.map_err(call)?;
    // The garbage collector does it too, where there is one.
    let binding = access::controller_binding_id(namespace, id);
    remove(client, &binding).await.map_err(call)?;
    match publishing::sign_cluster_info(client, namespace).await {
        Ok(()) | Err(PublishError::Missing) => Ok(was_there),
        Err(source) => Err(DeleteError::Signature { id: id.clone(), source }),
    }
}

/// Deletes an object as it is now; says whether there was one.
async fn remove(client: &Client, id: &ObjectId) -> Result<bool, CallError> {
    let mut tries = 1;
    loop {
        let Some(live) = cluster::look(client, id, "v1").await? else {
            return Ok(false);
        };
        let Some(uid) = &live.uid else { return Ok(false) };
        match hands::delete(client, id, "v1", uid, &live.resource_version).await {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == CallErrorKind::NotFound => return Ok(true),
            // Changed since: whatever changed, it is to go.
            Err(error) if error.kind() == CallErrorKind::Conflict && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

fn secrets(namespace: &str) -> String {
    cluster::collection_path("", "v1", "secrets", Some(namespace))
}

/// A token's Secret, cleared when dropped.
#[derive(Deserialize)]
struct Secret {
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, ByteString>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Secret {
    fn token(&self) -> Option<Found> {
        if self.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Found::read(&self.metadata.name, self.data.as_ref()?)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        for value in self.data.iter_mut().flat_map(BTreeMap::values_mut) {
            value.0.zeroize();
        }
    }
}
