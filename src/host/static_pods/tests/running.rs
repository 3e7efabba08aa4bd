//! Stop, restart and the waits, with a kubelet made of a task: it ends the process of a manifest that is gone, and some
//! time later removes the pod's cgroup.

use std::time::Duration;

use rustix::process::Signal;

use super::machine::{Cgroups, Machine, OTHER_STATIC, STATIC, write};
use super::*;
use crate::host::static_pods::{Error, Mark, RESTARTED_AT, manifest};
use crate::host::{clock, node_state};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(150);

fn another_state() -> NodeState {
    let mut state = one_controller();
    let etcd = state.etcd.as_mut().unwrap();
    etcd.initial_cluster.push(member("beta", "10.0.0.2"));
    state
}

impl Machine {
    fn with_state(state: &NodeState) -> (Self, StaticPods) {
        let machine = Self::new();
        let pods = machine.pods();
        pods.write_all(state).unwrap();
        node_state::save(&pods.layout.node_state(), state).unwrap();
        (machine, pods)
    }

    /// Whose manifests are one controller's, and whose state is one of two: each of them is to be another.
    fn with_another_state() -> (Self, StaticPods) {
        let (machine, pods) = Self::with_state(&one_controller());
        node_state::save(&pods.layout.node_state(), &another_state()).unwrap();
        (machine, pods)
    }

    fn sent(&self) -> Vec<(u32, Signal)> {
        self.signals.lock().unwrap().clone()
    }

