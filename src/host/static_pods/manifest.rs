//! A manifest as text: what its container runs, and the change of the one annotation that makes the kubelet replace it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Component, RESTARTED_AT};
use crate::text::{one_line, yaml_fault};

/// What a component's container runs, as its manifest says. For a static pod that and the image are everything: the
/// kubelet gives nothing of its own environment to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSpec {
    /// The explicit command. When it is empty the image's entrypoint runs, which the manifest does not tell.
    pub command: Vec<String>,
    /// The command and then the arguments. Without a command it begins with the arguments.
    pub argv: Vec<String>,
    /// The declared variables, `None` where a value comes from elsewhere. Those of the image are not among them.
    pub environment: BTreeMap<String, Option<String>>,
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    spec: PodSpec,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    containers: Vec<Container>,
    #[serde(default)]
    termination_grace_period_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    command: Option<Vec<String>>,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    name: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    value_from: Option<Value>,
}

/// Reads the container of a component's name. The error is one line, without the file's name.
pub(super) fn container_spec(component: Component, text: &str) -> Result<ContainerSpec, String> {
    let pod: Pod = parse(text)?;
    let mut containers = pod.spec.containers.into_iter();
    let container = containers
        .find(|container| container.name == component.name())
        .ok_or_else(|| format!("it has no container named {component}"))?;
    let command = container.command.unwrap_or_default();
    let mut argv = command.clone();
    argv.extend(container.args.unwrap_or_default());
    let variables = container.env.unwrap_or_default().into_iter();
    let environment = variables.map(
        |Variable {
             name,
             value,
             value_from,
         }| match value_from {
            // Kubernetes has an empty value for none at all.
            None => (name, Some(value.unwrap_or_default())),
            Some(_) => (name, None),
        },
    );
    Ok(ContainerSpec {
        command,
        argv,
        environment: environment.collect(),
    })
}

/// The value of the restart annotation, where the text is a pod and has one.
pub(super) fn restarted_at(text: &str) -> Option<String> {
    let pod: Pod = parse(text).ok()?;
    pod.metadata.annotations?.remove(RESTARTED_AT)
}

/// How long the kubelet lets the pod's processes take to end before it kills them.
pub(super) fn grace_period(text: &str) -> Result<Duration, String> {
    let pod: Pod = parse(text)?;
    let seconds = pod.spec.termination_grace_period_seconds;
    Ok(Duration::from_secs(seconds.unwrap_or(DEFAULT_GRACE_PERIOD)))
}

/// Of a pod that says nothing, in seconds. <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>
const DEFAULT_GRACE_PERIOD: u64 = 30;

/// The text with the restart annotation at `value`, and nothing else changed: comments, order and line breaks stay where
/// the text has the usual form. What was changed is read back and compared; a text of another form is written anew from
/// its meaning.
pub(super) fn bump(text: &str, value: &str) -> Result<String, String> {
    let mut wanted: Value = parse(text)?;
    let metadata = wanted.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| "it has no `metadata`".to_owned())?;
    let annotations = metadata
        .entry("annotations")
        .and_modify(|annotations| {
            if annotations.is_null() {
                *annotations = Value::Object(serde_json::Map::new());
            }
        })
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    let annotations = annotations.as_object_mut();
    let annotations = annotations.ok_or_else(|| "its `annotations` are no map".to_owned())?;
    annotations.insert(RESTARTED_AT.to_owned(), Value::String(value.to_owned()));
    let edited = edit(text, value);
    if parse::<Value>(&edited).is_ok_and(|edited| edited == wanted) {
        return Ok(edited);
    }
    serde_saphyr::to_string(&wanted).map_err(|error| one_line(&error.to_string()))
}

/// Changes the annotation's line, or adds one below `annotations:`, or both below `metadata:`, in a text of block style.
fn edit(text: &str, value: &str) -> String {
    let line = format!("{RESTARTED_AT}: {}", Value::String(value.to_owned()));
    let present = |trimmed: &str| {
        let key = trimmed.trim_start_matches(['"', '\'']);
        key.strip_prefix(RESTARTED_AT)
            .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).starts_with(':'))
    };
    let mut edited = String::with_capacity(text.len() + 100);
    let mut inserted = text.lines().any(|line| present(line.trim_start()));
    let has_annotations = text.lines().any(|line| line.trim_end() == "  annotations:");
    for old in text.split_inclusive('\n') {
        let content = old.trim_end_matches(['\n', '\r']);
        let trimmed = content.trim_start();
        if present(trimmed) {
            let indent = &content[..content.len() - trimmed.len()];
            edited.push_str(&format!("{indent}{line}\n"));
            continue;
        }
        edited.push_str(old);
        if inserted {
            continue;
        }
        if content.trim_end() == "  annotations:" {
            edited.push_str(&format!("    {line}\n"));
            inserted = true;
        } else if !has_annotations && content.trim_end() == "metadata:" {
            edited.push_str(&format!("  annotations:\n    {line}\n"));
            inserted = true;
        }
    }
    edited
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| yaml_fault(&error))
}
