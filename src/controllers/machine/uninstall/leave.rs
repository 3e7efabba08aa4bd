//! Tells the cluster that this machine is no node any more.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kube::Client;

use crate::controllers::cluster::{CallError, CallErrorKind};
use crate::controllers::cluster_fence::Lost;
use crate::controllers::departed::{self, Marking};
use crate::controllers::identities::Identities;
use crate::controllers::{hands, nodes};
use crate::host::layout::Layout;
use crate::host::{clock, etcd};
use crate::text::{MachineId, NotAMachineId};

/// How long an API server that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_secs(1);

/// Why the cluster was not told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `/etc/machine-id` cannot be read.
    #[error("cannot read {}", path.display())]
    MachineFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is none.
    #[error("this machine cannot prove that a Node is its own")]
    Machine(#[source] NotAMachineId),
    /// A client cannot be made.
    #[error("cannot use this node's credentials: {0}")]
    Client(String),
    /// The mark.
    #[error("cannot mark Node {node}")]
    Mark {
        /// Its name.
        node: String,
        /// Why.
        #[source]
        source: CallError,
    },
    /// The Node or its record.
    #[error("cannot delete Node {node} and free its name")]
    Delete {
        /// Its name.
        node: String,
        /// Why.
        #[source]
        source: CallError,
    },
    /// Meanwhile too few of the others are well.
    #[error("etcd would lose its quorum: {healthy} of the other members answer, and {needed} are needed")]
    NoQuorum {
        /// Others with a vote that answer.
        healthy: usize,
        /// Others with a vote that are needed.
        needed: usize,
    },
    /// Another operation may change the cluster by now.
    #[error("{0}")]
    Fence(Lost),
    /// Who the members are.
    #[error("cannot learn the members of etcd")]
    Members(#[source] etcd::Error),
    /// The member.
    #[error("cannot remove this node's member of etcd")]
    Etcd(#[source] etcd::Error),
}

/// Why the cluster was not told, and what it was told before that.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// Whether the Node was deleted.
    pub(super) deleted: bool,
    pub(super) source: Error,
}

impl From<Error> for Unfinished {
    fn from(source: Error) -> Self {
        Self { deleted: false, source }
    }
}

impl Unfinished {
    /// Whether the cluster is another one than before, or may be: an answer of etcd can be lost behind the removal.
    pub(super) fn is_half(&self) -> bool {
        self.deleted || matches!(self.source, Error::Etcd(_))
    }
}

/// What tells this machine from others, as its kubelet reports it.
pub(super) fn machine_id(layout: &Layout) -> Result<MachineId, Error> {
    let path = layout.root().join("etc/machine-id");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::MachineFile { path, source })?;
    text.trim().parse().map_err(Error::Machine)
}

/// Marks the Node of this machine; what was done, in words.
pub(super) async fn mark(client: &Client, layout: &Layout, node: &str) -> Result<String, Error> {
    let machine = machine_id(layout)?;
    let began = clock::monotonic();
    loop {
        match departed::mark(client, node, &machine, clock::now()).await {
            Ok(Marking::Done(mark)) => {
                return Ok(format!(
                    "marked Node {node} ({mark}): the operator deletes it within minutes"
                ));
            }
            Ok(Marking::NoNode) => return Ok(format!("there is no Node {node} any more")),
            Ok(Marking::OtherMachine(_)) => {
                return Ok(format!("Node {node} is another machine's by now, and was left alone"));
            }
            Err(error) if error.kind() == CallErrorKind::Unanswered && began.elapsed() < PATIENCE => {
                clock::sleep(PACE).await
            }
            Err(source) => {
                let node = node.to_owned();
                return Err(Error::Mark { node, source });
            }
        }
    }
}

/// Deletes the Node of this machine, and frees its name for another one.
pub(super) async fn delete(client: &Client, layout: &Layout, node: &str) -> Result<(), Error> {
    let machine = machine_id(layout)?;
    let began = clock::monotonic();
    loop {
        match delete_once(client, &machine, node).await {
            Ok(()) => return Ok(()),
            // A controller of the cluster wrote meanwhile, or an API server restarts.
            Err(error)
                if matches!(error.kind(), CallErrorKind::Conflict | CallErrorKind::Unanswered)
                    && began.elapsed() < PATIENCE =>
            {
                clock::sleep(PACE).await;
            }
            Err(source) => {
                let node = node.to_owned();
                return Err(Error::Delete { node, source });
            }
        }
    }
}

async fn delete_once(client: &Client, machine: &MachineId, node: &str) -> Result<(), CallError> {
    if let Some(found) = nodes::look(client, node).await? {
        if found.facts.machine_id.as_deref() != Some(machine.as_str()) {
            return Ok(());
        }
        let deleted = hands::delete(
            client,
            &nodes::id(node),
            "v1",
            &found.facts.uid,
            found.resource_version(),
        )
        .await;
        match deleted {
            Err(error) if error.kind() != CallErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let identities = Identities::new(client.clone());
    match identities.read(node).await? {
        Some(known) => identities.forget(node, &known).await,
        None => Ok(()),
    }
}
