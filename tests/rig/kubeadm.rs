//! A cluster made by the real `kubeadm`: the judge nobody here wrote. One controller, whose etcd, API server, controllers
//! and scheduler are static pods, and workers that join by token.
//!
//! Phases, not `kubeadm init`: that one wants a service manager to start the kubelet.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use stratum::host::assets::{ETCD_VERSION, KUBERNETES_VERSION, Tool};
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::Child;
use stratum::host::clock;

use super::{Kubelet, Node, Rig};

/// Until the API server answers, images imported, on two busy processors.
const READY: Duration = Duration::from_secs(180);
const CONFIGURATION: &str = "/etc/kubernetes/kubeadm.yaml";
const AUTHORITY: &str = "/etc/kubernetes/pki/ca.crt";
const ADMIN: &str = "/etc/kubernetes/admin.conf";
const SUPER_ADMIN: &str = "/etc/kubernetes/super-admin.conf";
const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap-kubelet.conf";

/// What runs on the controller as static pods.
const COMPONENTS: [Tool; 4] = [
    Tool::Etcd,
    Tool::KubeApiserver,
    Tool::KubeControllerManager,
    Tool::KubeScheduler,
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
        for tool in COMPONENTS {
            self.add_image(&reference(tool), tool).await?;
        }
        self.add_program(Tool::Kubeadm).await?;
        let controller = self.kubeadm_controller().await?;
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

    async fn kubeadm_controller(&mut self) -> Result<Member> {
        let node = self.node("controller-1").await?;
        node.write(CONFIGURATION, &configuration(&node))?;
        let phases = [
            ["certs", "all"].as_slice(),
            &["kubeconfig", "all"],
            &["etcd", "local"],
            &["control-plane", "all"],
        ];
        for phase in phases {
            node.kubeadm_phase(phase, &["--config", CONFIGURATION]).await?;
        }
        let member = start(node, None).await?;
        member.wait_for_api_server().await?;
        let node = &member.node;
        // What the first steps of `kubeadm init` do with the API server.
        let role = [
            "--kubeconfig",
            SUPER_ADMIN,
            "create",
            "clusterrolebinding",
            "kubeadm:cluster-admins",
            "--clusterrole=cluster-admin",
            "--group=kubeadm:cluster-admins",
        ];
        node.run("kubectl", &role).await?;
        for phase in [
            ["upload-config", "all"].as_slice(),
            &["mark-control-plane"],
            &["bootstrap-token"],
        ] {
            node.kubeadm_phase(phase, &["--config", CONFIGURATION]).await?;
        }
        Ok(member)
    }
}

impl Node {
    async fn kubeadm_phase(&self, phase: &[&str], flags: &[&str]) -> Result<String> {
        self.run("kubeadm", &[&["init", "phase"], phase, flags].concat()).await
    }
}

impl Member {
    async fn wait_for_api_server(&self) -> Result<()> {
        let ask = ["--kubeconfig", ADMIN, "get", "--raw", "/readyz"];
        let started = clock::monotonic();
        loop {
            self.alive()?;
            let Err(error) = self.node.run("kubectl", &ask).await else {
                return Ok(());
            };
            if clock::monotonic().duration_since(started) > READY {
                let log = self.node.log("kubelet");
                return Err(error)
                    .with_context(|| format!("no API server after {READY:?}; the log is {}", log.display()));
            }
            clock::sleep(Duration::from_millis(250)).await;
        }
    }

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

/// The name under which kubeadm's manifests ask for a component.
fn reference(tool: Tool) -> String {
    match tool {
        Tool::Etcd => format!("registry.k8s.io/etcd:{ETCD_VERSION}"),
        other => format!("registry.k8s.io/{other}:v{KUBERNETES_VERSION}"),
    }
}

fn configuration(node: &Node) -> String {
    let (name, address) = (node.name(), node.address());
    let init = serde_json::json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": address, "bindPort": 6443},
        "nodeRegistration": {"name": name, "criSocket": "unix:///run/containerd/containerd.sock"},
    });
    let cluster = serde_json::json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": format!("v{KUBERNETES_VERSION}"),
        "controlPlaneEndpoint": format!("{address}:6443"),
        "etcd": {"local": {"imageRepository": "registry.k8s.io", "imageTag": ETCD_VERSION}},
    });
    format!("{init}\n---\n{cluster}\n")
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
