//! The only hands: every write to objects of the cluster is made here.
//!
//! Server-side apply under the field manager `stratum-operator`, forced, with strict field validation; deletions only
//! with the UID and resourceVersion they were decided on, so that a decision that has grown old is refused by the API
//! server and not carried out. Only what this program made for one use goes by its UID alone.

use http::Method;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use kube::core::Status;
use serde_json::json;

use super::cluster::{self, AS_METADATA, CallError};
use super::nodes;
use crate::reconcilers::manifests::memory::LiveObject;
use crate::reconcilers::object::{ObjectId, Uid};

/// The field manager of everything that is applied.
pub const FIELD_MANAGER: &str = "stratum-operator";

/// Whether a write is carried out or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Carried out.
    Real,
    /// Tried by the API server with all its validation and admission, and not stored.
    DryRun,
}

/// What an apply did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Whether the object did not exist before.
    pub created: bool,
    /// Its metadata afterwards.
    pub live: LiveObject,
    /// Warnings of the API server.
    pub warnings: Vec<String>,
}

/// Applies a body (JSON) to an object, and takes over its fields from whoever held them.
///
/// # Errors
/// When the API server refuses the object or does not answer.
pub async fn apply(client: &Client, id: &ObjectId, version: &str, body: &[u8]) -> Result<Applied, CallError> {
    let path = apply_path(id, version, Mode::Real);
    let answer = cluster::call(
        client,
        cluster::request(
            Method::PATCH,
            &path,
            AS_METADATA,
            Some(("application/apply-patch+yaml", body.to_vec())),
        ),
    )
    .await?;
    let live = cluster::live_of(&answer.body).map_err(|source| CallError::Unreadable {
        method: Method::PATCH,
        path,
        source,
    })?;
    Ok(Applied {
        created: answer.status == http::StatusCode::CREATED,
        live,
        warnings: answer.warnings,
    })
}

/// What an apply would make of an object: the whole object, and whether it would be created.
///
/// # Errors
/// As [`apply`].
pub async fn try_apply(
    client: &Client,
    id: &ObjectId,
    version: &str,
    body: &[u8],
) -> Result<(bool, serde_json::Value), CallError> {
    let path = apply_path(id, version, Mode::DryRun);
    let answer = cluster::call(
        client,
        cluster::request(
            Method::PATCH,
            &path,
            "application/json",
            Some(("application/apply-patch+yaml", body.to_vec())),
        ),
    )
    .await?;
    let object = serde_json::from_slice(&answer.body).map_err(|source| CallError::Unreadable {
        method: Method::PATCH,
        path,
        source,
    })?;
    Ok((answer.status == http::StatusCode::CREATED, object))
}

fn apply_path(id: &ObjectId, version: &str, mode: Mode) -> String {
    let dry_run = match mode {
        Mode::Real => "",
        Mode::DryRun => "&dryRun=All",
    };
    format!(
        "{}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict{dry_run}",
        cluster::object_path(id, version)
    )
}

/// Deletes an object in the background, if it still is the one with this UID in this state.
///
/// # Errors
/// When a precondition does not hold (409), the object is gone (404), or the API server refuses or does not answer.
pub async fn delete(
    client: &Client,
    id: &ObjectId,
    version: &str,
    uid: &Uid,
    resource_version: &str,
) -> Result<(), CallError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": uid.0, "resourceVersion": resource_version},
    });
    let path = cluster::object_path(id, version);
    let body = options.to_string().into_bytes();
    cluster::call(
        client,
        cluster::request(Method::DELETE, &path, AS_METADATA, Some(("application/json", body))),
    )
    .await?;
    Ok(())
}

/// Deletes an object in the background in whatever state it is, if it still is the one with this UID: for what this program
/// made for one use, and whose status others go on writing.
///
/// # Errors
/// When it is another one by now (409), is gone (404), or the API server refuses or does not answer.
pub async fn discard(client: &Client, id: &ObjectId, version: &str, uid: &Uid) -> Result<(), CallError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": uid.0},
    });
    let path = cluster::object_path(id, version);
    let content = ("application/json", options.to_string().into_bytes());
    let request = cluster::request(Method::DELETE, &path, AS_METADATA, Some(content));
    cluster::call(client, request).await.map(|_| ())
}

/// Approves a certificate signing request: replaces its conditions, if it still is the one in this state.
///
/// # Errors
/// When somebody else wrote meanwhile (409) or deleted it (404), or the API server refuses or does not answer.
pub async fn approve_request(client: &Client, request: &CertificateSigningRequest) -> Result<(), CallError> {
    let collection = cluster::collection_path("certificates.k8s.io", "v1", "certificatesigningrequests", None);
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let path = format!("{collection}/{name}/approval?fieldManager={FIELD_MANAGER}");
    // A value of an API type always has a form in JSON.
    let body = serde_json::to_vec(request).unwrap_or_default();
    let put = cluster::request(Method::PUT, &path, AS_METADATA, Some(("application/json", body)));
    cluster::call(client, put).await.map(|_| ())
}

/// Asks a question of the kind that is posted and answered at once (a SubjectAccessReview), and stores nothing.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn ask(client: &Client, path: &str, question: &serde_json::Value) -> Result<serde_json::Value, CallError> {
    let content = ("application/json", question.to_string().into_bytes());
    let post = cluster::request(Method::POST, path, "application/json", Some(content));
    let answer = cluster::call(client, post).await?;
    serde_json::from_slice(&answer.body).map_err(|source| CallError::Unreadable {
        method: Method::POST,
        path: path.to_owned(),
        source,
    })
}

