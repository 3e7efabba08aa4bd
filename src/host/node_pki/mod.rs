//! The certificates, keys and kubeconfigs of a node.
//!
//! [`leaves`] says what a node has; [`prepare`] sees to it that it is on the disk; [`kubeconfigs`] names it to clients. The
//! authorities are made on the first controller alone. Every other one is handed them ([`read_authorities`] there,
//! [`write_authorities`] here) and makes its leaves itself.
//!
//! What signs and what is trusted are different files: `ca.crt` holds the one certificate that signs, `ca-bundle.crt`
//! those that are trusted. [`prepare`] adds to a bundle and never takes from it; that is a rotation's work.
//!
//! [`prepare`] repairs; it renews nothing that is merely due. Whoever renews also restarts those who use the leaves, and only
//! a rotation does that: what is repaired beside a control plane that may run is left to it by the marker.

mod authorities;
mod claim_key;
mod error;
mod kubeconfigs;
mod kubelet_client;
mod table;
#[cfg(test)]
mod tests;
mod unmoved;

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

use super::layout::Layout;
use super::node_state::{InitialClusterState, NodeState};
use super::pki_folder::{self, Credential, Folder};
use crate::pki::authority::Authority;
use crate::pki::key::Key;

pub use authorities::{Files, Received, read_authorities, write_authorities, write_trust};
pub use claim_key::{claim_key, forget_claim_key, kept_claim_key};
pub use error::Error;
pub use kubeconfigs::{kubeconfigs, write_kubeconfigs};
pub use kubelet_client::kubelet_client_files;
pub use table::{
    ETCD_BUNDLE, FRONT_PROXY_BUNDLE, FRONT_PROXY_CLIENT, KUBELET_API_GROUP, KUBELET_CLIENT_BUNDLE, Leaf, Place,
    ROOT_BUNDLE, SERVICE_ACCOUNT, SERVICE_ACCOUNT_BUNDLE, Signer, leaves, subject,
};

/// What [`prepare`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The files it wrote, in that order. Empty when everything was there and good.
    pub changed: Vec<PathBuf>,
}

/// Sees to it that every authority, leaf, key and bundle of this node is there and good; does nothing for what is. Nothing
/// is written before everything is made.
///
/// # Errors
/// Names the file. Unless its source is a failed rename, nothing has changed then.
pub fn prepare(layout: &Layout, state: &NodeState, now: Timestamp) -> Result<Prepared, Error> {
    prepare_with(layout, state, None, now)
}

/// The same, with leaves that live for `leaf_lifetime` where that is given. The kubelet's own, which it renews itself by
/// the cluster's terms, lives for a year.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_with(
    layout: &Layout,
    state: &NodeState,
    leaf_lifetime: Option<SignedDuration>,
    now: Timestamp,
) -> Result<Prepared, Error> {
    let leaves = leaves(state);
    if leaves.is_empty() {
        return Ok(Prepared::default());
    }
    let mut folder = Folder::new(layout.pki(), state.keys, now).with_leaf_lifetime(leaf_lifetime);
    let signers = Signers::find(&mut folder, state, &leaves)?;
    let mut repaired = Vec::new();
    for leaf in &leaves {
        let signer = signers.of(leaf.signer)?;
        match leaf.place {
            Place::Pair => repaired.push((leaf.name, folder.leaf(leaf.name, signer, &leaf.request)?)),
            // The kubelet is started after this.
            Place::KubeletStore => kubelet_client::prepare(&mut folder, layout, signer, &leaf.request, now)?,
        }
    }
    let service_accounts = folder.key(SERVICE_ACCOUNT)?;
    for (bundle, signer) in trust(&leaves) {
        folder.bundle(bundle, &[signers.of(signer)?.certificate()])?;
    }
    let root = signers.of(Signer::Root)?.certificate();
    // Once it exists, only a migration knows whether the root still belongs in it.
    if !folder.has_bundle(KUBELET_CLIENT_BUNDLE)? {
        folder.bundle(KUBELET_CLIENT_BUNDLE, &[root])?;
    }
    folder.public_keys(SERVICE_ACCOUNT_BUNDLE, &[&service_accounts])?;
    let (staged, changed) = folder.stage()?;
    let marker = unmoved::mark(layout, &repaired, now)?;
    staged.put_in_place()?;
    if let Some(marker) = marker {
        unmoved::written(layout, marker)?;
    }
    Ok(Prepared { changed })
}

