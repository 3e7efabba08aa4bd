//! A worker that leaves: its Node is deleted by the operator, and nothing of it is left on the machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::rig::{Node, Ours, Rig};
use crate::support::{stratum, wait_for};

const BOOT: Duration = Duration::from_secs(240);
/// Until the cluster has given up a node that tells nothing any more, and the operator has looked.
const GONE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_worker_that_was_uninstalled() {
    let mut rig = Rig::start(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("rigs"), stratum())
        .await
        .unwrap();
    let cluster = rig.stratum(1, 0).await.unwrap();
    let machine = rig.prepared("leaver").await.unwrap();
    let before = Listing::of(&machine).await;
    let mut worker = rig.join_node(&cluster, machine, &[]).await.unwrap();
    let is_ready = || async {
        let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        let told = cluster
            .first()
            .kubectl(&["get", "node", "leaver", "--output", ready])
            .await;
        told.ok().filter(|told| told == "True")
    };
    wait_for("the worker to be Ready", BOOT, is_ready).await;
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
    let pods = [
        "get",
        "pods",
        "--namespace=kube-system",
        "--field-selector=spec.nodeName=leaver,status.phase=Running",
        "--output=name",
    ];
    let runs = || async {
        let running = cluster.first().kubectl(&pods).await.ok()?;
        running.contains("kube-proxy").then_some(())
    };
    wait_for("a pod on it", BOOT, runs).await;

    let plan = worker.node.stratum(&["uninstall", "--dry-run"], false).await.unwrap();
    assert!(plan.contains("leaver"), "{plan}");
    worker.node.stratum(&["uninstall", "--yes"], false).await.unwrap();
    let Ours { up, node } = &mut worker;
    up.wait().await.unwrap();
    let after = Listing::of(node).await;
    before.compare(&after);
    let gone = || async {
        let nodes = cluster.first().kubectl(&["get", "nodes", "--output=name"]).await.ok()?;
        (!nodes.contains("leaver")).then_some(())
    };
    wait_for("the operator to delete the Node", GONE, gone).await;
}

/// What can be seen of a machine.
struct Listing(Vec<(&'static str, BTreeSet<String>)>);

impl Listing {
    async fn of(node: &Node) -> Self {
        let files = ["/etc", "/opt", "/run", "/var/lib", "/var/log"];
        let questions: [(&str, &str, &[&str]); 5] = [
            ("files", "find", &files),
            ("mounts", "findmnt", &["--raw", "--noheadings", "--output", "TARGET"]),
            ("links", "ls", &["/sys/class/net"]),
            ("routes", "ip", &["route"]),
            ("nft tables", "nft", &["list", "tables"]),
        ];
        let mut seen = Vec::new();
        for (what, program, arguments) in questions {
            let told = node.run(program, arguments).await.unwrap();
            seen.push((what, told.lines().map(str::to_owned).collect()));
        }
        let processes = node.run("ps", &["-e", "-o", "comm="]).await.unwrap();
        seen.push(("processes", processes.lines().map(str::to_owned).collect()));
        Self(seen)
    }

    /// Fails with everything that came and stayed.
    fn compare(&self, after: &Self) {
        let mut left = Vec::new();
        for ((what, before), (_, after)) in self.0.iter().zip(&after.0) {
            left.extend(after.difference(before).map(|item| format!("{what}: {item}")));
        }
        assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    }
}
