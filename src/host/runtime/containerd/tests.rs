use std::os::unix::net::UnixListener;

use jiff::Timestamp;
use serde_json::json;

use super::super::tests::{bare, chain, listing, machine, plain, put, settings};
use super::super::{
    Facts, Settings, confined_since, confined_since_path, confines_containers, disable_selinux, legacy_host_config,
    record_confinement, remove_legacy_host_config,
};
use super::*;

fn rendered(facts: &Facts) -> String {
    render::config(&Layout::system(), facts).unwrap()
}

#[test]
fn config_on_a_machine_with_systemd() {
    insta::assert_snapshot!(rendered(&plain()));
}

#[test]
fn config_on_a_bare_machine() {
    insta::assert_snapshot!(rendered(&bare()));
}

#[test]
fn config_with_selinux() {
    let facts = Facts {
        selinux: true,
        ..plain()
    };
    insta::assert_snapshot!(rendered(&facts));
}

#[test]
fn everything_hangs_under_the_root() {
    let text = render::config(&Layout::under("/elsewhere/that/is/long"), &plain()).unwrap();
    let paths = text.split('"').filter(|part| part.starts_with('/'));
    for path in paths {
        assert!(path.starts_with("/elsewhere/"), "{path}");
    }
    // containerd would refuse to start with a longer one.
    assert!(!text.contains("socket_dir"), "{text}");
    assert_eq!(
        containerd_arguments(&Layout::system()),
        ["--config", "/var/lib/stratum/containerd/config.toml"]
    );
}

#[test]
fn the_section_of_config_yaml_is_a_drop_in() {
    let given = json!({
        "debug": {"level": "debug"},
        "plugins": {"io.containerd.cri.v1.runtime": {
            "cni": {"bin_dirs": ["/usr/lib/cni"]},
            "containerd": {"runtimes": {"kata": {"runtime_type": "io.containerd.kata.v2"}}},
        }},
    });
    insta::assert_snapshot!(render::pass_through(&settings(json!({}), given)).unwrap().unwrap());
    assert_eq!(render::pass_through(&Settings::default()).unwrap(), None);
}

