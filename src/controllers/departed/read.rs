//! What the API server says of a marked Node at this moment. Only Nodes that might go are asked about.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;

use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::controllers::hands::{self, Mode};
use crate::controllers::nodes;
use crate::reconcilers::departed::{Answer, MARK, Marked, Reading, answer, believe, listen};
use crate::reconcilers::node::NodeFacts;
use crate::reconcilers::object::{GroupResource, ObjectId};

/// Where kubelets renew their Leases.
const NODE_LEASES: &str = "kube-node-lease";
/// What the mark would be, if the dry run were none.
const TRIAL: &str = "tried by the operator, which the admission policy has to refuse";

/// Reads a marked Node anew; none when it is gone, or marked no more.
pub(super) async fn anew(client: &Client, known: Arc<NodeFacts>, at: Timestamp) -> Result<Option<Marked>, CallError> {
    if believe(&known, at).is_err() {
        return Ok(Some(Marked { known, reading: None }));
    }
    let Some(node) = nodes::look(client, &known.name).await? else {
        return Ok(None);
    };
    if node.facts.uninstalled.is_none() {
        return Ok(None);
    }
    let mut reading = Reading {
        lease: lease(client, &known.name).await?,
        heartbeat: node.heartbeat,
        resource_version: node.resource_version().to_owned(),
        facts: node.facts,
        answer: None,
    };
    if believe(&reading.facts, at).is_ok_and(|mark| listen(&reading, &mark).is_ok()) {
        let Some(answer) = try_policy(client, &reading.facts).await? else {
            return Ok(None);
        };
        reading.answer = Some(answer);
    }
    Ok(Some(Marked {
        known,
        reading: Some(reading),
    }))
}

/// The last renewal of a Node's Lease; none when there is no Lease, or none that was ever renewed.
async fn lease(client: &Client, node: &str) -> Result<Option<Timestamp>, CallError> {
    #[derive(Deserialize)]
    struct Lease {
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        renew_time: Option<Timestamp>,
    }
    let id = ObjectId {
        resource: GroupResource::new("coordination.k8s.io", "leases"),
        namespace: Some(NODE_LEASES.to_owned()),
        name: node.to_owned(),
    };
    match cluster::fetch::<Lease>(client, &cluster::object_path(&id, "v1"), "application/json").await {
        Ok(lease) => Ok(lease.spec.and_then(|spec| spec.renew_time)),
        Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Tries to change the mark of a Node, as a dry run; none when that Node is gone.
async fn try_policy(client: &Client, facts: &NodeFacts) -> Result<Option<Answer>, CallError> {
    match hands::annotate_node(client, &facts.name, &facts.uid, (MARK, Some(TRIAL)), Mode::DryRun).await {
        Ok(()) => Ok(Some(Answer::Granted)),
        // Gone, or another Node under its name by now.
        Err(error) if matches!(error.kind(), CallErrorKind::NotFound | CallErrorKind::Conflict) => Ok(None),
        Err(CallError::Refused { status, .. }) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let causes = causes.map(|cause| cause.message.as_str());
            Ok(Some(answer(&status.message, causes)))
        }
        Err(error @ (CallError::Unanswered { .. } | CallError::Unreadable { .. })) => Err(error),
    }
}
