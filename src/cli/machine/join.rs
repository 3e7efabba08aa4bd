//! `stratum join`: this machine becomes a node of a cluster that is there.

use std::io::Write;

use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};

use super::super::exit::Exit;
use super::super::printer;
use super::arguments::{Basics, NodeArguments};
use super::server::endpoint;
use crate::controllers::cluster_fence::{ClusterFence, unless_interrupted};
use crate::controllers::machine::install;
use crate::controllers::machine::join::{self, Prospect, Wish};
use crate::controllers::machine::node::Config;
use crate::host::layout::Layout;
use crate::host::lock::Lock;
use crate::host::node_state::{CLUSTER_DOMAIN, Endpoint, Profile};
use crate::pki::key::KeyKind;
use crate::pki::pin::Pin;
use crate::pki::seal::CertificateKey;

/// The flags of `stratum join`, as `stratum token create` prints them.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Where the API servers are reached
    #[arg(value_name = "HOST[:PORT]", value_parser = endpoint)]
    endpoint: Endpoint,
    /// The join token
    #[arg(long, value_name = "ID.SECRET", env = "STRATUM_JOIN_TOKEN", hide_env_values = true)]
    token: SecretString,
    /// The hash of an authority of the cluster; may be given more than once, one of them has to be the cluster's
    #[arg(long, value_name = "sha256:HASH", required = true, value_delimiter = ',', value_parser = clap::value_parser!(Pin))]
    ca_cert_hash: Vec<Pin>,
    /// Become a controller
    #[arg(long, requires = "certificate_key")]
    control_plane: bool,
    /// The key that opens what a controller is handed
    #[arg(
        long,
        value_name = "KEY",
        requires = "control_plane",
        env = "STRATUM_CERTIFICATE_KEY",
        hide_env_values = true
    )]
    certificate_key: Option<SecretString>,
    /// The cluster's range of Services, when it is not the usual one; controllers are told by the cluster
    #[arg(long, value_name = "RANGE", value_delimiter = ',', conflicts_with = "control_plane")]
    service_cidr: Vec<IpNet>,
    /// The cluster's DNS domain; controllers are told by the cluster
    #[arg(long, value_name = "DOMAIN", default_value = CLUSTER_DOMAIN, conflicts_with = "control_plane")]
    cluster_domain: String,
    /// Follow the CIS Kubernetes Benchmark; controllers follow the cluster's profile
    #[arg(long)]
    cis: bool,
    #[command(flatten)]
    node: NodeArguments,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = Layout::system();
    let Some(config) = super::config(&layout) else {
        return Ok(Exit::Usage);
    };
    let wish = match arguments.wish()? {
        Ok(wish) => wish,
        Err(reason) => {
            printer::stderr(&format!("error: {reason}\n"));
            return Ok(Exit::Usage);
        }
    };
    if let Err(error) = install::check_none(&layout) {
        return Ok(super::refused(error));
    }
    let mut progress = arguments.node.progress();
    if !arguments.control_plane {
        // Nobody else has to know of it.
        let Some(lock) = super::lock(&layout, OPERATION)? else {
            return Ok(Exit::Refused);
        };
        return match join::prospect(wish, &layout).await {
            Ok(prospect) => become_node(arguments, layout, config, prospect, None, lock, &mut progress).await,
            Err(error) => Ok(super::refused(error)),
        };
    }
    // First the cluster's fence, which can be asked for once the cluster is known, and then this machine's lock.
    let prospect = match join::prospect(wish, &layout).await {
        Ok(prospect) => prospect,
        Err(error) => return Ok(super::refused(error)),
    };
    let fence = match prospect.fence(&layout, &mut progress).await {
        Ok(fence) => fence,
        Err(error) => return Ok(super::refused(error)),
    };
    let work = async {
        match super::lock(&layout, OPERATION)? {
            Some(lock) => {
                let layout = layout.clone();
                become_node(arguments, layout, config, prospect, fence.as_ref(), lock, &mut progress).await
            }
            None => Ok(Exit::Refused),
        }
    };
    let exit = unless_interrupted(work).await;
    if let Some(fence) = fence {
        fence.release().await;
    }
    exit?
}

const OPERATION: &str = "stratum join";

async fn become_node(
    arguments: Arguments,
    layout: Layout,
    config: Config,
    prospect: Prospect,
    fence: Option<&ClusterFence>,
    _lock: Lock,
    progress: &mut (dyn Write + Send),
) -> anyhow::Result<Exit> {
    let Some(payload) = super::may_install(&layout, &prospect.state, &config, &arguments.node)? else {
        return Ok(Exit::Refused);
    };
    super::take_payload(&payload, &layout)?;
    let node = match prospect.join(layout, config, fence, progress).await {
        Ok(node) => node,
        Err(error) if error.is_lost_fence() => {
            printer::error(error);
            return Ok(Exit::LeadershipLost);
        }
        Err(error) => return Err(error.into()),
    };
    arguments.node.tell(&node)?;
    Ok(Exit::Done)
}

impl Arguments {
    /// What was asked for, or which secret is none: clap would print it.
    fn wish(&self) -> anyhow::Result<Result<Wish, String>> {
        let Basics {
            node_name,
            addresses,
            labels,
            taints,
        } = self.node.basics()?;
        let token = match self.token.expose_secret().parse() {
            Ok(token) => token,
            Err(error) => return Ok(Err(format!("--token: {error}"))),
        };
        let key = self
            .certificate_key
            .as_ref()
            .map(|key| key.expose_secret().parse::<CertificateKey>());
        let certificate_key = match key.transpose() {
            Ok(key) => key,
            Err(error) => return Ok(Err(format!("--certificate-key: {error}"))),
        };
        Ok(Ok(Wish {
            node_name,
            addresses,
            endpoint: self.endpoint.clone(),
            token,
            pins: self.ca_cert_hash.clone(),
            certificate_key,
            profile: self.cis.then_some(Profile::Cis),
            services: self.service_cidr.iter().map(IpNet::trunc).collect(),
            domain: self.cluster_domain.to_lowercase(),
            labels,
            taints,
            keys: KeyKind::default(),
        }))
    }
}
