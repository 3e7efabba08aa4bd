//! A cluster made by the real `kubeadm`: the judge nobody here wrote. One controller, whose etcd, API server, controllers
//! and scheduler are static pods, and workers that join by token.
//!
//! `kubeadm init` asks the service manager to start the kubelet. A node has none, and kubeadm goes on without: the kubelet
//! is started here, at the very moment at which kubeadm has asked for it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use stratum::host::assets::{KUBERNETES_VERSION, Tool};
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::{Child, Output};
use stratum::host::clock;
use stratum::host::images::Image;

use super::{Kubelet, Node, Rig};

/// Until the API server answers, images imported, on two busy processors.
const READY: Duration = Duration::from_secs(180);
const CONFIGURATION: &str = "/etc/kubernetes/kubeadm.yaml";
const AUTHORITY: &str = "/etc/kubernetes/pki/ca.crt";
const ADMIN: &str = "/etc/kubernetes/admin.conf";
const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
const PATCHES: &str = "/etc/kubernetes/patches";
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap-kubelet.conf";
/// What kubeadm writes for the kubelet: a file, and flags.
const KUBELET_FILE: &str = "/var/lib/kubelet/config.yaml";
const KUBELET_FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";
/// What kubeadm says when the kubelet has to be started.
const STARTS_KUBELET: &str = "[kubelet-start] Starting the kubelet";

/// What runs on the controller as static pods.
const COMPONENTS: [(Image, Tool); 4] = [
    (Image::Etcd, Tool::Etcd),
    (Image::KubeApiserver, Tool::KubeApiserver),
    (Image::KubeControllerManager, Tool::KubeControllerManager),
    (Image::KubeScheduler, Tool::KubeScheduler),
];

/// A cluster of kubeadm's. Dropping it switches its nodes off.
pub(crate) struct Kubeadm {
    /// The administrator's kubeconfig, which works from this machine.
    pub(crate) kubeconfig: PathBuf,
    /// The controller first.
    pub(crate) members: Vec<Member>,
}

/// A node and what runs on it.
pub(crate) struct Member {
    pub(crate) kubelet: Child,
    pub(crate) containerd: Child,
    pub(crate) node: Node,
}

impl Rig {
    /// Makes such a cluster. The network of the pods is the rig's.
    ///
    /// # Errors
    /// Names the command that failed, or what did not come up.
    pub(crate) async fn kubeadm(&mut self, workers: u8) -> Result<Kubeadm> {
        for (image, tool) in COMPONENTS {
            self.add_image(image.reference(), tool).await?;
        }
        self.add_program(Tool::Kubeadm).await?;
        let node = self.node("controller-1").await?;
        let controller = node.kubeadm_controller("images").await?;
        let node = &controller.node;
        let kubeconfig = self.shared.folder.join("admin.conf");
        let admin = std::fs::read(node.path(ADMIN)).context("kubeadm wrote no admin.conf")?;
        atomic_file::write(&kubeconfig, &admin, Access::Secret)?;
        let token = node.run("kubeadm", &["token", "generate"]).await?;
        let create = ["token", "create", &token, "--kubeconfig", ADMIN];
        let mut members = Vec::new();
        if workers > 0 {
            node.run("kubeadm", &create).await?;
        }
        let server = format!("https://{}:6443", node.address());
        let authority = std::fs::read(node.path(AUTHORITY))?;
        members.push(controller);
        for number in 1..=workers {
            let node = self.node(&format!("worker-{number}")).await?;
            node.write(AUTHORITY, &String::from_utf8_lossy(&authority))?;
            node.write(BOOTSTRAP, &bootstrap(&server, &token))?;
            members.push(start(node, Some(BOOTSTRAP)).await?);
        }
        let cluster = Kubeadm { kubeconfig, members };
        cluster.wait_for_nodes().await?;
        Ok(cluster)
    }
}

/// A `kubeadm init` or `join` under way.
pub(crate) struct Init {
    pub(crate) kubeadm: Child,
    pub(crate) kubelet: Child,
}

