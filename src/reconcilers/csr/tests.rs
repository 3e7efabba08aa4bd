//! Requests as openssl makes them, judged one by one; the cluster around them is plain data.

mod claims;
mod servers;

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::identity::{Holders, NodeView, follow};
use super::network::Network;
use super::*;
use crate::pki::signing_request::kit;
use crate::reconcilers::host_name::{DnsName, Host};

const USAGES_SERVING: &[&str] = &["digital signature", "server auth"];
const USAGES_CLIENT: &[&str] = &["digital signature", "client auth"];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn host(text: &str) -> Host {
    Host::compared(text).unwrap()
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Approve => "approve",
        Decision::Settled => "settled",
        Decision::Wait(reason) => reason.word(),
    }
}

/// A request for `n1`, by itself, for the given names.
fn serving_request(subject: &str, names: &str) -> Request {
    let extension = format!("subjectAltName={names}");
    let extensions: &[&str] = if names.is_empty() { &[] } else { &[&extension] };
    Request {
        name: "csr-1".to_owned(),
        uid: Uid("uid-1".to_owned()),
        requester: "system:node:n1".to_owned(),
        groups: owned(&["system:nodes", "system:authenticated"]),
        usages: owned(USAGES_SERVING),
        pem: kit::request(kit::P256, subject, extensions),
        expiration: None,
        standing: Standing::Pending,
    }
}

fn joiner(token: &str, node: &str) -> Request {
    Request {
        name: format!("csr-{token}-{node}"),
        uid: Uid(format!("uid-{token}-{node}")),
        requester: format!("system:bootstrap:{token}"),
        groups: owned(&["system:bootstrappers", "system:authenticated"]),
        usages: owned(USAGES_CLIENT),
        pem: kit::request(kit::P256, &kit::subject(node), &[]),
        expiration: None,
        standing: Standing::Pending,
    }
}

/// A cluster with a controller `c1`, a worker `n1` and another `n2`.
struct Cluster {
    nodes: Vec<NodeView>,
    holders: Holders,
    network: Network,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self {
            nodes: Vec::new(),
            holders: Holders::default(),
            network: Network {
                services: vec!["10.96.0.0/12".parse().unwrap(), "fd00:96::/108".parse().unwrap()],
                api_servers: BTreeSet::from(["10.0.0.1".parse().unwrap()]),
                shared: Some(host("10.0.0.100")),
                domain: DnsName::new("cluster.local").ok(),
            },
        };
        cluster.report("c1", &["10.0.0.1", "c1"], 0);
        cluster.report("n1", &["10.0.0.5", "n1", "n1.example.com.", "fd00:0:0::1"], 1);
        cluster.report("n2", &["10.0.0.6", "n2"], 2);
        cluster
    }

    /// A node's status says this, and the operator has seen it.
    fn report(&mut self, name: &str, addresses: &[&str], second: i64) {
        let node = NodeView {
            uid: Uid(format!("uid-{name}")),
            name: name.to_owned(),
            controller: name.starts_with('c'),
            addresses: addresses.iter().filter_map(|text| Host::compared(text).ok()).collect(),
        };
        let identity = follow(None, &node, at(second)).unwrap();
        self.holders.insert(name, &identity);
        self.nodes.retain(|known| known.name != name);
        self.nodes.push(node);
    }

    fn serving(&self, request: &Request) -> Decision {
        let node = serving::node_of(request).and_then(|name| self.nodes.iter().find(|node| node.name == name));
        let world = serving::World {
            node,
            holders: &self.holders,
            network: Ok(&self.network),
        };
        serving::decide(request, world)
    }
}

#[test]
fn words_are_one_for_each_reason_and_sentences_are_one_line() {
    use strum::IntoEnumIterator;
    let words: BTreeSet<&str> = ReasonWord::iter().map(Into::into).collect();
    assert_eq!(words.len(), ReasonWord::iter().count());
    assert!(words.contains("held_by_another"), "{words:?}");
}

#[test]
fn only_what_can_change_may_pass() {
    assert!(Reason::NoAddresses("n".to_owned()).may_pass());
    assert!(Reason::NetworkUnknown("x".to_owned()).may_pass());
    assert!(!Reason::NoNames.may_pass());
    assert!(!Reason::Requester("x".to_owned()).may_pass());
}

#[test]
fn a_certificate_ends_at_the_signers_limit_at_the_latest() {
    let mut request = joiner("aaaaaa", "n9");
    let hours = |hours: i64| SignedDuration::from_hours(hours);
    assert_eq!(request.latest_end(at(0)), at(0) + hours(365 * 24));
    request.expiration = Some(hours(1));
    assert_eq!(request.latest_end(at(0)), at(0) + hours(1));
    request.expiration = Some(hours(24 * 3650));
    assert_eq!(request.latest_end(at(0)), at(0) + hours(365 * 24));
}
