//! What a controller does beside its static pods: its etcd member gets its vote, and once its API server answers the
//! cluster gets what the operator cannot do without. Everything is done again at each start of `stratum up`, which heals
//! a binding that somebody deleted.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kube::Client;

use super::bundles;
use super::node::Node;
use crate::controllers::bootstrap;
use crate::controllers::cluster::{CONTROL_PLANE_LABEL, CallError};
use crate::controllers::concern::chain;
use crate::controllers::connection::{self, ClientSettings, ConnectionError};
use crate::controllers::departed::unmark;
use crate::controllers::hands;
use crate::controllers::inventory::store::Store;
use crate::controllers::nodes;
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::host::etcd::{self, Etcd};
use crate::host::https;
use crate::host::layout::Identity;
use crate::host::{clock, node_pki, ready};
use crate::reconcilers::inventory::desired::Next;

/// How often something is asked again that will be true soon.
const PACE: Duration = Duration::from_secs(1);
/// After how long it is told what is waited for, and how often again.
const TELL: Duration = Duration::from_secs(30);

/// Why a controller is not ready for the operator. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate cannot be made or used.
    #[error("cannot prepare a credential")]
    Credential(#[source] node_pki::Error),
    /// A client cannot be made.
    #[error("cannot make a client of this node's certificates")]
    Client(#[source] https::Error),
    /// A kubeconfig cannot be used.
    #[error("cannot use the administrator's kubeconfig")]
    Kubeconfig(#[source] ConnectionError),
    /// The bindings.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// The stacks.
    #[error(transparent)]
    Bundles(#[from] bundles::Error),
    /// The Node.
    #[error("cannot label Node {node}")]
    Label {
        /// Its name.
        node: String,
        /// Why.
        #[source]
        source: CallError,
    },
}

/// Brings this controller to the point where the operator may start. Waits as long as it takes, and tells what for.
///
/// # Errors
/// When something is refused; what only needs time is waited for.
pub async fn make_ready(node: &Node) -> Result<(), Error> {
    vote(node).await?;
    answer(node).await?;
    let trust = node_pki::read_trust(&node.layout).map_err(Error::Credential)?;
    let client = bootstrap_client(node, &trust).await?;
    bootstrap::prepare(&client, &facts(node, trust)).await?;
    register(node, &client).await?;
    let admin = ClientSettings::new(node.layout.kubeconfig(Identity::Admin), "up");
    let admin = connection::client(&admin, None).await.map_err(Error::Kubeconfig)?;
    bundles::write(&node.layout.manifests())?;
    let recorded = bundles::record(&Store::new(admin, SYSTEM_NAMESPACE), &node.state, clock::now()).await?;
    if let Next::RefusedOlder { .. } = recorded {
        tracing::warn!("a newer version of this program has staged the bundled stacks; its set stays");
    }
    Ok(())
}

/// Until this node's member of etcd has a vote. Only one that joined ever lacked it; an API server beside a member without
/// one cannot serve.
async fn vote(node: &Node) -> Result<(), Error> {
    let Some(told) = &node.state.etcd else {
        return Ok(());
    };
    let others = told
        .initial_cluster
        .iter()
        .filter(|member| member.address != node.state.address());
    // Only members with a vote can promote another.
    let others: Vec<SocketAddr> = others.map(|member| etcd::client_address(member.address)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let etcd = Etcd::new(&node.layout, others).map_err(Error::Client)?;
    let mut waiting = Waiting::new("this node's member of etcd to catch up and get its vote");
    loop {
        match promoted(&etcd, node.state.address()).await {
            Ok(true) => return Ok(()),
            Ok(false) => waiting.tell("it is no member"),
            Err(error) => waiting.tell(&chain(&error)),
        }
        clock::sleep(PACE).await;
    }
}

/// Whether the member at an address has its vote, which is asked for if it has not.
async fn promoted(etcd: &Etcd, address: IpAddr) -> Result<bool, etcd::Error> {
    match etcd.members().await?.at(address) {
        None => Ok(false),
        Some(member) if !member.is_learner => Ok(true),
        Some(member) => etcd.promote(&member.id).await.map(|()| true),
    }
}

async fn answer(node: &Node) -> Result<(), Error> {
    let pki = node.layout.pki();
    let [authorities, certificate, key] = ["ca-bundle.crt", "admin.crt", "admin.key"].map(|name| pki.join(name));
    let client = https::Client::new(&authorities, &certificate, &key).map_err(Error::Client)?;
    let mut waiting = Waiting::new("the API server of this node");
    while let Err(error) = ready::readyz(&client, node.state.own_api_server(), PACE * 5).await {
        waiting.tell(&chain(&error));
        clock::sleep(PACE).await;
    }
    Ok(())
}

/// A client that may do everything, with a certificate that exists in this process only.
async fn bootstrap_client(node: &Node, trust: &str) -> Result<Client, Error> {
    let credential = node_pki::bootstrap_credential(&node.layout, &node.state, bootstrap::LIFETIME, clock::now());
    let credential = credential.map_err(Error::Credential)?;
    let server = format!("https://{}", node.state.own_api_server());
    Ok(bootstrap::client(&server, trust, &credential).await?)
}

fn facts(node: &Node, trust: String) -> bootstrap::Facts {
    bootstrap::Facts {
        node: None,
        server: format!("https://{}", node.state.endpoint),
        certificate_authority: trust,
    }
}

/// Once the kubelet has registered the Node: it may not label it a controller itself. An uninstall's mark is taken off.
async fn register(node: &Node, client: &Client) -> Result<(), Error> {
    let name = node.state.node_name.as_str();
    let failed = |source| Error::Label {
        node: name.to_owned(),
        source,
    };
    let mut waiting = Waiting::new("the kubelet to register its Node");
    loop {
        if let Some(found) = nodes::look(client, name).await.map_err(failed)? {
            let label = (CONTROL_PLANE_LABEL, Some(""));
            hands::label_node(client, name, &found.facts.uid, label)
                .await
                .map_err(failed)?;
            return unmark(client, name).await.map_err(failed);
        }
        waiting.tell("it is not there yet");
        clock::sleep(PACE).await;
    }
}

/// Something that is waited for.
struct Waiting {
    what: &'static str,
    told: Duration,
}

impl Waiting {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            told: clock::since_boot(),
        }
    }

    /// Says what is waited for, and why it is not there, now and then.
    fn tell(&mut self, why: &str) {
        let now = clock::since_boot();
        if now.saturating_sub(self.told) >= TELL {
            self.told = now;
            tracing::warn!("still waiting for {}: {why}", self.what);
        }
    }
}
