//! The rendered static pods before their judges: the programs take every flag, the API server takes every pod and every
//! file that is derived for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use stratum::host::assets::{Source, Tool};
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::Program;
use stratum::host::layout::{Identity, Layout};
use stratum::host::node_state::{
    Endpoint, Etcd, EtcdAuthority, InitialClusterState, Member, Networks, NodeState, Profile, Role, Vip,
};
use stratum::host::static_pods::{Component, Inputs, names_for, profiles, render};

use crate::support::{Cluster, Options, stratum};

/// Everything at once: both families, the profile with the most flags, a shared address.
fn controller() -> NodeState {
    let address = |text: &str| text.parse().unwrap();
    NodeState {
        node_name: "alpha".to_owned(),
        role: Role::Controller,
        profile: Profile::Cis,
        addresses: vec![address("10.0.0.1"), address("fd00::1")],
        networks: Networks {
            services: vec!["10.96.0.0/12".parse().unwrap(), "fd01::/112".parse().unwrap()],
            pods: vec!["10.244.0.0/16".parse().unwrap(), "fd02::/56".parse().unwrap()],
            domain: "cluster.local".to_owned(),
            learned_dns: None,
        },
        endpoint: Endpoint {
            host: "10.0.0.100".to_owned(),
            port: 6443,
        },
        vip: Some(Vip {
            address: address("10.0.0.100"),
            interface: "eth0".to_owned(),
        }),
        extra_names: Vec::new(),
        etcd: Some(Etcd {
            authority: EtcdAuthority::Own,
            initial_cluster: vec![Member {
                name: "alpha".to_owned(),
                address: address("10.0.0.1"),
            }],
            initial_cluster_state: InitialClusterState::New,
        }),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        keys: stratum::pki::key::KeyKind::default(),
    }
}

fn one_family() -> NodeState {
    let mut state = controller();
    state.networks.services.truncate(1);
    state.networks.pods.truncate(1);
    state
}

fn inputs() -> Inputs {
    Inputs {
        selinux_confines: true,
        trust_folders: vec!["/etc/ssl/certs".into()],
        ..Inputs::default()
    }
}

fn arguments(component: Component, state: &NodeState) -> Vec<String> {
    let pod = render::pod(component, state, &Layout::system(), &inputs(), None).unwrap();
    pod.spec.unwrap().containers.remove(0).args.unwrap()
}

/// A program parses all of its flags before it prints its version: one it does not know, and a value of the wrong kind,
/// fail.
#[tokio::test]
async fn the_programs_take_every_rendered_flag() {
    let source = Source::choose(|name| std::env::var_os(name), Some(stratum().to_owned())).unwrap();
    for (component, tool) in [
        (Component::Etcd, Tool::Etcd),
        (Component::KubeApiserver, Tool::KubeApiserver),
        (Component::KubeControllerManager, Tool::KubeControllerManager),
        (Component::KubeScheduler, Tool::KubeScheduler),
    ] {
        let [path] = source.provide([tool]).await.unwrap_or_else(|error| panic!("{error}"));
        for state in [controller(), one_family()] {
            let run = |more: &'static str| {
                let program = Program::new(&path).arguments(arguments(component, &state));
                let program = program.arguments([more, "--version"].into_iter().filter(|flag| !flag.is_empty()));
                async move { program.run(Vec::new()).await.unwrap() }
            };
            let finished = run("").await;
            let said = String::from_utf8_lossy(&finished.stderr).into_owned();
            assert!(finished.exit.is_success(), "{component}: {said}");
            let version = String::from_utf8_lossy(&finished.stdout).into_owned();
            let (_, tag) = component.image().reference().rsplit_once(':').unwrap();
            let wanted = tag.trim_start_matches('v').split('-').next().unwrap();
            assert!(version.contains(wanted), "{component}: {version}");
            // The judge can say no.
            assert!(!run("--no-such-flag").await.exit.is_success(), "{component}");
        }
    }
}

