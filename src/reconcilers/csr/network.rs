//! The cluster's own names and addresses, which no node may have for itself.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Reason;
use crate::reconcilers::host_name::{DnsName, Host};

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    address: IpAddr,
    prefix: u32,
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of addresses such as 10.96.0.0/12")]
pub struct NotARange(String);

impl std::str::FromStr for Range {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let prefix: u32 = prefix.parse().ok()?;
            (prefix <= width(address)).then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| NotARange(text.to_owned()))
    }
}

impl Range {
    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_family = self.address.is_ipv4() == address.is_ipv4();
        let host_bits = width(address).saturating_sub(self.prefix);
        let network = |address: IpAddr| bits(address).checked_shr(host_bits).unwrap_or_default();
        same_family && network(self.address) == network(address)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()),
        IpAddr::V6(six) => six.to_bits(),
    }
}

/// What belongs to the cluster and to no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The service networks (ServiceCIDR objects).
    pub services: Vec<Range>,
    /// Where API servers listen (EndpointSlices of Service `default/kubernetes`).
    pub api_servers: BTreeSet<IpAddr>,
    /// How the control plane is reached from outside (the server of `kube-public/cluster-info`): a shared address, or the
    /// only control-plane node's own.
    pub shared: Option<Host>,
    /// The cluster's DNS domain; none when it cannot be read.
    pub domain: Option<DnsName>,
}

impl Network {
    /// Checks that a host can be a node's own at all; `controller` is whether the node runs an API server.
    pub(super) fn check(&self, host: &Host, controller: bool) -> Result<(), Reason> {
        match host {
            Host::Name(name) => self.check_name(name, host),
            Host::Address(address) => self.check_address(*address, host, controller),
        }?;
        // A cluster without a shared address is reached at its only control-plane node, by that node's own name or address.
        let own = controller
            && match host {
                Host::Address(address) => self.api_servers.contains(address),
                Host::Name(_) => true,
            };
        if self.shared.as_ref() == Some(host) && !own {
            return Err(Reason::Shared(host.clone()));
        }
        Ok(())
    }

    fn check_name(&self, name: &DnsName, host: &Host) -> Result<(), Reason> {
        let name = name.as_str();
        // Names of Services, with or without the domain; none of them is a host's.
        let service = |name: &str| name == "svc" || name.ends_with(".svc");
        let in_domain = match &self.domain {
            Some(domain) => {
                let rest = name.strip_suffix(domain.as_str());
                rest.and_then(|rest| rest.strip_suffix('.')).is_some_and(service)
            }
            // Of whatever domain.
            None => name.contains(".svc."),
        };
        let reserved = ["localhost", "kubernetes", "kubernetes.default"].contains(&name)
            || name.ends_with(".localhost")
            || service(name)
            || in_domain;
        if reserved {
            return Err(Reason::ReservedName(host.clone()));
        }
        Ok(())
    }

    fn check_address(&self, address: IpAddr, host: &Host, controller: bool) -> Result<(), Reason> {
        let link_local = match address {
            IpAddr::V4(four) => four.is_link_local(),
            IpAddr::V6(six) => six.is_unicast_link_local(),
        };
        let broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
        let kinds = [
            (address.is_unspecified(), "unspecified"),
            (address.is_loopback(), "loopback"),
            (link_local, "link-local"),
            (address.is_multicast(), "multicast"),
            (broadcast, "broadcast"),
        ];
        if let Some((_, kind)) = kinds.into_iter().find(|(is, _)| *is) {
            return Err(Reason::ReservedAddress {
                address: host.clone(),
                kind,
            });
        }
        if self.services.iter().any(|range| range.contains(address)) {
            return Err(Reason::ServiceAddress(host.clone()));
        }
        if self.api_servers.contains(&address) && !controller {
            return Err(Reason::ApiServer(host.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_known_domain_every_service_name_is_reserved() {
        let network = |domain: Option<&str>| Network {
            services: Vec::new(),
            api_servers: BTreeSet::new(),
            shared: None,
            domain: domain.map(|domain| DnsName::new(domain).unwrap()),
        };
        let free = |network: &Network, name: &str| network.check(&Host::compared(name).unwrap(), false).is_ok();
        let (known, unknown) = (network(Some("k8s.corp")), network(None));
        assert!(free(&known, "n1.svc.example.com") && !free(&unknown, "n1.svc.example.com"));
        for network in [known, unknown] {
            assert!(free(&network, "n1.k8s.corp") && free(&network, "svc.example.com"));
            assert!(!free(&network, "x.y.svc.k8s.corp") && !free(&network, "x.y.svc"));
        }
    }

    #[test]
    fn a_range_holds_its_addresses() {
        let holds = |range: &str, address: &str| range.parse::<Range>().unwrap().contains(address.parse().unwrap());
        for (range, inside, outside) in [
            ("10.96.0.0/12", "10.111.255.255", "10.112.0.0"),
            ("10.96.0.7/12", "10.96.0.1", "10.95.255.255"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("10.0.0.1/32", "10.0.0.1", "10.0.0.2"),
            ("fd00:1::/108", "fd00:1::f:ffff", "fd00:1::10:0"),
            ("::/0", "fd00::1", "10.0.0.1"),
            ("fd00::1/128", "fd00::1", "fd00::2"),
        ] {
            assert!(holds(range, inside), "{range} {inside}");
            assert!(!holds(range, outside), "{range} {outside}");
        }
        for no in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0/8",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
        ] {
            assert!(no.parse::<Range>().is_err(), "{no}");
        }
    }
}
