//! What is rendered, written down. The first is whole; the others are what they have otherwise.

use super::*;
use crate::host::static_pods::{Argument, profiles};

fn whole(state: &NodeState, inputs: &Inputs) -> String {
    let manifests = names_for(state).into_iter().map(|component| {
        let text = manifest(component, state, inputs);
        format!("--- {component}\n{text}")
    });
    manifests.collect()
}

/// The lines that only one of two has, below their component's name.
fn differences(state: &NodeState, inputs: &Inputs) -> String {
    let usual = one_controller();
    let mut text = String::new();
    for component in names_for(state) {
        let theirs = manifest(component, state, inputs);
        let ours = match component {
            Component::KubeVip => String::new(),
            other => manifest(other, &usual, &Inputs::default()),
        };
        text.push_str(&format!("--- {component}\n"));
        for (mark, one, other) in [('-', &ours, &theirs), ('+', &theirs, &ours)] {
            let only = one.lines().filter(|line| !other.lines().any(|other| other == *line));
            only.for_each(|line| text.push_str(&format!("{mark} {line}\n")));
        }
    }
    text
}

#[test]
fn one_controller_whole() {
    insta::assert_snapshot!("one_controller", whole(&one_controller(), &Inputs::default()));
}

#[test]
fn the_third_of_three_controllers() {
    let state = NodeState {
        node_name: "gamma".to_owned(),
        addresses: vec![address("10.0.0.3")],
        etcd: Some(Etcd {
            authority: EtcdAuthority::Own,
            initial_cluster: vec![
                member("alpha", "10.0.0.1"),
                member("beta", "10.0.0.2"),
                member("gamma", "10.0.0.3"),
            ],
            initial_cluster_state: InitialClusterState::Existing,
        }),
        ..one_controller()
    };
    insta::assert_snapshot!("three_controllers", differences(&state, &Inputs::default()));
}

#[test]
fn a_shared_address() {
    insta::assert_snapshot!("vip", differences(&with_vip(), &Inputs::default()));
}

fn ipv6() -> NodeState {
    NodeState {
        addresses: vec![address("fd00::1")],
        networks: Networks {
            services: vec!["fd01::/112".parse().unwrap()],
            pods: vec!["fd02::/56".parse().unwrap()],
            ..one_controller().networks
        },
        etcd: Some(Etcd {
            initial_cluster: vec![member("alpha", "fd00::1")],
            ..one_controller().etcd.unwrap()
        }),
        vip: Some(Vip {
            address: address("fd00::100"),
            interface: "eth0".to_owned(),
        }),
        ..one_controller()
    }
}

#[test]
fn ipv6_alone() {
    insta::assert_snapshot!("ipv6", differences(&ipv6(), &Inputs::default()));
}

#[test]
fn both_families() {
    let state = NodeState {
        addresses: vec![address("10.0.0.1"), address("fd00::1")],
        networks: Networks {
            services: vec!["10.96.0.0/12".parse().unwrap(), "fd01::/112".parse().unwrap()],
            pods: vec!["10.244.0.0/16".parse().unwrap(), "fd02::/56".parse().unwrap()],
            ..one_controller().networks
        },
        ..one_controller()
    };
    insta::assert_snapshot!("dual_stack", differences(&state, &Inputs::default()));
}

#[test]
fn the_profile_cis() {
    let files = profiles::registered(Profile::Cis).derived_files().unwrap();
    let files = files.iter().map(|(name, text)| format!("--- {name}\n{text}"));
    let files: String = files.collect();
    insta::assert_snapshot!("cis", differences(&cis(), &Inputs::default()));
    insta::assert_snapshot!("cis_files", files);
}

#[test]
fn what_the_machine_and_the_user_add() {
    let argument = |name: &str, value: &str| Argument {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let inputs = Inputs {
        images: BTreeMap::from([(Component::Etcd, "mirror.example.org/etcd:1".to_owned())]),
        extra_arguments: BTreeMap::from([
            (
                Component::Etcd,
                vec![argument("heartbeat-interval", "500"), argument("--snapshot-count", "5")],
            ),
            (
                Component::KubeApiserver,
                vec![
                    argument("service-account-issuer", "https://a: # b"),
                    argument("service-account-issuer", "yes"),
                ],
            ),
        ]),
        selinux_confines: true,
        trust_folders: vec!["/etc/ssl/certs".into(), "/etc/pki/tls/certs".into()],
    };
    insta::assert_snapshot!("inputs", differences(&one_controller(), &inputs));
}

/// A name and an address with a port in it would be two hosts: whatever listens or is asked has its brackets, and what is
/// a bare address has none.
#[test]
fn ipv6_addresses_have_brackets_where_a_port_follows() {
    for component in names_for(&ipv6()) {
        let text = manifest(component, &ipv6(), &Inputs::default());
        for line in text.lines().filter(|line| line.contains("://")) {
            let unbracketed = line
                .split("://")
                .skip(1)
                .any(|rest| rest.starts_with("fd") || rest.starts_with(':'));
            assert!(!unbracketed, "{line}");
        }
        assert!(!text.contains("127.0.0.1") && !text.contains("10."), "{text}");
    }
}

/// What etcd trusts is in its own folder under the same name, whoever signs: a move from one to the other is a matter of
/// files.
#[test]
fn etcd_under_the_root_is_rendered_as_under_its_own_authority() {
    let mut state = one_controller();
    state.etcd.as_mut().unwrap().authority = EtcdAuthority::Root;
    assert_eq!(
        whole(&state, &Inputs::default()),
        whole(&one_controller(), &Inputs::default())
    );
    let etcd = manifest(Component::Etcd, &state, &Inputs::default());
    let mounted: Vec<&str> = etcd
        .lines()
        .filter(|line| line.trim_start().starts_with("path: /var"))
        .collect();
    assert_eq!(mounted.len(), 2, "{mounted:?}");
    assert!(mounted.iter().all(|line| line.ends_with("/etcd")), "{mounted:?}");
}

/// The API server takes our file, or the user's own words about who may come without a credential; never both.
#[test]
fn a_user_s_own_authentication_takes_the_place_of_ours() {
    let rendered = |name: &str| {
        let extra = Argument {
            name: name.to_owned(),
            value: "x".to_owned(),
        };
        let inputs = Inputs {
            extra_arguments: BTreeMap::from([(Component::KubeApiserver, vec![extra])]),
            ..Inputs::default()
        };
        let text = manifest(Component::KubeApiserver, &one_controller(), &inputs);
        (
            text.contains("--authentication-config=/var"),
            text.contains("authentication-config-sha256"),
        )
    };
    assert_eq!(rendered("v"), (true, true));
    for name in [
        "anonymous-auth",
        "--anonymous-auth",
        "oidc-issuer-url",
        "authentication-config",
    ] {
        assert_eq!(rendered(name), (false, false), "{name}");
    }
}

#[test]
fn what_a_component_cannot_be_without_is_named() {
    let refused = |component, change: fn(&mut NodeState)| {
        let mut state = with_vip();
        change(&mut state);
        let error = render::manifest(component, &state, &Layout::system(), &Inputs::default(), None);
        error.unwrap_err().to_string()
    };
    assert!(refused(Component::Etcd, |state| state.etcd = None).contains("`etcd`"));
    assert!(refused(Component::KubeApiserver, |state| state.networks.services.clear()).contains("networks.services"));
    assert!(refused(Component::KubeVip, |state| state.vip = None).contains("`vip`"));
}
