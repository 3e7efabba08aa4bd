//! The certificates of a node as data: file, signer, subject, names, usages (design, section 4).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use super::super::layout::{Identity, Layout};
use super::super::node_state::{EtcdAuthority, NodeState};
use crate::pki::leaf::{Request, Usage};
use crate::pki::name::{AlternativeName, Subject};

/// Who signs a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumIter)]
pub enum Signer {
    /// The cluster's authority, `ca`.
    Root,
    /// etcd's own authority, `etcd/ca`.
    Etcd,
    /// The authority of the API server as a proxy, `front-proxy-ca`.
    FrontProxy,
}

impl Signer {
    /// The name of its two files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "ca",
            Self::Etcd => "etcd/ca",
            Self::FrontProxy => "front-proxy-ca",
        }
    }

    /// What the name of a new one starts with.
    pub(super) fn common_name(self) -> &'static str {
        match self {
            Self::Root => "kubernetes-ca",
            Self::Etcd => "etcd-ca",
            Self::FrontProxy => "front-proxy-ca",
        }
    }

    /// The bundle that its own peers trust it by; etcd's peers use etcd's bundle whoever signs for them.
    #[must_use]
    pub fn bundle(self) -> &'static str {
        match self {
            Self::Root => ROOT_BUNDLE,
            Self::Etcd => ETCD_BUNDLE,
            Self::FrontProxy => FRONT_PROXY_BUNDLE,
        }
    }
}

/// Whom clients of the API server and of kubelets trust, and who is trusted as their client.
pub const ROOT_BUNDLE: &str = "ca-bundle.crt";
/// Whom those trust that the API server is a proxy to.
pub const FRONT_PROXY_BUNDLE: &str = "front-proxy-ca-bundle.crt";
/// Whom members of etcd and their clients trust.
pub const ETCD_BUNDLE: &str = "etcd/ca-bundle.crt";
/// Who signs the certificates that kubelets are clients of the API server with.
pub const KUBELET_CLIENT_BUNDLE: &str = "kubelet-client-ca-bundle.crt";
/// The keys that service-account tokens are verified with.
pub const SERVICE_ACCOUNT_BUNDLE: &str = "sa-verify.pub";
/// The pair that service-account tokens are signed with.
pub const SERVICE_ACCOUNT: &str = "sa";

/// Where a leaf and its key are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In `NAME.crt` and `NAME.key` of the PKI folder; renewed by us.
    Pair,
    /// In one file of the kubelet's own folder; renewed by the kubelet.
    KubeletStore,
}

/// One certificate of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its files' name below the PKI folder, without an ending; `kubelet-client` is in the kubelet's own folder.
    pub name: &'static str,
    /// Where it is kept.
    pub place: Place,
    /// Who signs it.
    pub signer: Signer,
    /// Subject, names and usages.
    pub request: Request,
}

impl Leaf {
    /// The file of the certificate.
    #[must_use]
    pub fn certificate_file(&self, layout: &Layout) -> PathBuf {
        match self.place {
            Place::Pair => layout.pki().join(format!("{}.crt", self.name)),
            Place::KubeletStore => layout.kubelet_client(),
        }
    }

    /// The file of its key.
    #[must_use]
    pub fn key_file(&self, layout: &Layout) -> PathBuf {
        match self.place {
            Place::Pair => layout.pki().join(format!("{}.key", self.name)),
            Place::KubeletStore => layout.kubelet_client(),
        }
    }
}

