//! Three controllers: members come one by one, and the loss of one is no outage.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use stratum::host::clock;

use crate::rig::{Ours, Rig};
use crate::support::{stratum, wait_for};

/// Until a controller that joined is one of the members with a vote.
const JOINED: Duration = Duration::from_secs(240);
/// A deadline, and no promise: on a quiet machine writes go on within seconds, and how many is printed.
const WRITES_GO_ON: Duration = Duration::from_secs(90);
/// Until one that was switched on again is well.
const BACK: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn three_controllers_bear_the_loss_of_one() {
    let mut rig = Rig::start(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("rigs"), stratum())
        .await
        .unwrap();
    let mut cluster = rig.stratum(2, 0).await.unwrap();
    wait_for("two members with a vote", JOINED, || voters(cluster.first(), 2)).await;
    let third = rig.join(&cluster, "controller-3", &["--control-plane"]).await.unwrap();
    cluster.controllers.push(third);
    wait_for("three members with a vote", JOINED, || voters(cluster.first(), 3)).await;

    // Pulls the plug: SIGKILL for everything on it.
    let Ours { up, node } = cluster.controllers.remove(1);
    let off = node.switch_off();
    drop(up);
    let began = clock::monotonic();
    for (number, survivor) in cluster.controllers.iter().enumerate() {
        let name = format!("written-{number}");
        let write = ["create", "configmap", &name, "--request-timeout=5s"];
        let written = || async { survivor.kubectl(&write).await.ok() };
        let what = format!("a write through {} to go on", survivor.node.name());
        wait_for(&what, WRITES_GO_ON, written).await;
    }
    println!(
        "writes through both went on {:.1} s after the loss",
        began.elapsed().as_secs_f64()
    );
    let back = rig.boot_again(&off).await.unwrap().up().await.unwrap();
    cluster.controllers.push(back);
    wait_for("all three to be well", BACK, || healthy(cluster.first(), 3)).await;
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
