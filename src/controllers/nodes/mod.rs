//! One watch of Nodes for the whole process, and the facts it keeps of them.
//!
//! What no concern asks for is never stored, so that thousands of Nodes cost a few MiB. A kubelet reports every few
//! minutes or seconds; subscribers are told only when a fact they could decide by has changed.

mod wire;

use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client};

use super::cluster::{self, CallError, CallErrorKind};
use super::concern::{ConcernName, Observer};
use super::mirror::Mirror;
use crate::reconcilers::node::NodeFacts;
use crate::reconcilers::object::{GroupResource, ObjectId};

pub use super::mirror::Change;
pub use wire::Node;

/// The Nodes of the cluster, as the watch last had them. Clones share it.
pub type Nodes = Mirror<NodeFacts>;

/// Begins to watch all Nodes. The future is the watch and does not end; it tells `observer` under
/// [`ConcernName::Nodes`].
pub fn watch(client: Client, observer: Arc<dyn Observer>) -> (Nodes, impl Future<Output = ()> + Send + 'static) {
    let nodes = Nodes::default();
    let api: Api<Node> = Api::all(client);
    let all = watcher::Config::default();
    let follow = nodes
        .clone()
        .follow(api, all, |node| node.facts, ConcernName::Nodes, observer);
    (nodes, follow)
}

/// A Node as it is at this moment, from the API server itself; none when there is no such Node.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn look(client: &Client, name: &str) -> Result<Option<Node>, CallError> {
    match cluster::fetch(client, &path(name), "application/json").await {
        Ok(node) => Ok(Some(node)),
        Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// How a Node is named among other objects.
#[must_use]
pub fn id(name: &str) -> ObjectId {
    ObjectId {
        resource: GroupResource::new("", "nodes"),
        namespace: None,
        name: name.to_owned(),
    }
}

/// The path of a Node.
pub(super) fn path(name: &str) -> String {
    cluster::object_path(&id(name), "v1")
}
