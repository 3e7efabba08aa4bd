//! Declared objects + what the API server serves -> objects with one canonical identity each, ready to be sent.
//!
//! Identity is the canonical resource, the effective namespace and the name; the API version is not part of it, so an
//! object that is re-versioned or made namespace-explicit stays the same object (seed, `manifests.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::report::{Refusal, RefusalReason};
use super::resources::{ResourceMap, Scope, Unresolved};
use super::source::Declared;
use super::{PRUNE_ANNOTATION, PRUNE_DISABLED, STACK_LABEL};
use crate::reconcilers::object::{ObjectId, StackName};

/// The namespace of a namespaced object whose file names none, as `kubectl` has it.
const DEFAULT_NAMESPACE: &str = "default";

/// A declared object whose resource is known: what is sent, and to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its canonical identity.
    pub id: ObjectId,
    /// The API version it is sent in, without the group.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// The stack it is applied from; none for a loose file.
    pub stack: Option<StackName>,
    /// The file, relative to the manifests folder.
    pub file: String,
    /// The line of its document.
    pub line: usize,
    /// The JSON body of the apply, with the stack's label in it.
    pub body: Arc<[u8]>,
    /// The SHA-256 of `body` and the API version.
    pub digest: [u8; 32],
    /// The declared labels, the stack's among them.
    pub labels: BTreeMap<String, String>,
    /// The declared annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Resolved {
    /// A refusal of this object.
    #[must_use]
    pub fn refusal(&self, reason: RefusalReason, message: impl Into<String>) -> Refusal {
        Refusal {
            file: self.file.clone(),
            line: Some(self.line),
            object: Some(self.id.to_string()),
            stack: self.stack.as_ref().map(ToString::to_string),
            reason,
            message: message.into(),
        }
    }
}

/// All objects of a pass.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    /// The objects to be applied, in the order of files and documents.
    pub wanted: Vec<Arc<Resolved>>,
    /// Every identity any document declares, refused ones among them: none of these is ever pruned.
    pub keep: BTreeSet<ObjectId>,
    /// What was refused here.
    pub refusals: Vec<Refusal>,
    /// Kinds this pass defines itself; the API server has to serve them before their objects can be sent.
    pub defined: BTreeSet<(String, String)>,
    /// Things worth knowing that stop nothing.
    pub notes: Vec<String>,
}

/// Gives every declared object its identity, and refuses what has none or is declared twice.
#[must_use]
pub fn resolve(declared: &[(Option<StackName>, &Declared)], served: &ResourceMap) -> Resolution {
    let mut resolution = Resolution::default();
    let mut served = served.clone();
    for (_, object) in declared.iter().filter(|(_, object)| is_definition(object)) {
        resolution.defined.extend(served.insert_definition(&object.body));
    }
    let mut by_identity: BTreeMap<ObjectId, Vec<Arc<Resolved>>> = BTreeMap::new();
    let mut order = Vec::new();
    for (stack, object) in declared {
        match one(stack.as_ref(), object, &served, &mut resolution.notes) {
            Ok(resolved) => {
                let same = by_identity.entry(resolved.id.clone()).or_default();
                if same.is_empty() {
                    order.push(resolved.id.clone());
                }
                same.push(Arc::new(resolved));
            }
            Err(refusal) => resolution.refusals.push(refusal),
        }
    }
    for id in order {
        let Some(same) = by_identity.remove(&id) else { continue };
        if let [only] = same.as_slice() {
            resolution.wanted.push(Arc::clone(only));
        } else {
            resolution.refusals.extend(declared_twice(&same));
        }
        resolution.keep.insert(id);
    }
    resolution
}

fn is_definition(object: &Declared) -> bool {
    object.kind == "CustomResourceDefinition" && object.api_version == "apiextensions.k8s.io/v1"
}

/// Neither of two documents that declare one object is applied: which of them is meant is for a person to say.
fn declared_twice(same: &[Arc<Resolved>]) -> Vec<Refusal> {
    let place = |object: &Resolved| format!("{}:{}", object.file, object.line);
    same.iter()
        .enumerate()
        .map(|(index, object)| {
            let others: Vec<String> = same
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .map(|(_, other)| place(other))
                .collect();
            object.refusal(
                RefusalReason::DeclaredTwice,
                format!(
                    "also declared at {}; neither is applied, keep one of them",
                    others.join(", ")
                ),
            )
        })
        .collect()
}

