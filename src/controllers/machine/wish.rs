//! What `stratum server` and `stratum join` were asked for, made into a [`NodeState`], or refused with everything that does
//! not fit together. No file, no clock, no network.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::host::node_state::{
    API_SERVER_PORT, Endpoint, Etcd, EtcdAuthority, InitialClusterState, Member, Networks, NodeState, Profile, Role,
    Taint, Vip,
};
use crate::pki::key::KeyKind;
use crate::reconcilers::host_name::DnsName;

/// What a first controller shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The node's name.
    pub node_name: String,
    /// Its addresses, the first being the one others use.
    pub addresses: Vec<IpAddr>,
    /// The profile.
    pub profile: Profile,
    /// Ranges of Services.
    pub services: Vec<IpNet>,
    /// Ranges of pods.
    pub pods: Vec<IpNet>,
    /// The DNS domain of Services.
    pub domain: String,
    /// Where the API servers are reached; the VIP, else this node, unless it is said.
    pub endpoint: Option<Endpoint>,
    /// A shared address.
    pub vip: Option<Vip>,
    /// More names for the API server's certificate.
    pub extra_names: Vec<String>,
    /// Who signs etcd's certificates.
    pub etcd_authority: EtcdAuthority,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints; none said is the one that keeps ordinary pods off controllers.
    pub taints: Option<Vec<Taint>>,
    /// The kind of keys.
    pub keys: KeyKind,
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Not one or two ranges, or two of one family.
    Ranges(&'static str, Vec<IpNet>),
    /// A range too small for what has a fixed place in it, or larger than the API server takes.
    Size(&'static str, IpNet),
    /// Two ranges share addresses.
    Overlap(IpNet, IpNet),
    /// An address of the machine lies in a range of the cluster.
    Inside(IpAddr, &'static str, IpNet),
    /// Services and pods, or addresses, are not of the same families.
    Families(&'static str),
    /// The shared address is the node's own.
    VipIsNode(IpAddr),
    /// Not a host name and not an address.
    Name(&'static str, String),
    /// A label the kubelet may not set on its own Node.
    Label(String),
    /// No address.
    NoAddress,
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranges(flag, ranges) => {
                let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                write!(
                    formatter,
                    "{flag} takes one range, or one of IPv4 and one of IPv6, not {:?}",
                    ranges.join(",")
                )
            }
            Self::Size(flag, range) => write!(
                formatter,
                "{flag} {range}: from /12 to /28 for IPv4, from /108 to /124 for IPv6 (the API server takes at most 2^20 \
                 addresses, and the tenth is the cluster's DNS)"
            ),
            Self::Overlap(one, other) => write!(formatter, "the ranges {one} and {other} overlap"),
            Self::Inside(address, flag, range) => write!(
                formatter,
                "{address} of this machine lies in {flag} {range}: choose a range nobody uses on your network"
            ),
            Self::Families(what) => write!(formatter, "{what} need the same address families"),
            Self::VipIsNode(address) => write!(
                formatter,
                "--vip {address} is this node's own address: a shared one belongs to no node"
            ),
            Self::Name(flag, name) => write!(formatter, "{flag} {name:?} is neither a host name nor an address"),
            Self::Label(key) => write!(
                formatter,
                "--node-label {key}: a kubelet may set no label of kubernetes.io or k8s.io but those of node.kubernetes.io, \
                 kubelet.kubernetes.io and topology.kubernetes.io; set it with kubectl afterwards"
            ),
            Self::NoAddress => {
                formatter.write_str("this machine has no address that others could use: choose one with --node-ip")
            }
        }
    }
}

impl Wish {
    /// The first controller of a new cluster.
    ///
    /// # Errors
    /// Everything that does not fit.
    pub fn state(self) -> Result<NodeState, Vec<Misfit>> {
        let mut misfits = self.ranges();
        misfits.extend(self.names());
        let Some(own) = self.addresses.first().copied() else {
            misfits.push(Misfit::NoAddress);
            return Err(misfits);
        };
        if !misfits.is_empty() {
            return Err(misfits);
        }
        let shared = self.vip.as_ref().map_or(own, |vip| vip.address);
        let endpoint = self.endpoint.unwrap_or_else(|| Endpoint {
            host: shared.to_string(),
            port: API_SERVER_PORT,
        });
        let first = Member {
            name: self.node_name.clone(),
            address: own,
        };
        Ok(NodeState {
            node_name: self.node_name,
            role: Role::Controller,
            profile: self.profile,
            addresses: self.addresses,
            networks: Networks {
                services: self.services,
                pods: self.pods,
                domain: self.domain,
                learned_dns: None,
            },
            endpoint,
            vip: self.vip,
            extra_names: self.extra_names,
            etcd: Some(Etcd {
                authority: self.etcd_authority,
                initial_cluster: vec![first],
                initial_cluster_state: InitialClusterState::New,
            }),
            labels: self.labels,
            taints: self.taints.unwrap_or_else(|| vec![Taint::control_plane()]),
            keys: self.keys,
        })
    }

    fn ranges(&self) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        let kinds = [("--service-cidr", &self.services), ("--pod-cidr", &self.pods)];
        for (flag, ranges) in kinds {
            if ranges.is_empty() || ranges.len() > 2 || (ranges.len() == 2 && families(ranges).len() < 2) {
                misfits.push(Misfit::Ranges(flag, ranges.clone()));
            }
            let inside = ranges.iter().flat_map(|range| {
                let own = self.addresses.iter().chain(self.vip.iter().map(|vip| &vip.address));
                own.filter(|address| range.contains(*address))
                    .map(move |address| Misfit::Inside(*address, flag, *range))
            });
            misfits.extend(inside);
        }
        let sized = |range: &&IpNet| match range {
            IpNet::V4(range) => !(12..=28).contains(&range.prefix_len()),
            IpNet::V6(range) => !(108..=124).contains(&range.prefix_len()),
        };
        misfits.extend(
            self.services
                .iter()
                .filter(sized)
                .map(|range| Misfit::Size("--service-cidr", *range)),
        );
        for service in &self.services {
            let overlaps = |pods: &&IpNet| pods.contains(&service.network()) || service.contains(&pods.network());
            misfits.extend(
                self.pods
                    .iter()
                    .filter(overlaps)
                    .map(|pods| Misfit::Overlap(*service, *pods)),
            );
        }
        if families(&self.services) != families(&self.pods) {
            misfits.push(Misfit::Families("--service-cidr and --pod-cidr"));
        }
        let four = |address: &IpAddr| address.is_ipv4();
        let own: std::collections::BTreeSet<bool> = self.addresses.iter().map(four).collect();
        if !self.addresses.is_empty() && !families(&self.services).is_subset(&own) {
            misfits.push(Misfit::Families("--service-cidr and --node-ip"));
        }
        misfits
    }

    fn names(&self) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        let mut check = |flag: &'static str, name: &str| {
            if name.parse::<IpAddr>().is_err() && DnsName::new(name).is_err() {
                misfits.push(Misfit::Name(flag, name.to_owned()));
            }
        };
        for name in &self.extra_names {
            // One wildcard label is fine in a certificate.
            check("--san", name.strip_prefix("*.").unwrap_or(name));
        }
        if let Some(endpoint) = &self.endpoint {
            check("--endpoint", &endpoint.host);
        }
        check("--cluster-domain", &self.domain);
        if let Some(vip) = &self.vip
            && self.addresses.contains(&vip.address)
        {
            misfits.push(Misfit::VipIsNode(vip.address));
        }
        misfits.extend(foreign_labels(&self.labels));
        misfits
    }
}

