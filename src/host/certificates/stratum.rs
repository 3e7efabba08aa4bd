//! The roster of this program's nodes: what [`leaves`] issues, what the kubelet has, and who signs.

use std::net::{IpAddr, SocketAddr};

use strum::IntoEnumIterator;

use super::super::etcd;
use super::super::layout::{Identity, Layout};
use super::super::node_pki::{self, KUBELET_CLIENT_BUNDLE, Leaf, Place, ROOT_BUNDLE, Signer, leaves};
use super::super::node_state::{API_SERVER_PORT, NodeState};
use super::{Entry, KUBELET_CLIENT, KUBELET_PORT, KUBELET_SERVER, ROOT, Role, Store};
use crate::pki::leaf::Request;

/// The authority that a migration gives the kubelets' client certificates.
const KUBELET_CLIENT_AUTHORITY: &str = "kubelet-client-ca";

pub(super) fn entries(layout: &Layout, state: &NodeState) -> Vec<Entry> {
    let leaves = leaves(state);
    let pairs = leaves.iter().filter(|leaf| leaf.place == Place::Pair);
    let mut entries: Vec<Entry> = pairs.map(|leaf| pair(layout, state, leaf)).collect();
    entries.push(kubelet_client(layout, state));
    let is_static = leaves.iter().any(|leaf| leaf.name == "kubelet");
    if !is_static {
        let server = Entry::new(
            KUBELET_SERVER,
            Role::KubeletServer,
            Store::Together(layout.kubelet_server()),
        );
        entries.push(server.signed_by(ROOT).served_at(vec![kubelet(state)]));
    }
    entries.extend(authorities(layout, state, &leaves));
    entries
}

fn pair(layout: &Layout, state: &NodeState, leaf: &Leaf) -> Entry {
    let identity = Identity::iter().find(|identity| identity.name() == leaf.name);
    let kubeconfig = match identity {
        // `kubelet` is what it serves with, and its kubeconfig is for what it is a client with.
        None | Some(Identity::Kubelet) => None,
        Some(identity) => Some(layout.kubeconfig(identity)),
    };
    let everywhere = |port| {
        let mut addresses: Vec<IpAddr> = vec![state.loopback()];
        addresses.extend(state.addresses.iter().filter(|address| !address.is_unspecified()));
        addresses
            .into_iter()
            .map(|address| SocketAddr::from((address, port)))
            .collect()
    };
    let listeners: Vec<SocketAddr> = match leaf.name {
        "apiserver" => everywhere(API_SERVER_PORT),
        "etcd/server" => [state.loopback(), state.address()]
            .map(|address| SocketAddr::from((address, etcd::CLIENT_PORT)))
            .into(),
        "etcd/peer" => vec![SocketAddr::from((state.address(), etcd::PEER_PORT))],
        "kubelet" => vec![kubelet(state)],
        _ => Vec::new(),
    };
    let store = Store::Pair {
        certificate: leaf.certificate_file(layout),
        key: leaf.key_file(layout),
    };
    Entry {
        expected: Some(leaf.request.clone()),
        kubeconfig,
        ..Entry::new(leaf.name, Role::Leaf, store)
            .signed_by(leaf.signer.name())
            .served_at(listeners)
    }
}

fn kubelet(state: &NodeState) -> SocketAddr {
    SocketAddr::from((state.address(), KUBELET_PORT))
}

fn kubelet_client(layout: &Layout, state: &NodeState) -> Entry {
    let subject = node_pki::subject(Identity::Kubelet, &state.node_name);
    Entry {
        expected: Some(Request::client(subject)),
        kubeconfig: Some(layout.kubeconfig(Identity::Kubelet)),
        bundle: state.is_controller().then(|| layout.pki().join(KUBELET_CLIENT_BUNDLE)),
        ..Entry::new(
            KUBELET_CLIENT,
            Role::KubeletClient,
            Store::Together(layout.kubelet_client()),
        )
        .signed_by(ROOT)
    }
}

fn authorities(layout: &Layout, state: &NodeState, leaves: &[Leaf]) -> Vec<Entry> {
    let pki = layout.pki();
    if !state.is_controller() {
        let bundle = Store::Bundle(pki.join(ROOT_BUNDLE));
        return vec![Entry::new(ROOT, Role::Authority, bundle)];
    }
    let needed = Signer::iter().filter(|signer| leaves.iter().any(|leaf| leaf.signer == *signer));
    let authority = |name: &str, bundle: &str| Entry {
        bundle: Some(pki.join(bundle)),
        ..Entry::new(name, Role::Authority, Store::pair(&pki, name))
    };
    let mut authorities: Vec<Entry> = needed.map(|signer| authority(signer.name(), signer.bundle())).collect();
    authorities.push(authority(KUBELET_CLIENT_AUTHORITY, KUBELET_CLIENT_BUNDLE));
    authorities
}
