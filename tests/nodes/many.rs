//! Three controllers: members come and go one at a time, under the cluster fence, and the loss of one is no outage.

use std::time::Duration;

use serde_json::Value;
use stratum::host::child::Exit;
use stratum::host::clock;

use crate::certificates::checked;
use crate::rig::{Node, OurCluster, Ours};
use crate::started::rig;
use crate::support::wait_for;
use crate::traffic::{PKI, Writer, tell};

/// Until a controller that joined is one of the members with a vote.
const JOINED: Duration = Duration::from_secs(240);
/// A deadline, and no promise: on a quiet machine writes go on within seconds, and how many is printed.
const WRITES_GO_ON: Duration = Duration::from_secs(90);
/// Until one that was switched on again is well.
const BACK: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn three_controllers_bear_the_loss_of_one() {
    let mut rig = rig().await;
    let mut cluster = rig.stratum(2, 0).await.unwrap();
    wait_for("two members with a vote", JOINED, || voters(cluster.first(), 2)).await;
    assert_eq!(
        fence_holder(cluster.first()).await,
        "",
        "given back by the one that joined"
    );

    // While another operation changes the cluster, nobody joins, and whoever tries is told.
    hold_fence(cluster.first(), "somebody").await;
    let machine = rig.prepared("controller-3").await.unwrap();
    let refused = try_to_join(&cluster, &machine, &[]).await.unwrap_err();
    let refused = format!("{refused:#}");
    assert!(
        refused.contains("the cluster is being changed by somebody"),
        "{refused}"
    );
    assert!(refused.contains("exit status 3"), "{refused}");
    assert!(voters(cluster.first(), 2).await.is_some(), "no member came");
    let file = machine.path("/var/lib/stratum/node.yaml");
    assert!(!file.exists(), "{}", file.display());
    hold_fence(cluster.first(), "").await;
    let told = try_to_join(&cluster, &machine, &["-o", "json", "--quiet"])
        .await
        .unwrap();
    let made: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
    assert_eq!(
        (&made["node"], &made["role"]),
        (&"controller-3".into(), &"controller".into())
    );
    assert_eq!(made["members"].as_array().unwrap().len(), 3, "{told}");
    assert_eq!(made["caCertHashes"].as_array().unwrap().len(), 1, "{told}");
    cluster.controllers.push(machine.up().await.unwrap());
    wait_for("three members with a vote", JOINED, || voters(cluster.first(), 3)).await;

    rotated_under_load(&cluster).await;

    // Pulls the plug: SIGKILL for everything on it.
    let Ours { up, node } = cluster.controllers.remove(1);
    let off = node.switch_off();
    drop(up);
    let began = clock::monotonic();
    for (number, survivor) in cluster.controllers.iter().enumerate() {
        let name = format!("written-{number}");
        // Short tries: one that was begun too early would hide how soon the next had been answered.
        let write = ["create", "configmap", &name, "--request-timeout=2s"];
        let written = || async { survivor.kubectl(&write).await.ok() };
        let what = format!("a write through {} to go on", survivor.node.name());
        wait_for(&what, WRITES_GO_ON, written).await;
    }
    tell(format_args!(
        "writes through both went on {:.1} s after the loss",
        began.elapsed().as_secs_f64()
    ));
    let back = rig.boot_again(&off).await.unwrap().up().await.unwrap();
    cluster.controllers.push(back);
    wait_for("all three to be well", BACK, || healthy(cluster.first(), 3)).await;

    // One leaves, a moment after another came back, for which etcd changes no members yet. Its own API server goes with its
    // member, so the fence is given back through another one.
    let mut leaver = cluster.controllers.remove(1);
    hold_fence(cluster.first(), "somebody").await;
    let refused = leaver.node.stratum(&["uninstall", "--yes"], false).await.unwrap_err();
    let refused = format!("{refused:#}");
    assert!(
        refused.contains("the cluster is being changed by somebody"),
        "{refused}"
    );
    hold_fence(cluster.first(), "").await;
    leaver.node.stratum(&["uninstall", "--yes"], false).await.unwrap();
    leaver.up.wait().await.unwrap();
    wait_for("two members with a vote", JOINED, || voters(cluster.first(), 2)).await;
    assert_eq!(
        fence_holder(cluster.first()).await,
        "",
        "given back by the one that left"
    );
}

/// The certificates of one of three controllers, while somebody writes through each of them.
async fn rotated_under_load(cluster: &OurCluster) {
    let writers = cluster
        .controllers
        .iter()
        .map(|one| Writer::start(&one.node, PKI, "admin"));
    let writers: Vec<Writer> = writers.collect();
    cluster
        .first()
        .node
        .stratum(&["certs", "rotate", "--quiet"], false)
        .await
        .unwrap();
    for (number, writer) in (1..).zip(writers) {
        let written = writer.finish().await;
        tell(format_args!("through controller-{number}: {written}"));
        assert!(
            written.begun > 0 && written.lost == 0,
            "through controller-{number}: {written}"
        );
    }
    let (checked, _) = checked(&cluster.first().node).await;
    assert_eq!(checked, Exit::Status(0));
}

const LEASE: [&str; 4] = ["lease", "stratum-maintenance", "--namespace", "kube-system"];

/// Who holds the cluster fence, as the cluster says.
async fn fence_holder(controller: &Ours) -> String {
    let arguments = [&["get"], &LEASE[..], &["--output=jsonpath={.spec.holderIdentity}"]].concat();
    controller.kubectl(&arguments).await.unwrap()
}

/// Gives the fence to somebody who renewed it just now.
async fn hold_fence(controller: &Ours, holder: &str) {
    let spec = serde_json::json!({"spec": {
        "holderIdentity": holder, "leaseDurationSeconds": 300, "renewTime": format!("{:.6}", clock::now())}});
    let spec = spec.to_string();
    let arguments = [&["patch"], &LEASE[..], &["--type=merge", "--patch", &spec]].concat();
    controller.kubectl(&arguments).await.unwrap();
}

/// Runs what the first controller prints for another one; what that says.
async fn try_to_join(cluster: &OurCluster, machine: &Node, more: &[&str]) -> anyhow::Result<String> {
    let create = ["token", "create", "--control-plane", "-o", "json"];
    let created: Value = serde_json::from_str(&cluster.first().node.stratum(&create, false).await?)?;
    let command = created["command"].as_array().into_iter().flatten();
    let words: Vec<&str> = command.skip(1).filter_map(Value::as_str).collect();
    let address = machine.address().to_string();
    machine
        .stratum(&[&words[..], &["--node-ip", &address], more].concat(), true)
        .await
}

/// Whether etcd has so many members with a vote, and no other.
async fn voters(controller: &Ours, count: usize) -> Option<()> {
    let listed = controller
        .etcdctl(&["member", "list", "--write-out", "json"])
        .await
        .ok()?;
    let listed: Value = serde_json::from_str(&listed).ok()?;
    let members = listed["members"].as_array()?;
    let learners = members.iter().filter(|member| member["isLearner"] == true).count();
    (members.len() == count && learners == 0).then_some(())
}

/// Whether so many members answer, and none does not.
async fn healthy(controller: &Ours, count: usize) -> Option<()> {
    let asked = controller
        .etcdctl(&["endpoint", "health", "--cluster", "--write-out", "json"])
        .await
        .ok()?;
    let asked: Value = serde_json::from_str(&asked).ok()?;
    let members = asked.as_array()?;
    let well = members.iter().filter(|member| member["health"] == true).count();
    (members.len() == count && well == count).then_some(())
}
