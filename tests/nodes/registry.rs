//! Mirrors of container registries on a node: containerd uses a new one at its next pull, and is restarted only when the
//! first one comes and when the last one goes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};
use stratum::host::assets::Tool;
use stratum::host::child::{Child, Exit, Finished, Output};
use stratum::host::clock;

use crate::rig::Node;
use crate::started::rig;
use crate::support::wait_for;

const SOON: Duration = Duration::from_secs(60);
const SOCKET: &str = "/run/stratum/containerd/containerd.sock";
const REGISTRIES: &str = "/etc/stratum/registries.yaml";
/// Where the mirror listens on the node.
const MIRROR: &str = "127.0.0.1:5000";
/// The image as it is pushed, and as it is pulled: from a registry that no name server knows.
const PUSHED: &str = "127.0.0.1:5000/apps/tool:1";
const PULLED: &str = "registry.example.test/apps/tool:1";

#[tokio::test(flavor = "multi_thread")]
async fn containerd_pulls_from_a_mirror_without_a_restart() {
    let mut rig = rig().await;
    for tool in [Tool::Crictl, Tool::Registry] {
        rig.add_program(tool).await.unwrap();
    }
    let cluster = rig.stratum(1, 0).await.unwrap();
    let node = &cluster.first().node;
    let mirror = Mirror::start(node).await;
    // No image of the cluster has this program, so containerd has no part of it once it is pushed.
    mirror
        .push(&rig.add_image(PUSHED, Tool::CniPortmap).await.unwrap())
        .await;
    let at_first = Containerd::on(node).await;
    assert_eq!(at_first.restarts, 0);

    refuse(
        node,
        "mirrors: {'*.example.test': {}}\n",
        "mirrors.\"*.example.test\": ",
    )
    .await;
    node.write(REGISTRIES, &mirrors(&["other.example.test"])).unwrap();
    labels_are_turned_on(node);
    let before = clock::now();
    assert_eq!(apply(node).await, answer(true, true));
    let restarted = Containerd::on(node).await;
    assert_eq!(restarted.restarts, 1);
    assert_ne!(restarted.process, at_first.process);
    // Whatever starts containerd, it is known since when it labels containers.
    let since: Timestamp = read(node, CONFINED_SINCE).trim().parse().unwrap();
    assert!((before..=clock::now()).contains(&since), "{before} {since}");
    assert_eq!(apply(node).await, answer(false, false));

    assert!(pull(node).await.is_err(), "there is a registry of that name");
    assert_eq!(mirror.pulls(), Vec::<String>::new());
    let both = mirrors(&["other.example.test", "registry.example.test"]);
    node.write(REGISTRIES, &both).unwrap();
    assert_eq!(apply(node).await, answer(false, false));
    pull(node).await.unwrap();
    // The name by its tag, and something by its digest: nothing of the image was there.
    for request in ["HEAD /v2/apps/tool/manifests/1?", "GET /v2/apps/tool/blobs/sha256:"] {
        let is_logged = || async { mirror.pulls().iter().any(|line| line.contains(request)).then_some(()) };
        wait_for(request, SOON, is_logged).await;
    }
    assert_eq!(Containerd::on(node).await, restarted);

    let endpoint = format!("{both}  a.example.test: {{endpoint: ['ftp://{MIRROR}']}}\n");
    refuse(node, &endpoint, "line 4: mirrors.\"a.example.test\".endpoint").await;
    node.run("rm", &[REGISTRIES]).await.unwrap();
    assert_eq!(apply(node).await, answer(true, true));
    let last = Containerd::on(node).await;
    assert_eq!(last.restarts, 2);
    assert_ne!(last.process, restarted.process);
    assert_eq!(apply(node).await, answer(false, false));
    assert_eq!(Containerd::on(node).await, last);
}

fn mirrors(registries: &[&str]) -> String {
    let entry = |name: &&str| format!("  {name}: {{endpoint: ['http://{MIRROR}']}}\n");
    format!("mirrors:\n{}", registries.iter().map(entry).collect::<String>())
}

fn answer(changed: bool, restarted: bool) -> Value {
    json!({"changed": changed, "restarted": restarted})
}

async fn apply(node: &Node) -> Value {
    let told = node.stratum(&["registry", "apply", "--output", "json"], false).await;
    serde_json::from_str(&told.unwrap()).unwrap()
}

