//! What every instance tells of itself in ConfigMap `stratum-operator-status`: one key for each node, JSON.
//!
//! It is written when it says something new and never for a pass that changed nothing, so that an idle operator sends no
//! requests.

use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::cluster::{self, CallError, CallErrorKind};
use super::concern::chain;
use super::hands;
use crate::reconcilers::manifests::report::Report;

/// The ConfigMap's name.
pub const NAME: &str = "stratum-operator-status";

/// What one instance tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The version of its binary.
    pub version: String,
    /// The term it led when it wrote this; none when it never led.
    pub term: Option<u64>,
    /// The last manifests pass that said something new.
    pub manifests: Option<Report>,
}

/// Follows the reports of the manifests concern and publishes what is new in them, until `stop`.
pub async fn publish(
    client: Client,
    namespace: String,
    node: String,
    term: Option<u64>,
    mut reports: watch::Receiver<Option<Report>>,
    stop: CancellationToken,
) {
    let mut told: Option<Report> = None;
    loop {
        tokio::select! {
            changed = reports.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        let Some(report) = reports.borrow_and_update().clone() else {
            continue;
        };
        // Created and configured of one pass are unchanged in the next: that is news once, and only once.
        if told.as_ref().is_some_and(|told| told.says_the_same(&report)) {
            continue;
        }
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            term,
            manifests: Some(report.clone()),
        };
        let text = serde_json::to_string(&status).unwrap_or_default();
        match hands::merge_config_map_key(&client, &namespace, NAME, &node, &text).await {
            Ok(()) => told = Some(report),
            Err(error) => warn!(error = %chain(&error), "the status could not be published"),
        }
    }
}

/// Reads what all instances tell. A key that cannot be read is left out.
///
/// # Errors
/// When the API server does not answer.
pub async fn read(client: &Client, namespace: &str) -> Result<Vec<(String, Status)>, CallError> {
    let path = format!(
        "{}/{NAME}",
        cluster::collection_path("", "v1", "configmaps", Some(namespace))
    );
    let config_map: k8s_openapi::api::core::v1::ConfigMap =
        match cluster::fetch(client, &path, "application/json").await {
            Ok(found) => found,
            Err(error) if error.kind() == CallErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
    let data = config_map.data.unwrap_or_default();
    Ok(data
        .into_iter()
        .filter_map(|(node, text)| Some((node, serde_json::from_str(&text).ok()?)))
        .collect())
}
