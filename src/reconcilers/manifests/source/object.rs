//! A JSON value -> the Kubernetes objects it declares.

use serde_json::{Map, Value};

use super::{Declared, Origin};

/// Fields that only the API server writes. A file that has them was exported from a cluster: applying them claims a
/// foreign object's identity or fails with a conflict that names none of this.
const EXPORTED: [&str; 5] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
];

/// Adds the objects of `value` to `into`, lists opened. `Err` says what is wrong, without the place.
pub(super) fn expand(origin: &Origin, value: Value, into: &mut Vec<Declared>) -> Result<(), String> {
    let mut body = match value {
        // `---` with nothing but `null`: kubectl skips it, too.
        Value::Null => return Ok(()),
        Value::Object(body) => body,
        Value::Array(_) => return Err("it is a list, not an object; put the items under `kind: List`".to_owned()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err("it is a single value, not a Kubernetes object with apiVersion, kind and metadata".to_owned());
        }
    };
    let api_version = text(&body, "apiVersion", "apiVersion")?;
    let kind = text(&body, "kind", "kind")?;
    if kind == "List" || (kind.ends_with("List") && body.get("items").is_some_and(Value::is_array)) {
        return expand_items(origin, &mut body, &api_version, &kind, into);
    }
    into.push(declared(origin, body, api_version, kind)?);
    Ok(())
}

fn expand_items(
    origin: &Origin,
    list: &mut Map<String, Value>,
    api_version: &str,
    kind: &str,
    into: &mut Vec<Declared>,
) -> Result<(), String> {
    let items = match list.remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(format!("items of this {kind} is not a list")),
    };
    for (index, mut item) in items.into_iter().enumerate() {
        // The items of a typed list need not repeat what its kind says.
        if let (Some(item), Some(item_kind)) = (item.as_object_mut(), kind.strip_suffix("List"))
            && !item_kind.is_empty()
        {
            item.entry("apiVersion").or_insert_with(|| api_version.into());
            item.entry("kind").or_insert_with(|| item_kind.into());
        }
        if item.is_null() {
            return Err(format!("items[{index}] of this {kind} is empty; remove it"));
        }
        expand(origin, item, into).map_err(|message| format!("items[{index}] of this {kind}: {message}"))?;
    }
    Ok(())
}

fn declared(
    origin: &Origin,
    mut body: Map<String, Value>,
    api_version: String,
    kind: String,
) -> Result<Declared, String> {
    if !well_formed(&api_version) {
        return Err(format!(
            "apiVersion {api_version:?} is neither VERSION nor GROUP/VERSION"
        ));
    }
    // The status is the cluster's to say. kubectl sends it and the API server drops it for every kind with a status
    // subresource; for the others, owning it would make the operator fight the controller that reports there.
    body.remove("status");
    let Some(Value::Object(metadata)) = body.get_mut("metadata") else {
        return Err(format!("this {kind} has no metadata; it needs at least metadata.name"));
    };
    if !metadata.contains_key("name") && metadata.contains_key("generateName") {
        return Err(format!(
            "this {kind} has generateName but no name, so every pass would make another one; give it a name"
        ));
    }
    let name = text(metadata, "name", "metadata.name")?;
    for field in EXPORTED {
        if metadata.get(field).is_some_and(|v| !v.is_null()) {
            return Err(format!(
                "{kind} {name} has metadata.{field}: it is exported YAML, remove it"
            ));
        }
        metadata.remove(field);
    }
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(empty)) if empty.is_empty() => None,
        Some(_) => Some(text(metadata, "namespace", "metadata.namespace")?),
    };
    if namespace.is_none() {
        metadata.remove("namespace");
    }
    Ok(Declared {
        origin: origin.clone(),
        api_version,
        kind,
        namespace,
        name,
        body: Value::Object(body),
    })
}

fn well_formed(api_version: &str) -> bool {
    let mut parts = api_version.split('/');
    let all = parts
        .clone()
        .all(|part| !part.is_empty() && !part.contains(char::is_whitespace));
    all && parts.by_ref().count() <= 2
}

fn text(map: &Map<String, Value>, key: &str, path: &str) -> Result<String, String> {
    match map.get(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        None => Err(format!("{path} is missing")),
        Some(Value::Null | Value::String(_)) => Err(format!("{path} is empty")),
        Some(other @ (Value::Number(_) | Value::Bool(_))) => Err(format!(
            "{path} is {other}, which YAML does not read as text; quote it: \"...\""
        )),
        Some(Value::Array(_) | Value::Object(_)) => Err(format!("{path} is not text")),
    }
}
