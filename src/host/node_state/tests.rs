use std::collections::BTreeMap;

use super::*;

fn controller() -> NodeState {
    NodeState {
        node_name: "alpha".to_owned(),
        role: Role::Controller,
        profile: Profile::Cis,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        networks: Networks {
            services: vec!["10.96.0.0/12".parse().unwrap(), "fd01::/112".parse().unwrap()],
            pods: vec!["10.244.0.0/16".parse().unwrap()],
            domain: CLUSTER_DOMAIN.to_owned(),
            learned_dns: None,
        },
        endpoint: Endpoint {
            host: "api.example.org".to_owned(),
            port: API_SERVER_PORT,
        },
        vip: Some(Vip {
            address: "10.0.0.100".parse().unwrap(),
            interface: "eth0".to_owned(),
        }),
        extra_names: vec!["other.example.org".to_owned()],
        etcd: Some(Etcd {
            authority: EtcdAuthority::Own,
            initial_cluster: vec![Member {
                name: "alpha".to_owned(),
                address: "10.0.0.1".parse().unwrap(),
            }],
            initial_cluster_state: InitialClusterState::New,
        }),
        labels: BTreeMap::from([("zone".to_owned(), "a: b # c".to_owned())]),
        taints: vec![Taint {
            key: "only".to_owned(),
            value: None,
            effect: TaintEffect::NoSchedule,
        }],
        keys: KeyKind::Rsa3072,
    }
}

#[test]
fn what_is_saved_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.yaml");
    save(&path, &controller()).unwrap();
    assert_eq!(load(&path).unwrap(), controller());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("\nversion: 1\n") && text.contains("nodeName: alpha"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_not_whole_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.yaml");
    save(&path, &controller()).unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    let refused = |text: &str| {
        crate::host::atomic_file::write(&path, text.as_bytes(), crate::host::atomic_file::Access::Secret).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("node.yaml") && error.lines().count() == 1, "{error}");
        error
    };
    assert!(refused("").contains("is empty"));
    assert!(refused("\n \n").contains("is empty"));
    assert!(refused(&whole.replace("version: 1", "version: 2")).contains("knows up to 1"));
    assert!(refused(&whole.replace("version: 1\n", "")).contains("no `version`"));
    assert!(
        refused(&whole.replace("profile: cis", "profile: stig")).contains("no profile \"stig\" (it has: default, cis)")
    );
    assert!(refused(&whole.replace("role: controller", "role: king")).contains("king"));
    assert!(refused(&whole.replace("role:", "colour: red\nrole:")).contains("colour"));
    refused(&format!("{whole}colour: red\n"));
    assert!(refused(&whole.replace("10.96.0.0/12", "10.96.0.0/40")).contains("line "));
    // Cut off anywhere: refused, or nothing was lost but the line's end.
    for length in 0..whole.len() {
        if let Ok(state) = {
            crate::host::atomic_file::write(
                &path,
                &whole.as_bytes()[..length],
                crate::host::atomic_file::Access::Secret,
            )
            .unwrap();
            load(&path)
        } {
            assert_eq!(state, controller(), "cut at {length}");
        }
    }
    std::fs::remove_file(&path).unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("no node yet"));
}

#[test]
fn addresses_are_derived_from_the_ranges() {
    let networks = controller().networks;
    let texts: Vec<String> = networks.api_server_services().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.96.0.1", "fd01::1"]);
    assert_eq!(networks.dns().to_string(), "10.96.0.10");
    assert!(networks.is_dual_stack());
    let told = |services: &[&str], learned: Option<&str>| Networks {
        services: services.iter().map(|range| range.parse().unwrap()).collect(),
        learned_dns: learned.map(|address| address.parse().unwrap()),
        ..networks.clone()
    };
    // The range is the authority; what was learned stands in where none is recorded; else the default.
    assert_eq!(
        told(&["172.20.0.0/16"], Some("10.0.0.9")).dns().to_string(),
        "172.20.0.10"
    );
    assert_eq!(told(&["fd01::/112"], None).dns().to_string(), "fd01::a");
    assert_eq!(told(&[], Some("10.0.0.9")).dns().to_string(), "10.0.0.9");
    assert_eq!(told(&[], None).dns().to_string(), "10.96.0.10");
    assert_eq!(told(&["10.0.0.0/29"], None).dns().to_string(), "10.96.0.10");
    assert!(!told(&["10.96.0.0/12"], None).is_dual_stack());
    assert!(!told(&["fd01::/112"], None).is_dual_stack());
}

#[test]
fn an_endpoint_has_its_brackets() {
    let endpoint = |host: &str| {
        Endpoint {
            host: host.to_owned(),
            port: 6443,
        }
        .to_string()
    };
    assert_eq!(
        [endpoint("a.b"), endpoint("10.0.0.1"), endpoint("fd00::1")],
        ["a.b:6443", "10.0.0.1:6443", "[fd00::1]:6443"]
    );
}

#[test]
fn the_schema_names_every_key() {
    let schema = schema();
    let properties = schema["properties"].as_object().unwrap();
    for key in [
        "nodeName",
        "role",
        "profile",
        "addresses",
        "networks",
        "endpoint",
        "vip",
        "extraNames",
        "etcd",
        "labels",
        "taints",
        "keys",
    ] {
        assert!(properties.contains_key(key), "{key}");
    }
}