impl Node {
    /// Makes a machine a controller, with the images in a folder of the rig.
    ///
    /// # Errors
    /// Names the command that failed, with its last words.
    pub(crate) async fn kubeadm_controller(self, images: &str) -> Result<Member> {
        let containerd = self.start_empty_containerd().await?;
        self.import_images(images).await?;
        // kubeadm's own default.
        let init = self.kubeadm_init("RSA-2048").await?;
        self.kubeadm_finished(init, containerd).await
    }

    /// Waits until kubeadm has made the machine what it is to be.
    async fn kubeadm_finished(self, init: Init, containerd: Child) -> Result<Member> {
        let Init { kubelet, mut kubeadm } = init;
        let exit = tokio::time::timeout(READY, kubeadm.wait()).await;
        let exit = exit.with_context(|| format!("kubeadm took longer than {READY:?}"))??;
        if !exit.is_success() {
            bail!("kubeadm ended ({exit}); {}", self.last_words("kubeadm"));
        }
        let member = Member {
            kubelet,
            containerd,
            node: self,
        };
        member.alive()?;
        Ok(member)
    }

    /// Starts `kubeadm init` beside containerd and the images, which are there, and the kubelet when kubeadm has it started.
    /// The keys are of the kind that kubeadm calls `algorithm`.
    ///
    /// # Errors
    /// With the last words of kubeadm, when it does not get as far as that.
    pub(crate) async fn kubeadm_init(&self, algorithm: &str) -> Result<Init> {
        self.write(CONFIGURATION, &self.kubeadm_configuration(algorithm))?;
        let init = [
            "init",
            "--config",
            CONFIGURATION,
            "--skip-phases=addon,show-join-command",
        ];
        self.kubeadm_with_kubelet(&init).await
    }

    /// Makes a machine a worker by the real `kubeadm join`, with the words after `kubeadm` that `kubeadm token create
    /// --print-join-command` printed.
    ///
    /// # Errors
    /// Names the command that failed, with its last words.
    pub(crate) async fn kubeadm_join(self, words: &[&str]) -> Result<Member> {
        let containerd = self.start_containerd().await?;
        // The cluster's configuration names the control group of the node that founded it.
        self.write(
            &format!("{PATCHES}/kubeletconfiguration.json"),
            &self.kubelet_settings().to_string(),
        )?;
        let address = format!("--node-name={}", self.name());
        let words = [words, &["--patches", PATCHES, &address]].concat();
        let join = self.kubeadm_with_kubelet(&words).await?;
        self.kubeadm_finished(join, containerd).await
    }

    /// Runs kubeadm, and starts the kubelet when it says that it has to be.
    async fn kubeadm_with_kubelet(&self, words: &[&str]) -> Result<Init> {
        let log = self.log("kubeadm");
        let program = self
            .program("kubeadm")
            .arguments(words.iter().copied())
            // A node in namespaces lacks this and that of a machine.
            .arguments(["--ignore-preflight-errors=all"]);
        let kubeadm = program.start(&Output::Log(log.clone()))?;
        let started = clock::monotonic();
        while !std::fs::read_to_string(&log)?.contains(STARTS_KUBELET) {
            if kubeadm.exit().is_some() || clock::monotonic().duration_since(started) > READY {
                bail!("kubeadm did not start the kubelet; {}", self.last_words("kubeadm"));
            }
            clock::sleep(Duration::from_millis(10)).await;
        }
        let flags = std::fs::read_to_string(self.path(KUBELET_FLAGS)).context("kubeadm wrote no flags")?;
        // As in the unit that the kubelet's package has.
        let flags = flags
            .trim()
            .trim_start_matches("KUBELET_KUBEADM_ARGS=")
            .trim_matches('"');
        let program = self
            .program("kubelet")
            .arguments([format!("--bootstrap-kubeconfig={BOOTSTRAP}")])
            .arguments([format!("--kubeconfig={KUBECONFIG}"), format!("--config={KUBELET_FILE}")])
            .arguments(flags.split_whitespace());
        let kubelet = program.start(&Output::Log(self.log("kubelet")))?;
        Ok(Init { kubeadm, kubelet })
    }