/// Everybody this node trusts to be of its cluster, as PEM.
///
/// # Errors
/// When the bundle is missing or cannot be read.
pub fn read_trust(layout: &Layout) -> Result<String, Error> {
    let path = layout.pki().join(ROOT_BUNDLE);
    match pki_folder::read(&path)? {
        Some(pem) => Ok(String::from_utf8_lossy(&pem).into_owned()),
        None => Err(Error::NoAuthority { path }),
    }
}

/// Puts a certificate that the cluster has issued for this node's kubelet, and its key, where the kubelet looks for them
/// and renews them.
///
/// # Errors
/// When the chain is none, is not of that key, or cannot be written.
pub fn write_kubelet_client(layout: &Layout, chain: &[u8], key: &Key, now: Timestamp) -> Result<(), Error> {
    let mut folder = Folder::new(layout.pki(), key.kind(), now);
    kubelet_client::take(&mut folder, layout, chain, key, now)?;
    folder.commit()?;
    Ok(())
}

/// A client certificate of group `system:masters` that lives for `lifetime` and is written nowhere: for the bindings
/// without which no written credential may do anything.
///
/// # Errors
/// When the cluster's authority is missing or cannot sign.
pub fn bootstrap_credential(
    layout: &Layout,
    state: &NodeState,
    lifetime: SignedDuration,
    now: Timestamp,
) -> Result<Credential, Error> {
    let folder = Folder::new(layout.pki(), state.keys, now);
    let root = folder.found_authority(Signer::Root.name())?;
    let root = root.ok_or_else(|| Error::NoAuthority {
        path: folder.pair(Signer::Root.name())[0].clone(),
    })?;
    Ok(pki_folder::master(&root, state.keys, lifetime, now)?)
}

/// Which bundle trusts which signer; etcd's trusts whoever signs etcd's.
fn trust(leaves: &[Leaf]) -> Vec<(&'static str, Signer)> {
    let mut trust = vec![(ROOT_BUNDLE, Signer::Root), (FRONT_PROXY_BUNDLE, Signer::FrontProxy)];
    let etcd = leaves.iter().find(|leaf| leaf.name == "etcd/server");
    trust.extend(etcd.map(|leaf| (ETCD_BUNDLE, leaf.signer)));
    trust
}

/// The authorities that sign for this node.
struct Signers(Vec<(Signer, Authority)>);

impl Signers {
    /// Finds those that `leaves` need. Only a founder makes what is missing, and only where nothing says that it existed.
    fn find(folder: &mut Folder, state: &NodeState, leaves: &[Leaf]) -> Result<Self, Error> {
        let needed = [Signer::Root, Signer::Etcd, Signer::FrontProxy]
            .into_iter()
            .filter(|signer| leaves.iter().any(|leaf| leaf.signer == *signer));
        let needed: Vec<Signer> = needed.collect();
        for signer in &needed {
            let [path, key_file] = folder.pair(signer.name());
            if path.exists() || key_file.exists() {
                continue;
            }
            if !founds(state) {
                return Err(Error::NoAuthority { path });
            }
            let bundle = folder.file(signer.bundle());
            if bundle.exists() {
                return Err(Error::LostAuthority { path, bundle });
            }
        }
        let pairs = leaves.iter().filter(|leaf| leaf.place == Place::Pair);
        let names = needed.iter().map(|signer| signer.name());
        let names = names.chain(pairs.map(|leaf| leaf.name)).chain([SERVICE_ACCOUNT]);
        // One more for the kubelet's own folder.
        folder.make_keys(names, 1)?;
        let mut found = Vec::new();
        for signer in needed {
            found.push((signer, folder.authority(signer.name(), signer.common_name())?));
        }
        Ok(Self(found))
    }

    fn of(&self, signer: Signer) -> Result<&Authority, Error> {
        let found = self.0.iter().find(|(known, _)| *known == signer);
        found.map(|(_, authority)| authority).ok_or_else(|| Error::NoAuthority {
            path: PathBuf::from(signer.name()),
        })
    }
}

/// Whether this node may make the cluster's authorities.
fn founds(state: &NodeState) -> bool {
    match state.etcd.as_ref().map(|etcd| etcd.initial_cluster_state) {
        Some(InitialClusterState::New) => true,
        Some(InitialClusterState::Existing) | None => false,
    }
}
