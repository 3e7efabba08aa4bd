//! Who reaches the API server how, from this node.
//!
//! Controllers' own components talk to the API server beside them, never to the shared address: its going away would take
//! all of them along. Workers have no other than the endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use jiff::Timestamp;
use secrecy::SecretString;
use strum::IntoEnumIterator;

use super::super::atomic_file::{self, Access};
use super::super::kubeconfig::{Kubeconfig, TokenKubeconfig};
use super::super::layout::{Identity, Layout};
use super::super::node_state::{API_SERVER_PORT, Endpoint, NodeState};
use super::super::pki_folder;
use super::{Error, ROOT_BUNDLE, kubelet_client};

/// The API server that this node's own components use, as a URL.
#[must_use]
pub fn server(state: &NodeState) -> String {
    let endpoint = if state.is_controller() {
        let loopback = match state.address() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        Endpoint {
            host: loopback.to_string(),
            port: API_SERVER_PORT,
        }
    } else {
        state.endpoint.clone()
    };
    format!("https://{endpoint}")
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

/// Writes what a joining worker's kubelet asks for its first certificate with. The kubelet only uses it while its own
/// kubeconfig or certificate is missing or has expired.
///
/// # Errors
/// Names the path.
pub fn write_bootstrap(layout: &Layout, state: &NodeState, token: SecretString) -> Result<bool, Error> {
    let path = layout.bootstrap_kubeconfig();
    if let Some(folder) = path.parent() {
        atomic_file::create_folder(folder, Access::Secret)?;
    }
    let kubeconfig = TokenKubeconfig {
        server: server(state),
        user: "bootstrap".to_owned(),
        certificate_authority: layout.pki().join(ROOT_BUNDLE),
        token,
    };
    Ok(kubeconfig.write(&path)?)
}

/// What [`retire_bootstrap`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retired {
    /// The token was there, and is not any more.
    Removed,
    /// There was none.
    Absent,
    /// The kubelet still needs it: it has no certificate of its own that is in date.
    StillNeeded,
}

/// Removes the token once the kubelet has a certificate of its own: whoever reads the token could join a machine with it.
///
/// # Errors
/// Names the path.
pub fn retire_bootstrap(layout: &Layout, now: Timestamp) -> Result<Retired, Error> {
    let path = layout.bootstrap_kubeconfig();
    if !path.exists() {
        return Ok(Retired::Absent);
    }
    let found = pki_folder::read(&layout.kubelet_client())?;
    let own = found.as_deref().and_then(|pem| kubelet_client::parse(pem));
    if !own.is_some_and(|(certificate, _)| certificate.is_in_date(now)) {
        return Ok(Retired::StillNeeded);
    }
    atomic_file::remove(&path)?;
    Ok(Retired::Removed)
}