/// Whether IPv4 (true) and IPv6 (false) are among ranges.
fn families(ranges: &[IpNet]) -> std::collections::BTreeSet<bool> {
    ranges.iter().map(|range| matches!(range, IpNet::V4(_))).collect()
}

/// Labels that a kubelet refuses to start with (Kubernetes, "NodeRestriction").
pub(super) fn foreign_labels(labels: &BTreeMap<String, String>) -> Vec<Misfit> {
    const OWN: [&str; 3] = ["node.kubernetes.io", "kubelet.kubernetes.io", "topology.kubernetes.io"];
    let reserved = |key: &&String| {
        let Some((domain, _)) = key.split_once('/') else {
            return false;
        };
        let below =
            |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
        (below("kubernetes.io") || below("k8s.io")) && !OWN.iter().any(|own| below(own))
    };
    labels
        .keys()
        .filter(reserved)
        .map(|key| Misfit::Label(key.clone()))
        .collect()
}

/// What tests ask for.
#[cfg(test)]
pub(crate) fn example() -> Wish {
    Wish {
        node_name: "alpha".to_owned(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        profile: Profile::Default,
        services: vec!["10.96.0.0/12".parse().unwrap()],
        pods: vec!["10.244.0.0/16".parse().unwrap()],
        domain: "cluster.local".to_owned(),
        endpoint: None,
        vip: None,
        extra_names: vec!["api.example.org".to_owned(), "*.example.org".to_owned()],
        etcd_authority: EtcdAuthority::Own,
        labels: BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "a".to_owned())]),
        taints: None,
        keys: KeyKind::EcdsaP256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        example()
    }

    fn vip(address: &str) -> Option<Vip> {
        Some(Vip {
            address: address.parse().unwrap(),
            interface: "eth0".to_owned(),
        })
    }

    #[test]
    fn the_endpoint_is_the_shared_address_or_the_nodes_own() {
        assert_eq!(wish().state().unwrap().endpoint.to_string(), "10.0.0.1:6443");
        let mut shared = wish();
        shared.vip = vip("10.0.0.100");
        assert_eq!(shared.clone().state().unwrap().endpoint.to_string(), "10.0.0.100:6443");
        shared.endpoint = Some(Endpoint {
            host: "api.example.org".to_owned(),
            port: 443,
        });
        assert_eq!(shared.state().unwrap().endpoint.to_string(), "api.example.org:443");
    }

    #[test]
    fn each_misfit_is_told() {
        type Change = fn(&mut Wish);
        let range = |text: &str| text.parse::<IpNet>().unwrap();
        let cases: [(Change, &str); 15] = [
            (|wish| wish.services.clear(), "--service-cidr takes one range"),
            (
                |wish| wish.pods.push("10.1.0.0/16".parse().unwrap()),
                "--pod-cidr takes one range",
            ),
            (
                |wish| wish.services = vec!["10.96.0.0/29".parse().unwrap()],
                "the tenth is",
            ),
            (|wish| wish.services = vec!["192.0.0.0/11".parse().unwrap()], "2^20"),
            (|wish| wish.pods = vec!["10.100.0.0/16".parse().unwrap()], "overlap"),
            (
                |wish| wish.pods = vec!["10.0.0.0/8".parse().unwrap()],
                "10.0.0.1 of this machine lies in --pod-cidr",
            ),
            (|wish| wish.vip = vip("10.96.0.5"), "10.96.0.5 of this machine"),
            (
                |wish| wish.pods = vec!["fd00::/56".parse().unwrap()],
                "--service-cidr and --pod-cidr need the same",
            ),
            (|wish| wish.vip = vip("10.0.0.1"), "this node's own address"),
            (|wish| wish.extra_names.push("a b".to_owned()), "--san \"a b\""),
            (|wish| wish.extra_names.push("a.*.b".to_owned()), "--san"),
            (|wish| wish.domain = "-".to_owned(), "--cluster-domain"),
            (
                |wish| {
                    wish.labels
                        .insert("node-role.kubernetes.io/worker".to_owned(), String::new());
                },
                "--node-label node-role.kubernetes.io/worker",
            ),
            (|wish| wish.addresses.clear(), "--node-ip"),
            (
                |wish| {
                    wish.services.push("fd01::/112".parse().unwrap());
                    wish.pods.push("fd02::/56".parse().unwrap());
                },
                "--service-cidr and --node-ip need the same",
            ),
        ];
        for (number, (change, words)) in cases.into_iter().enumerate() {
            let mut wish = wish();
            change(&mut wish);
            let misfits = wish.state().unwrap_err();
            let texts: Vec<String> = misfits.iter().map(ToString::to_string).collect();
            assert!(texts.iter().any(|text| text.contains(words)), "{number}: {texts:?}");
        }
        let mut dual = wish();
        dual.services.push(range("fd01::/112"));
        dual.pods.push(range("fd02::/56"));
        dual.addresses.push("fd00::1".parse().unwrap());
        assert!(dual.state().is_ok());
    }
}
