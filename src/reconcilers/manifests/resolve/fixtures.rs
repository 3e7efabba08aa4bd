//! Small objects for the tests of this concern.

use super::super::resources;
use super::super::source::{Declared, Origin};
use super::*;

/// A stack's name.
pub(crate) fn stack(name: &str) -> StackName {
    name.parse().unwrap()
}

/// A declared object from JSON, in file `FILE:1`.
pub(crate) fn declared(file: &str, body: Value) -> Declared {
    Declared {
        origin: Origin {
            file: file.to_owned(),
            document: 1,
            line: 1,
        },
        api_version: body["apiVersion"].as_str().unwrap().to_owned(),
        kind: body["kind"].as_str().unwrap().to_owned(),
        namespace: body["metadata"]["namespace"].as_str().map(str::to_owned),
        name: body["metadata"]["name"].as_str().unwrap().to_owned(),
        body,
    }
}

/// A ConfigMap of a stack, resolved.
pub(crate) fn object(stack_name: &str, name: &str, value: &str) -> Arc<Resolved> {
    let declared = declared(
        &format!("{stack_name}/{name}.yaml"),
        serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}}),
    );
    let resolution = resolve(&[(Some(stack(stack_name)), &declared)], &resources::fixtures::map());
    Arc::clone(&resolution.wanted[0])
}
