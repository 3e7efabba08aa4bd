//! The way of a kubelet's serving certificate, with nothing in it that is not real: the kubelet asks, `stratum operator`
//! approves, kube-controller-manager signs, and an API server that verifies kubelets needs it to fetch a pod's log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use stratum::host::assets::{Source, Tool};
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::{Child, Output, Program};
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::pki::authority::Authority;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::leaf::{Request, issue};
use stratum::pki::name::Subject;

use crate::rig::{Credential, Kubelet, Node, PAUSE_IMAGE, Rig, STATIC_PODS};
use crate::started::rig;
use crate::support::operator::Operator;
use crate::support::{Cluster, Options, stratum, wait_for};

/// Until a node that was just switched on runs its first pod, on two busy processors.
const BOOT: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(30);
/// What the approval of a request may take, from the moment at which it can be judged.
const INSTANT: Duration = Duration::from_secs(1);

/// The answers about Nodes have to be read, to see when one had addresses.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
                     - {level: RequestResponse, resources: [{group: '', resources: [nodes, nodes/status]}]}\n\
                     - {level: Metadata}\n";

/// The API server's right to ask kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_pod_is_read_once_the_operator_approved_its_kubelet() {
    let mut rig = rig().await;
    // Kept with the logs of the nodes when the test fails.
    let folder = rig.logs().join("plane");
    std::fs::create_dir(&folder).unwrap();
    let plane = Plane::start(&folder, &rig).await;

    // Without an operator nobody approves, and the API server trusts no kubelet that says of itself who it is.
    let first = plane.boot(&mut rig, "early").await;
    let request = plane.request_of("early").await;
    assert!(request["status"]["conditions"].is_null(), "approved by whom? {request}");
    let refused = plane.logs_of("early").await.unwrap_err();
    assert!(
        refused.contains("tls: "),
        "the call failed for another reason: {refused}"
    );

    let mut operator = Operator::start(&plane.cluster, &folder, "operator");
    plane.log_is_read("early").await;
    assert_eq!(plane.logs_of("early").await.unwrap(), "hello from early\n");

    // With an operator the request of a new node is answered as soon as it can be judged.
    let second = plane.boot(&mut rig, "late").await;
    plane.log_is_read("late").await;
    assert_eq!(plane.logs_of("late").await.unwrap(), "hello from late\n");
    let name = plane.request_of("late").await["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let moments = Moments::read(&plane.cluster.audit_events(), "late", &name);
    let waited = moments.waited();
    assert!(waited <= INSTANT, "approved after {waited:?}: {moments:?}");

    operator.stop().await;
    // Pods leave more behind than an idle node: groups of runc's own, also in trees the kubelet knows nothing of. So it is
    // looked into every tree, and not into those that the rig says it uses.
    let traces = rig.traces();
    drop((first, second, plane, rig));
    let name = traces.cgroups[0].file_name().unwrap();
    let trees = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let places = trees.map(|tree| tree.path()).chain(["/sys/fs/cgroup".into()]);
    let left: Vec<PathBuf> = places
        .map(|tree| tree.join(name))
        .filter(|group| group.exists())
        .collect();
    assert!(left.is_empty() && !traces.folder.exists(), "left behind: {left:?}");
}

/// etcd, kube-apiserver and kube-controller-manager as processes of this machine, which the nodes reach.
struct Plane {
    _controller_manager: Child,
    cluster: Cluster,
    server: String,
    /// What kubelets trust their clients by, and what they trust the API server by.
    authorities: [PathBuf; 2],
}

/// A node and what runs on it.
struct Running {
    kubelet: Child,
    containerd: Child,
    node: Node,
}

