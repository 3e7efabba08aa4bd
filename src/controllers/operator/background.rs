//! What the operator does in the background, and how it reaches the API server for the first time.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{LONGEST_PAUSE, OperatorError};
use crate::controllers::concern::{ConcernName, Observer, chain};
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::health::Health;
use crate::controllers::identities::Identities;
use crate::controllers::leader::Leadership;
use crate::controllers::metrics::{LeaderMetrics, Metrics};
use crate::controllers::nodes::{self, Nodes};
use crate::host::{clock, entropy};

pub(super) async fn client(
    kubeconfig: &std::path::Path,
    role: &'static str,
    metrics: &Metrics,
) -> Result<Client, OperatorError> {
    let settings = ClientSettings {
        requests: metrics.requests.clone(),
        ..ClientSettings::new(kubeconfig, role)
    };
    connection::client(&settings, None).await.map_err(OperatorError::Client)
}

/// Until the API server answers.
pub(super) async fn reach(client: &Client) {
    let mut pause = Duration::from_millis(200);
    let mut logged = None;
    loop {
        match client.apiserver_version().await {
            Ok(version) => {
                tracing::info!(version = %version.git_version, "the API server answers");
                return;
            }
            Err(error) => {
                let text = chain(&error);
                if logged.as_ref() != Some(&text) {
                    tracing::warn!(error = %text, "waiting for the API server");
                    logged = Some(text);
                }
            }
        }
        clock::sleep(entropy::jittered(pause, 0.2)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Watches, for everybody in this process, the Nodes and what is remembered of their names, until the third value is
/// dropped. Readiness waits for the first lists.
pub(super) fn watch_for_all(
    client: &Client,
    health: &Health,
    observer: Arc<dyn Observer>,
) -> (Nodes, Identities, [AbortOnDropHandle<()>; 2]) {
    health.expect(ConcernName::Nodes);
    health.expect(ConcernName::Identities);
    let (nodes, watching) = nodes::watch(client.clone(), Arc::clone(&observer));
    let identities = Identities::new(client.clone());
    let remembering = identities.clone().watch(observer);
    (nodes, identities, [background(watching), background(remembering)])
}

pub(super) async fn count_leadership(metrics: LeaderMetrics, mut leadership: watch::Receiver<Leadership>) {
    let mut known: Option<String> = None;
    loop {
        let (leading, term, holder) = match &*leadership.borrow_and_update() {
            Leadership::Standing { holder } => (0, 0, holder.clone()),
            Leadership::Leading(term) => {
                let number = i64::try_from(term.number).unwrap_or(i64::MAX);
                (1, number, Some(term.identity.clone()))
            }
            Leadership::Over => (0, 0, None),
        };
        metrics.leader.set(leading);
        metrics.term.set(term);
        if holder.is_some() && holder != known {
            if known.is_some() {
                metrics.transitions.inc();
            }
            known = holder;
        }
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

pub(super) fn background(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}
