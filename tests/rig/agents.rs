//! containerd and the kubelet of a node, with a small configuration of the rig's own: for what is tested below
//! `stratum up`, and for control planes that are not ours.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use stratum::host::child::{Child, Output, log_tail};
use stratum::host::clock;

use super::{Node, PAUSE_IMAGE, succeed};

const SOCKET: &str = "/run/containerd/containerd.sock";
/// Where the kubelet looks for static pods.
pub(crate) const STATIC_PODS: &str = "/etc/kubernetes/manifests";

/// What a kubelet is told.
#[derive(Clone, Debug)]
pub(crate) struct Kubelet {
    /// Where its kubeconfig is, on the node.
    pub(crate) kubeconfig: String,
    /// Where the kubeconfig is with which it gets the other one, if it has to.
    pub(crate) bootstrap_kubeconfig: Option<String>,
    /// What signed the certificates of its own clients.
    pub(crate) client_authority: PathBuf,
    /// Whether it asks for its serving certificate. Otherwise it signs one itself.
    pub(crate) asks_for_serving_certificate: bool,
}

/// A kubeconfig. The paths are the same on a node and outside of it.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    /// `https://HOST:PORT`
    pub(crate) server: String,
    /// The name in the API server's certificate, where it is not the host.
    pub(crate) server_name: String,
    /// What signed it.
    pub(crate) authority: PathBuf,
    /// The client certificate and its key.
    pub(crate) client: [PathBuf; 2],
}

impl Node {
    /// Starts containerd, waits until it answers, and imports the images that the rig has.
    pub(crate) async fn start_containerd(&self) -> Result<Child> {
        let containerd = self.start_empty_containerd().await?;
        self.import_images("images").await?;
        Ok(containerd)
    }

    /// Starts containerd, and waits until it answers.
    pub(crate) async fn start_empty_containerd(&self) -> Result<Child> {
        self.write("/run/containerd.toml", &self.containerd_configuration())?;
        self.write("/etc/cni/net.d/10-rig.conflist", &self.network_configuration())?;
        let log = self.log("containerd");
        let program = self
            .program("containerd")
            .arguments(["--config", "/run/containerd.toml"]);
        let containerd = program.start(&Output::Log(log.clone()))?;
        self.containerd_answers(&containerd).await?;
        Ok(containerd)
    }

    /// Imports the image archives in a folder of the rig, one by one.
    pub(crate) async fn import_images(&self, folder: &str) -> Result<()> {
        let mut archives: Vec<PathBuf> = Vec::new();
        for archive in std::fs::read_dir(self.rig_folder(folder))? {
            archives.push(archive?.path());
        }
        archives.sort();
        for archive in archives {
            let archive = archive.display().to_string();
            let import = ["--namespace", "k8s.io", "images", "import", "--local", &archive];
            self.run("ctr", &[&["--address", SOCKET], &import[..]].concat()).await?;
        }
        Ok(())
    }

    async fn containerd_answers(&self, containerd: &Child) -> Result<()> {
        let mut attempt = 0;
        loop {
            let question = self.program("ctr").arguments(["--address", SOCKET, "version"]);
            let Err(error) = succeed(&question, "").await else {
                return Ok(());
            };
            attempt += 1;
            if attempt > 100 || containerd.exit().is_some() {
                let last = self.last_words("containerd");
                return Err(error)
                    .with_context(|| format!("containerd of node {} does not answer; {last}", self.name()));
            }
            clock::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Starts the kubelet. It registers the node by itself.
    pub(crate) fn start_kubelet(&self, kubelet: &Kubelet) -> Result<Child> {
        std::fs::create_dir_all(self.path(STATIC_PODS))?;
        self.write("/run/kubelet.yaml", &self.kubelet_configuration(kubelet))?;
        let bootstrap = kubelet.bootstrap_kubeconfig.iter();
        let program = self
            .program("kubelet")
            .arguments(["--config=/run/kubelet.yaml", "--v=2"])
            .arguments([format!("--kubeconfig={}", kubelet.kubeconfig)])
            .arguments([format!("--node-ip={}", self.address())])
            .arguments(bootstrap.map(|path| format!("--bootstrap-kubeconfig={path}")));
        Ok(program.start(&Output::Log(self.log("kubelet")))?)
    }

    /// For a message: that a program of the node has ended, and its last words.
    pub(crate) fn alive(&self, name: &str, child: &Child) -> Result<()> {
        let Some(exit) = child.exit() else { return Ok(()) };
        bail!(
            "{name} of node {} ended ({exit}); {}",
            self.name(),
            self.last_words(name)
        )
    }

    /// For a message: where a program of the node writes, and the last lines.
    pub(crate) fn last_words(&self, name: &str) -> String {
        let log = self.log(name);
        let last = log_tail(&log, 5).replace('\n', " | ");
        format!("the log is {}: {last}", log.display())
    }

    fn containerd_configuration(&self) -> String {
        let bin = self.rig_folder("bin");
        format!(
            r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{SOCKET}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = {}
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{}"]
conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
BinaryName = "{}"
"#,
            !self.may_lower_oom_score(),
            bin.display(),
            bin.join("runc").display(),
        )
    }

    pub(super) fn network_configuration(&self) -> String {
        let configuration = serde_json::json!({
            "cniVersion": "1.0.0",
            "name": "rig",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": true,
                    "hairpinMode": true,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": self.pod_range()}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}},
            ],
        });
        format!("{configuration}\n")
    }

    fn kubelet_configuration(&self, kubelet: &Kubelet) -> String {
        let mut configuration = serde_json::json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "staticPodPath": STATIC_PODS,
            "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": kubelet.client_authority},
            },
            "authorization": {"mode": "Webhook"},
            "serverTLSBootstrap": kubelet.asks_for_serving_certificate,
            "rotateCertificates": kubelet.bootstrap_kubeconfig.is_some(),
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
        });
        if let (Value::Object(all), Value::Object(settings)) = (&mut configuration, self.kubelet_settings()) {
            all.extend(settings);
        }
        // JSON is YAML.
        format!("{configuration}\n")
    }

    /// What a kubelet in namespaces has to be told, whoever configures it.
    pub(super) fn kubelet_settings(&self) -> Value {
        serde_json::json!({
            "failCgroupV1": false,
            "cgroupRoot": self.cgroup(),
            "failSwapOn": false,
            // The disk is the whole machine's, and how full it is no business of a test.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
        })
    }
}

impl Credential {
    /// The text of the file.
    pub(crate) fn kubeconfig(&self) -> String {
        let [certificate, key] = &self.client;
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": {
                "server": self.server,
                "tls-server-name": self.server_name,
                "certificate-authority": self.authority,
            }}],
            "users": [{"name": "user", "user": {"client-certificate": certificate, "client-key": key}}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "cluster",
        });
        format!("{kubeconfig}\n")
    }
}