impl Plane {
    async fn start(folder: &Path, rig: &Rig) -> Self {
        let clients = kubelet_clients(folder);
        let data = folder.join("plane");
        let authority = data.join("var/lib/stratum/pki/ca.crt");
        let [_, certificate, key] = &clients;
        let cluster = Cluster::dedicated(Options {
            audit_policy: Some(AUDIT.to_owned()),
            api_server_arguments: vec![
                "--bind-address=0.0.0.0".to_owned(),
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                format!("--kubelet-certificate-authority={}", authority.display()),
                format!("--kubelet-client-certificate={}", certificate.display()),
                format!("--kubelet-client-key={}", key.display()),
            ],
            data: Some(data),
            ..Options::default()
        })
        .await;
        let role = "--clusterrole=system:kubelet-api-admin";
        let user = format!("--user={KUBELET_CLIENT}");
        cluster
            .kubectl(&["create", "clusterrolebinding", "kubelets", role, &user])
            .await;
        let port = cluster.plane.server().rsplit(':').next().unwrap().to_owned();
        let [authority, ..] = clients;
        Self {
            _controller_manager: signer(&cluster, folder).await,
            server: format!("https://{}:{port}", rig.host_address()),
            authorities: [authority, cluster.plane.layout().pki().join("ca.crt")],
            cluster,
        }
    }

