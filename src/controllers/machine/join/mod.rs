//! How a machine joins a cluster: what it is told is proved, everything that could be in the way is asked before the first
//! write, and only then it becomes a node.
//!
//! A worker asks for its kubelet's certificate itself ([`claim`]). A controller is handed the authorities, signs for
//! itself, and its etcd member is added without a vote, so that its slow start costs the others nothing; `stratum up` has
//! it promoted.

mod begun;
mod error;
mod wish;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use zeroize::Zeroizing;

pub use error::Error;
pub use wish::Wish;

use begun::Begun;

use super::claim;
use super::install;
use super::node::{Config, Node};
use crate::controllers::bootstrap;
use crate::controllers::cluster::{self, CallErrorKind};
use crate::controllers::cluster_fence::{self, ClusterFence, FenceError};
use crate::controllers::cluster_info;
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::joining::discovery::{Discovered, Told, discover};
use crate::controllers::joining::material::{CLUSTER_FILE, download_material};
use crate::controllers::joining::wire::Limits;
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::controllers::progress::tell;
use crate::host::etcd::members::{Joining, Members, peer_url};
use crate::host::etcd::{self, Etcd};
use crate::host::layout::{Identity, Layout};
use crate::host::node_state::{self, InitialClusterState, Member, Networks, NodeState, Role};
use crate::host::{clock, node_pki};
use crate::reconcilers::bootstrap_token::BootstrapToken;
use crate::reconcilers::grants::material;
use crate::reconcilers::joining::token::Kind;

/// How long a worker's certificate may take.
const CERTIFICATE_WITHIN: Duration = Duration::from_secs(120);
/// How long another member of etcd may take to join before this one.
const TURN_WITHIN: Duration = Duration::from_secs(180);
/// How often it is asked whether it is this one's turn.
const PACE: Duration = Duration::from_secs(2);

/// A cluster that can be joined. Nothing is changed yet, here or there.
pub struct Prospect {
    /// What this machine will be.
    pub state: NodeState,
    token: BootstrapToken,
    discovered: Discovered,
    material: Vec<(String, Zeroizing<Vec<u8>>)>,
}

/// Finds the cluster, lets it prove itself, and asks everything that can be asked without changing anything.
///
/// # Errors
/// Says why this machine cannot join.
pub async fn prospect(wish: Wish, layout: &Layout) -> Result<Prospect, Error> {
    wish.check()?;
    let told = Told {
        endpoint: &wish.endpoint,
        token: &wish.token,
        pins: &wish.pins,
        kind: wish.kind(),
    };
    let discovered = discover(&told, Limits::default(), clock::now()).await?;
    let client = discovered.client(&wish.token);
    claim::check_name(&client, &wish.node_name).await?;
    if wish.kind() == Kind::Worker {
        let own = node_pki::kept_claim_key(layout).map_err(Error::Pki)?;
        claim::check_claim(&client, &wish.node_name, own.as_ref()).await?;
    }
    let (state, material) = match &wish.certificate_key {
        None => (wish.worker(), Vec::new()),
        Some(key) => {
            let received = download_material(&discovered, SYSTEM_NAMESPACE, &wish.token, key).await?;
            let cluster = cluster_of(&received)?;
            let files = received.files().filter(|(name, _)| *name != CLUSTER_FILE);
            let files = files.map(|(name, content)| (name.to_owned(), Zeroizing::new(content.to_vec())));
            (wish.controller(cluster), files.collect())
        }
    };
    Begun::of(&state, &discovered.bundle).check(layout)?;
    Ok(Prospect {
        state,
        token: wish.token,
        discovered,
        material,
    })
}

fn cluster_of(received: &material::Material) -> Result<NodeState, Error> {
    let text = received.file(CLUSTER_FILE).ok_or(Error::NoClusterFile)?;
    let text = String::from_utf8_lossy(text);
    node_state::parse(std::path::Path::new(CLUSTER_FILE), &text).map_err(Error::ClusterFile)
}

