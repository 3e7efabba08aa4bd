//! `stratum server`: this machine becomes the first controller of a new cluster.

use std::net::IpAddr;

use anyhow::{Context, anyhow};
use ipnet::IpNet;

use super::super::exit::Exit;
use super::super::printer;
use super::arguments::{Basics, NodeArguments};
use crate::controllers::machine::install;
use crate::controllers::machine::wish::Wish;
use crate::host::addresses;
use crate::host::layout::Layout;
use crate::host::node_state::{API_SERVER_PORT, CLUSTER_DOMAIN, Endpoint, EtcdAuthority, Profile, Vip};
use crate::pki::key::KeyKind;

/// The flags of `stratum server`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Follow the CIS Kubernetes Benchmark
    #[arg(long)]
    cis: bool,
    /// An address that the controllers will share
    #[arg(long, value_name = "ADDRESS")]
    vip: Option<IpAddr>,
    /// The interface the shared address is announced on [default: the one on the same network]
    #[arg(long, value_name = "NAME", requires = "vip")]
    vip_interface: Option<String>,
    /// Where nodes and people reach the API servers [default: the shared address, or this machine]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = endpoint)]
    endpoint: Option<Endpoint>,
    /// One more name or address in the API server's certificate; may be given more than once
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    san: Vec<String>,
    /// The range of Services; one of each family for dual-stack
    #[arg(long, value_name = "RANGE", value_delimiter = ',', default_value = "10.96.0.0/12")]
    service_cidr: Vec<IpNet>,
    /// The range of pods; one of each family for dual-stack
    #[arg(long, value_name = "RANGE", value_delimiter = ',', default_value = "10.244.0.0/16")]
    pod_cidr: Vec<IpNet>,
    /// The DNS domain of Services
    #[arg(long, value_name = "DOMAIN", default_value = CLUSTER_DOMAIN)]
    cluster_domain: String,
    /// Who signs etcd's certificates: an authority of its own, or the cluster's
    #[arg(long, value_name = "own|root", default_value = "own", value_parser = clap::value_parser!(EtcdAuthority))]
    etcd_ca: EtcdAuthority,
    /// The kind of the keys that are made: ecdsa-p256, ecdsa-p384, rsa-2048, rsa-3072 or rsa-4096
    #[arg(long, value_name = "KIND", default_value = "ecdsa-p256", value_parser = clap::value_parser!(KeyKind))]
    keys: KeyKind,
    #[command(flatten)]
    node: NodeArguments,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = Layout::system();
    let wish = arguments.wish(&layout)?;
    let state = match wish.state() {
        Ok(state) => state,
        Err(misfits) => {
            for misfit in misfits {
                printer::stderr(&format!("error: {misfit}\n"));
            }
            return Ok(Exit::Usage);
        }
    };
    let Some(config) = super::config(&layout) else {
        return Ok(Exit::Usage);
    };
    let Some(_lock) = super::lock(&layout, "stratum server")? else {
        return Ok(Exit::Refused);
    };
    if let Err(error) = install::check_no_join(&layout) {
        return Ok(super::refused(error));
    }
    let Some(payload) = super::may_install(&layout, &state, &config, &arguments.node)? else {
        return Ok(Exit::Refused);
    };
    super::become_node(layout, state, config, &payload, &arguments.node)?;
    Ok(Exit::Done)
}

impl Arguments {
    fn wish(&self, layout: &Layout) -> anyhow::Result<Wish> {
        let Basics {
            node_name,
            addresses,
            labels,
            taints,
        } = self.node.basics()?;
        let vip = self.vip.map(|address| self.shared(layout, address)).transpose()?;
        Ok(Wish {
            node_name,
            addresses,
            profile: if self.cis { Profile::Cis } else { Profile::Default },
            services: self.service_cidr.iter().map(IpNet::trunc).collect(),
            pods: self.pod_cidr.iter().map(IpNet::trunc).collect(),
            domain: self.cluster_domain.to_lowercase(),
            endpoint: self.endpoint.clone(),
            vip,
            extra_names: self.san.clone(),
            etcd_authority: self.etcd_ca,
            labels,
            taints,
            keys: self.keys,
        })
    }

    fn shared(&self, layout: &Layout, address: IpAddr) -> anyhow::Result<Vip> {
        let interface = match &self.vip_interface {
            Some(name) => name.clone(),
            None => addresses::interface_of(layout.root(), address)
                .context("cannot read the routing table")?
                .ok_or_else(|| {
                    anyhow!("{address} is on no network of this machine; name the interface with --vip-interface")
                })?,
        };
        Ok(Vip { address, interface })
    }
}

/// `HOST`, `HOST:PORT`, or an IPv6 address with or without brackets.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, String> {
    let wrong = || "an endpoint is HOST or HOST:PORT, an IPv6 address with a port in brackets".to_owned();
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None if text.parse::<IpAddr>().is_ok() => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
        None => API_SERVER_PORT,
    };
    if host.is_empty() || host.contains(['/', ' ', ':']) && host.parse::<IpAddr>().is_err() {
        return Err(wrong());
    }
    Ok(Endpoint {
        host: host.to_owned(),
        port,
    })
}
