//! What a joining controller is handed, on both sides. [`node_pki::write_authorities`] takes [`Material::files`] as they are.

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use kube::Client;

use super::discovery::Discovered;
use crate::controllers::grants::join::{self, JoinError};
use crate::host::layout::Layout;
use crate::host::node_pki;
use crate::host::node_state::NodeState;
use crate::pki::seal::CertificateKey;
use crate::reconcilers::bootstrap_token::BootstrapToken;
use crate::reconcilers::grants::material::{self, Material};

/// Fetches the grant of `token` from the cluster that was found, and opens it with the key that was printed beside the
/// token: every file of it, by its name below the PKI folder, or nothing.
///
/// # Errors
/// When there is no grant, the key is another, or the API server refuses or does not answer.
pub async fn download_material(
    discovered: &Discovered,
    system_namespace: &str,
    token: &BootstrapToken,
    key: &CertificateKey,
) -> Result<Material, JoinError> {
    let client: Client = discovered.client(token);
    join::open(&client, system_namespace, token.id(), key).await
}

/// The file among what a controller is handed that says how the cluster is made: the node state of the one that hands it.
/// It is none of the PKI folder's.
pub const CLUSTER_FILE: &str = "node.yaml";

/// Why this controller has nothing to hand over.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file is missing or not what it should be.
    #[error(transparent)]
    Files(#[from] node_pki::Error),
    /// What this node was told cannot be read.
    #[error("cannot read {}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot travel.
    #[error("the CA material of this node cannot be handed over")]
    Unfit(#[from] material::Error),
}

/// What this controller hands over to another one.
///
/// # Errors
/// Names the file.
pub fn read_material(layout: &Layout, state: &NodeState, now: Timestamp) -> Result<Material, ReadError> {
    let mut material = Material::new();
    for (name, content) in node_pki::read_authorities(layout, state, now)? {
        material.insert(&name, content)?;
    }
    let path = layout.node_state();
    let text = std::fs::read(&path).map_err(|source| ReadError::State { path, source })?;
    material.insert(CLUSTER_FILE, text.into())?;
    Ok(material)
}