impl Prospect {
    /// Takes the cluster fence, with the rights of the token: a controller becomes a member of etcd, and nobody else may
    /// change the members meanwhile. None for a worker.
    ///
    /// # Errors
    /// When another operation has it, or the API server does not answer.
    pub async fn fence(
        &self,
        layout: &Layout,
        writer: &mut (dyn Write + Send),
    ) -> Result<Option<ClusterFence>, FenceError> {
        if self.state.role == Role::Worker {
            return Ok(None);
        }
        let client = self.discovered.client(&self.token);
        let operation = cluster_fence::operation("stratum join", &self.state.node_name);
        let settings = cluster_fence::Settings::on(layout);
        ClusterFence::acquire(client, &settings, &operation, writer)
            .await
            .map(Some)
    }

    /// Joins, a controller under the cluster `fence`, which the caller releases. Doing it again after a failure goes on where it
    /// stopped.
    ///
    /// # Errors
    /// Says what is in the way, and leaves what was done.
    pub async fn join(
        self,
        layout: Layout,
        config: Config,
        fence: Option<&ClusterFence>,
        writer: &mut dyn Write,
    ) -> Result<Node, Error> {
        let begun = Begun::of(&self.state, &self.discovered.bundle);
        // Asked before, but not under this machine's lock.
        begun.check(&layout)?;
        begun.write(&layout)?;
        match self.state.role {
            Role::Worker => self.join_as_worker(layout, config, writer).await,
            Role::Controller => self.join_as_controller(layout, config, fence, writer).await,
        }
    }

    async fn join_as_worker(mut self, layout: Layout, config: Config, writer: &mut dyn Write) -> Result<Node, Error> {
        let key = node_pki::claim_key(&layout, self.state.keys).map_err(Error::Pki)?;
        let client = self.discovered.client(&self.token);
        let node = &self.state.node_name;
        let asked = claim::certificate(&client, node, &key, CERTIFICATE_WITHIN, writer).await;
        if let Err(claim::Error::Refused { denied: true, .. }) = asked {
            // Under this key the verdict would be read again for as long as the cluster keeps the request.
            node_pki::forget_claim_key(&layout).map_err(Error::Pki)?;
        }
        let chain = asked?;
        let now = clock::now();
        node_pki::write_trust(&layout, &self.trusted(), now).map_err(Error::Pki)?;
        node_pki::write_kubelet_client(&layout, &chain, &key, now).map_err(Error::Pki)?;
        if self.state.networks.services.is_empty() {
            node_pki::write_kubeconfigs(&layout, &self.state).map_err(Error::Pki)?;
            let kubelet = ClientSettings::new(layout.kubeconfig(Identity::Kubelet), "join");
            let kubelet = connection::client(&kubelet, None).await.map_err(Error::Kubeconfig)?;
            self.state.networks.learned_dns = learn_dns(&kubelet, writer).await;
        }
        Ok(install::install(layout, self.state, config, now, writer)?)
    }

    async fn join_as_controller(
        mut self,
        layout: Layout,
        config: Config,
        fence: Option<&ClusterFence>,
        writer: &mut dyn Write,
    ) -> Result<Node, Error> {
        let now = clock::now();
        let files = self
            .material
            .iter()
            .map(|(name, content)| (name.as_str(), content.as_slice()));
        node_pki::write_authorities(&layout, files, now).map_err(Error::Pki)?;
        // Of a founder's state only its member list is not this node's; the certificates do not depend on it.
        self.found_no_more();
        node_pki::prepare_with(&layout, &self.state, config.leaf_lifetime, now).map_err(Error::Pki)?;
        let controllers = self.controllers(&layout).await?;
        let servers: Vec<SocketAddr> = controllers.into_iter().map(etcd::client_address).collect();
        let etcd = Etcd::new(&layout, servers).map_err(Error::Client)?;
        let members = self.become_member(&etcd, fence, writer).await?;
        if let Some(own) = &mut self.state.etcd {
            own.initial_cluster = initial_cluster(&members, &self.state.node_name, self.state.addresses.first());
        }
        Ok(install::install(layout, self.state, config, clock::now(), writer)?)
    }

    fn trusted(&self) -> Vec<u8> {
        let bundle: String = self
            .discovered
            .bundle
            .iter()
            .map(crate::pki::certificate::Certificate::to_pem)
            .collect();
        bundle.into_bytes()
    }

    fn found_no_more(&mut self) {
        if let Some(own) = &mut self.state.etcd {
            own.initial_cluster_state = InitialClusterState::Existing;
        }
    }

