//! Static pods of made-up nodes in a temporary folder, with a process table and cgroups made of files.

mod files;
mod golden;
mod kubeadm;
mod machine;
mod running;
mod sets;

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::layout::Layout;
use super::super::node_state::examples::one_controller;
use super::super::node_state::{
    Etcd, EtcdAuthority, InitialClusterState, Member, Networks, NodeState, Profile, Role, Vip,
};
use super::{Component, Inputs, StaticPods, names_for, render};

fn with_vip() -> NodeState {
    NodeState {
        vip: Some(Vip {
            address: address("10.0.0.100"),
            interface: "eth0".to_owned(),
        }),
        ..one_controller()
    }
}

fn cis() -> NodeState {
    NodeState {
        profile: Profile::Cis,
        ..one_controller()
    }
}

fn worker() -> NodeState {
    NodeState {
        role: Role::Worker,
        etcd: None,
        ..with_vip()
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn member(name: &str, at: &str) -> Member {
    Member {
        name: name.to_owned(),
        address: address(at),
    }
}

fn manifest(component: Component, state: &NodeState, inputs: &Inputs) -> String {
    render::manifest(component, state, &Layout::system(), inputs, None).unwrap()
}

/// The flags of a rendered component, by name.
fn flags(component: Component, state: &NodeState, inputs: &Inputs) -> BTreeMap<String, String> {
    let pod = render::pod(component, state, &Layout::system(), inputs, None).unwrap();
    let arguments = pod.spec.unwrap().containers.remove(0).args.unwrap();
    let flags = arguments.iter().filter_map(|argument| argument.strip_prefix("--"));
    let flags = flags.map(|flag| flag.split_once('=').unwrap());
    let flags: Vec<(String, String)> = flags.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let map: BTreeMap<String, String> = flags.iter().cloned().collect();
    assert_eq!(map.len(), flags.len(), "a flag twice: {flags:?}");
    map
}

/// The static pods of a node whose files are below `root`.
fn pods_under(root: &std::path::Path) -> StaticPods {
    StaticPods::new(Layout::under(root), Inputs::default())
}

#[test]
fn a_node_has_the_components_of_its_role() {
    use Component::{Etcd, KubeApiserver, KubeControllerManager, KubeScheduler, KubeVip};
    let four = vec![Etcd, KubeApiserver, KubeControllerManager, KubeScheduler];
    assert_eq!(names_for(&one_controller()), four);
    let five: Vec<Component> = four.into_iter().chain([KubeVip]).collect();
    assert_eq!(names_for(&with_vip()), five);
    assert_eq!(names_for(&worker()), []);
    let listening: Vec<Component> = five.into_iter().filter(|component| component.has_listener()).collect();
    assert_eq!(listening, [Etcd, KubeApiserver, KubeControllerManager, KubeScheduler]);
}

#[test]
fn only_a_component_s_own_file_name_is_its_manifest() {
    assert_eq!(super::manifest_name("etcd.yaml"), Some(Component::Etcd));
    assert_eq!(super::manifest_name("kube-vip.yaml"), Some(Component::KubeVip));
    for other in [
        "",
        ".yaml",
        "etcd",
        "etcd.yml",
        ".etcd.yaml",
        "etcd.yaml.tmp",
        "Etcd.yaml",
        "coredns.yaml",
        "audit-policy.yaml",
        "admission-webhook.yaml",
    ] {
        assert_eq!(super::manifest_name(other), None, "{other}");
    }
}
