//! The rig itself: what it leaves behind (nothing), however it ends.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stratum::host::child::{Child, Output, Program};

use crate::rig::{Node, Rig, Traces};
use crate::started::rig;
use crate::support::{stratum, wait_for};

/// A killed process's children die at once; a network namespace takes a moment.
const SOON: Duration = Duration::from_secs(20);
/// Where the other process of [`nothing_lives_on_after_a_kill`] writes what it has made.
const REPORT: &str = "STRATUM_TEST_RIG_REPORT";

/// What can be seen of a rig with one node from outside.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    processes: Vec<u32>,
    traces: Traces,
}

/// A rig with a node, on which a program runs that only a kill ends.
struct Small {
    sleeper: Child,
    node: Node,
    rig: Rig,
}

impl Small {
    async fn start() -> Self {
        let mut rig = rig().await;
        let node = rig.node("small").await.unwrap();
        let sleeper = node.program("sleep").arguments(["1000000"]);
        let sleeper = sleeper.start(&Output::Log(node.log("sleep"))).unwrap();
        Self { sleeper, node, rig }
    }

    /// Every process that is on the node or holds a namespace, and everything that has a name.
    async fn seen(&self) -> Seen {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid"));
        let inside = namespace(&self.node.pid().to_string()).unwrap();
        let on_node = || async {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let ids = all.filter_map(|entry| entry.file_name().into_string().ok());
            let found: Vec<u32> = ids
                .filter(|id| namespace(id).is_ok_and(|found| found == inside))
                .filter_map(|id| id.parse().ok())
                .collect();
            (found.len() >= 2).then_some(found)
        };
        let mut processes = wait_for("the program to run on the node", SOON, on_node).await;
        let traces = self.rig.traces();
        processes.extend([self.sleeper.id(), traces.switch]);
        Seen { processes, traces }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_rig_that_ended() {
    let small = Small::start().await;
    let seen = small.seen().await;
    assert!(seen.is_there(), "{seen:?}");
    drop(small);
    seen.waits_for_the_processes().await;
    assert!(!seen.traces.folder.exists() && !seen.has_cgroup(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_keeps_its_files_and_its_address_when_it_boots_again() {
    let Small { sleeper, node, mut rig } = Small::start().await;
    let other = rig.node("other").await.unwrap();
    node.write("/etc/stratum/kept", "kept\n").unwrap();
    node.write("/run/lost", "lost\n").unwrap();
    assert!(
        !Path::new("/etc/stratum/kept").exists(),
        "a node writes to this machine"
    );
    let address = node.address();
    drop(sleeper);
    let node = rig.boot_again(&node.switch_off()).await.unwrap();
    assert_eq!(node.run("cat", &["/etc/stratum/kept"]).await.unwrap(), "kept");
    assert!(!node.path("/run/lost").exists());
    assert_eq!(node.run("hostname", &[]).await.unwrap(), "small");
    assert_eq!(node.address(), address);
    // Its link works in both directions, and the way to its pods is known.
    other.run("ip", &["route", "get", "10.244.1.9"]).await.unwrap();
    assert!(answers(address).await, "no way from this machine to {address}");
}

/// Whether a machine is there: it refuses a connection to a port nobody listens on.
async fn answers(address: std::net::Ipv4Addr) -> bool {
    let connection = tokio::time::timeout(SOON, tokio::net::TcpStream::connect((address, 9))).await;
    matches!(connection, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_lives_on_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let other = Program::new(std::env::current_exe().unwrap())
        .arguments(["--exact", "rig_itself::held_until_killed", "--ignored"])
        .variable(REPORT, &report)
        .dies_with_us(stratum())
        .start(&Output::Log(folder.path().join("log")))
        .unwrap();
    let read = || async { serde_json::from_slice::<Seen>(&fs::read(&report).ok()?).ok() };
    let seen = wait_for("the other process to start its rig", Duration::from_secs(60), read).await;
    assert!(seen.is_there(), "{seen:?}");
    // With SIGKILL, which nothing can prepare for.
    drop(other);
    seen.waits_for_the_processes().await;
    // Folders and cgroups need somebody alive: whoever starts a rig next.
    let _next = rig().await;
    assert!(!seen.has_cgroup(), "{seen:?}");
    assert!(!seen.traces.folder.join("nodes").exists(), "{seen:?}");
}

/// Not a test: the process that [`nothing_lives_on_after_a_kill`] kills.
#[tokio::test]
#[ignore = "runs until it is killed, for another test"]
async fn held_until_killed() {
    let Some(report) = std::env::var_os(REPORT) else { return };
    let small = Small::start().await;
    let text = serde_json::to_vec(&small.seen().await).unwrap();
    stratum::host::atomic_file::write(Path::new(&report), &text, stratum::host::atomic_file::Access::Public).unwrap();
    std::future::pending().await
}

impl Seen {
    fn is_there(&self) -> bool {
        self.processes.iter().all(|id| is_alive(*id))
            && has_link(&self.traces.link)
            && self.has_cgroup()
            && self.traces.folder.join("nodes/small").exists()
    }

    fn has_cgroup(&self) -> bool {
        self.traces.cgroups.iter().any(|folder| folder.exists())
    }

    async fn waits_for_the_processes(&self) {
        let gone = || async {
            let processes = self.processes.iter().any(|id| is_alive(*id));
            (!processes && !has_link(&self.traces.link)).then_some(())
        };
        wait_for("every process and link of the rig to be gone", SOON, gone).await;
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&*self.traces.folder.to_string_lossy()), "{mounts}");
    }
}

/// A process that ended and was not collected yet is not alive.
fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

fn has_link(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}