    /// A new node with a pod that says hello, which runs when this returns.
    async fn boot(&self, rig: &mut Rig, name: &str) -> Running {
        let node = rig.node(name).await.unwrap();
        let pod = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "hello", "namespace": "default"},
            "spec": {"hostNetwork": true, "containers": [{
                "name": "hello",
                "image": PAUSE_IMAGE,
                "imagePullPolicy": "Never",
                "args": [format!("hello from {name}")],
            }]},
        });
        node.write(&format!("{STATIC_PODS}/hello.yaml"), &pod.to_string())
            .unwrap();
        let containerd = node.start_containerd().await.unwrap();
        let kubelet = self.start_kubelet(&node);
        let running = Running {
            kubelet,
            containerd,
            node,
        };
        let phase = || async {
            running.node.alive("kubelet", &running.kubelet).unwrap();
            running.node.alive("containerd", &running.containerd).unwrap();
            let pod = self
                .read(&["get", "pod", &format!("hello-{name}"), "--ignore-not-found"])
                .await;
            (pod["status"]["phase"] == "Running").then_some(())
        };
        let what = format!("the pod of node {name} to run (logs in {})", rig.logs().display());
        wait_for(&what, BOOT, phase).await;
        running
    }

    fn start_kubelet(&self, node: &Node) -> Child {
        let user = format!("system:node:{}", node.name());
        let conf = self.cluster.kubeconfig_of(&user, &["system:nodes"]);
        let [client_authority, authority] = self.authorities.clone();
        let credential = Credential {
            server: self.server.clone(),
            server_name: "localhost".to_owned(),
            authority,
            client: [conf.with_extension("crt"), conf.with_extension("key")],
        };
        let kubelet = Kubelet {
            kubeconfig: "/run/kubelet.conf".to_owned(),
            bootstrap_kubeconfig: None,
            client_authority,
            asks_for_serving_certificate: true,
        };
        node.write(&kubelet.kubeconfig, &credential.kubeconfig()).unwrap();
        node.start_kubelet(&kubelet).unwrap()
    }

    /// The request of a node's kubelet for its serving certificate, once there is one.
    async fn request_of(&self, node: &str) -> Value {
        let user = format!("system:node:{node}");
        let find = || async {
            let list = self.read(&["get", "certificatesigningrequests"]).await;
            let requests = list["items"].as_array()?.iter();
            requests
                .filter(|request| request["spec"]["signerName"] == "kubernetes.io/kubelet-serving")
                .find(|request| request["spec"]["username"] == user.as_str())
                .cloned()
        };
        wait_for("the kubelet to ask for its certificate", SOON, find).await
    }

    /// Waits until the API server gets the log of a node's pod. The kubelet takes its certificate into use some time after
    /// it was signed.
    async fn log_is_read(&self, node: &str) {
        let read = || async { self.logs_of(node).await.ok() };
        wait_for(&format!("the log of the pod on {node}"), SOON, read).await;
    }

    /// What `kubectl logs` prints, or how it fails.
    async fn logs_of(&self, node: &str) -> Result<String, String> {
        let pod = format!("hello-{node}");
        let finished = self.cluster.kubectl_as(Identity::Admin, &["logs", &pod], "").await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if finished.exit.is_success() {
            Ok(text(finished.stdout))
        } else {
            Err(text(finished.stderr))
        }
    }

    async fn read(&self, arguments: &[&str]) -> Value {
        let text = self.cluster.kubectl(&[arguments, &["-o", "json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }
}

/// When what happened to the request of one kubelet, as the API server saw it.
#[derive(Debug)]
struct Moments {
    addresses: Timestamp,
    requested: Timestamp,
    approved: Timestamp,
}

impl Moments {
    fn read(events: &[Value], node: &str, request: &str) -> Self {
        let user = format!("system:node:{node}");
        let is_by_kubelet = |event: &Value| event["user"]["username"] == user.as_str();
        let has_addresses = |event: &Value| {
            let addresses = event["responseObject"]["status"]["addresses"].as_array();
            event["objectRef"]["resource"] == "nodes" && addresses.is_some_and(|addresses| !addresses.is_empty())
        };
        let asks =
            |event: &Value| event["objectRef"]["resource"] == "certificatesigningrequests" && event["verb"] == "create";
        let approves =
            |event: &Value| event["objectRef"]["subresource"] == "approval" && event["objectRef"]["name"] == request;
        let moment = |what: &str, is_it: &dyn Fn(&Value) -> bool| -> Timestamp {
            let event = events.iter().find(|event| is_it(event));
            let event = event.unwrap_or_else(|| panic!("the audit log has no event for: {what}"));
            event["stageTimestamp"].as_str().unwrap().parse().unwrap()
        };
        Self {
            addresses: moment("addresses", &|event| is_by_kubelet(event) && has_addresses(event)),
            requested: moment("request", &|event| is_by_kubelet(event) && asks(event)),
            approved: moment("approval", &approves),
        }
    }

    /// From the moment at which both the request and its Node's addresses were there.
    fn waited(&self) -> Duration {
        let ready = self.addresses.max(self.requested);
        self.approved.duration_since(ready).unsigned_abs()
    }
}

/// kube-controller-manager, reduced to signing kubelets' serving certificates.
async fn signer(cluster: &Cluster, folder: &Path) -> Child {
    let source = Source::choose(|name| std::env::var_os(name), Some(stratum().to_owned())).unwrap();
    let [program] = source.provide([Tool::KubeControllerManager]).await.unwrap();
    let pki = cluster.plane.layout().pki();
    let file = |flag: &str, name: &str| {
        format!(
            "--cluster-signing-kubelet-serving-{flag}-file={}",
            pki.join(name).display()
        )
    };
    let kubeconfig = cluster.kubeconfig(Identity::Admin);
    let program = Program::new(program)
        .arguments([
            "--controllers=certificatesigningrequest-signing-controller".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            file("cert", "ca.crt"),
            file("key", "ca.key"),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ])
        .dies_with_us(stratum());
    program
        .start(&Output::Log(folder.join("kube-controller-manager.log")))
        .unwrap()
}

/// An authority that kubelets trust their clients by, and the API server's certificate under it: CA, certificate, key.
fn kubelet_clients(folder: &Path) -> [PathBuf; 3] {
    let now = clock::now();
    let key = || Key::generate(KeyKind::default()).unwrap();
    let authority = Authority::make("kubelet-clients", key(), Serial::random().unwrap(), now).unwrap();
    let key = key();
    let request = Request::client(Subject::user(KUBELET_CLIENT));
    let certificate = issue(&authority, &request, &key, Serial::random().unwrap(), now).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        atomic_file::write(&path, text.as_bytes(), Access::Secret).unwrap();
        path
    };
    [
        file("kubelet-clients.crt", &authority.certificate().to_pem()),
        file("client.crt", &certificate.to_pem()),
        file("client.key", key.to_pem().expose()),
    ]
}
