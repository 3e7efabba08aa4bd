//! The cluster's own names and addresses, which no node may have for itself.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::Reason;
use crate::reconcilers::host_name::{DnsName, Host};

/// What belongs to the cluster and to no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The service networks (ServiceCIDR objects).
    pub services: Vec<IpNet>,
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
        if self.services.iter().any(|range| range.contains(&address)) {
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
}