fn one(
    stack: Option<&StackName>,
    object: &Declared,
    served: &ResourceMap,
    notes: &mut Vec<String>,
) -> Result<Resolved, Refusal> {
    let refuse = |reason, message: String| Refusal {
        file: object.origin.file.clone(),
        line: Some(object.origin.line),
        object: Some(format!("{} {}", object.kind, object.name)),
        stack: stack.map(ToString::to_string),
        reason,
        message,
    };
    let found = served
        .resolve(&object.api_version, &object.kind)
        .map_err(|why| match why {
            Unresolved::GroupUnavailable => refuse(
                RefusalReason::GroupUnavailable,
                format!(
                    "the API group of {} does not answer; check its APIService",
                    object.api_version
                ),
            ),
            Unresolved::Unknown => refuse(
                RefusalReason::UnknownKind,
                format!(
                    "no API serves kind {} of {}; is its CustomResourceDefinition missing or its version removed?",
                    object.kind, object.api_version
                ),
            ),
        })?;
    if !found.patchable {
        return Err(refuse(
            RefusalReason::NotAppliable,
            format!("kind {} cannot be applied, only created", object.kind),
        ));
    }
    let namespace = match found.scope {
        Scope::Namespaced => Some(object.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
        Scope::Cluster => None,
    };
    let id = ObjectId {
        resource: found.resource.clone(),
        namespace: namespace.clone(),
        name: object.name.clone(),
    };
    if namespace.is_none() && object.namespace.is_some() {
        notes.push(format!(
            "{}:{}: {id} is cluster-scoped; its metadata.namespace is ignored",
            object.origin.file, object.origin.line
        ));
    }
    let (body, labels, annotations) =
        body_of(stack, object, namespace.as_deref()).map_err(|message| refuse(RefusalReason::Invalid, message))?;
    let body: Arc<[u8]> = serde_json::to_vec(&body)
        .map_err(|error| refuse(RefusalReason::Invalid, error.to_string()))?
        .into();
    let digest = Sha256::new()
        .chain_update(&object.api_version)
        .chain_update([0])
        .chain_update(&body)
        .finalize()
        .into();
    Ok(Resolved {
        id,
        version: found.version.clone(),
        kind: object.kind.clone(),
        stack: stack.cloned(),
        file: object.origin.file.clone(),
        line: object.origin.line,
        body,
        digest,
        labels,
        annotations,
    })
}

type Texts = BTreeMap<String, String>;

/// The body as it is sent: the effective namespace and the stack's label set, the rest as declared.
fn body_of(
    stack: Option<&StackName>,
    object: &Declared,
    namespace: Option<&str>,
) -> Result<(Value, Texts, Texts), String> {
    let mut body = object.body.clone();
    let metadata = body["metadata"].as_object_mut().ok_or("metadata is no map")?;
    match namespace {
        Some(namespace) => metadata.insert("namespace".to_owned(), namespace.into()),
        None => metadata.remove("namespace"),
    };
    if let Some(stack) = stack {
        let labels = metadata
            .entry("labels")
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if labels.is_null() {
            *labels = Value::Object(serde_json::Map::new());
        }
        let labels = labels.as_object_mut().ok_or("metadata.labels is no map")?;
        labels.insert(STACK_LABEL.to_owned(), stack.as_str().into());
    }
    let texts = |field: &str| match metadata.get(field) {
        None | Some(Value::Null) => Ok(Texts::new()),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) => Ok((key.clone(), text.clone())),
                other => Err(format!(
                    "metadata.{field}.{key} is {other}, not a text; put it in quotes"
                )),
            })
            .collect(),
        Some(_) => Err(format!("metadata.{field} is no map")),
    };
    let labels = texts("labels")?;
    let annotations = texts("annotations")?;
    Ok((body, labels, annotations))
}

/// Whether annotations ask that their object is never pruned.
#[must_use]
pub fn is_protected(annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .get(PRUNE_ANNOTATION)
        .is_some_and(|value| value == PRUNE_DISABLED)
}

#[cfg(test)]
pub(crate) mod fixtures;

#[cfg(test)]
mod tests;