/// That a registries.yaml is refused with the place that is wrong, and changes nothing.
async fn refuse(node: &Node, registries: &str, place: &str) {
    node.write(REGISTRIES, registries).unwrap();
    let (files, containerd) = (configuration(node), Containerd::on(node).await);
    let program = node.command(&["registry", "apply"], false);
    let Finished { exit, stdout, stderr } = program.run(Vec::new()).await.unwrap();
    let told = String::from_utf8_lossy(&stderr);
    assert_eq!(exit, Exit::Status(3), "{told}");
    assert!(stdout.is_empty());
    assert!(told.contains(&format!("{REGISTRIES}: {place}")), "{told}");
    assert_eq!(configuration(node), files);
    assert_eq!(Containerd::on(node).await, containerd);
}

async fn pull(node: &Node) -> Result<()> {
    let endpoint = format!("unix://{SOCKET}");
    let pulled = node
        .run(
            "crictl",
            &["--timeout=60s", "--runtime-endpoint", &endpoint, "pull", PULLED],
        )
        .await;
    pulled.map(drop)
}

const FOLDER: &str = "/var/lib/stratum/containerd";
const CONFINED_SINCE: &str = "/var/lib/stratum/containerd/confined-since";

/// As the configuration of a node that has come to know SELinux: containerd labels from its next start on.
fn labels_are_turned_on(node: &Node) {
    let labels = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_selinux = true\n";
    node.write(&format!("{FOLDER}/conf.d/20-config.toml"), labels).unwrap();
    let _ = fs::remove_file(node.path(CONFINED_SINCE));
}

fn read(node: &Node, path: &str) -> String {
    fs::read_to_string(node.path(path)).unwrap()
}

/// Every file that tells containerd something.
fn configuration(node: &Node) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![
        node.path(&format!("{FOLDER}/conf.d")),
        node.path(&format!("{FOLDER}/certs.d")),
    ];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                files.insert(path, text);
            }
        }
    }
    files
}

/// The containerd of a node.
#[derive(Debug, PartialEq, Eq)]
struct Containerd {
    process: u64,
    restarts: u64,
}

impl Containerd {
    async fn on(node: &Node) -> Self {
        let program = node.command(&["status", "--output", "json"], false);
        // How it ends tells of other parts as well.
        let Finished { stdout, .. } = program.run(Vec::new()).await.unwrap();
        let status: Value = serde_json::from_slice(&stdout).unwrap();
        let mut parts = status["parts"].as_array().unwrap().iter();
        let part = parts.find(|part| part["name"] == "containerd").unwrap();
        let process = part["process"].as_u64().unwrap();
        let runs = node.run("pgrep", &["--exact", "containerd"]).await.unwrap();
        assert_eq!(runs, process.to_string(), "it is told what does not run");
        Self {
            process,
            restarts: part["restarts"].as_u64().unwrap(),
        }
    }
}

/// A registry on the loopback of a node.
struct Mirror<'a> {
    node: &'a Node,
    _process: Child,
}

impl<'a> Mirror<'a> {
    async fn start(node: &'a Node) -> Self {
        let settings = json!({
            "version": "0.1",
            "log": {"accesslog": {"disabled": false}},
            "storage": {"filesystem": {"rootdirectory": "/var/lib/registry"}},
            "http": {"addr": MIRROR},
        });
        node.write("/etc/registry.yaml", &settings.to_string()).unwrap();
        let program = node.program("registry").arguments(["serve", "/etc/registry.yaml"]);
        let program = program.variable("OTEL_TRACES_EXPORTER", "none");
        let process = program.start(&Output::Log(node.log("registry"))).unwrap();
        let mirror = Self {
            node,
            _process: process,
        };
        let listens = || async { mirror.log().contains("listening on").then_some(()) };
        wait_for("the registry to listen", SOON, listens).await;
        mirror
    }

    fn log(&self) -> String {
        fs::read_to_string(self.node.log("registry")).unwrap()
    }

    /// What was asked of it in the name of the registry it mirrors, and answered.
    fn pulls(&self) -> Vec<String> {
        let asked = |line: &&str| line.contains("?ns=registry.example.test HTTP/1.1\" 200 ");
        self.log().lines().filter(asked).map(str::to_owned).collect()
    }

    /// Pushes an archive's image through containerd, which keeps nothing of it.
    async fn push(&self, archive: &Path) {
        let archive = archive.display().to_string();
        let own = ["--address", SOCKET, "--namespace", "push", "images"];
        for arguments in [
            &["import", "--local", "--no-unpack", &archive][..],
            &["push", "--local", "--plain-http", PUSHED],
            &["rm", "--sync", PUSHED],
        ] {
            self.node.run("ctr", &[&own[..], arguments].concat()).await.unwrap();
        }
    }
}
