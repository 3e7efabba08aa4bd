//! This node's member of etcd.

use std::net::SocketAddr;

use super::super::super::etcd::client_url;
use super::super::super::etcd::members::peer_url;
use super::super::{Component, Error};
use super::pod::{Mount, Parts, Probes, text};
use super::{Arguments, Context};

pub(super) fn parts(context: &Context<'_>) -> Result<Parts, Error> {
    let metrics = Component::Etcd.listener().unwrap_or_default();
    Ok(Parts {
        names_program: true,
        arguments: context.finish(Component::Etcd, arguments(context, metrics)?),
        // Only etcd's own folder of certificates: the cluster's authority has no business here, and what etcd trusts is
        // in this folder whoever signs.
        mounts: vec![
            Mount::writable("etcd-data", context.layout.etcd_data()),
            Mount::folder("etcd-certs", context.layout.pki().join("etcd")),
        ],
        probes: Some(Probes {
            port: metrics,
            scheme: "HTTP",
            // kubeadm's startup probe asks `/readyz`, which needs a leader: a member whose peers are all away would be
            // killed every four minutes, and that brings none of them back.
            alive: "/livez",
            ready: "/readyz",
        }),
        requests: vec![("cpu", "100m"), ("memory", "100Mi")],
        // Time to hand leadership over and to close the store.
        grace: 30,
        ..Parts::default()
    })
}

fn arguments(context: &Context<'_>, metrics: u16) -> Result<Arguments, Error> {
    let state = context.state;
    let etcd = state.etcd.as_ref().ok_or(Error::NoEtcd)?;
    let (address, loopback) = (state.address(), context.state.loopback());
    let (client, peer) = (client_url(address), peer_url(address));
    let members = etcd.initial_cluster.iter();
    let members = members.map(|member| format!("{}={}", member.name, peer_url(member.address)));
    let members: Vec<String> = members.collect();
    let bundle = context.pki("etcd/ca-bundle.crt");
    let mut arguments = Arguments::default();
    let mut set = |name, value| arguments.set(name, value);
    set("name", state.node_name.clone());
    set("listen-client-urls", format!("{},{client}", client_url(loopback)));
    set("advertise-client-urls", client);
    set("listen-peer-urls", peer.clone());
    set("initial-advertise-peer-urls", peer);
    set("data-dir", text(&context.layout.etcd_data()));
    set("cert-file", context.pki("etcd/server.crt"));
    set("key-file", context.pki("etcd/server.key"));
    // kubeadm names `ca.crt`, which here is what signs: two authorities are trusted while one replaces the other.
    set("trusted-ca-file", bundle.clone());
    set("client-cert-auth", "true".to_owned());
    set("peer-cert-file", context.pki("etcd/peer.crt"));
    set("peer-key-file", context.pki("etcd/peer.key"));
    set("peer-trusted-ca-file", bundle);
    set("peer-client-cert-auth", "true".to_owned());
    set("snapshot-count", "10000".to_owned());
    set(
        "listen-metrics-urls",
        format!("http://{}", SocketAddr::new(loopback, metrics)),
    );
    set("feature-gates", "InitialCorruptCheck=true".to_owned());
    set("watch-progress-notify-interval", "5s".to_owned());
    set("initial-cluster", members.join(","));
    // kubeadm leaves it out for a founder, where it is the default; written out, a reader need not know that.
    set("initial-cluster-state", etcd.initial_cluster_state.to_string());
    Ok(arguments)
}
