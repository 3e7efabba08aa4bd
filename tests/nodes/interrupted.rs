//! A disk that fills up, and commands that are killed.

use std::time::Duration;

use serde_json::Value;
use stratum::host::clock;

use crate::commands::{FAILED, STATE, files, refused_with, started};
use crate::rig::Node;
use crate::started::rig;
use crate::support::wait_for;

/// Until a command that was started has come to where it writes: it verifies the payload first.
const SOON: Duration = Duration::from_secs(60);

/// What was there stays whole, and once there is room the same command goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_and_kills_leave_what_was_there_whole() {
    const FILLER: &str = "/var/lib/stratum/filler";
    const ETCD: &str = "/var/lib/stratum/static-pods/etcd.yaml";
    let mut rig = rig().await;
    rig.payload().await.unwrap();
    let machine = rig.prepared("full").await.unwrap();
    let address = machine.address().to_string();
    let server = ["server", "--node-ip", &address, "--ignore-preflight", "disk"];
    let full = "No space left on device";
    machine
        .run(
            "mount",
            &["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", "/var/lib/stratum"],
        )
        .await
        .unwrap();
    let told = refused_with(&machine, &server, true, FAILED, full).await;
    assert!(told.contains("cannot write /var/lib/stratum/payload/"), "{told}");
    assert!(!machine.path(STATE).exists());
    let copies = ["/var/lib/stratum", "-name", "*.copying"];
    assert_eq!(
        machine.run("find", &copies).await.unwrap(),
        "",
        "half a copy fills the disk"
    );

    // From now on the payload is there, and takes no room.
    let payload = machine.rig_folder("payload").display().to_string();
    let kept = "/var/lib/stratum/payload";
    machine.run("rm", &["-r", kept]).await.unwrap();
    machine.run("mkdir", &[kept]).await.unwrap();
    machine.run("mount", &["--bind", &payload, kept]).await.unwrap();
    let filler = format!("of={FILLER}");
    let fill = || async { machine.run("dd", &["if=/dev/zero", "bs=4096", &filler]).await };
    let _ = fill().await.unwrap_err();
    let empty = files(&machine).await;
    refused_with(&machine, &server, false, FAILED, full).await;
    assert_eq!(files(&machine).await, empty, "nothing half-written stays");
    std::fs::remove_file(machine.path(FILLER)).unwrap();

    // Each as soon as that file is there; the payload was verified before the first.
    for written in [
        "node.yaml",
        "pki/ca.key",
        "kubeconfig/admin.conf",
        "static-pods/etcd.yaml",
    ] {
        let killed = started(&machine, &server, false, "server-cut-off");
        let path = machine.path("/var/lib/stratum").join(written);
        let is_there = || async { (path.exists() || killed.exit().is_some()).then_some(()) };
        wait_for(written, SOON, is_there).await;
        drop(killed);
    }
    machine.stratum(&server, false).await.unwrap();

    let before = std::fs::read_to_string(machine.path(ETCD)).unwrap();
    let state = std::fs::read_to_string(machine.path(STATE)).unwrap();
    let config = std::fs::read_to_string(machine.path("/etc/stratum/config.yaml")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    let beat = config["components"]["etcd"][0]["value"].take();
    config["components"]["etcd"][0]["value"] = "321".into();
    machine.write("/etc/stratum/config.yaml", &config.to_string()).unwrap();
    let _ = fill().await.unwrap_err();
    for command in [&["up"][..], &server] {
        let told = refused_with(&machine, command, false, FAILED, full).await;
        assert!(told.contains("cannot write /var/lib/stratum/"), "{told}");
        assert_eq!(std::fs::read_to_string(machine.path(ETCD)).unwrap(), before);
        assert_eq!(std::fs::read_to_string(machine.path(STATE)).unwrap(), state);
    }
    std::fs::remove_file(machine.path(FILLER)).unwrap();
    machine.stratum(&server, false).await.unwrap();
    let after = std::fs::read_to_string(machine.path(ETCD)).unwrap();
    let [old, new] = [beat.as_str().unwrap(), "321"].map(|beat| format!("--heartbeat-interval={beat}"));
    assert_eq!(after, before.replace(&old, &new));
}

/// SIGKILL at several moments: the same command goes on.
pub(crate) async fn uninstalled_in_pieces(node: &Node) {
    for millis in [100, 400, 1500, 4000, 8000] {
        let uninstall = started(node, &["uninstall", "--yes"], false, "uninstall-cut-off");
        clock::sleep(Duration::from_millis(millis)).await;
        drop(uninstall);
    }
    node.stratum(&["uninstall", "--yes"], false).await.unwrap();
    let again = node.stratum(&["uninstall", "--yes"], false).await.unwrap();
    // But for the folder of its own lock.
    let removed: Vec<&str> = again
        .lines()
        .filter(|line| line.starts_with("removed") && !line.ends_with("/run/stratum"))
        .collect();
    assert!(removed.is_empty(), "{again}");
    for gone in [
        "/var/lib/stratum/node.yaml",
        "/etc/stratum",
        "/run/stratum",
        "/var/lib/cni",
    ] {
        assert!(!node.path(gone).exists(), "{gone}");
    }
}
