//! What is told of a HelmChart in its status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::error::HelmError;
use super::object::{CHARTS, GROUP, HelmChart};
use crate::controllers::{cluster, hands};
use crate::reconcilers::helm::spec::{ChartStatus, Condition};

/// The type of the condition.
pub(super) const READY: &str = "Ready";

/// Whether the release is what was asked for, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Yes,
    No,
    /// Something is on its way.
    Unknown,
}

/// The status with another condition. The time of the last transition stays where the status of the condition does.
pub(super) fn with_condition(
    chart: &HelmChart,
    status: ChartStatus,
    ready: Ready,
    reason: &str,
    message: String,
    now: Timestamp,
) -> ChartStatus {
    let word = match ready {
        Ready::Yes => "True",
        Ready::No => "False",
        Ready::Unknown => "Unknown",
    };
    let before = status.conditions.iter().find(|one| one.kind == READY);
    let since = before
        .filter(|before| before.status == word)
        .map(|before| before.last_transition_time);
    let condition = Condition {
        kind: READY.to_owned(),
        status: word.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since.unwrap_or(now),
        observed_generation: chart.metadata.generation,
    };
    ChartStatus {
        observed_generation: chart.metadata.generation,
        conditions: vec![condition],
        ..status
    }
}

/// Writes a status, if it is another one.
pub(super) async fn write(client: &Client, chart: &HelmChart, status: &ChartStatus) -> Result<(), HelmError> {
    if chart.status.as_ref() == Some(status) {
        return Ok(());
    }
    let mut value = json!(status);
    if let Value::Object(fields) = &mut value {
        // A merge leaves what is not named.
        for name in ["revision", "chartVersion", "appVersion", "appliedHash", "failure"] {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    let namespace = chart.namespace().unwrap_or_default();
    let collection = cluster::collection_path(GROUP, "v1", CHARTS, Some(&namespace));
    let path = format!("{collection}/{}/status", cluster::segment(&chart.name_any()));
    let written = hands::merge(client, &path, &json!({"status": value})).await;
    match written {
        Ok(_) => Ok(()),
        // It was deleted meanwhile.
        Err(error) if error.kind() == cluster::CallErrorKind::NotFound => Ok(()),
        Err(source) => Err(HelmError::Write {
            what: "the status of a HelmChart",
            source,
        }),
    }
}

/// For Events.
pub(super) fn reference(chart: &HelmChart) -> ObjectReference {
    ObjectReference {
        api_version: Some(HelmChart::api_version(&()).into_owned()),
        kind: Some("HelmChart".to_owned()),
        namespace: chart.namespace(),
        name: Some(chart.name_any()),
        uid: chart.uid(),
        ..ObjectReference::default()
    }
}