    /// The addresses of the controllers, as the cluster tells an administrator, asked where it was found.
    async fn controllers(&self, layout: &Layout) -> Result<Vec<IpAddr>, Error> {
        let credential = node_pki::bootstrap_credential(layout, &self.state, bootstrap::LIFETIME, clock::now())
            .map_err(Error::Pki)?;
        let bundle = String::from_utf8_lossy(&self.trusted()).into_owned();
        let client = bootstrap::client(&self.discovered.server, &bundle, &credential)
            .await
            .map_err(Error::Bootstrap)?;
        let servers = cluster_info::api_servers(&client).await.map_err(Error::Controllers)?;
        Ok(servers
            .into_iter()
            .filter(|address| !self.state.addresses.contains(address))
            .collect())
    }

    /// Becomes a member without a vote, when it is its turn; all members with it.
    async fn become_member(
        &self,
        etcd: &Etcd,
        fence: Option<&ClusterFence>,
        writer: &mut dyn Write,
    ) -> Result<Members, Error> {
        let (name, address) = (&self.state.node_name, self.state.address());
        let began = clock::monotonic();
        loop {
            let members = etcd.members().await.map_err(Error::Etcd)?;
            if let Some(fence) = fence {
                fence.check()?;
            }
            match members.joining(name, address) {
                Joining::GoOn(_) => return Ok(members),
                Joining::Taken(member) => return Err(Error::MemberTaken { member }),
                Joining::Wait(member) if began.elapsed() > TURN_WITHIN => return Err(Error::NotItsTurn { member }),
                Joining::Wait(member) => {
                    tell(writer, format_args!("waiting for {member} to join etcd first"));
                    clock::sleep(PACE).await;
                }
                Joining::Add => {
                    etcd.add_learner(&peer_url(address)).await.map_err(Error::Etcd)?;
                    tell(
                        writer,
                        format_args!("{name} is a member of etcd, without a vote until it has caught up"),
                    );
                    return etcd.members().await.map_err(Error::Etcd);
                }
            }
        }
    }
}

/// All members by name and address; this one has no name in etcd before its first start.
fn initial_cluster(members: &Members, name: &str, address: Option<&IpAddr>) -> Vec<Member> {
    let members = members.0.iter();
    let addressed = members.flat_map(|member| member.addresses().map(move |address| (member, address)));
    addressed
        .map(|(member, found)| Member {
            name: if Some(&found) == address {
                name.to_owned()
            } else {
                member.name.clone()
            },
            address: found,
        })
        .collect()
}

/// The address of the cluster's DNS, for a worker that was told no range; none when it has none yet.
async fn learn_dns(client: &Client, writer: &mut dyn Write) -> Option<IpAddr> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/services/kube-dns");
    match cluster::fetch::<Service>(client, &path, "application/json").await {
        Ok(service) => service.spec?.cluster_ip?.parse().ok(),
        Err(error) if error.kind() == CallErrorKind::NotFound => None,
        Err(error) => {
            tell(
                writer,
                format_args!(
                    "warning: the address of the cluster's DNS could not be learned ({}): pods of this node will ask {}, the usual one; if the cluster has another, take this node off and join with --service-cidr",
                    error.reason(),
                    Networks::USUAL_DNS
                ),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::etcd::members::{Member as EtcdMember, MemberId};

    #[test]
    fn the_list_of_members_names_this_one_by_its_node() {
        let member = |name: &str, url: &str| EtcdMember {
            id: MemberId(url.to_owned()),
            name: name.to_owned(),
            peer_urls: vec![url.to_owned()],
            is_learner: name.is_empty(),
        };
        let members = Members(vec![
            member("alpha", "https://10.0.0.1:2380"),
            member("six", "https://[fd00::1]:2380"),
            member("", "https://10.0.0.2:2380"),
        ]);
        let own: IpAddr = "10.0.0.2".parse().unwrap();
        let list: Vec<String> = initial_cluster(&members, "beta", Some(&own))
            .into_iter()
            .map(|member| format!("{}={}", member.name, member.address))
            .collect();
        assert_eq!(list, ["alpha=10.0.0.1", "six=fd00::1", "beta=10.0.0.2"]);
    }
}