#[test]
fn keys_that_break_the_node_are_refused_by_name() {
    let refused = |given| chain(&render::pass_through(&settings(json!({}), given)).unwrap_err());
    let images = "io.containerd.cri.v1.images";
    for (given, key) in [
        (json!({"version": 4}), "version"),
        (json!({"root": "/x"}), "root"),
        (json!({"state": "/x"}), "state"),
        (json!({"imports": []}), "imports"),
        (json!({"grpc": {"address": "/x"}}), "grpc.address"),
        (json!({"grpc": null}), "grpc.address"),
        (
            json!({"plugins": {images: {"pinned_images": {"sandbox": "x"}}}}),
            "pinned_images.sandbox",
        ),
        (
            json!({"plugins": {images: {"registry": {"config_path": "/x"}}}}),
            "registry.config_path",
        ),
        (
            json!({"plugins": {"io.containerd.cri.v1.runtime": {"containerd": {"runtimes": {"runc":
                {"options": {"SystemdCgroup": true}}}}}}}),
            "runc.options.SystemdCgroup",
        ),
    ] {
        let error = refused(given);
        assert!(
            error.contains(key) && error.contains("config.yaml: containerd"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
    }
    assert!(refused(json!({"debug": {"level": null}})).contains("debug.level has no value"));
    assert!(refused(json!({"disabled_plugins": ["x", null]})).contains("disabled_plugins has no value"));
}

/// A node of files, with what it takes to write its configuration.
struct Node {
    _root: tempfile::TempDir,
    layout: Layout,
}

impl Node {
    fn new() -> Self {
        let root = machine(&[]);
        Self {
            layout: Layout::under(root.path()),
            _root: root,
        }
    }

    fn write(&self, selinux: bool, given: serde_json::Value) -> bool {
        let facts = Facts { selinux, ..plain() };
        write_config(Inputs {
            layout: &self.layout,
            facts: &facts,
            settings: &settings(json!({}), given),
        })
        .unwrap()
    }

    fn confines(&self) -> bool {
        confines_containers(&self.layout).unwrap()
    }
}

#[test]
fn files_and_their_modes() {
    let node = Node::new();
    put(&node.layout.containerd().join("conf.d/50-mine.toml"), "version = 3\n");
    assert!(node.write(false, json!({"debug": {"level": "debug"}})));
    assert_eq!(
        listing(&node.layout.containerd()),
        [
            "755 conf.d",
            "600 conf.d/20-config.toml",
            "644 conf.d/50-mine.toml",
            "644 config.toml"
        ]
    );
    // Taken away with the section, and what is the user's stays.
    assert!(node.write(false, json!({})));
    assert_eq!(
        listing(&node.layout.containerd()),
        ["755 conf.d", "644 conf.d/50-mine.toml", "644 config.toml"]
    );
    // A hand edit does not last.
    put(&config_path(&node.layout), "# mine\n");
    assert!(node.write(false, json!({})));
    assert!(!node.write(false, json!({})));
}

#[test]
fn labels_are_read_as_containerd_reads_them() {
    let node = Node::new();
    assert!(!node.confines(), "no configuration confines nobody");
    node.write(true, json!({}));
    assert!(node.confines());
    let config = config_path(&node.layout);
    let table = "[plugins.\"io.containerd.cri.v1.runtime\"]\n";
    for (text, expected) in [
        (format!("{table}enable_selinux = true\n"), true),
        (format!("{table}# enable_selinux = true\n"), false),
        (format!("{table}enable_selinux = false\n"), false),
        (
            "[plugins.\"io.containerd.cri.v1.images\"]\nenable_selinux = true\n".to_owned(),
            false,
        ),
        ("enable_selinux = true\n".to_owned(), false),
        (
            "[plugins]\n'io.containerd.cri.v1.runtime' = { enable_selinux = true }\n".to_owned(),
            true,
        ),
        (
            "plugins.'io.containerd.cri.v1.runtime'.enable_selinux = true\n".to_owned(),
            true,
        ),
        (String::new(), false),
    ] {
        put(&config, &text);
        assert_eq!(node.confines(), expected, "{text}");
    }
    for (text, word) in [
        ("a = 1\nb = = 2\n".to_owned(), "line 2"),
        (
            format!("{table}enable_selinux = \"true\"\n"),
            "enable_selinux is a string",
        ),
    ] {
        put(&config, &text);
        let error = chain(&confines_containers(&node.layout).unwrap_err());
        assert!(error.contains(word) && error.contains("config.toml"), "{error}");
        assert_eq!(error.lines().count(), 1);
        assert!(disable_selinux(&node.layout).is_err());
        assert_eq!(confined_since(&node.layout), None);
    }
    // A damaged file is no reason not to write it anew.
    assert!(node.write(true, json!({})));
    assert!(node.confines());
}

/// The pass-through is read after config.toml, and counts.
#[test]
fn the_pass_through_decides_about_labels() {
    let node = Node::new();
    let labels = |on: bool| json!({"plugins": {"io.containerd.cri.v1.runtime": {"enable_selinux": on}}});
    node.write(true, labels(false));
    assert!(!node.confines());
    node.write(false, labels(true));
    assert!(node.confines());
    assert!(disable_selinux(&node.layout).unwrap());
    assert!(!node.confines());
    assert_eq!(
        listing(&node.layout.containerd()),
        ["755 conf.d", "600 conf.d/20-config.toml", "644 config.toml"]
    );
}

#[test]
fn labels_are_turned_off_and_nothing_else() {
    let node = Node::new();
    assert!(!disable_selinux(&node.layout).unwrap(), "nothing is there");
    node.write(false, json!({}));
    assert!(!disable_selinux(&node.layout).unwrap(), "they are off");
    let off: toml::Table = std::fs::read_to_string(config_path(&node.layout))
        .unwrap()
        .parse()
        .unwrap();
    node.write(true, json!({}));
    assert!(disable_selinux(&node.layout).unwrap());
    assert!(!node.confines());
    let text = std::fs::read_to_string(config_path(&node.layout)).unwrap();
    assert_eq!(text.parse::<toml::Table>().unwrap(), off);
    assert!(!disable_selinux(&node.layout).unwrap());
    // This build turns them on again.
    assert!(node.write(true, json!({})));
    assert!(node.confines());
}

#[test]
fn confined_since_the_start_after_the_change() {
    let node = Node::new();
    let layout = &node.layout;
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    node.write(false, json!({}));
    record_confinement(layout, at(1)).unwrap();
    assert!(!confined_since_path(layout).exists(), "it confines nobody");
    node.write(true, json!({}));
    assert_eq!(confined_since(layout), None, "containerd has not read it yet");
    record_confinement(layout, at(2)).unwrap();
    assert_eq!(confined_since(layout), Some(at(2)));
    // Later starts and unchanged writes keep it.
    node.write(true, json!({"debug": {"level": "info"}}));
    record_confinement(layout, at(3)).unwrap();
    assert_eq!(confined_since(layout), Some(at(2)));
    // Damage is no date; the next start makes one.
    put(&confined_since_path(layout), "yesterday\n");
    assert_eq!(confined_since(layout), None);
    record_confinement(layout, at(4)).unwrap();
    assert_eq!(confined_since(layout), Some(at(4)));
    // Off and on again is another beginning, whichever way it went off.
    disable_selinux(layout).unwrap();
    assert_eq!(confined_since(layout), None);
    node.write(true, json!({}));
    assert_eq!(confined_since(layout), None);
    record_confinement(layout, at(5)).unwrap();
    node.write(false, json!({}));
    node.write(true, json!({}));
    assert_eq!(confined_since(layout), None);
    // A record without the labels says nothing.
    put(&confined_since_path(layout), "1970-01-01T00:00:06Z\n");
    put(&config_path(layout), "");
    assert_eq!(confined_since(layout), None);
}

#[test]
fn only_a_file_of_ours_is_removed_from_the_legacy_place() {
    let told = |layout: &Layout| {
        let mut lines = Vec::new();
        remove_legacy_host_config(layout, &mut lines);
        String::from_utf8(lines).unwrap()
    };
    let root = machine(&[]);
    let layout = Layout::under(root.path());
    let path = root.path().join("etc/containerd/config.toml");
    assert_eq!(legacy_host_config(&layout).path, path);
    assert!(!legacy_host_config(&layout).present);
    assert_eq!(told(&layout), "", "no file is nothing to do");
    for foreign in [
        "",
        "version = 2\n# Written by stratum\n",
        "# Written by hand\n",
        "#Written by stratum\n",
        "\n# Written by stratum\n",
        "# written by stratum\n",
    ] {
        put(&path, foreign);
        assert!(!legacy_host_config(&layout).present, "{foreign:?}");
        assert_eq!(told(&layout), "", "{foreign:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
    }
    put(&path, "# Written by stratum 0.3; do not edit.\nversion = 2\n");
    assert!(legacy_host_config(&layout).present);
    let line = told(&layout);
    assert!(
        line.contains("removed") && line.contains(path.to_str().unwrap()),
        "{line}"
    );
    assert!(!path.exists() && path.parent().unwrap().exists());

    // A link is somebody's own arrangement, wherever it leads.
    let target = root.path().join("etc/ours.toml");
    put(&target, "# Written by stratum\n");
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert!(!legacy_host_config(&layout).present);
    assert_eq!(told(&layout), "");
    assert!(target.exists() && path.is_symlink());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(told(&layout), "");
    // Nothing that could be looked at: told, and left.
    std::fs::remove_dir(&path).unwrap();
    std::fs::remove_dir(path.parent().unwrap()).unwrap();
    let folder = path.parent().unwrap();
    std::os::unix::fs::symlink(folder, folder).unwrap();
    let line = told(&layout);
    assert!(line.starts_with("warning: cannot read"), "{line}");
}

#[test]
fn active_is_whoever_answers() {
    let root = machine(&[]);
    let layout = Layout::under(root.path());
    assert!(!active(&layout));
    let socket = layout.containerd_socket();
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    assert!(active(&layout));
    drop(listener);
    assert!(socket.exists() && !active(&layout), "a socket that was left behind");
}
