//! A worker that leaves: its Node is deleted by the operator, and nothing of it is left on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use stratum::host::child::Exit;

use crate::certificates::checked;
use crate::rig::{Node, Ours, TALKER};
use crate::started::{is_ready, rig};
use crate::support::wait_for;

const BOOT: Duration = Duration::from_secs(240);
/// Until the cluster has given up a node that tells nothing any more, and the operator has looked.
const GONE: Duration = Duration::from_secs(300);
const UNIT: &str = "/etc/systemd/system/stratum.service";
const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";

/// Its kubelet renews its own: everything else says so, and is no failure. A timer may run the same on every node.
async fn certificates_of_a_worker(worker: &Node) {
    let (exit, report) = checked(worker).await;
    let rows = report["certificates"].as_array().into_iter().flatten();
    let names: Vec<&str> = rows.filter_map(|row| row["name"].as_str()).collect();
    assert!(exit == Exit::Status(0) && names.contains(&"kubelet-client"), "{report}");
    for command in [&["certs", "rotate"][..], &["certs", "rotate", "--if-expiring", "30"]] {
        let told = worker.stratum(command, false).await.unwrap();
        assert!(told.contains("this node signs no certificates of its own"), "{told}");
    }
    let told = worker.stratum(&["certs", "renew"], false).await.unwrap();
    assert!(told.contains("nothing"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_worker_that_was_uninstalled() {
    let mut rig = rig().await;
    let cluster = rig.stratum(1, 0).await.unwrap();
    let machine = rig.prepared("leaver").await.unwrap();
    // Of which an enabled unit makes one.
    machine.run("mkdir", &["-p", WANTS]).await.unwrap();
    let before = Listing::of(&machine).await;
    // As the README has it done; there is no systemd on a node of the rig to do it.
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/stratum.service");
    machine.write(UNIT, &std::fs::read_to_string(unit).unwrap()).unwrap();
    machine.run("ln", &["-s", UNIT, WANTS]).await.unwrap();
    let mut worker = rig.join_node(&cluster, machine, &[]).await.unwrap();
    let ready = || async { is_ready(cluster.first(), "leaver").await };
    wait_for("the worker to be Ready", BOOT, ready).await;
    certificates_of_a_worker(&worker.node).await;
    // Without a Lease nothing would show later that its kubelet is silent.
    let lease = [
        "get",
        "lease",
        "leaver",
        "--namespace",
        "kube-node-lease",
        "--output=name",
    ];
    let has_lease = || async { cluster.first().kubectl(&lease).await.ok() };
    wait_for("its Lease", BOOT, has_lease).await;
    // A pod with the network of the node's plugins, which nobody ends before the node does: kube-proxy has the machine's.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "nodeName": "leaver", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "web", "image": TALKER, "imagePullPolicy": "Never",
                "command": ["kubectl", "proxy", "--server=http://127.0.0.1:1", "--port=8080", "--address=0.0.0.0"],
                "ports": [{"containerPort": 8080, "hostPort": 18080}]}],
        },
    });
    cluster.first().node.write("/run/pod.json", &pod.to_string()).unwrap();
    // Until its ServiceAccount has been made.
    let applied = || async { cluster.first().kubectl(&["apply", "-f", "/run/pod.json"]).await.ok() };
    wait_for("a pod of a user's", BOOT, applied).await;
    let pods = [
        "get",
        "pods",
        "--all-namespaces",
        "--field-selector=spec.nodeName=leaver,status.phase=Running",
        "--output=name",
    ];
    let runs = || async {
        let running = cluster.first().kubectl(&pods).await.ok()?;
        (running.contains("kube-proxy") && running.contains("pod/web")).then_some(())
    };
    wait_for("pods on it", BOOT, runs).await;
    let during = before.left(&Listing::of(&worker.node).await);
    for trace in [
        "files: /etc/systemd/system/stratum.service",
        "files: /var/lib/cni/results/rig-",
        "mounts: /run/netns/cni-",
        "links: cni0",
        "links: veth",
        "addresses: cni0 ",
        "nft: table ip cni_hostport",
        "nft: table ip kube-proxy",
        "cgroups: ",
        "processes: kubelet",
        "processes: containerd-shim",
    ] {
        let is_seen = during.iter().any(|found| found.starts_with(trace));
        assert!(is_seen, "nothing would show that {trace:?} stays: {during:#?}");
    }

    let plan = worker.node.stratum(&["uninstall", "--dry-run"], false).await.unwrap();
    assert!(plan.contains("leaver"), "{plan}");
    worker.node.stratum(&["uninstall", "--yes"], false).await.unwrap();
    let Ours { up, node } = &mut worker;
    up.wait().await.unwrap();
    let left = before.left(&Listing::of(node).await);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    let gone = || async {
        let nodes = cluster.first().kubectl(&["get", "nodes", "--output=name"]).await.ok()?;
        (!nodes.contains("leaver")).then_some(())
    };
    wait_for("the operator to delete the Node", GONE, gone).await;
}

/// What can be seen of a machine. Units are files.
struct Listing(BTreeMap<&'static str, BTreeSet<String>>);

impl Listing {
    async fn of(node: &Node) -> Self {
        let files = ["/etc", "/opt", "/run", "/var/lib", "/var/log"];
        let groups = format!("*{}/*", node.cgroup());
        let questions: [(&str, &str, &[&str]); 9] = [
            ("files", "find", &files),
            ("mounts", "findmnt", &["--raw", "--noheadings", "--output", "TARGET"]),
            // Not from /sys, which is the machine's.
            ("links", "ip", &["-oneline", "link"]),
            ("addresses", "ip", &["-oneline", "-4", "address"]),
            ("routes", "ip", &["route", "show", "table", "all"]),
            ("rules", "ip", &["rule"]),
            ("nft", "nft", &["--stateless", "list", "ruleset"]),
            ("cgroups", "find", &["/sys/fs/cgroup", "-type", "d", "-path", &groups]),
            ("processes", "ps", &["-e", "-o", "comm="]),
        ];
        let mut seen = BTreeMap::new();
        for (what, program, arguments) in questions {
            let told = node.run(program, arguments).await.unwrap();
            let mut found = BTreeSet::new();
            // The kernel adds those of link-local addresses when it is sure of them.
            for line in told.lines().filter(|line| what != "routes" || !line.contains("fe80::")) {
                let line = match what {
                    // `2: eth0@if3: <FLAGS> ...`, `2: eth0    inet 10.0.0.1/24 ...`: without numbers and states.
                    "links" => word(line, 1).split(['@', ':']).next().unwrap_or_default().to_owned(),
                    "addresses" => format!("{} {}", word(line, 1), word(line, 3)),
                    _ => line.trim_end_matches([' ', '{']).to_owned(),
                };
                // A second process of a name is one more.
                let mut name = line.clone();
                while !found.insert(name.clone()) && what == "processes" {
                    name.push_str(", one more");
                }
            }
            seen.insert(what, found);
        }
        Self(seen)
    }

    /// Everything that came and stayed.
    fn left(&self, after: &Self) -> Vec<String> {
        let all = after.0.iter();
        all.flat_map(|(what, after)| {
            let left = after.difference(&self.0[what]);
            left.map(move |item| format!("{what}: {item}"))
        })
        .collect()
    }
}

fn word(line: &str, number: usize) -> &str {
    line.split_whitespace().nth(number).unwrap_or_default()
}
