//! A cluster made by `stratum` itself: `server`, `token create`, `join` and `up`, with the product's own rendered
//! configuration. Only what a node in namespaces has to have otherwise comes through `/etc/stratum/config.yaml`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use stratum::host::assets::Tool;
use stratum::host::child::{Child, Output, Program};
use stratum::host::clock;

use super::{Node, Rig, succeed};

/// Until an API server answers, images imported, on two busy processors.
const READY: Duration = Duration::from_secs(240);
/// An image that serves files and fetches them, both by kubectl.
pub(crate) const TALKER: &str = "example.org/talker:1";
/// The payload, and in it the archives of all images, below the rig's folder.
const PAYLOAD: &str = "payload";
pub(crate) const PAYLOAD_IMAGES: &str = "payload/images";
const ADMIN: &str = "/var/lib/stratum/kubeconfig/admin.conf";

/// A node of ours and its `stratum up`.
pub(crate) struct Ours {
    pub(crate) up: Child,
    pub(crate) node: Node,
}

/// A cluster of ours. Dropping it switches its nodes off.
pub(crate) struct OurCluster {
    pub(crate) controllers: Vec<Ours>,
    pub(crate) workers: Vec<Ours>,
}

impl Rig {
    /// Makes a cluster. Its pods' network is the rig's.
    ///
    /// # Errors
    /// Names the command that failed, or what did not come up.
    pub(crate) async fn stratum(&mut self, controllers: u8, workers: u8) -> Result<OurCluster> {
        self.payload().await?;
        self.add_program(Tool::Etcdctl).await?;
        let mut cluster = OurCluster {
            controllers: vec![self.prepared("controller-1").await?.found().await?],
            workers: Vec::new(),
        };
        for number in 2..=controllers {
            let joined = self
                .join(&cluster, &format!("controller-{number}"), &["--control-plane"])
                .await?;
            joined.wait_until_others_can_join().await?;
            cluster.controllers.push(joined);
        }
        for number in 1..=workers {
            let joined = self.join(&cluster, &format!("worker-{number}"), &[]).await?;
            cluster.workers.push(joined);
        }
        Ok(cluster)
    }

    /// Makes a machine a node of a cluster, by what `stratum token create` prints.
    ///
    /// # Errors
    /// Names the command that failed.
    pub(crate) async fn join(&mut self, cluster: &OurCluster, name: &str, kind: &[&str]) -> Result<Ours> {
        let node = self.prepared(name).await?;
        self.join_node(cluster, node, kind).await
    }

    /// The same with a machine that is prepared.
    ///
    /// # Errors
    /// Names the command that failed.
    pub(crate) async fn join_node(&mut self, cluster: &OurCluster, node: Node, kind: &[&str]) -> Result<Ours> {
        let words = cluster.invite(&node, kind).await?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        node.stratum(&words, true).await?;
        node.up().await
    }

    /// A machine as somebody would prepare it for Kubernetes.
    pub(crate) async fn prepared(&mut self, name: &str) -> Result<Node> {
        let node = self.node(name).await?;
        node.configure(&node.settings())?;
        node.install_network_plugins()?;
        Ok(node)
    }

    /// The same for a cluster of one controller, whose etcd has nobody to wait for and keeps the defaults.
    pub(crate) async fn prepared_alone(&mut self, name: &str) -> Result<Node> {
        let node = self.prepared(name).await?;
        node.configure(&json!({"kubelet": node.kubelet_settings()}))?;
        Ok(node)
    }
}

impl Rig {
    /// Programs and images for all nodes, as `stratum payload build` makes them, and one image more, for pods of tests.
    ///
    /// # Errors
    /// With the last words of the command.
    pub(crate) async fn payload(&self) -> Result<()> {
        self.add_image(TALKER, Tool::Kubectl).await?;
        let talker = format!("{TALKER}={}", self.shared.folder.join("images/kubectl.tar").display());
        let folder = self.shared.folder.join(PAYLOAD).display().to_string();
        let program = self.shared.command(&self.shared.stratum);
        let program = program.arguments(["payload", "build", "--quiet", "--payload", &folder, "--image", &talker]);
        let nft = with_libraries("nft").await?;
        let includes = nft
            .iter()
            .flat_map(|path| ["--include".to_owned(), format!("kube-proxy={path}")]);
        succeed(&program.arguments(includes), "").await.map(drop)
    }
}

/// A program of this machine and everything `ldd` says it needs.
async fn with_libraries(name: &str) -> Result<Vec<String>> {
    let path = succeed(&Program::new("which").arguments([name]), "").await;
    let path = path.with_context(|| format!("kube-proxy needs the program `{name}`: install nftables"))?;
    let needed = succeed(&Program::new("ldd").arguments([&path]), "").await?;
    // `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
    let libraries = needed.lines().filter_map(|line| {
        let words = line.split_whitespace();
        words.map(str::to_owned).find(|word| word.starts_with('/'))
    });
    Ok(std::iter::once(path.clone()).chain(libraries).collect())
}

