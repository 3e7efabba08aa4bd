//! A cluster made by `stratum` alone, on real kubelets: it does what a cluster is for.

use std::time::Duration;

use serde_json::{Value, json};

use stratum::host::child::{Exit, Finished, Output};

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
    every_node_is_checked_from_the_controller(controller, worker).await;
}

/// By Jobs, which leave nothing behind; what is wrong on a worker is seen on the controller, and a worker that lacks the program,
/// or does not answer, is a row.
async fn every_node_is_checked_from_the_controller(controller: &Ours, worker: &Ours) {
    const PROGRAM: &str = "/var/lib/stratum/bin/stratum";
    let nodes = [controller.node.name(), worker.node.name()];
    for member in [controller, worker] {
        let kept = || async { member.node.path(PROGRAM).exists().then_some(()) };
        wait_for("the program to be where Jobs find it", SOON, kept).await;
    }
    let (code, report) = checked(controller, &[]).await;
    assert_eq!((code, &report["verdict"]), (0, &json!("fine")), "{report:#}");
    for (node, told) in nodes.iter().zip(report["nodes"].as_array().unwrap()) {
        assert_eq!(
            (told["node"].as_str(), told["verdict"].as_str()),
            (Some(*node), Some("fine"))
        );
        assert_eq!(
            told["certificates"].as_array().unwrap().len(),
            1,
            "the one that ends first: {told:#}"
        );
    }
    no_jobs_are_left(controller).await;

    // Wider than any life of a leaf: both have something to tell, and more than a message holds is cut.
    let (code, report) = checked(controller, &["--warn-days", "100000"]).await;
    assert_eq!((code, &report["verdict"]), (20, &json!("expiring")), "{report:#}");
    let rows = report["nodes"][0]["certificates"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "apiserver"), "{report:#}");

    // The node's own files are looked at, not those of whoever asks: what the worker trusts is no certificate now.
    let authority = worker.node.path("/var/lib/stratum/pki/ca-bundle.crt");
    let good = std::fs::read_to_string(&authority).unwrap();
    worker
        .node
        .write("/var/lib/stratum/pki/ca-bundle.crt", "no certificate\n")
        .unwrap();
    let table = check(controller, &[]).await;
    worker.node.write("/var/lib/stratum/pki/ca-bundle.crt", &good).unwrap();
    let text = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.exit, Exit::Status(22), "{text}");
    let line = text.lines().find(|line| line.starts_with(nodes[1])).unwrap();
    assert!(line.contains("broken") && line.contains("unreadable"), "{text}");
    let line = text.lines().find(|line| line.starts_with(nodes[0])).unwrap();
    assert!(line.contains("fine"), "{text}");

    // As on a node of kubeadm's.
    let (kept, away) = (worker.node.path(PROGRAM), worker.node.path("/var/lib/stratum/bin/away"));
    std::fs::rename(&kept, &away).unwrap();
    let (code, report) = checked(controller, &[]).await;
    std::fs::rename(&away, &kept).unwrap();
    assert_eq!(
        (code, &report["nodes"][1]["verdict"]),
        (22, &json!("unreachable")),
        "{report:#}"
    );
    let reason = report["nodes"][1]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with(&format!("{PROGRAM} is not on this node")),
        "{reason}"
    );
    assert_eq!(report["nodes"][0]["verdict"], "fine");
    no_jobs_are_left(controller).await;

    // Ctrl-C while Jobs are under way.
    let program = controller.node.command(&["certs", "check", "--cluster"], false);
    let mut asking = program
        .start(&Output::Log(controller.node.log("interrupted-check")))
        .unwrap();
    let begun = || async { (!jobs(controller).await?.is_empty()).then_some(()) };
    wait_for("a Job to be there", SOON, begun).await;
    // Its own process, not the one that brought it onto the node.
    let interrupt = ["-INT", "-f", "certs check --cluster"];
    controller.node.run("pkill", &interrupt).await.unwrap();
    let ended = tokio::time::timeout(SOON, asking.wait()).await.unwrap().unwrap();
    assert_eq!(
        ended,
        Exit::Status(1),
        "{}",
        controller.node.last_words("interrupted-check")
    );
    no_jobs_are_left(controller).await;
}

async fn check(controller: &Ours, flags: &[&str]) -> Finished {
    let words = [&["certs", "check", "--cluster"], flags].concat();
    controller.node.command(&words, false).run(Vec::new()).await.unwrap()
}

async fn checked(controller: &Ours, flags: &[&str]) -> (i32, Value) {
    let finished = check(controller, &[flags, &["--output", "json"]].concat()).await;
    let words = String::from_utf8_lossy(&finished.stderr);
    let Exit::Status(code) = finished.exit else {
        panic!("{}: {words}", finished.exit);
    };
    let report = serde_json::from_slice(&finished.stdout);
    (code, report.unwrap_or_else(|error| panic!("{error}: {words}")))
}

/// The names of the Jobs of this program's, and of their pods.
async fn jobs(controller: &Ours) -> Option<Vec<String>> {
    let selector = ["--namespace", "kube-system", "--selector", "stratum.ciq.com/run"];
    let found = read(controller, &[&["get", "jobs,pods"], &selector[..]].concat()).await;
    let names = found["items"].as_array()?.iter();
    Some(names.map(|item| item["metadata"]["name"].to_string()).collect())
}

/// A pod goes a moment after its Job.
async fn no_jobs_are_left(controller: &Ours) {
    let gone = || async { jobs(controller).await?.is_empty().then_some(()) };
    wait_for("no Job and no pod of one to be left", SOON, gone).await;
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
