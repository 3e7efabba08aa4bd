//! What every instance tells of itself in ConfigMap `stratum-operator-status`: one key for each node, JSON.
//!
//! It is written when it says something new and never for a pass that changed nothing, so that an idle operator sends no
//! requests.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::cluster::{self, CallError, CallErrorKind};
use super::concern::chain;
use super::hands;
use super::inventory::sync::Standing;
use crate::host::clock;
use crate::reconcilers::inventory::migration::Note;
use crate::reconcilers::manifests::report::Report;

/// The ConfigMap's name.
pub const NAME: &str = "stratum-operator-status";

/// When a status that could not be published is tried again, if nothing new is said before.
const RETRY: Duration = Duration::from_secs(20);

/// What one instance tells: the last pass of each of its concerns that said something new.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The version of its binary.
    pub version: String,
    /// The term it led when it wrote this; none when it has not led since its start.
    pub term: Option<u64>,
    /// The manifests concern; none when it has not led since its start.
    pub manifests: Option<Report>,
    /// The inventory sync; none in what an older binary wrote.
    #[serde(default)]
    pub inventory_sync: Option<SyncStatus>,
}

/// The last pass of the inventory sync.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncStatus {
    /// Where the migration stands, as this instance sees it.
    pub note: Note,
    /// The nodes that have not contributed.
    pub missing: Vec<String>,
    /// Why this node's own record cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// When it was first so.
    pub at: Timestamp,
}

impl Status {
    fn new() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            term: None,
            manifests: None,
            inventory_sync: None,
        }
    }
}

/// Where the concerns of this instance leave what they have to tell.
#[derive(Clone, Debug)]
pub struct Board(watch::Sender<Status>);

impl Default for Board {
    fn default() -> Self {
        Self(watch::Sender::new(Status::new()))
    }
}

impl Board {
    /// Follows the reports of the manifests concern in a term, until there are no more.
    pub async fn follow_manifests(&self, term: u64, mut reports: watch::Receiver<Option<Report>>) {
        while reports.changed().await.is_ok() {
            let Some(report) = reports.borrow_and_update().clone() else {
                continue;
            };
            self.0.send_if_modified(|status| {
                // Created and configured of one pass are unchanged in the next: that is news once, and only once.
                let known = status.manifests.as_ref();
                let news = status.term != Some(term) || !known.is_some_and(|known| known.says_the_same(&report));
                if news {
                    status.term = Some(term);
                    status.manifests = Some(report);
                }
                news
            });
        }
    }

    /// Follows where the inventory sync stands, until it stands nowhere any more.
    pub async fn follow_sync(&self, mut standing: watch::Receiver<Standing>) {
        loop {
            let now = standing.borrow_and_update().clone();
            if let Standing {
                note: Some(note),
                missing,
                unreadable,
                bytes: _,
            } = now
            {
                self.0.send_if_modified(|status| {
                    let known = status.inventory_sync.as_ref();
                    let at = clock::now();
                    let now = SyncStatus {
                        note,
                        missing,
                        unreadable,
                        at: known.map_or(at, |known| known.at),
                    };
                    let news = known != Some(&now);
                    if news {
                        status.inventory_sync = Some(SyncStatus { at, ..now });
                    }
                    news
                });
            }
            if standing.changed().await.is_err() {
                return;
            }
        }
    }

    /// Publishes what is new on the board under the key `node`, until `stop`.
    pub async fn publish(self, client: Client, namespace: String, node: String, stop: CancellationToken) {
        let mut board = self.0.subscribe();
        let mut told = Status::new();
        loop {
            let now = board.borrow_and_update().clone();
            let mut failed = false;
            if now != told {
                let text = serde_json::to_string(&now).unwrap_or_default();
                match hands::merge_config_map_key(&client, &namespace, NAME, &node, &text).await {
                    Ok(()) => told = now,
                    Err(error) => {
                        failed = true;
                        warn!(error = %chain(&error), "the status could not be published");
                    }
                }
            }
            tokio::select! {
                // `self` keeps the board, so this does not fail.
                _ = board.changed() => {}
                () = clock::sleep(RETRY), if failed => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

/// What all instances tell.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// By node.
    pub instances: BTreeMap<String, Status>,
    /// Keys that cannot be read, with the reason.
    pub unreadable: BTreeMap<String, String>,
}

/// Reads what all instances tell.
///
/// # Errors
/// When the API server does not answer.
pub async fn read(client: &Client, namespace: &str) -> Result<Told, CallError> {
    let path = format!(
        "{}/{NAME}",
        cluster::collection_path("", "v1", "configmaps", Some(namespace))
    );
    let config_map: k8s_openapi::api::core::v1::ConfigMap =
        match cluster::fetch(client, &path, "application/json").await {
            Ok(found) => found,
            Err(error) if error.kind() == CallErrorKind::NotFound => return Ok(Told::default()),
            Err(error) => return Err(error),
        };
    let mut told = Told::default();
    for (node, text) in config_map.data.unwrap_or_default() {
        match serde_json::from_str(&text) {
            Ok(status) => {
                told.instances.insert(node, status);
            }
            Err(error) => {
                told.unreadable.insert(node, error.to_string());
            }
        }
    }
    Ok(told)
}
