//! The certificates and keys of the control plane, in the files and under the names kubeadm gives them.

use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};

use super::super::layout::Layout;
use super::super::node_pki;
use super::super::pki_folder::{self, Credential, Error, Folder};
use crate::pki::authority::Authority;
use crate::pki::key::KeyKind;
use crate::pki::leaf::{Request, Usage};
use crate::pki::name::{AlternativeName, Subject};

/// What is needed of it while the control plane runs.
#[derive(Debug)]
pub(super) struct Material {
    cluster: Authority,
    kind: KeyKind,
}

impl Material {
    pub(super) fn prepare(layout: &Layout, kind: KeyKind, now: Timestamp) -> Result<Self, Error> {
        let mut folder = Folder::new(layout.pki(), kind, now).renewing();
        folder.make_keys(PAIRS, 0)?;
        let cluster = folder.authority("ca", "kubernetes-ca")?;
        let etcd = folder.authority("etcd/ca", "etcd-ca")?;
        let front_proxy = folder.authority("front-proxy-ca", "front-proxy-ca")?;
        folder.leaf(
            "apiserver",
            &cluster,
            &Request::server(Subject::user("kube-apiserver"), server_names()),
        )?;
        let client = |user: &str| Request::client(Subject::user(user));
        folder.leaf("apiserver-etcd-client", &etcd, &client("kube-apiserver-etcd-client"))?;
        folder.leaf("front-proxy-client", &front_proxy, &client("front-proxy-client"))?;
        for name in ["server", "peer"] {
            // etcd uses either certificate on both sides of a connection.
            let request = Request {
                usages: vec![Usage::Server, Usage::Client],
                ..Request::server(Subject::user("stratum-dev"), local_names())
            };
            folder.leaf(&format!("etcd/{name}"), &etcd, &request)?;
        }
        for identity in super::IDENTITIES {
            folder.leaf(
                identity.name(),
                &cluster,
                &Request::client(node_pki::subject(identity, "dev")),
            )?;
        }
        folder.key("sa")?;
        folder.commit()?;
        Ok(Self { cluster, kind })
    }

    pub(super) fn authority(&self) -> String {
        self.cluster.certificate().to_pem()
    }

    /// A client of `system:masters`, in memory only.
    pub(super) fn bootstrap(&self, lifetime: SignedDuration, now: Timestamp) -> Result<Credential, Error> {
        pki_folder::master(&self.cluster, self.kind, lifetime, now)
    }
}

/// All that have a key.
const PAIRS: [&str; 12] = [
    "ca",
    "etcd/ca",
    "front-proxy-ca",
    "apiserver",
    "apiserver-etcd-client",
    "front-proxy-client",
    "etcd/server",
    "etcd/peer",
    "admin",
    "operator",
    "deployer",
    "sa",
];

fn local_names() -> Vec<AlternativeName> {
    vec![
        AlternativeName::dns("localhost"),
        AlternativeName::ip(Ipv4Addr::LOCALHOST),
    ]
}

fn server_names() -> Vec<AlternativeName> {
    let mut names = local_names();
    let services = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    names.extend(services.map(AlternativeName::dns));
    // The first address of the service range.
    names.push(AlternativeName::ip(Ipv4Addr::new(10, 96, 0, 1)));
    names
}
