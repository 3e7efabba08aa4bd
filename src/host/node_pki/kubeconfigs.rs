//! Who reaches the API server how, from this node.
//!
//! Controllers' own components talk to the API server beside them, never to the shared address: its going away would take
//! all of them along. Workers have no other than the endpoint.

use std::path::PathBuf;

use strum::IntoEnumIterator;

use super::super::atomic_file::{self, Access};
use super::super::kubeconfig::Kubeconfig;
use super::super::layout::{Identity, Layout};
use super::super::node_state::NodeState;
use super::{Error, ROOT_BUNDLE};

/// The API server that this node's own components use, as a URL.
pub(super) fn server(state: &NodeState) -> String {
    if state.is_controller() {
        format!("https://{}", state.own_api_server())
    } else {
        format!("https://{}", state.endpoint)
    }
}

/// The kubeconfigs of this node: everybody's on a controller, the kubelet's on a worker. They name PEM files, so that a
/// renewed certificate needs no new kubeconfig.
#[must_use]
pub fn kubeconfigs(layout: &Layout, state: &NodeState) -> Vec<(Identity, Kubeconfig)> {
    let has = |identity: &Identity| match identity {
        Identity::Kubelet => true,
        Identity::Admin
        | Identity::Operator
        | Identity::Deployer
        | Identity::ControllerManager
        | Identity::Scheduler => state.is_controller(),
    };
    let kubeconfig = |identity: Identity| {
        let name = identity.name();
        let [client_certificate, client_key] = match identity {
            Identity::Kubelet => [layout.kubelet_client(), layout.kubelet_client()],
            Identity::Admin
            | Identity::Operator
            | Identity::Deployer
            | Identity::ControllerManager
            | Identity::Scheduler => ["crt", "key"].map(|ending| layout.pki().join(format!("{name}.{ending}"))),
        };
        let kubeconfig = Kubeconfig {
            server: server(state),
            user: name.to_owned(),
            certificate_authority: layout.pki().join(ROOT_BUNDLE),
            client_certificate,
            client_key,
        };
        (identity, kubeconfig)
    };
    Identity::iter().filter(has).map(kubeconfig).collect()
}

/// Writes those of [`kubeconfigs`] that are not there yet or say something else, and returns their paths.
///
/// # Errors
/// Names the path.
pub fn write_kubeconfigs(layout: &Layout, state: &NodeState) -> Result<Vec<PathBuf>, Error> {
    let mut changed = Vec::new();
    for (identity, kubeconfig) in kubeconfigs(layout, state) {
        let path = layout.kubeconfig(identity);
        if let Some(folder) = path.parent() {
            atomic_file::create_folder(folder, Access::Secret)?;
        }
        if kubeconfig.write(&path)? {
            changed.push(path);
        }
    }
    Ok(changed)
}
