//! The roster of nodes that kubeadm made (`cmd/kubeadm/app/phases/certs/certlist.go` and `renewal/manager.go` have the
//! names). Addresses and ports are those that the static pods' manifests and the kubelet's configuration give.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

use super::super::layout::{Identity, Layout};
use super::super::static_pods::{Component, Inputs, StaticPods};
use super::{Entry, KUBELET_CLIENT, KUBELET_PORT, KUBELET_SERVER, ROOT, Role, Store};

const ETCD_AUTHORITY: &str = "etcd-ca";
const FRONT_PROXY_AUTHORITY: &str = "front-proxy-ca";

pub(super) fn entries(layout: &Layout) -> Vec<Entry> {
    let pki = layout.pki();
    let apiserver = Flags::of(layout, Component::KubeApiserver);
    let etcd = Flags::of(layout, Component::Etcd);
    let pair = |name: &str, file: &str, signer| Entry::new(name, Role::Leaf, Store::pair(&pki, file)).signed_by(signer);
    let conf = |name: &str| {
        let store = Store::Kubeconfig(layout.kubernetes().join(name));
        Entry::new(name, Role::Leaf, store).signed_by(ROOT)
    };
    let mut entries = vec![
        conf("admin.conf"),
        pair("apiserver", "apiserver", ROOT).served_at(api_server(&apiserver)),
        pair("apiserver-etcd-client", "apiserver-etcd-client", ETCD_AUTHORITY),
        pair("apiserver-kubelet-client", "apiserver-kubelet-client", ROOT),
        conf("controller-manager.conf"),
        pair("etcd-healthcheck-client", "etcd/healthcheck-client", ETCD_AUTHORITY),
        pair("etcd-peer", "etcd/peer", ETCD_AUTHORITY).served_at(etcd.urls("listen-peer-urls")),
        pair("etcd-server", "etcd/server", ETCD_AUTHORITY).served_at(etcd.urls("listen-client-urls")),
        pair("front-proxy-client", "front-proxy-client", FRONT_PROXY_AUTHORITY),
        conf("scheduler.conf"),
        conf("super-admin.conf"),
    ];
    entries.push(Entry {
        kubeconfig: Some(layout.kubeconfig(Identity::Kubelet)),
        ..kubelet_client(layout).signed_by(ROOT)
    });
    entries.push(kubelet_server(layout));
    for (name, file) in [
        (ROOT, "ca"),
        (ETCD_AUTHORITY, "etcd/ca"),
        (FRONT_PROXY_AUTHORITY, "front-proxy-ca"),
    ] {
        entries.push(Entry::new(name, Role::Authority, Store::pair(&pki, file)));
    }
    entries
}

/// A kubelet that does not rotate its certificate has it embedded in its kubeconfig and nowhere else.
fn kubelet_client(layout: &Layout) -> Entry {
    let (rotated, kubeconfig) = (layout.kubelet_client(), layout.kubeconfig(Identity::Kubelet));
    let store = if rotated.symlink_metadata().is_err() && kubeconfig.exists() {
        Store::Kubeconfig(kubeconfig)
    } else {
        Store::Together(rotated)
    };
    Entry::new(KUBELET_CLIENT, Role::KubeletClient, store)
}

/// With `serverTLSBootstrap` the kubelet asks the cluster for it; else it makes one, with an authority that nobody knows.
fn kubelet_server(layout: &Layout) -> Entry {
    let asked_for = layout.kubelet_server();
    let entry = if asked_for.symlink_metadata().is_ok() {
        Entry::new(KUBELET_SERVER, Role::KubeletServer, Store::Together(asked_for)).signed_by(ROOT)
    } else {
        let made = Store::pair(&layout.kubelet_pki(), "kubelet");
        Entry::new(KUBELET_SERVER, Role::KubeletServer, made)
    };
    let configured = Kubelet::of(layout);
    let address = configured.address.as_deref().and_then(|address| address.parse().ok());
    let address: IpAddr = address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let port = configured.port.filter(|port| *port != 0).unwrap_or(KUBELET_PORT);
    entry.served_at(vec![SocketAddr::from((reachable(address), port))])
}

/// On loopback, and on the address that others are told.
fn api_server(flags: &Flags) -> Vec<SocketAddr> {
    let port = flags.value("secure-port").and_then(|port| port.parse().ok());
    let port: u16 = port.unwrap_or(super::super::node_state::API_SERVER_PORT);
    let bound = flags
        .value("bind-address")
        .and_then(|address| address.parse::<IpAddr>().ok());
    let advertised = flags
        .value("advertise-address")
        .and_then(|address| address.parse::<IpAddr>().ok());
    let mut addresses = match bound {
        // Bound to one address it is reached there alone.
        Some(one) if !one.is_unspecified() => vec![one],
        Some(_) | None => advertised.into_iter().collect(),
    };
    let everywhere = bound.is_none_or(|address| address.is_unspecified());
    if everywhere {
        let six_only = advertised.is_some_and(|address| address.is_ipv6());
        let any = if six_only { "::" } else { "0.0.0.0" };
        addresses.insert(0, reachable(any.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))));
    }
    addresses
        .into_iter()
        .map(|address| SocketAddr::from((address, port)))
        .collect()
}

/// An address at which a listener that is bound to `address` is reached from here.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(four) if four.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(six) if six.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// The flags of a component; none when its manifest is not there or cannot be read.
struct Flags(Vec<String>);

impl Flags {
    fn of(layout: &Layout, component: Component) -> Self {
        let pods = StaticPods::new(layout.clone(), Inputs::default());
        Self(
            pods.read_container_spec(component)
                .map(|spec| spec.argv)
                .unwrap_or_default(),
        )
    }

    /// `--NAME=VALUE`, the last one.
    fn value(&self, name: &str) -> Option<&str> {
        let value = |argument: &'_ String| -> Option<usize> {
            let rest = argument.trim_start_matches('-').strip_prefix(name)?;
            rest.starts_with('=').then_some(argument.len() - rest.len() + 1)
        };
        self.0
            .iter()
            .rev()
            .find_map(|argument| Some(&argument[value(argument)?..]))
    }

    /// The addresses of a comma-separated list of URLs with TLS.
    fn urls(&self, name: &str) -> Vec<SocketAddr> {
        let urls = self.value(name).unwrap_or_default().split(',');
        let address = |url: &str| {
            url.trim()
                .strip_prefix("https://")?
                .trim_end_matches('/')
                .parse::<SocketAddr>()
                .ok()
        };
        let reached = |address: SocketAddr| SocketAddr::from((reachable(address.ip()), address.port()));
        urls.filter_map(address).map(reached).collect()
    }
}

/// The part of `KubeletConfiguration` that says where the kubelet listens.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kubelet {
    address: Option<String>,
    port: Option<u16>,
}

impl Kubelet {
    fn of(layout: &Layout) -> Self {
        let text = std::fs::read_to_string(layout.kubelet_config()).unwrap_or_default();
        serde_saphyr::from_str(&text).unwrap_or_default()
    }
}