impl Node {
    /// What cannot be as on a machine of its own.
    fn settings(&self) -> Value {
        json!({
            "kubelet": self.kubelet_settings(),
            "components": {
                // Three members on two processors. A lost leader is missed for one to two timeouts: that is how long no
                // writes go on.
                "etcd": [
                    {"name": "heartbeat-interval", "value": "250"},
                    {"name": "election-timeout", "value": "2500"},
                ],
            },
        })
    }

    fn configure(&self, settings: &Value) -> Result<()> {
        self.write("/etc/stratum/config.yaml", &format!("{settings}\n"))
    }

    /// The network of its pods, which no cluster of ours brings.
    fn install_network_plugins(&self) -> Result<()> {
        self.write("/etc/cni/net.d/10-rig.conflist", &self.network_configuration())?;
        let folder = self.path("/opt/cni/bin");
        std::fs::create_dir_all(&folder)?;
        for tool in [Tool::CniBridge, Tool::CniHostLocal, Tool::CniLoopback, Tool::CniPortmap] {
            std::fs::copy(self.rig_folder("bin").join(tool.name()), folder.join(tool.name()))?;
        }
        Ok(())
    }

    /// Runs `stratum` on the node; with `payload`, it takes programs and images from the rig's.
    pub(crate) async fn stratum(&self, arguments: &[&str], payload: bool) -> Result<String> {
        succeed(&self.command(arguments, payload), "")
            .await
            .with_context(|| format!("on node {}", self.name()))
    }

    /// The same as a program that has not started; what it says and how it ends is the caller's to judge.
    pub(crate) fn command(&self, arguments: &[&str], payload: bool) -> Program {
        let folder = self.rig_folder(PAYLOAD).display().to_string();
        let payload = payload.then(|| ["--payload".to_owned(), folder]);
        self.program(&self.shared.stratum)
            .arguments(arguments.iter().copied())
            .arguments(payload.into_iter().flatten())
    }

    /// Makes the machine the first controller of a cluster. The payload is there.
    ///
    /// # Errors
    /// Names the command that failed, or what did not come up.
    pub(crate) async fn found(self) -> Result<Ours> {
        let address = self.address().to_string();
        self.stratum(&["server", "--node-ip", &address], true).await?;
        let founder = self.up().await?;
        founder.wait_until_others_can_join().await?;
        Ok(founder)
    }

    /// Starts `stratum up` on the node.
    pub(crate) async fn up(self) -> Result<Ours> {
        let up = self.command(&["up"], false).start(&Output::Log(self.log("up")))?;
        Ok(Ours { up, node: self })
    }
}

impl Ours {
    /// Runs kubectl as administrator on the node, which is a controller.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let arguments = [&["--kubeconfig", ADMIN], arguments].concat();
        self.node.run("kubectl", &arguments).await
    }

    /// Runs etcdctl on the node, which is a controller.
    pub(crate) async fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let files = [
            "--endpoints=https://127.0.0.1:2379",
            "--cacert=/var/lib/stratum/pki/etcd/ca-bundle.crt",
            "--cert=/var/lib/stratum/pki/etcd/healthcheck-client.crt",
            "--key=/var/lib/stratum/pki/etcd/healthcheck-client.key",
        ];
        self.node.run("etcdctl", &[&files[..], arguments].concat()).await
    }

    async fn wait_until_others_can_join(&self) -> Result<()> {
        let began = clock::monotonic();
        loop {
            // The last thing that others need of a controller.
            let published = ["get", "configmap", "cluster-info", "--namespace", "kube-public"];
            let Err(error) = self.kubectl(&published).await else {
                return Ok(());
            };
            self.is_up()?;
            if began.elapsed() > READY {
                return Err(error)
                    .with_context(|| format!("node {} is no controller others can join", self.node.name()));
            }
            clock::sleep(Duration::from_millis(250)).await;
        }
    }

    /// For a message: that `stratum up` has ended, and its last words.
    pub(crate) fn is_up(&self) -> Result<()> {
        let Some(exit) = self.up.exit() else { return Ok(()) };
        bail!(
            "`stratum up` of node {} ended ({exit}); {}",
            self.node.name(),
            self.node.last_words("up")
        )
    }
}

impl OurCluster {
    /// Every node of it.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Ours> {
        self.controllers.iter().chain(&self.workers)
    }

    /// The words after `stratum` with which a machine joins; `kind` are flags of `stratum token create`.
    ///
    /// # Errors
    /// When no token can be made.
    pub(crate) async fn invite(&self, node: &Node, kind: &[&str]) -> Result<Vec<String>> {
        let created = [&["token", "create", "-o", "json"], kind].concat();
        let created = self.first().node.stratum(&created, false).await?;
        let created: Value = serde_json::from_str(&created).context("`token create -o json` printed no JSON")?;
        let command = created["command"].as_array().context("no command in it")?;
        // Without the program's own name.
        let words = command.iter().skip(1).filter_map(Value::as_str).map(str::to_owned);
        Ok(words
            .chain(["--node-ip".to_owned(), node.address().to_string()])
            .collect())
    }

    /// The controller that founded it.
    pub(crate) fn first(&self) -> &Ours {
        &self.controllers[0]
    }
}
