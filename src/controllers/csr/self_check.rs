//! Whether bootstrap tokens get any node's name past this operator.
//!
//! kube-controller-manager approves client requests of whoever may create `certificatesigningrequests/nodeclient`, without
//! a look at the name. Where that is granted to bootstrap tokens, the approver here is a decoration: the stock one wins.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::controllers::cluster::{self, CallError};
use crate::controllers::concern::chain;
use crate::controllers::events::{EventKind, Events};
use crate::controllers::hands;
use crate::controllers::metrics::csr::CsrMetrics;
use crate::host::{clock, entropy};
use crate::reconcilers::csr::BOOTSTRAPPERS;

/// Every so often the answer is asked for again.
const AGAIN: Duration = Duration::from_secs(600);
/// After a failure.
const SOON: Duration = Duration::from_secs(30);
/// Who joins: all tokens, and kubeadm's usual group of them.
const JOINERS: [&str; 2] = [BOOTSTRAPPERS, "system:bootstrappers:kubeadm:default-node-token"];

/// Asks at the start and again and again, until `stop`.
pub async fn run(client: Client, events: Events, metrics: CsrMetrics, stop: CancellationToken) {
    let check = async {
        loop {
            let wait = match granted(&client).await {
                Ok(granted) => {
                    metrics.stock_approval(granted.is_some());
                    if let Some(group) = granted {
                        tell(&events, group).await;
                    }
                    AGAIN
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot ask whether bootstrap tokens get any name past this operator");
                    SOON
                }
            };
            clock::sleep(wait.mul_f64(1.0 + entropy::fraction() / 5.0)).await;
        }
    };
    stop.run_until_cancelled(check).await;
}

/// The first group of joiners to which the stock approval is granted.
async fn granted(client: &Client) -> Result<Option<&'static str>, CallError> {
    for group in JOINERS {
        let mut groups = vec!["system:authenticated", BOOTSTRAPPERS];
        groups.retain(|other| *other != group);
        groups.push(group);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": "system:bootstrap:stratum", "groups": groups,
                "resourceAttributes": {
                    "group": "certificates.k8s.io", "resource": "certificatesigningrequests",
                    "subresource": "nodeclient", "verb": "create",
                },
            },
        });
        let path = cluster::collection_path("authorization.k8s.io", "v1", "subjectaccessreviews", None);
        let answer: Value = hands::ask(client, &path, &review).await?;
        if answer["status"]["allowed"] == true {
            return Ok(Some(group));
        }
    }
    Ok(None)
}

async fn tell(events: &Events, group: &'static str) {
    let note = format!(
        "group {group} may create certificatesigningrequests/nodeclient, so kube-controller-manager gives any node's name to any join token; remove the binding (kubeadm's is kubeadm:node-autoapprove-bootstrap)"
    );
    tracing::error!("{note}");
    let namespace = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Namespace".to_owned()),
        name: Some("kube-system".to_owned()),
        ..ObjectReference::default()
    };
    events
        .publish(namespace, EventKind::Warning, "StockApprovalGranted", note)
        .await;
}