    /// The certificates and kubeconfigs of a controller, as `kubeadm init` makes them, and nothing else of it.
    ///
    /// # Errors
    /// Names the command that failed.
    pub(crate) async fn kubeadm_files(&self, algorithm: &str) -> Result<()> {
        self.write(CONFIGURATION, &self.kubeadm_configuration(algorithm))?;
        for phase in ["certs", "kubeconfig"] {
            self.run("kubeadm", &["init", "phase", phase, "all", "--config", CONFIGURATION])
                .await?;
        }
        Ok(())
    }

    fn kubeadm_configuration(&self, algorithm: &str) -> String {
        let (name, address) = (self.name(), self.address());
        let init = serde_json::json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": address, "bindPort": 6443},
            "nodeRegistration": {
                "name": name,
                "criSocket": "unix:///run/containerd/containerd.sock",
                "imagePullPolicy": "Never",
                "kubeletExtraArgs": [{"name": "node-ip", "value": address}],
            },
        });
        let (repository, tag) = Image::Etcd.reference().rsplit_once(':').unwrap_or_default();
        let repository = repository.trim_end_matches("/etcd");
        let cluster = serde_json::json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": format!("v{KUBERNETES_VERSION}"),
            "controlPlaneEndpoint": format!("{address}:6443"),
            "encryptionAlgorithm": algorithm,
            "etcd": {"local": {"imageRepository": repository, "imageTag": tag}},
        });
        let mut kubelet = self.kubelet_settings();
        if let Some(fields) = kubelet.as_object_mut() {
            fields.insert("apiVersion".into(), "kubelet.config.k8s.io/v1beta1".into());
            fields.insert("kind".into(), "KubeletConfiguration".into());
            fields.insert("cgroupDriver".into(), "cgroupfs".into());
        }
        format!("{init}\n---\n{cluster}\n---\n{kubelet}\n")
    }
}

impl Member {
    fn alive(&self) -> Result<()> {
        self.node.alive("containerd", &self.containerd)?;
        self.node.alive("kubelet", &self.kubelet)
    }
}

impl Kubeadm {
    /// Waits until every node says that it is ready.
    async fn wait_for_nodes(&self) -> Result<()> {
        let Some(controller) = self.members.first() else {
            bail!("a cluster without a controller");
        };
        let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{" "}{end}"#;
        let ask = ["--kubeconfig", ADMIN, "get", "nodes", "-o", ready];
        let started = clock::monotonic();
        loop {
            self.members.iter().try_for_each(Member::alive)?;
            let seen = controller.node.run("kubectl", &ask).await?;
            let count = seen.split_whitespace().filter(|status| *status == "True").count();
            if count == self.members.len() {
                return Ok(());
            }
            if clock::monotonic().duration_since(started) > READY {
                bail!("{count} of {} nodes are ready after {READY:?}", self.members.len());
            }
            clock::sleep(Duration::from_millis(250)).await;
        }
    }
}

async fn start(node: Node, bootstrap_kubeconfig: Option<&str>) -> Result<Member> {
    let containerd = node.start_containerd().await?;
    let kubelet = node.start_kubelet(&Kubelet {
        kubeconfig: KUBECONFIG.to_owned(),
        bootstrap_kubeconfig: bootstrap_kubeconfig.map(str::to_owned),
        client_authority: AUTHORITY.into(),
        asks_for_serving_certificate: false,
    })?;
    Ok(Member {
        kubelet,
        containerd,
        node,
    })
}

/// A kubeconfig with a token.
fn bootstrap(server: &str, token: &str) -> String {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority": AUTHORITY}}],
        "users": [{"name": "token", "user": {"token": token}}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "token"}}],
        "current-context": "cluster",
    });
    format!("{kubeconfig}\n")
}
