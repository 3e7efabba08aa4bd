//! The folder: written from the node's state whatever was in it, and read as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::machine::write;
use super::*;
use crate::host::node_state;
use crate::host::static_pods::{Error, RESTARTED_AT, Written};

struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn pods(&self) -> StaticPods {
        pods_under(self.root.path())
    }

    fn save(&self, state: &NodeState) {
        let path = self.pods().layout.node_state();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        node_state::save(&path, state).unwrap();
    }

    fn text(&self, component: Component) -> String {
        String::from_utf8(self.pods().read(component).unwrap()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.pods().folder()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn everything_is_written_once() {
    let node = Node::new();
    let pods = node.pods();
    let first = pods.write_all(&with_vip()).unwrap();
    assert_eq!(first.changed, names_for(&with_vip()));
    assert_eq!(first.derived.len(), 1, "{first:?}");
    let second = pods.write_all(&with_vip()).unwrap();
    assert!(second.is_unchanged(), "{second:?}");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(pods.path(Component::Etcd)), 0o600);
    assert_eq!(mode(pods.folder()), 0o700);
    assert_eq!(mode(pods.layout.static_pod_files()), 0o700);
}

#[test]
fn an_edit_by_hand_is_seen_before_it_is_overwritten() {
    let node = Node::new();
    let pods = node.pods();
    pods.write_all(&one_controller()).unwrap();
    let ours = node.text(Component::Etcd);
    let edited = ours
        .replace("--client-cert-auth=true", "--client-cert-auth=false")
        .replace(
            "    command:\n",
            "    env:\n    - name: ETCD_PEER_AUTO_TLS\n      value: \"true\"\n    command:\n",
        );
    assert_ne!(edited, ours);
    write(&pods.path(Component::Etcd), &edited);
    let spec = pods.read_container_spec(Component::Etcd).unwrap();
    assert_eq!(spec.command, ["etcd"]);
    assert_eq!(spec.argv[0], "etcd");
    assert!(spec.argv.contains(&"--client-cert-auth=false".to_owned()), "{spec:?}");
    assert_eq!(spec.environment["ETCD_PEER_AUTO_TLS"].as_deref(), Some("true"));
    let written = pods.write_all(&one_controller()).unwrap();
    assert_eq!(written.changed, [Component::Etcd]);
    assert_eq!(node.text(Component::Etcd), ours);
    assert!(
        pods.read_container_spec(Component::Etcd)
            .unwrap()
            .environment
            .is_empty()
    );
}

#[test]
fn a_manifest_that_is_no_pod_is_named_and_written_anew() {
    let node = Node::new();
    let pods = node.pods();
    pods.write_all(&one_controller()).unwrap();
    for broken in [
        "",
        "a: [",
        "spec: {containers: []}",
        "spec: {containers: [{name: other}]}",
        "\0",
    ] {
        write(&pods.path(Component::KubeScheduler), broken);
        let error = pods.read_container_spec(Component::KubeScheduler).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{broken:?}: {error:?}");
        assert!(error.to_string().contains("kube-scheduler.yaml") && error.to_string().lines().count() == 1);
        assert_eq!(
            pods.write_all(&one_controller()).unwrap().changed,
            [Component::KubeScheduler]
        );
    }
    let error = pods.read_container_spec(Component::KubeVip).unwrap_err();
    assert!(matches!(error, Error::NoManifest { .. }), "{error:?}");
}

/// An image's entrypoint is not in the manifest, and a value from elsewhere is not either.
#[test]
fn what_a_manifest_does_not_tell_is_not_made_up() {
    let node = Node::new();
    let pods = node.pods();
    pods.write_all(&with_vip()).unwrap();
    let spec = pods.read_container_spec(Component::KubeVip).unwrap();
    assert_eq!((spec.command.len(), spec.argv[0].as_str()), (0, "manager"));
    assert_eq!(spec.environment["address"].as_deref(), Some("10.0.0.100"));
    let text = "spec: {containers: [{name: sidecar}, {name: etcd, args: [a], env: \
                [{name: X, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: Y}]}]}";
    write(&pods.path(Component::Etcd), text);
    let spec = pods.read_container_spec(Component::Etcd).unwrap();
    assert_eq!(spec.argv, ["a"]);
    assert_eq!(
        (spec.environment["X"].as_deref(), spec.environment["Y"].as_deref()),
        (None, Some(""))
    );
}

#[test]
fn what_else_lies_in_the_folder() {
    let node = Node::new();
    let pods = node.pods();
    pods.write_all(&one_controller()).unwrap();
    for name in [
        "etcd.yaml.tmp",
        "kube-apiserver.yaml.1234",
        "etcd.yaml.new",
        "mine.yaml",
        "etcd.yaml.bak",
        ".hidden",
    ] {
        write(&pods.folder().join(name), "x");
    }
    let written = pods.write_all(&one_controller()).unwrap();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let swept: Vec<String> = written.swept.iter().map(name).collect();
    assert_eq!(swept, ["etcd.yaml.new", "etcd.yaml.tmp", "kube-apiserver.yaml.1234"]);
    let strays: Vec<String> = written.strays.iter().map(name).collect();
    assert_eq!(strays, ["etcd.yaml.bak", "mine.yaml"], "left alone, and told");
    assert_eq!(written.changed, []);
    let names = node.names();
    assert_eq!(names.len(), 4 + 3, "{names:?}");
    assert!(pods.write_all(&one_controller()).unwrap().is_unchanged());
}

#[test]
fn what_this_node_has_no_longer_is_removed() {
    let node = Node::new();
    let pods = node.pods();
    pods.write_all(&NodeState {
        profile: Profile::Cis,
        ..with_vip()
    })
    .unwrap();
    let derived = |name: &str| pods.layout.static_pod_files().join(name).exists();
    assert!(derived("audit-policy.yaml") && derived("admission-webhook.yaml"));
    let written = pods.write_all(&one_controller()).unwrap();
    assert_eq!(written.removed, [Component::KubeVip]);
    assert_eq!(
        written.changed,
        names_for(&one_controller()),
        "the profile is in all of them"
    );
    assert!(!derived("audit-policy.yaml") && !derived("admission-webhook.yaml"));
    assert!(derived("authentication-config.yaml"));
    let written = pods.write_all(&worker()).unwrap();
    assert_eq!(written.removed, names_for(&one_controller()));
    assert_eq!(node.names(), Vec::<String>::new());
    assert!(!derived("authentication-config.yaml"));
    assert!(node.pods().write_all(&worker()).unwrap().is_unchanged());
}

/// Nothing is half written for want of something that was known beforehand.
#[test]
fn nothing_is_written_that_cannot_be_rendered_whole() {
    let node = Node::new();
    let state = NodeState {
        etcd: None,
        ..one_controller()
    };
    assert!(matches!(node.pods().write_all(&state), Err(Error::NoEtcd)));
    assert!(!node.pods().folder().exists());
}

#[test]
fn a_component_belongs_to_a_node_by_its_state() {
    let node = Node::new();
    let pods = node.pods();
    // Without a node state, as on a control plane that something else made: by the file.
    assert!(!pods.exists(Component::Etcd).unwrap());
    pods.put(Component::Etcd, b"x").unwrap();
    assert!(pods.exists(Component::Etcd).unwrap());
    node.save(&one_controller());
    // Stopped: the manifest is away.
    assert!(pods.exists(Component::KubeApiserver).unwrap());
    assert!(!pods.exists(Component::KubeVip).unwrap());
    node.save(&worker());
    assert!(!pods.exists(Component::Etcd).unwrap());
    write(&pods.layout.node_state(), "");
    assert!(matches!(pods.exists(Component::Etcd), Err(Error::NodeState(_))));
}

#[test]
fn a_start_writes_from_the_state_and_changes_no_running_pod() {
    let node = Node::new();
    let pods = node.pods();
    assert!(matches!(pods.start(Component::Etcd), Err(Error::NodeState(_))));
    node.save(&one_controller());
    assert!(matches!(
        pods.start(Component::KubeVip),
        Err(Error::NotOfThisNode { .. })
    ));
    assert!(pods.start(Component::Etcd).unwrap());
    let text = node.text(Component::Etcd);
    assert!(text.contains(RESTARTED_AT), "it differs from the one that was stopped");
    assert!(!pods.start(Component::Etcd).unwrap());
    // Written anew from the state, and otherwise the same pod.
    write(&pods.path(Component::Etcd), &text.replace("alpha", "beta"));
    assert!(pods.start(Component::Etcd).unwrap());
    assert_eq!(node.text(Component::Etcd), text);
    assert_eq!(
        pods.write_all(&one_controller()).unwrap().changed,
        names_for(&one_controller())[1..]
    );
}

#[test]
fn put_is_exact() {
    let node = Node::new();
    let pods = node.pods();
    assert!(pods.put(Component::Etcd, b"\xff\n").unwrap());
    assert!(!pods.put(Component::Etcd, b"\xff\n").unwrap());
    assert_eq!(pods.read(Component::Etcd).unwrap(), b"\xff\n");
    assert!(matches!(pods.read(Component::KubeVip), Err(Error::NoManifest { .. })));
}

/// Nothing of a report is lost when a field is added to it.
#[test]
fn a_report_of_nothing_is_unchanged() {
    assert!(Written::default().is_unchanged());
    let swept = Written {
        swept: vec![PathBuf::from("x")],
        ..Written::default()
    };
    assert!(!swept.is_unchanged());
}