/// The certificates this node issues for itself: a controller's. A worker has none, for it has no authority to sign them;
/// its kubelet asks for both of its own.
#[must_use]
pub fn leaves(state: &NodeState) -> Vec<Leaf> {
    let Some(etcd) = &state.etcd else {
        return Vec::new();
    };
    let etcd_signer = match etcd.authority {
        EtcdAuthority::Own => Signer::Etcd,
        EtcdAuthority::Root => Signer::Root,
    };
    let pair = |name, signer, request| Leaf {
        name,
        place: Place::Pair,
        signer,
        request,
    };
    let client = |user: &str| Request::client(Subject::user(user));
    // A member uses either of its certificates on both sides of a connection.
    let member = Request {
        usages: vec![Usage::Server, Usage::Client],
        ..Request::server(Subject::user(&state.node_name), member_names(state))
    };
    let mut leaves = vec![
        pair(
            "apiserver",
            Signer::Root,
            Request::server(Subject::user("kube-apiserver"), server_names(state)),
        ),
        pair(
            "apiserver-kubelet-client",
            Signer::Root,
            Request::client(Subject::user("kube-apiserver-kubelet-client").in_group(KUBELET_API_GROUP)),
        ),
        pair(
            "apiserver-etcd-client",
            etcd_signer,
            client("kube-apiserver-etcd-client"),
        ),
        pair("etcd/server", etcd_signer, member.clone()),
        pair("etcd/peer", etcd_signer, member),
        pair(
            "etcd/healthcheck-client",
            etcd_signer,
            client("kube-etcd-healthcheck-client"),
        ),
        pair("front-proxy-client", Signer::FrontProxy, client(FRONT_PROXY_CLIENT)),
    ];
    for identity in [
        Identity::Admin,
        Identity::Operator,
        Identity::Deployer,
        Identity::ControllerManager,
        Identity::Scheduler,
    ] {
        let request = Request::client(subject(identity, &state.node_name));
        leaves.push(pair(identity.name(), Signer::Root, request));
    }
    let node = subject(Identity::Kubelet, &state.node_name);
    if !state.profile.serving_bootstrap() {
        let request = Request::server(node.clone(), node_names(state));
        leaves.push(pair("kubelet", Signer::Root, request));
    }
    leaves.push(Leaf {
        name: "kubelet-client",
        place: Place::KubeletStore,
        signer: Signer::Root,
        request: Request::client(node),
    });
    leaves
}

/// As the API server sees them. None is in `system:masters`: what they may do, bindings say.
#[must_use]
pub fn subject(identity: Identity, node_name: &str) -> Subject {
    match identity {
        Identity::Admin => Subject::user("stratum:admin").in_group("stratum:cluster-admins"),
        Identity::Operator => Subject::user("stratum:operator"),
        Identity::Deployer => Subject::user("stratum:deployer"),
        Identity::ControllerManager => Subject::user("system:kube-controller-manager"),
        Identity::Scheduler => Subject::user("system:kube-scheduler"),
        Identity::Kubelet => Subject::user(format!("system:node:{node_name}")).in_group("system:nodes"),
    }
}

/// The group of the API server as a client of kubelets; a binding gives it `system:kubelet-api-admin`.
pub const KUBELET_API_GROUP: &str = "stratum:kubelet-api";
/// The one name that may speak for users: the API server's `--requestheader-allowed-names`.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// What the API server is reached by.
fn server_names(state: &NodeState) -> Vec<AlternativeName> {
    let service = "kubernetes.default.svc";
    let mut names = vec![
        AlternativeName::dns("kubernetes"),
        AlternativeName::dns("kubernetes.default"),
        AlternativeName::dns(service),
        AlternativeName::dns(format!("{service}.{}", state.networks.domain)),
    ];
    names.extend(local_names());
    names.extend(node_names(state));
    names.extend(
        state
            .networks
            .api_server_services()
            .into_iter()
            .map(AlternativeName::ip),
    );
    names.extend(state.vip.iter().map(|vip| AlternativeName::ip(vip.address)));
    let told = std::iter::once(&state.endpoint.host).chain(&state.extra_names);
    names.extend(told.map(|name| AlternativeName::host(name)));
    distinct(names)
}

fn member_names(state: &NodeState) -> Vec<AlternativeName> {
    distinct(local_names().into_iter().chain(node_names(state)))
}

/// The node's own name and addresses: what its kubelet would ask for.
fn node_names(state: &NodeState) -> Vec<AlternativeName> {
    let addresses = state.addresses.iter().filter(|address| !address.is_unspecified());
    let names = addresses.map(|address| AlternativeName::ip(*address));
    distinct(std::iter::once(AlternativeName::host(&state.node_name)).chain(names))
}

/// Both families, whatever the node's own is: clients on the node choose freely.
fn local_names() -> [AlternativeName; 3] {
    [
        AlternativeName::dns("localhost"),
        AlternativeName::ip(Ipv4Addr::LOCALHOST),
        AlternativeName::ip(Ipv6Addr::LOCALHOST),
    ]
}

/// Each once, in the order of their first place.
fn distinct(names: impl IntoIterator<Item = AlternativeName>) -> Vec<AlternativeName> {
    let mut known = BTreeSet::new();
    names.into_iter().filter(|name| known.insert(name.clone())).collect()
}
