use std::io;

use serde_json::json;

use super::super::node_state::examples::one_controller;
use super::super::node_state::{Profile, Role, Taint, TaintEffect};
use super::*;

/// A folder with files in it, as the root of a machine.
pub(super) fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        put(&root.path().join(path), text);
    }
    root
}

pub(super) fn put(path: &std::path::Path, text: &str) {
    use super::super::atomic_file::{Access, create_folder, write};
    create_folder(path.parent().unwrap(), Access::Public).unwrap();
    write(path, text.as_bytes(), Access::Public).unwrap();
}

/// Every file below a folder, by its path from there, with its mode.
pub(super) fn listing(folder: &std::path::Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                open.push(entry.path());
            }
            let path = entry.path();
            let path = path.strip_prefix(folder).unwrap().display().to_string();
            found.push(format!("{:o} {path}", metadata.permissions().mode() & 0o777));
        }
    }
    found.sort_by(|one, other| one[4..].cmp(&other[4..]));
    found
}

/// An error with its causes, as the command line prints it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

pub(super) fn plain() -> Facts {
    Facts {
        driver: CgroupDriver::Systemd,
        cgroup: CgroupVersion::Two,
        may_lower_oom_score: true,
        selinux: false,
        resolvers: Resolvers::Node,
    }
}

/// A machine as bare as a container.
pub(super) fn bare() -> Facts {
    Facts {
        driver: CgroupDriver::Cgroupfs,
        cgroup: CgroupVersion::One,
        may_lower_oom_score: false,
        selinux: false,
        resolvers: Resolvers::Node,
    }
}

pub(super) fn node(role: Role, profile: Profile) -> NodeState {
    let controller = one_controller();
    NodeState {
        role,
        profile,
        etcd: controller.etcd.filter(|_| role == Role::Controller),
        ..one_controller()
    }
}

pub(super) fn tainted(mut state: NodeState) -> NodeState {
    state.labels.insert("zone".to_owned(), "a".to_owned());
    state.labels.insert("example.org/rack".to_owned(), "7".to_owned());
    state.taints.push(Taint {
        key: "only".to_owned(),
        value: Some("gpu".to_owned()),
        effect: TaintEffect::NoSchedule,
    });
    state
}

pub(super) fn settings(kubelet: serde_json::Value, containerd: serde_json::Value) -> Settings {
    serde_json::from_value(json!({"kubelet": kubelet, "containerd": containerd})).unwrap()
}

