//! Requests to the API server, in the few forms the concerns need, below any decision.
//!
//! Reads ask for metadata only and keep only what is used of it, so that a large cluster costs little memory. Writes
//! are in [`super::hands`]. Every answer that is not a success becomes a [`CallError`] that says what was asked for.

pub(crate) mod definitions;
mod nodes;
pub(crate) mod pages;

use std::collections::BTreeMap;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::concern::chain;
use crate::reconcilers::manifests::memory::LiveObject;
use crate::reconcilers::manifests::resources::{ResourceMap, Scope, Served};
use crate::reconcilers::object::{ObjectId, Uid};

pub use nodes::{CONTROL_PLANE_LABEL, control_plane_nodes};

/// Metadata instead of whole objects (Kubernetes API concepts, "Receiving resources as PartialObjectMetadata").
pub(crate) const AS_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const AS_METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// How the refusal of an object begins that server-side apply cannot read.
const UNTYPED: &str = "failed to create typed patch object";

/// A request the API server did not grant.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server answered with a refusal.
    #[error("{method} {path}: {} ({})", status.message, status.code)]
    Refused {
        /// The method.
        method: Method,
        /// The path without its query.
        path: String,
        /// The answer.
        status: Box<Status>,
    },
    /// No answer, or not a whole one.
    #[error("{method} {path}: no answer from the API server")]
    Unanswered {
        /// The method.
        method: Method,
        /// The path without its query.
        path: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An answer that is not of the promised form.
    #[error("{method} {path}: the answer is not of the form this version expects")]
    Unreadable {
        /// The method.
        method: Method,
        /// The path without its query.
        path: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// What kind of answer a [`CallError`] is; a metric label, and what a caller decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum CallErrorKind {
    /// 404.
    NotFound,
    /// 409: somebody else wrote meanwhile, or a precondition does not hold.
    Conflict,
    /// 401 or 403.
    Forbidden,
    /// 400 or 422: the object itself is refused.
    Invalid,
    /// Any other refusal.
    Refused,
    /// 429, 5xx, no answer, or an unreadable one.
    Unanswered,
}

impl CallError {
    /// The kind of this error.
    #[must_use]
    pub fn kind(&self) -> CallErrorKind {
        match self {
            Self::Refused { status, .. } => match status.code {
                404 => CallErrorKind::NotFound,
                409 => CallErrorKind::Conflict,
                401 | 403 => CallErrorKind::Forbidden,
                400 | 422 => CallErrorKind::Invalid,
                // The API server answers 500 when an object does not fit its schema as far as server-side apply reads it.
                500 if status.message.starts_with(UNTYPED) => CallErrorKind::Invalid,
                429 | 500.. => CallErrorKind::Unanswered,
                _ => CallErrorKind::Refused,
            },
            Self::Unanswered { .. } | Self::Unreadable { .. } => CallErrorKind::Unanswered,
        }
    }

    /// What the API server said, or why it said nothing, in one line without the request.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Refused { status, .. } => status.message.clone(),
            Self::Unanswered { source, .. } => format!("no answer from the API server: {}", chain(&**source)),
            Self::Unreadable { source, .. } => {
                format!("the answer is not of the form this version expects: {}", chain(source))
            }
        }
    }
}

/// A granted request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 200, 201 or 202.
    pub(crate) status: StatusCode,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// The texts of the API server's warnings.
    pub(crate) warnings: Vec<String>,
}

/// Sends a request and reads its whole answer.
///
/// # Errors
/// When the API server refuses, or no whole answer comes.
pub(crate) async fn call(client: &Client, request: Request<Vec<u8>>) -> Result<Answer, CallError> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let unanswered = |source: Box<dyn std::error::Error + Send + Sync>| CallError::Unanswered {
        method: method.clone(),
        path: path.clone(),
        source,
    };
    let (parts, body) = request.into_parts();
    let response = client
        .send(Request::from_parts(parts, Body::from(body)))
        .await
        .map_err(|source| match source {
            kube::Error::Api(status) => CallError::Refused {
                method: method.clone(),
                path: path.clone(),
                status,
            },
            other => unanswered(Box::new(other)),
        })?;
    let status = response.status();
    let warnings = response
        .headers()
        .get_all(http::header::WARNING)
        .iter()
        .filter_map(|value| warning_text(value.to_str().ok()?))
        .collect();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|source| unanswered(Box::new(source)))?
        .to_bytes()
        .to_vec();
    if status.is_success() {
        return Ok(Answer { status, body, warnings });
    }
    let refusal = serde_json::from_slice::<Status>(&body)
        .unwrap_or_else(|_| Status::failure(&String::from_utf8_lossy(&body), "Unknown").with_code(status.as_u16()));
    Err(CallError::Refused {
        method,
        path,
        status: refusal.boxed(),
    })
}

/// The text of a `Warning: 299 - "text"` header (RFC 7234, section 5.5).
fn warning_text(header: &str) -> Option<String> {
    let (_, quoted) = header.split_once('"')?;
    Some(quoted.strip_suffix('"').unwrap_or(quoted).replace("\\\"", "\""))
}

