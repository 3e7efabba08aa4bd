//! A rig of this tier, and what every test asks of a cluster on it.

use std::path::Path;

use crate::rig::{Ours, Rig};
use crate::support::stratum;

/// A rig without nodes.
pub(crate) async fn rig() -> Rig {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rigs");
    Rig::start(&parent, stratum()).await.unwrap()
}

/// Whether the cluster of a controller says that a node is Ready.
pub(crate) async fn is_ready(controller: &Ours, node: &str) -> Option<()> {
    let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    let told = controller.kubectl(&["get", "node", node, "--output", ready]).await;
    told.is_ok_and(|told| told == "True").then_some(())
}
