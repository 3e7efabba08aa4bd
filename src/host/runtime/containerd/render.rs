//! The text of `config.toml` and of the pass-through, for containerd 2.4.
//! <https://github.com/containerd/containerd/blob/v2.4.2/docs/cri/config.md>
//!
//! Version 3 is what the whole 2.x series reads; 2.4 turns it into its version 4 in memory. Its one cost there is a line
//! in the log.

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::super::layout::Layout;
use super::super::cgroup::CgroupDriver;
use super::super::error::{Error, text};
use super::super::facts::Facts;
use super::super::settings::{Kept, Settings, first_kept};
use super::super::toml_text;
use super::{SANDBOX_IMAGE, drop_ins};

/// The version of the format.
pub(in super::super) const VERSION: u8 = 3;

/// The longest folder for shims' sockets that containerd takes.
const LONGEST_SOCKET_FOLDER: usize = 38;

#[derive(Serialize)]
struct Config {
    version: u8,
    root: String,
    state: String,
    /// The kernel must kill pods before what runs them. Only where this process may ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    oom_score: Option<i32>,
    imports: [String; 1],
    grpc: Grpc,
    plugins: Plugins,
}

#[derive(Serialize)]
struct Grpc {
    address: String,
}

#[derive(Serialize)]
struct Plugins {
    #[serde(rename = "io.containerd.cri.v1.images")]
    images: Images,
    #[serde(rename = "io.containerd.cri.v1.runtime")]
    runtime: Runtime,
    #[serde(rename = "io.containerd.internal.v1.opt")]
    opt: Opt,
    #[serde(rename = "io.containerd.nri.v1.nri")]
    nri: Nri,
    #[serde(rename = "io.containerd.shim.v1.manager", skip_serializing_if = "Option::is_none")]
    shims: Option<Shims>,
}

#[derive(Serialize)]
struct Images {
    pinned_images: PinnedImages,
}

#[derive(Serialize)]
struct PinnedImages {
    sandbox: &'static str,
}

#[derive(Serialize)]
struct Runtime {
    enable_selinux: bool,
    restrict_oom_score_adj: bool,
    cni: Cni,
    containerd: Containerd,
}

#[derive(Serialize)]
struct Cni {
    bin_dirs: [String; 1],
    conf_dir: String,
}

#[derive(Serialize)]
struct Containerd {
    default_runtime_name: &'static str,
    runtimes: Runtimes,
}

#[derive(Serialize)]
struct Runtimes {
    runc: Runc,
}