/// Sends a request and reads its answer as `T`.
///
/// # Errors
/// As [`call`], and when the answer is not of the form of `T`.
pub(crate) async fn fetch<T: DeserializeOwned>(client: &Client, path: &str, accept: &str) -> Result<T, CallError> {
    let answer = call(client, request(Method::GET, path, accept, None)).await?;
    serde_json::from_slice(&answer.body).map_err(|source| CallError::Unreadable {
        method: Method::GET,
        path: path.split('?').next().unwrap_or(path).to_owned(),
        source,
    })
}

/// Builds a request. A path this module or its callers made is always valid.
pub(crate) fn request(method: Method, path: &str, accept: &str, body: Option<(&str, Vec<u8>)>) -> Request<Vec<u8>> {
    let mut request = Request::new(Vec::new());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(accept) = accept.parse() {
        headers.insert(http::header::ACCEPT, accept);
    }
    if let Some((content_type, body)) = body {
        if let Ok(content_type) = content_type.parse() {
            headers.insert(http::header::CONTENT_TYPE, content_type);
        }
        *request.body_mut() = body;
    }
    request
}

/// The path of all objects of a resource, in one namespace or in the whole cluster.
#[must_use]
pub fn collection_path(group: &str, version: &str, resource: &str, namespace: Option<&str>) -> String {
    let root = if group.is_empty() {
        format!("/api/{}", segment(version))
    } else {
        format!("/apis/{}/{}", segment(group), segment(version))
    };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{}/{}", segment(namespace), segment(resource)),
        None => format!("{root}/{}", segment(resource)),
    }
}

/// The path of one object in the given API version.
#[must_use]
pub fn object_path(id: &ObjectId, version: &str) -> String {
    let collection = collection_path(
        &id.resource.group,
        version,
        &id.resource.resource,
        id.namespace.as_deref(),
    );
    format!("{collection}/{}", segment(&id.name))
}

/// One path segment: a name from a file must not be able to reach another path.
pub(crate) fn segment(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_:.".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// The metadata of an object, and nothing else of it.
#[derive(Debug, Deserialize)]
struct Partial {
    metadata: PartialMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialMetadata {
    #[serde(default)]
    name: String,
    namespace: Option<String>,
    uid: Option<Uid>,
    #[serde(default)]
    resource_version: String,
    generation: Option<i64>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<serde::de::IgnoredAny>>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl PartialMetadata {
    fn into_live(self) -> LiveObject {
        LiveObject {
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            labels: self.labels.unwrap_or_default(),
            annotations: self.annotations.unwrap_or_default(),
            owned: self.owner_references.is_some_and(|owners| !owners.is_empty()),
            terminating: self.deletion_timestamp.is_some(),
        }
    }
}

/// Reads metadata of one object out of an answer.
pub(crate) fn live_of(body: &[u8]) -> Result<LiveObject, serde_json::Error> {
    Ok(serde_json::from_slice::<Partial>(body)?.metadata.into_live())
}

/// Everything the API server serves (aggregated discovery: two requests).
///
/// # Errors
/// When either request fails.
pub async fn discover(client: &Client) -> Result<ResourceMap, CallError> {
    let accept = kube::core::discovery::v2::ACCEPT_AGGREGATED_DISCOVERY_V2;
    let (core, groups) = futures::try_join!(fetch(client, "/api", accept), fetch(client, "/apis", accept))?;
    Ok(ResourceMap::from_discovery([&core, &groups]))
}

/// The metadata of one object; `None` when it does not exist.
///
/// # Errors
/// When the request fails for another reason than absence.
pub async fn look(client: &Client, id: &ObjectId, version: &str) -> Result<Option<LiveObject>, CallError> {
    match fetch::<Partial>(client, &object_path(id, version), AS_METADATA).await {
        Ok(partial) => Ok(Some(partial.metadata.into_live())),
        Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The metadata of all objects of a resource, optionally in one namespace, optionally by label selector.
///
/// # Errors
/// When a page fails; a partial list is never returned, since a missing object would look deleted.
pub async fn list(
    client: &Client,
    served: &Served,
    namespace: Option<&str>,
    selector: Option<&str>,
) -> Result<BTreeMap<ObjectId, LiveObject>, CallError> {
    let path = collection_path(
        &served.resource.group,
        &served.version,
        &served.resource.resource,
        namespace,
    );
    let query = selector.map(|selector| pages::selector("labelSelector", selector));
    let items: Vec<Partial> = pages::all(client, &path, &query.unwrap_or_default(), AS_METADATA_LIST).await?;
    let found = items.into_iter().map(|item| {
        let id = ObjectId {
            resource: served.resource.clone(),
            namespace: item
                .metadata
                .namespace
                .clone()
                .filter(|_| served.scope == Scope::Namespaced),
            name: item.metadata.name.clone(),
        };
        (id, item.metadata.into_live())
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests;
