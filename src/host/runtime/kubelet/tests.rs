use serde_json::{Value, json};

use super::super::super::node_state::{NodeState, Profile, Role};
use super::super::tests::{bare, chain, listing, machine, node, plain, put, settings, tainted};
use super::super::{Facts, Resolvers, Settings};
use super::*;

fn rendered_with(state: &NodeState, facts: &Facts, settings: &Settings, serving: bool) -> Result<String, Error> {
    let layout = Layout::system();
    let inputs = Inputs {
        layout: &layout,
        facts,
        settings,
    };
    render::config(inputs, state, serving)
}

fn rendered(state: &NodeState, facts: &Facts, serving: bool) -> String {
    rendered_with(state, facts, &Settings::default(), serving).unwrap()
}

fn fields(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn controller_of_the_default_profile() {
    insta::assert_snapshot!(rendered(&node(Role::Controller, Profile::Default), &plain(), false));
}

#[test]
fn worker_on_a_bare_machine() {
    insta::assert_snapshot!(rendered(&tainted(node(Role::Worker, Profile::Default)), &bare(), true));
}

#[test]
fn controller_of_the_cis_profile() {
    insta::assert_snapshot!(rendered(&node(Role::Controller, Profile::Cis), &plain(), true));
}

#[test]
fn the_resolvers_behind_systemd_resolved() {
    let facts = Facts {
        resolvers: Resolvers::Behind {
            list: "/run/systemd/resolve/resolv.conf".into(),
            servers: vec!["10.0.0.2".parse().unwrap()],
        },
        ..plain()
    };
    let state = node(Role::Worker, Profile::Default);
    let with = |facts: &Facts| fields(&rendered(&state, facts, true))["resolvConf"].clone();
    assert_eq!(with(&facts), "/run/systemd/resolve/resolv.conf");
    for resolvers in [Resolvers::Node, Resolvers::LoopbackOnly] {
        let facts = Facts { resolvers, ..plain() };
        assert_eq!(with(&facts), Value::Null);
    }
}

#[test]
fn both_have_one_driver() {
    for facts in [plain(), bare()] {
        let kubelet = fields(&rendered(&node(Role::Worker, Profile::Default), &facts, true));
        let systemd = kubelet["cgroupDriver"] == "systemd";
        let layout = Layout::system();
        let containerd = super::super::containerd::rendered_for_tests(&layout, &facts);
        assert_eq!(containerd.contains("SystemdCgroup = true"), systemd);
    }
}

#[test]
fn dns_is_the_tenth_address_of_the_range() {
    let dns = |services: &[&str], learned: Option<&str>| {
        let mut state = node(Role::Worker, Profile::Default);
        state.networks.services = services.iter().map(|range| range.parse().unwrap()).collect();
        state.networks.learned_dns = learned.map(|address| address.parse().unwrap());
        cluster_dns_ip(&state).map(|address| address.to_string())
    };
    assert_eq!(dns(&["172.20.0.0/16"], Some("10.0.0.9")).unwrap(), "172.20.0.10");
    assert_eq!(dns(&["fd01::/112", "10.96.0.0/12"], None).unwrap(), "fd01::a");
    assert_eq!(dns(&[], Some("10.0.0.9")).unwrap(), "10.0.0.9");
    assert_eq!(dns(&[], None).unwrap(), "10.96.0.10");
    // A range that is known is never left for a default that is another cluster's.
    for learned in [None, Some("10.0.0.9")] {
        let error = chain(&dns(&["192.168.0.0/29"], learned).unwrap_err());
        assert!(error.contains("192.168.0.0/29"), "{error}");
    }
    let mut state = node(Role::Worker, Profile::Default);
    state.networks.services = vec!["10.0.0.0/30".parse().unwrap()];
    assert!(rendered_with(&state, &plain(), &Settings::default(), true).is_err());
}

#[test]
fn who_signs_what_the_kubelet_serves() {
    let root = machine(&[]);
    let serving = |profile| serving_bootstrapped(&node(Role::Controller, profile), root.path()).unwrap();
    assert!(
        serving(Profile::Default),
        "no kubelet.crt: a worker that joined with a token"
    );
    put(&root.path().join("kubelet.crt"), "");
    assert!(!serving(Profile::Default));
    assert!(serving(Profile::Cis), "the profile says so, whatever is there");
    // Whether it is there cannot be told: a loop of links.
    let pki = root.path().join("loop");
    std::os::unix::fs::symlink(&pki, &pki).unwrap();
    let state = node(Role::Controller, Profile::Default);
    let error = chain(&serving_bootstrapped(&state, &pki).unwrap_err());
    assert!(error.contains("kubelet.crt"), "{error}");
}

#[test]
fn the_file_follows_the_certificate_and_is_roots_alone() {
    let root = machine(&[]);
    let layout = Layout::under(root.path());
    let (facts, settings) = (plain(), Settings::default());
    let inputs = Inputs {
        layout: &layout,
        facts: &facts,
        settings: &settings,
    };
    let state = node(Role::Controller, Profile::Default);
    let text = || std::fs::read_to_string(kubelet_config_path(&layout)).unwrap();
    assert!(write_kubelet_config(inputs, &state).unwrap());
    assert!(text().contains("serverTLSBootstrap: true") && !text().contains("tlsCertFile"));
    put(&layout.pki().join("kubelet.crt"), "");
    assert!(write_kubelet_config(inputs, &state).unwrap());
    assert!(!write_kubelet_config(inputs, &state).unwrap());
    assert!(text().contains("tlsCertFile") && !text().contains("serverTLSBootstrap"));
    assert!(listing(&layout.state().join("kubelet")).contains(&"600 kubelet.conf".to_owned()));
    // Every path in it is below the root.
    let under = root.path().to_str().unwrap();
    for word in text()
        .split([' ', '\n'])
        .filter(|word| word.contains("/var/") || word.contains("/run/"))
    {
        assert!(word.trim_start_matches("unix://").starts_with(under), "{word}");
    }
}

#[test]
fn config_yaml_wins_field_by_field() {
    let given = json!({
        "maxPods": 250,
        "evictionHard": {"memory.available": "100Mi"},
        "authentication": {"webhook": {"cacheTTL": "10s"}},
        "cgroupRoot": "/rig-1",
        "failSwapOn": null,
        "clusterDNS": ["169.254.20.10"],
    });
    let state = node(Role::Controller, Profile::Default);
    let text = rendered_with(&state, &plain(), &settings(given, json!({})), false).unwrap();
    let fields = fields(&text);
    assert_eq!(fields["maxPods"], 250);
    assert_eq!(fields["evictionHard"]["memory.available"], "100Mi");
    assert_eq!(
        fields["authentication"]["webhook"],
        json!({"cacheTTL": "10s", "enabled": true})
    );
    assert_eq!(fields["authentication"]["anonymous"]["enabled"], false);
    assert_eq!(fields["cgroupRoot"], "/rig-1");
    assert_eq!(fields["failSwapOn"], Value::Null);
    assert_eq!(fields["clusterDNS"], json!(["169.254.20.10"]));
}

#[test]
fn fields_that_break_the_node_are_refused_by_name() {
    let refused = |given: Value| {
        let state = node(Role::Controller, Profile::Default);
        let error = chain(&rendered_with(&state, &plain(), &settings(given, json!({})), false).unwrap_err());
        assert!(
            error.contains("config.yaml: kubelet") && error.lines().count() == 1,
            "{error}"
        );
        error
    };
    for key in [
        "apiVersion",
        "kind",
        "staticPodPath",
        "containerRuntimeEndpoint",
        "imageServiceEndpoint",
        "cgroupDriver",
        "clusterDomain",
        "rotateCertificates",
        "serverTLSBootstrap",
        "tlsCertFile",
        "tlsPrivateKeyFile",
        "port",
        "healthzPort",
        "healthzBindAddress",
        "enableServer",
        "registerNode",
    ] {
        assert!(refused(json!({key: "x"})).contains(&format!(": {key} is not yours")));
        assert!(refused(json!({key: null})).contains(&format!(": {key} is not yours")));
    }
    let deep = refused(json!({"authentication": {"x509": {"clientCAFile": "/x"}}}));
    assert!(deep.contains("authentication.x509"));
    assert!(refused(json!({"authentication": {"anonymous": {"enabled": true}}})).contains("authentication.anonymous"));
    assert!(refused(json!({"authentication": {"webhook": {"enabled": false}}})).contains("webhook.enabled"));
    assert!(refused(json!({"authentication": null})).contains("authentication."));
    assert!(refused(json!({"authorization": {"mode": "AlwaysAllow"}})).contains("authorization.mode"));
    assert!(refused(json!({"maxPod": 1})).contains("maxPod is none of its settings"));
    assert!(refused(json!({"MaxPods": 1})).contains("MaxPods"));
}

#[test]
fn the_list_of_fields_is_sorted_and_has_ours() {
    assert!(fields::FIELDS.is_sorted());
    for state in [
        node(Role::Controller, Profile::Cis),
        tainted(node(Role::Worker, Profile::Default)),
    ] {
        for facts in [plain(), bare()] {
            for serving in [true, false] {
                let rendered = fields(&rendered(&state, &facts, serving));
                let keys = rendered.as_object().unwrap().keys();
                for key in keys.filter(|key| !matches!(key.as_str(), "apiVersion" | "kind")) {
                    assert!(fields::FIELDS.binary_search(&key.as_str()).is_ok(), "{key}");
                }
            }
        }
    }
}

#[test]
fn the_command_line() {
    let layout = Layout::system();
    let words = |state: &NodeState| {
        let arguments = kubelet_arguments(&layout, state);
        let words: Vec<String> = arguments.into_iter().map(|word| word.into_string().unwrap()).collect();
        words.join("\n")
    };
    let mut state = tainted(node(Role::Worker, Profile::Default));
    state.addresses.push("fd00::1".parse().unwrap());
    insta::assert_snapshot!(words(&state));
    insta::assert_snapshot!(words(&node(Role::Controller, Profile::Default)));
}
