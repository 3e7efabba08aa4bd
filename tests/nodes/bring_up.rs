//! A cluster made by `stratum` alone, on real kubelets: it does what a cluster is for.

use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::{OurCluster, Ours, TALKER};
use crate::started::rig;
use crate::support::wait_for;

/// Images imported and pods started, on two busy processors.
const BOOT: Duration = Duration::from_secs(240);
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_and_a_worker_make_a_cluster() {
    let mut rig = rig().await;
    let cluster = rig.stratum(1, 1).await.unwrap();
    let (controller, worker) = (cluster.first(), &cluster.workers[0]);
    let nodes = [controller.node.name(), worker.node.name()];

    wait_for("both nodes to be Ready", BOOT, || ready_nodes(&cluster, 2)).await;
    wait_for("CoreDNS to run", BOOT, || deployed(controller, "coredns")).await;
    let pending = read(controller, &["get", "certificatesigningrequests"]).await;
    let pending: Vec<&Value> = pending["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|request| request["status"]["certificate"].is_null())
        .collect();
    assert!(pending.is_empty(), "{pending:?}");

    for name in nodes {
        let manifest = echo(name).to_string();
        let path = format!("/run/{name}.json");
        controller.node.write(&path, &manifest).unwrap();
        controller.kubectl(&["apply", "-f", &path]).await.unwrap();
    }
    for name in nodes {
        wait_for("the pod to run", BOOT, || running(controller, name)).await;
    }
    // By the name of a Service whose only endpoint is on the other node, in both directions.
    for (from, to) in [(nodes[0], nodes[1]), (nodes[1], nodes[0])] {
        let server = format!("--server=http://{to}.default.svc.cluster.local:8080");
        let pod = format!("echo-{from}");
        let ask = [
            "exec",
            &pod,
            "--",
            "kubectl",
            &server,
            "get",
            "--raw",
            "/files/hostname",
        ];
        let fetch = || async {
            let fetched = controller.kubectl(&ask).await.ok()?;
            (fetched == format!("echo-{to}")).then_some(())
        };
        wait_for(&format!("{from} to reach the Service on {to}"), SOON, fetch).await;
        let logs = controller.kubectl(&["logs", &pod]).await.unwrap();
        assert!(logs.contains("Starting to serve"), "{logs}");
    }
    let status = controller.node.stratum(&["status"], false).await.unwrap();
    for part in ["containerd", "kubelet", "operator", "etcd", "kube-apiserver"] {
        let line = status.lines().find(|line| line.starts_with(part));
        assert!(line.is_some_and(|line| line.contains("well")), "{status}");
    }
}

/// A pod pinned to a node, which serves its name, and a Service with that pod for its only endpoint.
fn echo(node: &str) -> Value {
    let (name, labels) = (format!("echo-{node}"), json!({"echo": node}));
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "echo", "image": TALKER, "imagePullPolicy": "Never",
                    // Serves its own host name, which is the pod's; it never asks the server it is told of.
                    "command": ["kubectl", "proxy", "--server=http://127.0.0.1:1", "--address=0.0.0.0", "--port=8080",
                        "--accept-hosts=.*", "--www=/etc", "--www-prefix=/files/"]}],
            },
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": node},
            "spec": {"selector": labels, "ports": [{"port": 8080}]},
        },
    ]})
}

async fn ready_nodes(cluster: &OurCluster, count: usize) -> Option<()> {
    for member in cluster.members() {
        member.is_up().unwrap();
    }
    let nodes = read(cluster.first(), &["get", "nodes"]).await;
    let ready = nodes["items"].as_array()?.iter().filter(|node| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    });
    (ready.count() == count).then_some(())
}

async fn deployed(controller: &Ours, name: &str) -> Option<()> {
    let deployment = read(controller, &["get", "deployment", name, "--namespace", "kube-system"]).await;
    let wanted = deployment["spec"]["replicas"].as_u64()?;
    (deployment["status"]["readyReplicas"].as_u64()? == wanted).then_some(())
}

async fn running(controller: &Ours, node: &str) -> Option<()> {
    let pod = read(controller, &["get", "pod", &format!("echo-{node}")]).await;
    (pod["status"]["phase"] == "Running").then_some(())
}

async fn read(controller: &Ours, arguments: &[&str]) -> Value {
    let answered = controller.kubectl(&[arguments, &["--output", "json"]].concat()).await;
    let text = answered.unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(Value::Null)
}
