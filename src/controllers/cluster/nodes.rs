//! The Nodes that make the control plane.

use std::collections::BTreeSet;

use kube::Client;

use super::{CallError, list};
use crate::reconcilers::manifests::resources::{Scope, Served};
use crate::reconcilers::object::GroupResource;

/// The label of Nodes that run a control plane.
pub const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// The names of the Nodes labelled as control plane, by a consistent read: a stale list could miss a new one.
///
/// # Errors
/// When a page fails.
pub async fn control_plane_nodes(client: &Client) -> Result<BTreeSet<String>, CallError> {
    let nodes = Served {
        resource: GroupResource::new("", "nodes"),
        version: "v1".to_owned(),
        kind: "Node".to_owned(),
        scope: Scope::Cluster,
        patchable: true,
        prunable: true,
    };
    let found = list(client, &nodes, None, Some(CONTROL_PLANE_LABEL)).await?;
    Ok(found.into_keys().map(|id| id.name).collect())
}
