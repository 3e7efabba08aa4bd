//! The side of the machine that is uninstalled: it marks its Node, with its own credential.

use jiff::Timestamp;
use kube::Client;

use crate::controllers::cluster::{CallError, CallErrorKind};
use crate::controllers::hands::{self, Mode};
use crate::controllers::nodes;
use crate::reconcilers::departed::{MARK, Mark};
use crate::text::MachineId;

/// What became of a Node that was to be marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marking {
    /// It is marked; the operator deletes it within minutes.
    Done(Mark),
    /// There is no such Node: nothing is left to be deleted.
    NoNode,
    /// Another machine has taken over the name, and its Node is left alone. What that Node says of its machine.
    OtherMachine(Option<String>),
}

/// Marks this machine's Node as that of an uninstalled machine. `client` is the kubelet's own credential: nobody else's is
/// let through.
///
/// Stop the kubelet first. A heartbeat after the mark says that the machine lives, and then the mark is not believed.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn mark(client: &Client, node: &str, machine: &MachineId, now: Timestamp) -> Result<Marking, CallError> {
    let Some(found) = nodes::look(client, node).await? else {
        return Ok(Marking::NoNode);
    };
    if found.facts.machine_id.as_deref() != Some(machine.as_str()) {
        return Ok(Marking::OtherMachine(found.facts.machine_id));
    }
    let mark = Mark {
        at: now,
        machine: machine.clone(),
    };
    let text = mark.to_string();
    let annotation = (MARK, Some(text.as_str()));
    match hands::annotate_node(client, node, &found.facts.uid, annotation, Mode::Real).await {
        Ok(()) => Ok(Marking::Done(mark)),
        Err(error) if error.kind() == CallErrorKind::NotFound => Ok(Marking::NoNode),
        Err(error) => Err(error),
    }
}

/// Takes the mark off this machine's Node, if there is one: the machine joins (again).
///
/// # Errors
/// When the API server refuses or does not answer. A Node that does not exist is no error.
pub async fn unmark(client: &Client, node: &str) -> Result<(), CallError> {
    let Some(found) = nodes::look(client, node).await? else {
        return Ok(());
    };
    if found.facts.uninstalled.is_none() {
        return Ok(());
    }
    match hands::annotate_node(client, node, &found.facts.uid, (MARK, None), Mode::Real).await {
        Err(error) if error.kind() == CallErrorKind::NotFound => Ok(()),
        result => result,
    }
}
