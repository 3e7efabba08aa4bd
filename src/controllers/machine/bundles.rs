//! The stacks that come with this binary: written into the manifests folder of every controller, and recorded in cluster
//! state, so that a leader applies only what was staged.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::controllers::inventory::staging;
use crate::controllers::inventory::store::{Store, StoreError};
use crate::host::atomic_file::{self, Access};
use crate::host::node_state::NodeState;
use crate::reconcilers::inventory::desired::{self, ClusterInputs, Next, Provenance};
use crate::reconcilers::object::StackName;

/// A file below the manifests folder, and its text.
pub type File = (&'static str, &'static str);

/// The cluster's DNS.
pub const COREDNS: File = (
    "coredns/coredns.yaml",
    include_str!("../../../deploy/stacks/coredns/coredns.yaml"),
);
/// What lets a worker mark its own Node when it is uninstalled.
pub const DEPARTED_NODES: File = (
    "departed-nodes/uninstall-mark.yaml",
    include_str!("../../../deploy/stacks/departed-nodes/uninstall-mark.yaml"),
);
const KUBE_PROXY: File = (
    "kube-proxy/kube-proxy.yaml",
    include_str!("../../../deploy/stacks/kube-proxy/kube-proxy.yaml"),
);
/// What every cluster gets. They differ between clusters in nothing: what does is a sentinel, filled in from cluster state.
const FILES: [File; 3] = [COREDNS, DEPARTED_NODES, KUBE_PROXY];

/// Why the stacks are not staged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be written.
    #[error("cannot write a bundled stack")]
    Write(#[from] atomic_file::Error),
    /// The folder of a stack cannot be read or cleared.
    #[error("cannot clear {}", path.display())]
    Clear {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The name of a stack, or the version of this binary, is none: a fault of the build.
    #[error("{0:?} is no name of a stack and no version")]
    Build(String),
    /// The record cannot be read or written.
    #[error("cannot record the bundled stacks")]
    Record(#[source] StoreError),
}

/// Writes the stacks into `folder`; a stray file in one of them goes, for the leader would refuse the whole stack over it.
/// Whether anything changed.
///
/// # Errors
/// When a file cannot be written or removed.
pub fn write(folder: &Path) -> Result<bool, Error> {
    let mut changed = false;
    for (path, text) in FILES {
        let path = folder.join(path);
        if let Some(stack) = path.parent() {
            atomic_file::create_folder(stack, Access::Public)?;
            changed |= clear(stack)?;
        }
        changed |= atomic_file::write_if_changed(&path, text.as_bytes(), Access::Public)?;
    }
    Ok(changed)
}

/// Removes what is not ours from the folder of a stack of ours.
fn clear(stack: &Path) -> Result<bool, Error> {
    let failed = |path: &Path, source| Error::Clear {
        path: path.to_owned(),
        source,
    };
    let mut changed = false;
    for entry in std::fs::read_dir(stack).map_err(|source| failed(stack, source))? {
        let path = entry.map_err(|source| failed(stack, source))?.path();
        let ours = FILES.iter().any(|(file, _)| path.ends_with(file));
        if !ours && path.is_file() {
            tracing::warn!(file = %path.display(), "removed: the folder of a bundled stack holds that stack and nothing else");
            atomic_file::remove(&path)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Records what was written, and what the sentinels stand for in this cluster.
///
/// # Errors
/// When the inventory cannot be read or written.
pub async fn record(store: &Store, state: &NodeState, now: Timestamp) -> Result<Next, Error> {
    let names = FILES.iter().filter_map(|(path, _)| path.split_once('/'));
    let parse = |(name, _): (&str, &str)| name.parse::<StackName>().map_err(|_| Error::Build(name.to_owned()));
    let stacks = names.map(parse).collect::<Result<Vec<_>, _>>()?;
    let version = env!("CARGO_PKG_VERSION");
    let provenance = Provenance {
        version: version.parse().map_err(|_| Error::Build(version.to_owned()))?,
        node: state.node_name.clone(),
        at: now,
    };
    let inputs = ClusterInputs {
        cluster_dns: state.networks.dns(),
        cluster_domain: state.networks.domain.clone(),
        dual_stack: state.networks.is_dual_stack(),
        storage_default: false,
    };
    let digest = desired::digest(FILES);
    staging::record_desired(store, &stacks, &digest, &provenance, Some(&inputs))
        .await
        .map_err(Error::Record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_cleared_from_our_stacks_only() {
        let folder = tempfile::tempdir().unwrap();
        assert!(write(folder.path()).unwrap());
        assert!(!write(folder.path()).unwrap());
        let put = |path: &str| {
            let path = folder.path().join(path);
            atomic_file::create_folder(path.parent().unwrap(), Access::Public).unwrap();
            atomic_file::write(&path, b"# mine\n", Access::Public).unwrap();
            path
        };
        let (stray, own) = (put("coredns/more.yaml"), put("mine/mine.yaml"));
        assert!(write(folder.path()).unwrap());
        assert!(!stray.exists() && own.exists());
    }
}