/// As the mirror pods that a kubelet makes of them: every field is known and every value is allowed.
#[tokio::test]
async fn the_api_server_takes_every_rendered_pod() {
    let cluster = Cluster::shared().await;
    for component in names_for(&controller()) {
        let text = render::manifest(component, &controller(), &Layout::system(), &inputs(), Some("now")).unwrap();
        let converted = cluster
            .kubectl_as(
                Identity::Admin,
                &[
                    "create",
                    "--dry-run=client",
                    "--validate=ignore",
                    "-o",
                    "json",
                    "-f",
                    "-",
                ],
                &text,
            )
            .await;
        let said = String::from_utf8_lossy(&converted.stderr);
        let mut pod: Value =
            serde_json::from_slice(&converted.stdout).unwrap_or_else(|_| panic!("{component}: {said}"));
        // What kubectl reads in the YAML is what was meant.
        let meant = render::pod(component, &controller(), &Layout::system(), &inputs(), Some("now")).unwrap();
        assert_eq!(
            pod["spec"],
            serde_json::to_value(&meant).unwrap()["spec"],
            "{component}"
        );
        pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x".into();
        pod["spec"]["nodeName"] = "alpha".into();
        let arguments = [
            "create",
            "--dry-run=server",
            "--validate=strict",
            "-o",
            "json",
            "-f",
            "-",
        ];
        let finished = cluster.kubectl_as(Identity::Admin, &arguments, &pod.to_string()).await;
        let said = String::from_utf8_lossy(&finished.stderr);
        assert!(finished.exit.is_success(), "{component}: {said}");
        let taken: Value = serde_json::from_slice(&finished.stdout).unwrap();
        assert_eq!(taken["spec"]["priority"], 2_000_001_000, "{component}");
        assert_eq!(
            taken["spec"]["containers"][0]["args"],
            pod["spec"]["containers"][0]["args"]
        );
    }
}

/// The files of the profile in a real API server: it starts with them, writes the audit log, enforces pod security, and
/// asks for a credential except on the paths that need none.
#[tokio::test]
async fn the_api_server_takes_every_derived_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in profiles::registered(Profile::Cis).derived_files().unwrap() {
        atomic_file::write(&folder.path().join(name), text.as_bytes(), Access::Public).unwrap();
    }
    let file = |name: &str| folder.path().join(name).display().to_string();
    let policy = fs::read_to_string(file("audit-policy.yaml")).unwrap();
    let mut flags = vec![
        format!("--authentication-config={}", file(profiles::AUTHENTICATION_FILE)),
        format!("--admission-control-config-file={}", file(profiles::ADMISSION_FILE)),
    ];
    let registered = profiles::registered(Profile::Cis);
    let own = registered
        .arguments
        .iter()
        .filter(|(of, ..)| *of == Component::KubeApiserver);
    flags.extend(own.map(|(_, name, value)| format!("--{name}={value}")));
    let cluster = Cluster::dedicated(Options {
        audit_policy: Some(policy),
        api_server_arguments: flags,
        ..Options::default()
    })
    .await;
    let server = cluster.plane.server();
    let authority = cluster.plane.layout().pki().join("ca.crt");
    let status = async |path: &str| anonymous(&cluster, &server, &authority, path).await;
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(status(path).await, 200, "{path}");
    }
    // Let in without a credential, and no binding allows it here; everywhere else nobody is let in at all.
    assert_eq!(
        status("/api/v1/namespaces/kube-public/configmaps/cluster-info").await,
        403
    );
    for path in [
        "/api/v1/namespaces",
        "/api",
        "/metrics",
        "/readyz/etcd",
        "/api/v1/namespaces/kube-public/configmaps/x",
    ] {
        assert_eq!(status(path).await, 401, "{path}");
    }
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "annotations":
        {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "alpha", "hostNetwork": true,
        "containers": [{"name": "x", "image": "x"}]}}"#;
    let create = async |namespace: &str| {
        let arguments = ["-n", namespace, "create", "--dry-run=server", "-f", "-"];
        cluster.kubectl_as(Identity::Admin, &arguments, pod).await
    };
    let refused = create("default").await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.exit.is_success() && said.contains("PodSecurity \"restricted"),
        "{said}"
    );
    let taken = create("kube-system").await;
    assert!(taken.exit.is_success(), "{}", String::from_utf8_lossy(&taken.stderr));
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: default}\nstringData: {key: hidden-value}\n";
    cluster.apply(secret).await;
    let audited = || {
        let events = cluster.audit_events();
        events
            .into_iter()
            .find(|event| event["objectRef"]["resource"] == "secrets" && event["objectRef"]["name"] == "x")
    };
    let event = crate::support::wait_for(
        "the audit log to tell",
        std::time::Duration::from_secs(20),
        async || audited(),
    )
    .await;
    assert_eq!(event["level"], "Metadata");
    assert!(!event.to_string().contains("hidden-value"), "{event}");
}

/// What a request without a credential is answered with.
async fn anonymous(cluster: &Cluster, server: &str, authority: &std::path::Path, path: &str) -> u16 {
    let kubeconfig: PathBuf = cluster.plane.layout().state().join("anonymous.conf");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: x, cluster: {{server: '{server}', \
         certificate-authority: '{}'}}}}]\nusers: [{{name: x, user: {{}}}}]\ncontexts: [{{name: x, context: {{cluster: x, \
         user: x}}}}]\n",
        authority.display()
    );
    atomic_file::write_if_changed(&kubeconfig, text.as_bytes(), Access::Secret).unwrap();
    let read = kube::config::Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(read, &Default::default())
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    client.send(request).await.unwrap().status().as_u16()
}