#[derive(Serialize)]
struct Runc {
    runtime_type: &'static str,
    /// Else the shim is looked for in PATH first, and a distribution's is found.
    runtime_path: String,
    options: RuncOptions,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RuncOptions {
    binary_name: String,
    /// runc's own state: by default shared with every other containerd of the machine.
    root: String,
    systemd_cgroup: bool,
}

/// Programs of images: by default `/opt/containerd` is made at each start.
#[derive(Serialize)]
struct Opt {
    path: String,
}

/// Plugins of node resources: by default the socket is taken from another containerd of the machine.
#[derive(Serialize)]
struct Nri {
    socket_path: String,
}

/// Sockets of shims: by default below `/run/containerd`.
#[derive(Serialize)]
struct Shims {
    socket_dir: String,
}

/// `config.toml`.
///
/// Everything containerd makes is below the two folders of `layout`, so that a distribution's containerd can run beside it
/// and nothing is left when they are removed. The network namespaces of pods stay where everybody looks for them
/// (`/var/run/netns`): CNI plugins mount that folder.
pub(super) fn config(layout: &Layout, facts: &Facts) -> Result<String, Error> {
    let below = |folder: std::path::PathBuf, name: &str| text(&folder.join(name)).map(str::to_owned);
    let state = || layout.run().join("containerd");
    let bin = || layout.payload().join("bin");
    let shims = below(state(), "s")?;
    let config = Config {
        version: VERSION,
        root: below(layout.containerd(), "root")?,
        state: text(&state())?.to_owned(),
        oom_score: facts.may_lower_oom_score.then_some(-999),
        imports: [below(drop_ins(layout), "*.toml")?],
        grpc: Grpc {
            address: text(&layout.containerd_socket())?.to_owned(),
        },
        plugins: Plugins {
            images: Images {
                pinned_images: PinnedImages { sandbox: SANDBOX_IMAGE },
            },
            runtime: Runtime {
                enable_selinux: facts.selinux,
                // Without the capability runc dies on writing a lower score than its own.
                restrict_oom_score_adj: !facts.may_lower_oom_score,
                cni: Cni {
                    bin_dirs: [below(layout.root().join("opt/cni"), "bin")?],
                    conf_dir: below(layout.root().join("etc/cni"), "net.d")?,
                },
                containerd: Containerd {
                    default_runtime_name: "runc",
                    runtimes: Runtimes {
                        runc: Runc {
                            runtime_type: "io.containerd.runc.v2",
                            runtime_path: below(bin(), "containerd-shim-runc-v2")?,
                            options: RuncOptions {
                                binary_name: below(bin(), "runc")?,
                                root: below(state(), "runc")?,
                                systemd_cgroup: match facts.driver {
                                    CgroupDriver::Systemd => true,
                                    CgroupDriver::Cgroupfs => false,
                                },
                            },
                        },
                    },
                },
            },
            opt: Opt {
                path: below(layout.containerd(), "opt")?,
            },
            nri: Nri {
                socket_path: below(state(), "nri.sock")?,
            },
            // A longer one is refused at the start; that happens under a moved root only.
            shims: (shims.len() <= LONGEST_SOCKET_FOLDER).then_some(Shims { socket_dir: shims }),
        },
    };
    let hint = "changes go to section `containerd` of config.yaml, or into a file of your own in conf.d";
    toml_text::text("containerd's configuration", hint, &config)
}

const SECTION: &str = "containerd";
const RUNTIME: &str = "io.containerd.cri.v1.runtime";
const IMAGES: &str = "io.containerd.cri.v1.images";

/// What a user may not change: without these nothing finds containerd, or pods and the kubelet disagree.
const KEPT: [Kept; 9] = [
    Kept {
        path: &["version"],
        reason: "the section is in version 3 of the format",
    },
    Kept {
        path: &["root"],
        reason: "`stratum uninstall` cleans the folder it knows",
    },
    Kept {
        path: &["state"],
        reason: "`stratum uninstall` cleans the folder it knows",
    },
    Kept {
        path: &["imports"],
        reason: "put files of your own into conf.d beside config.toml",
    },
    Kept {
        path: &["grpc", "address"],
        reason: "the kubelet and stratum use that socket",
    },
    Kept {
        path: &["plugins", "io.containerd.server.v1.grpc", "address"],
        reason: "the kubelet and stratum use that socket",
    },
    Kept {
        path: &["plugins", IMAGES, "pinned_images", "sandbox"],
        reason: "the payload has that image and no other",
    },
    Kept {
        path: &["plugins", IMAGES, "registry", "config_path"],
        reason: "mirrors are set in registries.yaml",
    },
    Kept {
        path: &[
            "plugins",
            RUNTIME,
            "containerd",
            "runtimes",
            "runc",
            "options",
            "SystemdCgroup",
        ],
        reason: "it must be the kubelet's driver, and follows what PID 1 is",
    },
];

/// The drop-in for the section `containerd` of config.yaml; none for an empty one.
pub(super) fn pass_through(settings: &Settings) -> Result<Option<String>, Error> {
    let given = &settings.containerd;
    if given.is_empty() {
        return Ok(None);
    }
    if let Some(kept) = first_kept(given, &KEPT) {
        return Err(Error::Refused {
            section: SECTION,
            key: kept.path.join("."),
            reason: kept.reason,
        });
    }
    if let Some(key) = first_null(given) {
        return Err(Error::Null { section: SECTION, key });
    }
    let mut drop_in = given.clone();
    // A drop-in without a version is read as one of containerd 1, with other names for everything.
    drop_in.insert("version".to_owned(), VERSION.into());
    let hint = "it is section `containerd` of config.yaml";
    toml_text::text("section `containerd` of config.yaml", hint, &drop_in).map(Some)
}

fn first_null(map: &Map<String, Value>) -> Option<String> {
    map.iter().find_map(|(key, value)| match value {
        Value::Null => Some(key.clone()),
        Value::Object(inner) => first_null(inner).map(|rest| format!("{key}.{rest}")),
        Value::Array(items) => items.contains(&Value::Null).then(|| key.clone()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}