    /// Ends process 100 once the manifest of etcd is away, and its pod's cgroup later; fails when the manifest is back
    /// before.
    async fn act_as_kubelet(&self, pods: &StaticPods, cgroups: Cgroups) {
        let manifest = pods.path(Component::Etcd);
        while manifest.exists() {
            tokio::time::timeout(Duration::from_millis(2), std::future::pending::<()>())
                .await
                .unwrap_err();
        }
        for step in 0..2 {
            for _ in 0..15 {
                let _ = tokio::time::timeout(Duration::from_millis(2), std::future::pending::<()>()).await;
                assert!(!manifest.exists(), "written before the pod was done, after step {step}");
            }
            if step == 0 {
                self.end(100);
            } else {
                std::fs::remove_dir_all(self.pod_cgroup(cgroups, STATIC)).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_stop_waits_for_the_process_and_for_the_pods_cgroup() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let (machine, pods) = Machine::with_state(&one_controller());
        machine.in_pod(cgroups, 100, "etcd", STATIC, 1);
        let stop = async {
            pods.stop(Component::Etcd, LONG).await.unwrap();
            assert!(!machine.proc().join("100").exists(), "before the process has ended");
            assert!(!machine.pod_cgroup(cgroups, STATIC).exists(), "before the pod is done");
        };
        tokio::join!(stop, machine.act_as_kubelet(&pods, cgroups));
        assert!(!pods.path(Component::Etcd).exists());
        // Again: there is nothing to wait for.
        pods.stop(Component::Etcd, Duration::ZERO).await.unwrap();
        assert!(pods.start(Component::Etcd).unwrap());
    }
}

/// The container has crashed and its sandbox is still there: a start would be held up by it.
#[tokio::test]
async fn a_crashed_components_sandbox_is_waited_for() {
    let (machine, pods) = Machine::with_state(&one_controller());
    machine.in_pod(Cgroups::V2, 50, "/pause", STATIC, 1);
    machine.in_pod(Cgroups::V2, 51, "/pause", OTHER_STATIC, 1);
    let kubelet = pods.layout.kubelet_root().join("pods");
    std::fs::create_dir_all(kubelet.join(STATIC).join("containers/etcd")).unwrap();
    std::fs::create_dir_all(kubelet.join(OTHER_STATIC).join("containers/kube-apiserver")).unwrap();
    let error = pods.stop(Component::Etcd, SHORT).await.unwrap_err();
    assert!(matches!(error, Error::PodRemains { .. }), "{error:?}");
    machine.end(50);
    std::fs::remove_dir_all(machine.pod_cgroup(Cgroups::V2, STATIC)).unwrap();
    pods.stop(Component::Etcd, LONG).await.unwrap();
}

#[tokio::test]
async fn a_stop_that_takes_too_long_says_who_is_left() {
    let (machine, pods) = Machine::with_state(&one_controller());
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
    let error = pods.stop(Component::Etcd, SHORT).await.unwrap_err();
    assert!(
        matches!(&error, Error::StillRunning { pids, .. } if *pids == [100]),
        "{error:?}"
    );
    assert!(!pods.path(Component::Etcd).exists(), "it is still being stopped");
}

/// Its worker may not have heard of it: a start would be held up.
#[tokio::test]
async fn a_pod_that_the_housekeeping_cleared_away_is_waited_for_longer() {
    for cleared in [false, true] {
        let (machine, mut pods) = Machine::with_state(&one_controller());
        pods.pacing.cleared = LONG;
        machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
        let folder = pods.layout.kubelet_root().join("pods").join(STATIC);
        std::fs::create_dir_all(&folder).unwrap();
        let goes = async {
            while pods.path(Component::Etcd).exists() {
                tokio::task::yield_now().await;
            }
            machine.end(100);
            if cleared {
                std::fs::remove_dir(&folder).unwrap();
            }
            std::fs::remove_dir_all(machine.pod_cgroup(Cgroups::V2, STATIC)).unwrap();
        };
        let stop = tokio::time::timeout(SHORT * 4, pods.stop(Component::Etcd, LONG * 2));
        let (stopped, ()) = tokio::join!(stop, goes);
        assert_eq!(stopped.is_err(), cleared, "{stopped:?}");
    }
}

/// Restarts etcd beside a kubelet that takes up the manifest with this number; how many there were when it returned.
async fn restart_taken_up(pods: &StaticPods, number: usize) -> usize {
    let before = pods.read(Component::Etcd).unwrap();
    let (restarted, mut seen) = tokio::join!(pods.restart(Component::Etcd, LONG), take_up(pods, before, number));
    restarted.unwrap();
    seen.extend(pods.read(Component::Etcd).ok().filter(|text| !seen.contains(text)));
    // Without the one before.
    seen.len() - 1
}

async fn take_up(pods: &StaticPods, before: Vec<u8>, number: usize) -> Vec<Vec<u8>> {
    let folder = pods.layout.kubelet_root().join("pods");
    let mut seen = vec![before];
    while seen.len() <= number {
        let _ = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
        seen.extend(pods.read(Component::Etcd).ok().filter(|text| !seen.contains(text)));
    }
    std::fs::create_dir_all(folder.join(OTHER_STATIC)).unwrap();
    seen
}

#[tokio::test]
async fn a_restarted_pod_is_left_alone_once_the_kubelet_takes_it_up() {
    let (_machine, mut pods) = Machine::with_another_state();
    pods.pacing.taken_up = LONG;
    assert_eq!(restart_taken_up(&pods, 1).await, 1);
}

/// It came before the kubelet had closed its books: another is looked at at once, and differs in nothing else.
#[tokio::test]
async fn a_pod_that_is_not_taken_up_is_made_another() {
    let (_machine, mut pods) = Machine::with_another_state();
    // As long as nobody is slower than that to look: the third would be one too many.
    pods.pacing.taken_up = Duration::from_secs(1);
    assert_eq!(restart_taken_up(&pods, 2).await, 2);
    // Nobody takes it up: the last one stays.
    pods.pacing.taken_up = Duration::from_millis(5);
    node_state::save(&pods.layout.node_state(), &one_controller()).unwrap();
    pods.restart(Component::Etcd, LONG).await.unwrap();
    assert!(pods.path(Component::Etcd).exists());
}

/// Whatever cannot be read of the kubelet's by then: without a manifest there would be no component, and nobody to see it.
#[tokio::test]
async fn a_restart_that_cannot_look_any_more_leaves_a_manifest() {
    let (machine, pods) = Machine::with_another_state();
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
    let folder = pods.layout.kubelet_root().join("pods");
    let breaks = async {
        while pods.path(Component::Etcd).exists() {
            tokio::task::yield_now().await;
        }
        std::fs::create_dir_all(pods.layout.kubelet_root()).unwrap();
        let _ = std::fs::remove_dir_all(&folder);
        crate::host::atomic_file::write(&folder, b"no folder", crate::host::atomic_file::Access::Secret).unwrap();
    };
    let (restarted, ()) = tokio::join!(pods.restart(Component::Etcd, LONG), breaks);
    restarted.unwrap_err();
    assert!(pods.path(Component::Etcd).exists());
}

/// Its manifest was written a moment ago and the kubelet is about to start it.
#[tokio::test]
async fn a_pod_that_was_not_seen_yet_is_waited_for() {
    let (machine, pods) = Machine::with_state(&one_controller());
    let ended = std::cell::Cell::new(false);
    let late = async {
        let _ = tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await;
        machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
        for _ in 0..10 {
            let _ = tokio::time::timeout(Duration::from_millis(10), std::future::pending::<()>()).await;
        }
        machine.end(100);
        std::fs::remove_dir_all(machine.pod_cgroup(Cgroups::V2, STATIC)).unwrap();
        ended.set(true);
    };
    let stop = async {
        pods.stop(Component::Etcd, LONG).await.unwrap();
        assert!(ended.get(), "it had not even been started");
    };
    tokio::join!(stop, late);
}

#[tokio::test]
async fn nothing_is_stopped_while_the_process_table_is_unknown() {
    let (machine, pods) = Machine::with_state(&one_controller());
    machine.end(1);
    let error = pods.stop(Component::Etcd, LONG).await.unwrap_err();
    assert!(matches!(error, Error::Processes { .. }), "{error:?}");
    assert!(pods.path(Component::Etcd).exists());
}

#[tokio::test]
async fn a_restart_is_another_pod_of_the_present_state() {
    let (machine, pods) = Machine::with_another_state();
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
    let before = pods.read(Component::Etcd).unwrap();
    let (restarted, ()) = tokio::join!(
        pods.restart(Component::Etcd, LONG),
        machine.act_as_kubelet(&pods, Cgroups::V2)
    );
    restarted.unwrap();
    let after = pods.read(Component::Etcd).unwrap();
    let text = String::from_utf8(after.clone()).unwrap();
    assert!(text.contains("beta=") && text.contains(RESTARTED_AT), "{text}");
    assert_ne!(before, after);
    assert!(!pods.pending(Component::Etcd).exists());
    // The next write keeps what the restart wrote.
    assert!(
        pods.write_all(&another_state())
            .unwrap()
            .changed
            .iter()
            .all(|one| *one != Component::Etcd)
    );
}

#[tokio::test]
async fn a_restart_that_cannot_be_stopped_is_started_all_the_same() {
    let (machine, pods) = Machine::with_another_state();
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
    let error = pods.restart(Component::Etcd, SHORT).await.unwrap_err();
    assert!(matches!(error, Error::StillRunning { .. }), "{error:?}");
    assert!(pods.path(Component::Etcd).exists());
    // And what could not be started is not stopped.
    write(&pods.layout.node_state(), "");
    let before = pods.read(Component::Etcd).unwrap();
    assert!(matches!(
        pods.restart(Component::Etcd, LONG).await,
        Err(Error::NodeState(_))
    ));
    assert_eq!(pods.read(Component::Etcd).unwrap(), before);
}

/// Only the processes are ended, and each is asked once. The kubelet, which knows the pod and needs nobody's answer, starts
/// another one; that one is left alone.
#[tokio::test]
async fn a_pod_that_is_to_stay_is_restarted_by_ending_its_processes() {
    for as_is in [false, true] {
        let (machine, pods) = Machine::with_state(&one_controller());
        let before = pods.read(Component::Etcd).unwrap();
        machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
        let younger = Mark::take().ticks() + 100_000;
        machine.in_pod(Cgroups::V2, 101, "etcd", STATIC, younger);
        machine.in_pod(Cgroups::V2, 102, "kube-apiserver", OTHER_STATIC, 1);
        let restart = async {
            match as_is {
                true => pods.restart_as_is(Component::Etcd, LONG).await,
                false => pods.restart(Component::Etcd, LONG).await,
            }
            .unwrap();
            assert!(!machine.proc().join("100").exists(), "before the process has ended");
        };
        let ends = async {
            while machine.sent().is_empty() {
                assert!(pods.path(Component::Etcd).exists());
                tokio::task::yield_now().await;
            }
            clock::sleep(pods.pacing.interval * 5).await;
            machine.end(100);
        };
        tokio::join!(restart, ends);
        assert_eq!(machine.sent(), [(100, Signal::TERM)], "as is: {as_is}");
        assert_eq!(pods.read(Component::Etcd).unwrap(), before);
        assert!(!pods.pending(Component::Etcd).exists());
    }
}

/// As the kubelet does it: killed after the grace period of the pod, and not before.
#[tokio::test]
async fn a_process_that_does_not_end_is_killed_after_the_grace_period() {
    let (machine, pods) = Machine::with_state(&one_controller());
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
    let error = pods.restart_as_is(Component::Etcd, SHORT).await.unwrap_err();
    assert!(
        matches!(&error, Error::NotEnding { pids, .. } if *pids == [100]),
        "{error:?}"
    );
    assert_eq!(machine.sent(), [(100, Signal::TERM)]);
    let text = String::from_utf8(pods.read(Component::Etcd).unwrap()).unwrap();
    let seconds = |seconds: &str| text.replace("terminationGracePeriodSeconds: 30", seconds);
    for (text, wanted) in [
        (text.clone(), 30),
        (seconds("terminationGracePeriodSeconds: 7"), 7),
        (seconds(""), 30),
    ] {
        assert_eq!(manifest::grace_period(&text).unwrap(), Duration::from_secs(wanted));
    }
    write(
        &pods.path(Component::Etcd),
        &seconds("terminationGracePeriodSeconds: 0"),
    );
    let killed = async {
        while !machine.sent().contains(&(100, Signal::KILL)) {
            tokio::task::yield_now().await;
        }
        machine.end(100);
    };
    let (restarted, ()) = tokio::join!(pods.restart_as_is(Component::Etcd, LONG), killed);
    restarted.unwrap();
}

/// An older binary's manifest keeps its image and its comments, to the byte.
#[tokio::test]
async fn a_restart_as_is_changes_no_manifest() {
    let (_machine, pods) = Machine::with_state(&one_controller());
    let old = String::from_utf8(pods.read(Component::Etcd).unwrap()).unwrap();
    let old = old.replace("etcd:3.7.3-0", "etcd:3.6.0-0  # the older");
    write(&pods.path(Component::Etcd), &old);
    pods.restart_as_is(Component::Etcd, LONG).await.unwrap();
    assert_eq!(pods.read(Component::Etcd).unwrap(), old.as_bytes());
    let error = pods.restart_as_is(Component::KubeVip, LONG).await.unwrap_err();
    assert!(matches!(error, Error::NoManifest { .. }), "{error:?}");
    write(&pods.path(Component::Etcd), "no pod");
    let error = pods.restart_as_is(Component::Etcd, LONG).await.unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
}

/// Killed after the manifest was taken away: the one that was to follow is not lost.
#[tokio::test]
async fn an_interrupted_restart_is_gone_on_with_as_it_was_meant() {
    let (machine, pods) = Machine::with_another_state();
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 1);
    let killed = tokio::time::timeout(Duration::from_millis(50), pods.restart(Component::Etcd, LONG)).await;
    assert!(killed.is_err());
    assert!(!pods.path(Component::Etcd).exists() && pods.pending(Component::Etcd).exists());
    machine.end(100);
    std::fs::remove_dir_all(machine.pod_cgroup(Cgroups::V2, STATIC)).unwrap();
    node_state::save(&pods.layout.node_state(), &one_controller()).unwrap();
    let says_two = || {
        let text = String::from_utf8(pods.read(Component::Etcd).unwrap()).unwrap();
        text.contains("beta=")
    };
    pods.restart_as_is(Component::Etcd, LONG).await.unwrap();
    assert!(says_two());
    assert!(!pods.pending(Component::Etcd).exists());
    // From the state, the interruption is forgotten.
    pods.start(Component::Etcd).unwrap();
    assert!(!says_two());
}

#[test]
fn the_annotation_is_changed_in_any_form_of_a_manifest() {
    let bumped = |text: &str| manifest::bump(text, "now").unwrap();
    let line = format!("{RESTARTED_AT}: \"now\"");
    let cases = [
        (
            "kind: Pod\nmetadata:\n  name: x\n",
            format!("kind: Pod\nmetadata:\n  annotations:\n    {line}\n  name: x\n"),
        ),
        (
            "metadata:\n  annotations:\n    a: b # c\nspec: {}\n",
            format!("metadata:\n  annotations:\n    {line}\n    a: b # c\nspec: {{}}\n"),
        ),
        (
            "metadata:\n  annotations:\n    stratum.ciq.com/restarted-at: '1' # old\n    a: b\n",
            format!("metadata:\n  annotations:\n    {line}\n    a: b\n"),
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(bumped(text), wanted);
    }
    // Forms no line of which can be changed: by meaning.
    for text in [
        "{\"metadata\": {\"name\": \"x\"}, \"spec\": {\"a\": \"yes\"}}",
        "metadata: {name: x, annotations: {stratum.ciq.com/restarted-at: before}}\nspec: {a: \"yes\"}\n",
        "metadata:\n    annotations:\n        stratum.ciq.com/restarted-at: before\n    name: x\nspec: {a: \"yes\"}\n",
    ] {
        let value: serde_json::Value = serde_saphyr::from_str(&bumped(text)).unwrap();
        assert_eq!(value["metadata"]["annotations"][RESTARTED_AT], "now", "{text}");
        assert_eq!(
            (&value["metadata"]["name"], &value["spec"]["a"]),
            (&"x".into(), &"yes".into())
        );
    }
    assert!(manifest::bump("spec: {}\n", "now").unwrap_err().contains("metadata"));
    assert!(manifest::bump("metadata: {annotations: 1}\n", "now").is_err());
}

#[tokio::test]
async fn an_answer_counts_once_the_older_processes_are_gone() {
    let (machine, pods) = Machine::with_state(&one_controller());
    let mark = Mark::at(500);
    pods.wait_replaced(Component::Etcd, mark, Duration::ZERO).await.unwrap();
    machine.in_pod(Cgroups::V2, 100, "etcd", STATIC, 500);
    machine.in_pod(Cgroups::V2, 101, "etcd", OTHER_STATIC, 501);
    let error = pods.wait_replaced(Component::Etcd, mark, SHORT).await.unwrap_err();
    assert!(
        matches!(&error, Error::NotReplaced { pids, .. } if *pids == [100]),
        "{error:?}"
    );
    machine.end(100);
    pods.wait_replaced(Component::Etcd, mark, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn active_is_whoever_answers_on_loopback() {
    let (_machine, mut pods) = Machine::with_state(&with_vip());
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = tokio::net::TcpListener::bind(address).await else {
            // A machine without IPv6.
            continue;
        };
        let port = listener.local_addr().unwrap().port();
        pods.ports.insert(Component::Etcd, port);
        assert!(pods.active(Component::Etcd).await, "{address}");
        pods.wait_active(Component::Etcd, Duration::ZERO).await.unwrap();
        drop(listener);
        assert!(!pods.active(Component::Etcd).await);
        let error = pods.wait_active(Component::Etcd, SHORT).await.unwrap_err();
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }
    assert!(!pods.active(Component::KubeVip).await);
    let error = pods.wait_active(Component::KubeVip, LONG).await.unwrap_err();
    assert!(matches!(error, Error::NoListener { .. }), "{error:?}");
}