/// Evicts a pod, if it still is the one with this UID; the API server asks its PodDisruptionBudget first.
///
/// # Errors
/// When the budget does not allow it now (429), more than one budget selects the pod (500), the pod is another one (409) or
/// gone (404), or the API server refuses or does not answer.
pub async fn evict(client: &Client, namespace: &str, pod: &str, uid: &Uid) -> Result<(), CallError> {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid.0}},
    });
    let path = format!(
        "{}/{pod}/eviction",
        cluster::collection_path("", "v1", "pods", Some(namespace))
    );
    let content = ("application/json", eviction.to_string().into_bytes());
    let request = cluster::request(Method::POST, &path, "application/json", Some(content));
    let answer = cluster::call(client, request).await?;
    // With more than one budget the API server answers 201, and the refusal stands in the body.
    match serde_json::from_slice::<Status>(&answer.body) {
        Ok(status) if status.is_failure() => Err(CallError::Refused {
            method: Method::POST,
            path,
            status: status.boxed(),
        }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Merges one key into the data of a ConfigMap, which is created when it does not exist.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn merge_config_map_key(
    client: &Client,
    namespace: &str,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), CallError> {
    let collection = cluster::collection_path("", "v1", "configmaps", Some(namespace));
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: value}})
        .to_string()
        .into_bytes();
    let path = format!("{collection}/{name}?fieldManager={FIELD_MANAGER}");
    let merge = cluster::request(
        Method::PATCH,
        &path,
        AS_METADATA,
        Some(("application/merge-patch+json", body.clone())),
    );
    match cluster::call(client, merge).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == cluster::CallErrorKind::NotFound => {
            let create = cluster::request(
                Method::POST,
                &format!("{collection}?fieldManager={FIELD_MANAGER}"),
                AS_METADATA,
                Some(("application/json", body)),
            );
            cluster::call(client, create).await.map(|_| ())
        }
        Err(error) => Err(error),
    }
}

/// Merges a patch into the object at `path`. Whatever it does not name stays as it is.
///
/// # Errors
/// When the object is in another state than the patch's `metadata.resourceVersion` names (409) or is gone (404), or the API
/// server refuses or does not answer.
pub async fn merge(client: &Client, path: &str, patch: &serde_json::Value) -> Result<LiveObject, CallError> {
    let content = ("application/merge-patch+json", patch.to_string().into_bytes());
    let path = format!("{path}?fieldManager={FIELD_MANAGER}");
    let answer = cluster::call(
        client,
        cluster::request(Method::PATCH, &path, AS_METADATA, Some(content)),
    )
    .await?;
    cluster::live_of(&answer.body).map_err(|source| CallError::Unreadable {
        method: Method::PATCH,
        path,
        source,
    })
}

/// Sets an annotation of a Node, or removes it when the value is none, if the Node still is the one with this UID.
///
/// # Errors
/// When it is another Node by now (409), there is none (404), or the API server refuses or does not answer.
pub async fn annotate_node(
    client: &Client,
    node: &str,
    uid: &Uid,
    annotation: (&str, Option<&str>),
    mode: Mode,
) -> Result<(), CallError> {
    patch_node(client, node, uid, "annotations", annotation, mode).await
}

/// Sets a label of a Node, or removes it; only of the Node with that UID.
///
/// # Errors
/// As [`annotate_node`].
pub async fn label_node(client: &Client, node: &str, uid: &Uid, label: (&str, Option<&str>)) -> Result<(), CallError> {
    patch_node(client, node, uid, "labels", label, Mode::Real).await
}

async fn patch_node(
    client: &Client,
    node: &str,
    uid: &Uid,
    field: &str,
    (key, value): (&str, Option<&str>),
    mode: Mode,
) -> Result<(), CallError> {
    let dry_run = match mode {
        Mode::Real => "",
        Mode::DryRun => "&dryRun=All",
    };
    let path = format!("{}?fieldManager={FIELD_MANAGER}{dry_run}", nodes::path(node));
    let body = json!({"metadata": {"uid": uid.0, field: {key: value}}});
    let content = ("application/merge-patch+json", body.to_string().into_bytes());
    let patch = cluster::request(Method::PATCH, &path, AS_METADATA, Some(content));
    cluster::call(client, patch).await.map(|_| ())
}

/// Stores a whole object: replaces the one its `metadata.resourceVersion` names, or creates it.
///
/// # Errors
/// When somebody else wrote meanwhile (409) or deleted it (404), or the API server refuses or does not answer.
pub async fn store(
    client: &Client,
    collection: &str,
    name: &str,
    exists: bool,
    body: &serde_json::Value,
) -> Result<LiveObject, CallError> {
    let (method, path) = if exists {
        (Method::PUT, format!("{collection}/{name}?fieldManager={FIELD_MANAGER}"))
    } else {
        (Method::POST, format!("{collection}?fieldManager={FIELD_MANAGER}"))
    };
    let content = ("application/json", body.to_string().into_bytes());
    let answer = cluster::call(
        client,
        cluster::request(method.clone(), &path, AS_METADATA, Some(content)),
    )
    .await?;
    cluster::live_of(&answer.body).map_err(|source| CallError::Unreadable { method, path, source })
}
