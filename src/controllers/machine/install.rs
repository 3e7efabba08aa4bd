//! The first writes on a machine that becomes a node. Each may be repeated: what an interrupted installation has done is
//! found good by the next.

use std::io::{self, Write};
use std::path::PathBuf;

use jiff::Timestamp;

use super::node::{self, Config, Node};
use crate::host::layout::Layout;
use crate::host::node_state::{self, NodeState};
use crate::host::{atomic_file, node_pki, teardown};

/// Why a machine did not become a node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is one already, of another kind.
    #[error("this machine is node {name} already, with other settings ({} differ): `stratum up` runs it; `stratum uninstall` takes it off", differences.join(", "))]
    IsNode {
        /// The node's name.
        name: String,
        /// What is not as it was asked for.
        differences: Vec<&'static str>,
    },
    /// It is one already.
    #[error("this machine is node {0} already: `stratum up` runs it; `stratum uninstall` takes it off")]
    Already(String),
    /// A join began on it and did not come to its end.
    #[error(
        "a join of this machine as {node} was cut off: do the same again, or have what it left removed by `stratum uninstall --yes`"
    )]
    Begun {
        /// The role and name it was to have.
        node: String,
    },
    /// The note of that cannot be read.
    #[error("cannot read {}", path.display())]
    Note {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What lay here before.
    #[error(transparent)]
    File(#[from] atomic_file::Error),
    /// The key of the claim.
    #[error(transparent)]
    Pki(#[from] node_pki::Error),
    /// `node.yaml`.
    #[error(transparent)]
    State(#[from] node_state::Error),
    /// Something that is rendered.
    #[error(transparent)]
    Node(#[from] node::Error),
}

impl Error {
    pub(super) fn begun(note: &str) -> Self {
        let node = note.lines().next().unwrap_or_default().to_owned();
        Self::Begun { node }
    }
}

/// The note of a join that was cut off.
///
/// # Errors
/// When it is there and cannot be read.
pub(super) fn begun(layout: &Layout) -> Result<Option<String>, Error> {
    let path = layout.joining();
    atomic_file::if_there(std::fs::read_to_string(&path)).map_err(|source| Error::Note { path, source })
}

/// Whether no join has begun on this machine: a founder would take over the authorities of the cluster it was to join.
///
/// # Errors
/// When one has, or that cannot be known.
pub fn check_no_join(layout: &Layout) -> Result<(), Error> {
    begun(layout)?.map_or(Ok(()), |note| Err(Error::begun(&note)))
}

/// Whether this machine may become that node: it is none yet, or it is that very node.
///
/// # Errors
/// When it is another, or its state cannot be read.
pub fn check(layout: &Layout, state: &NodeState) -> Result<(), Error> {
    let known = match node_state::load(&layout.node_state()) {
        Ok(known) => known,
        Err(node_state::Error::Missing { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let differences = differences(&known, state);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::IsNode {
        name: known.node_name,
        differences,
    })
}

/// Whether this machine is no node yet: one that joined is not asked whether it may join again, for its own name is taken.
///
/// # Errors
/// When it is one, or its state cannot be read.
pub fn check_none(layout: &Layout) -> Result<(), Error> {
    match node_state::load(&layout.node_state()) {
        Ok(known) => Err(Error::Already(known.node_name)),
        Err(node_state::Error::Missing { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The names of what two states say differently.
fn differences(one: &NodeState, other: &NodeState) -> Vec<&'static str> {
    let NodeState {
        node_name,
        role,
        profile,
        addresses,
        networks,
        endpoint,
        vip,
        extra_names,
        etcd,
        labels,
        taints,
        keys,
    } = one;
    let same = [
        ("nodeName", *node_name == other.node_name),
        ("role", *role == other.role),
        ("profile", *profile == other.profile),
        ("addresses", *addresses == other.addresses),
        ("networks", *networks == other.networks),
        ("endpoint", *endpoint == other.endpoint),
        ("vip", *vip == other.vip),
        ("extraNames", *extra_names == other.extra_names),
        ("etcd", *etcd == other.etcd),
        ("labels", *labels == other.labels),
        ("taints", *taints == other.taints),
        ("keys", *keys == other.keys),
    ];
    same.into_iter()
        .filter(|(_, same)| !same)
        .map(|(name, _)| name)
        .collect()
}

/// Writes everything a node has. A founder's state is written before its authorities are made, so that a second try takes
/// them for its own; a joiner has put there what it was handed of its cluster's before.
///
/// # Errors
/// Says what could not be written. Doing it again goes on where it stopped.
pub fn install(
    layout: Layout,
    state: NodeState,
    config: Config,
    now: Timestamp,
    writer: &mut dyn Write,
) -> Result<Node, Error> {
    // Of another node, whose uninstall was cut off at its very end.
    teardown::forget_let_go(&layout)?;
    node_state::save(&layout.node_state(), &state)?;
    let node = Node { layout, state, config };
    node.prepare(now, writer)?;
    finished(&node.layout)?;
    Ok(node)
}

/// Removes what a join needs until the machine is a node: the note of it, and the key that the kubelet has by now. Also when
/// it was cut off just before.
///
/// # Errors
/// Names the file that cannot be removed.
pub(super) fn finished(layout: &Layout) -> Result<(), Error> {
    node_pki::forget_claim_key(layout)?;
    atomic_file::remove(&layout.joining())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::machine::wish::example;

    #[test]
    fn a_machine_becomes_the_node_it_is_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        let state = example().state().unwrap();
        check(&layout, &state).unwrap();
        check_none(&layout).unwrap();
        crate::host::atomic_file::create_folder(&layout.state(), crate::host::atomic_file::Access::Secret).unwrap();
        node_state::save(&layout.node_state(), &state).unwrap();
        check(&layout, &state).unwrap();
        let already = check_none(&layout).unwrap_err().to_string();
        assert!(already.contains("node alpha already"), "{already}");
        let mut other = state.clone();
        other.node_name = "beta".to_owned();
        other.networks.domain = "other".to_owned();
        let refused = check(&layout, &other).unwrap_err().to_string();
        assert!(
            refused.contains("node alpha already") && refused.contains("(nodeName, networks differ)"),
            "{refused}"
        );
        std::fs::remove_file(layout.node_state()).unwrap();
        crate::host::atomic_file::write(&layout.node_state(), b"", crate::host::atomic_file::Access::Secret).unwrap();
        assert!(check(&layout, &state).unwrap_err().to_string().contains("is empty"));
    }
}
