//! What a machine is told when it joins, and what it becomes by that.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::super::wish::{Misfit, foreign_labels};
use super::Error;
use crate::host::node_state::{Endpoint, Networks, NodeState, Profile, Role, Taint};
use crate::pki::key::KeyKind;
use crate::pki::pin::Pin;
use crate::pki::seal::CertificateKey;
use crate::reconcilers::bootstrap_token::BootstrapToken;
use crate::reconcilers::joining::token::Kind;

/// What a machine was told to join.
pub struct Wish {
    /// The node's name.
    pub node_name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Where the API servers are.
    pub endpoint: Endpoint,
    /// The token.
    pub token: BootstrapToken,
    /// Authorities, one of which the cluster has to have.
    pub pins: Vec<Pin>,
    /// For a controller: the key its grant is sealed under.
    pub certificate_key: Option<CertificateKey>,
    /// The profile; a controller has its cluster's unless another is asked for.
    pub profile: Option<Profile>,
    /// The cluster's ranges of Services, when a worker was told.
    pub services: Vec<IpNet>,
    /// The cluster's DNS domain, for a worker.
    pub domain: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints; none said is the usual one for its role.
    pub taints: Option<Vec<Taint>>,
    /// The kind of keys of a worker.
    pub keys: KeyKind,
}

impl Wish {
    pub(super) fn check(&self) -> Result<(), Error> {
        // A controller without one would become a member of etcd at an address that leads nowhere.
        if self.addresses.is_empty() {
            return Err(Error::Address(Misfit::NoAddress));
        }
        match foreign_labels(&self.labels).into_iter().next() {
            Some(label) => Err(Error::Label(label)),
            None => Ok(()),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.certificate_key {
            Some(_) => Kind::Controller,
            None => Kind::Worker,
        }
    }

    pub(super) fn worker(&self) -> NodeState {
        NodeState {
            node_name: self.node_name.clone(),
            role: Role::Worker,
            profile: self.profile.unwrap_or_default(),
            addresses: self.addresses.clone(),
            networks: Networks {
                services: self.services.clone(),
                pods: Vec::new(),
                domain: self.domain.clone(),
                learned_dns: None,
            },
            endpoint: self.endpoint.clone(),
            vip: None,
            extra_names: Vec::new(),
            etcd: None,
            labels: self.labels.clone(),
            taints: self.taints.clone().unwrap_or_default(),
            keys: self.keys,
        }
    }

    /// As the controller that handed over the grant, but for what is a node's own.
    pub(super) fn controller(&self, cluster: NodeState) -> NodeState {
        NodeState {
            node_name: self.node_name.clone(),
            role: Role::Controller,
            profile: self.profile.unwrap_or(cluster.profile),
            addresses: self.addresses.clone(),
            labels: self.labels.clone(),
            taints: self.taints.clone().unwrap_or_else(|| vec![Taint::control_plane()]),
            ..cluster
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_before_anybody_is_asked() {
        let mut wish = Wish {
            node_name: "alpha".to_owned(),
            addresses: vec![[10, 0, 0, 1].into()],
            endpoint: Endpoint {
                host: "10.0.0.9".to_owned(),
                port: 6443,
            },
            token: "abcdef.0123456789abcdef".parse().unwrap(),
            pins: Vec::new(),
            certificate_key: None,
            profile: None,
            services: Vec::new(),
            domain: "cluster.local".to_owned(),
            labels: BTreeMap::new(),
            taints: None,
            keys: KeyKind::default(),
        };
        wish.check().unwrap();
        wish.labels.insert("kubernetes.io/x".to_owned(), String::new());
        let refused = wish.check().unwrap_err();
        assert!(
            matches!(refused, Error::Label(_)) && refused.to_string().contains("kubernetes.io/x"),
            "{refused}"
        );
        wish.labels.clear();
        wish.addresses.clear();
        let refused = wish.check().unwrap_err();
        assert!(
            matches!(refused, Error::Address(_)) && refused.to_string().contains("--node-ip"),
            "{refused}"
        );
    }
}