/// The rows of the table in the module's documentation: who writes, heals, tells and restarts.
#[test]
fn who_writes_what_and_who_heals() {
    const LEGACY: &str = "etc/containerd/config.toml";
    let state = node(Role::Controller, Profile::Default);
    let (facts, settings) = (plain(), Settings::default());
    type Call = fn(Inputs<'_>, &NodeState) -> Option<bool>;
    let rows: [(&str, Call, bool, bool, bool); 6] = [
        (
            "write_config",
            |inputs, _| Some(write_config(inputs).unwrap()),
            true,
            false,
            false,
        ),
        (
            "ensure_config",
            |inputs, _| Some(ensure_config(inputs, &mut io::sink()).unwrap()),
            true,
            false,
            true,
        ),
        (
            "write_kubelet_config",
            |inputs, state| Some(write_kubelet_config(inputs, state).unwrap()),
            false,
            true,
            false,
        ),
        (
            "write_node_configs",
            |inputs, state| Some(write_node_configs(inputs, state).unwrap()),
            true,
            true,
            false,
        ),
        (
            "prepare_node_configs",
            |inputs, state| {
                prepare_node_configs(inputs, state, &mut io::sink()).unwrap();
                None
            },
            true,
            true,
            true,
        ),
        (
            "disable_selinux",
            |inputs, _| Some(disable_selinux(inputs.layout).unwrap()),
            false,
            false,
            false,
        ),
    ];
    for (name, call, containerd, kubelet, heals) in rows {
        let root = machine(&[(LEGACY, "# Written by stratum 0.0; do not edit.\nversion = 2\n")]);
        let layout = Layout::under(root.path());
        let inputs = Inputs {
            layout: &layout,
            facts: &facts,
            settings: &settings,
        };
        let changed = call(inputs, &state);
        assert_eq!(config_path(&layout).exists(), containerd, "{name}");
        assert_eq!(kubelet_config_path(&layout).exists(), kubelet, "{name}");
        assert_eq!(!root.path().join(LEGACY).exists(), heals, "{name}");
        assert!(
            changed.is_none_or(|changed| changed == (containerd || kubelet)),
            "{name}"
        );
        assert!(call(inputs, &state).is_none_or(|changed| !changed), "{name}: twice");
    }
}

/// The kubelet's file is nothing containerd has to be started for.
#[test]
fn node_configs_tell_of_containerd_alone() {
    let root = machine(&[]);
    let layout = Layout::under(root.path());
    let (facts, settings) = (plain(), Settings::default());
    let inputs = Inputs {
        layout: &layout,
        facts: &facts,
        settings: &settings,
    };
    let mut state = node(Role::Worker, Profile::Default);
    let mut lines = Vec::new();
    assert!(write_node_configs_with_writer(inputs, &state, &mut lines).unwrap());
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines, format!("wrote {}\n", config_path(&layout).display()));
    state.networks.domain = "other.example.org".to_owned();
    let before = std::fs::read(kubelet_config_path(&layout)).unwrap();
    assert!(!write_node_configs(inputs, &state).unwrap());
    assert_ne!(std::fs::read(kubelet_config_path(&layout)).unwrap(), before);
}

/// What is bad is found before anything is written; what fails later says what had been changed.
#[test]
fn changed_is_told_beside_an_error() {
    let facts = plain();
    let state = node(Role::Worker, Profile::Default);
    let root = machine(&[("etc/stratum/registries.yaml", "mirrors: {docker.io: {colour: red}}")]);
    let layout = Layout::under(root.path());
    let settings = Settings::default();
    let inputs = Inputs {
        layout: &layout,
        facts: &facts,
        settings: &settings,
    };
    let error = write_config(inputs).unwrap_err();
    assert!(!error.changed && !config_path(&layout).exists(), "{}", chain(&error));
    assert!(
        chain(&error).contains("registries.yaml") && chain(&error).contains("line 1"),
        "{}",
        chain(&error)
    );
    assert!(chain(&error).contains("was not changed"), "{}", chain(&error));
    // The legacy file stays when not everything was written.
    put(
        &root.path().join("etc/containerd/config.toml"),
        "# Written by stratum\n",
    );
    assert!(ensure_config(inputs, &mut io::sink()).is_err());
    assert!(legacy_host_config(&layout).present);

    // The folder for registries cannot be made: a file is in its place.
    put(
        &layout.registries(),
        "mirrors: {docker.io: {endpoint: ['https://mirror.example.org']}}",
    );
    put(&layout.containerd().join("certs.d"), "in the way");
    let error = write_config(inputs).unwrap_err();
    assert!(error.changed && config_path(&layout).exists(), "{}", chain(&error));
    let error = write_node_configs(inputs, &state).unwrap_err();
    assert!(!error.changed, "the file was written by the call before");
    assert!(kubelet_config_path(&layout).exists());

    // The kubelet's file comes first, and its failure leaves containerd's alone.
    let root = machine(&[]);
    let layout = Layout::under(root.path());
    let settings = super::tests::settings(json!({"port": 1}), json!({}));
    let inputs = Inputs {
        layout: &layout,
        facts: &facts,
        settings: &settings,
    };
    let error = write_node_configs(inputs, &state).unwrap_err();
    assert!(!error.changed && !config_path(&layout).exists(), "{}", chain(&error));
    assert!(prepare_node_configs(inputs, &state, &mut io::sink()).is_err());
    assert!(listing(root.path()).is_empty());
}
