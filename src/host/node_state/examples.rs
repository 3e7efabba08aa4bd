//! A node for tests, from which they make the one they need.

use std::collections::BTreeMap;

use super::{
    API_SERVER_PORT, CLUSTER_DOMAIN, Endpoint, Etcd, EtcdAuthority, InitialClusterState, Member, Networks, NodeState,
    Profile, Role,
};
use crate::pki::key::KeyKind;

/// One controller with the default profile and IPv4.
pub(crate) fn one_controller() -> NodeState {
    let address = "10.0.0.1".parse().unwrap();
    NodeState {
        node_name: "alpha".to_owned(),
        role: Role::Controller,
        profile: Profile::Default,
        addresses: vec![address],
        networks: Networks {
            services: vec!["10.96.0.0/12".parse().unwrap()],
            pods: vec!["10.244.0.0/16".parse().unwrap()],
            domain: CLUSTER_DOMAIN.to_owned(),
            learned_dns: None,
        },
        endpoint: Endpoint {
            host: "10.0.0.1".to_owned(),
            port: API_SERVER_PORT,
        },
        vip: None,
        extra_names: Vec::new(),
        etcd: Some(Etcd {
            authority: EtcdAuthority::Own,
            initial_cluster: vec![Member {
                name: "alpha".to_owned(),
                address,
            }],
            initial_cluster_state: InitialClusterState::New,
        }),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        keys: KeyKind::default(),
    }
}
