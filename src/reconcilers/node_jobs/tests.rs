//! The Job, and everything that its cluster may say of it.

use k8s_openapi::api::core::v1::{Event, Pod};
use serde::de::DeserializeOwned;

use super::*;

fn step(node: &str) -> Step {
    Step {
        purpose: "certs-check",
        run: "0a1b2c3d".to_owned(),
        node: node.to_owned(),
        image: "registry.k8s.io/pause:3.10".to_owned(),
        program: "/var/lib/stratum/bin/stratum".to_owned(),
        command: ["/var/lib/stratum/bin/stratum", "certs", "check"]
            .map(str::to_owned)
            .to_vec(),
        deadline: Duration::from_secs(60),
    }
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_job_reads_like_this() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&step("worker-1").job()).unwrap());
}

#[test]
fn names_are_short_distinct_and_always_the_same() {
    let longest = format!("{}.example.org", "n".repeat(240));
    let nodes = ["a.b", "a-b", &longest, "worker-1", "worker-1.example.org"];
    let names: Vec<String> = nodes.iter().map(|node| step(node).name()).collect();
    for (index, name) in names.iter().enumerate() {
        assert!(name.len() <= 63, "{name}");
        let fits = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
        assert!(name.chars().all(fits) && !name.ends_with('-'), "{name}");
        assert!(!names[..index].contains(name), "{name}");
    }
    let longest = Step {
        purpose: "twelve-chars",
        run: "r".repeat(16),
        ..step(&longest)
    };
    assert!(longest.name().len() <= 63);
    assert_eq!(step("worker-1").name(), names[3]);
    let other_run = Step {
        run: "ffffffff".to_owned(),
        ..step("worker-1")
    };
    assert_ne!(other_run.name(), names[3]);
}

#[test]
fn only_a_job_that_does_the_same_is_taken_over() {
    let own = step("worker-1");
    let job: Job = read(own.job());
    assert!(own.is_done_by(&job));
    assert!(!step("worker-2").is_done_by(&job));
    let mut other = own.clone();
    other.command.push("--warn-days".to_owned());
    assert!(!other.is_done_by(&job));
    assert!(!own.is_done_by(&Job::default()));
}

fn node(status: Value) -> Node {
    read(json!({"metadata": {"name": "n"}, "status": status}))
}

#[test]
fn the_image_is_the_usual_one_or_whatever_sandbox_image_the_node_has() {
    let usual = "registry.k8s.io/pause:3.10";
    let images = |names: &[&str]| node(json!({"images": [{"names": ["x/y@sha256:00", "x/y:1"]}, {"names": names}]}));
    assert_eq!(sandbox_image(&images(&["mirror/pause:3.9", usual]), usual), usual);
    assert_eq!(
        sandbox_image(&images(&["mirror:5000/k8s/pause:3.9"]), usual),
        "mirror:5000/k8s/pause:3.9"
    );
    for other in ["x/pause@sha256:00", "x/pauser:1", "pause:1/x:2"] {
        assert_eq!(sandbox_image(&images(&[other]), usual), usual, "{other}");
    }
    assert_eq!(sandbox_image(&Node::default(), usual), usual);
}

#[test]
fn only_ready_nodes_can_do_anything() {
    let ready = |status: &str, message: &str| {
        node(json!({"conditions": [
            {"type": "MemoryPressure", "status": "True"},
            {"type": "Ready", "status": status, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}))
    };
    assert_eq!(is_able(&ready("True", "")), Ok(()));
    assert_eq!(
        is_able(&ready("Unknown", "Kubelet stopped posting node status.")).unwrap_err(),
        "the node is not Ready since 2026-01-01T00:00:00Z: Kubelet stopped posting node status."
    );
    assert!(is_able(&ready("False", "")).is_err());
    assert!(is_able(&Node::default()).unwrap_err().contains("never"));
}

fn job(status: Value) -> Job {
    let mut job = step("n").job();
    job["status"] = status;
    read(job)
}

fn judged(job: &Job, pods: &[Value], events: &[Value]) -> Progress {
    let pods: Vec<Pod> = pods.iter().map(|status| read(json!({"status": status}))).collect();
    let events: Vec<Event> = events
        .iter()
        .map(|event| {
            let mut event = event.clone();
            event["metadata"] = json!({});
            event["involvedObject"] = json!({});
            read(event)
        })
        .collect();
    judge(Some(job), &pods, &events)
}

fn pod(state: Value) -> Value {
    json!({"phase": "Pending", "containerStatuses": [
        {"name": "step", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}
    ]})
}

fn ended(code: i32, reason: &str, message: &str) -> Value {
    pod(json!({"terminated": {"exitCode": code, "reason": reason, "message": message}}))
}

fn waits(state: Value, events: &[Value]) -> String {
    match judged(&job(json!({})), &[state], events) {
        Progress::Waiting(why) => why,
        other => panic!("{other:?}"),
    }
}

fn fails(job: &Job, pods: &[Value], events: &[Value]) -> String {
    match judged(job, pods, events) {
        Progress::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_that_ended_says_how() {
    let told = |code, message: &str| {
        Progress::Ended(Ended {
            code,
            message: message.to_owned(),
        })
    };
    let new = job(json!({}));
    assert_eq!(judged(&new, &[ended(0, "Completed", "{}")], &[]), told(0, "{}"));
    assert_eq!(judged(&new, &[ended(21, "Error", "{}")], &[]), told(21, "{}"));
    // For the Job controller, any code but 0 is a failure.
    let failed = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]});
    assert_eq!(judged(&job(failed), &[ended(22, "Error", "x")], &[]), told(22, "x"));
    // Beside one that has not begun.
    let idle = json!({"phase": "Pending"});
    assert_eq!(
        judged(&new, &[idle.clone(), ended(0, "Completed", "y")], &[]),
        told(0, "y")
    );
    assert_eq!(judged(&new, &[ended(0, "Completed", "y"), idle], &[]), told(0, "y"));
}

#[test]
fn an_end_that_is_not_the_programs_own_is_no_answer() {
    let new = job(json!({}));
    let why = fails(
        &new,
        &[ended(128, "StartError", "exec: \"/stratum\":\n no such file")],
        &[],
    );
    assert_eq!(why, "the program was not started: exec: \"/stratum\": no such file");
    assert!(fails(&new, &[ended(137, "OOMKilled", "")], &[]).contains("OOMKilled"));
    let late = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}]});
    let why = fails(&job(late), &[ended(0, "Completed", "{}")], &[]);
    assert_eq!(why, "it took too long: Job was active longer than specified deadline");
    let evicted =
        json!({"phase": "Failed", "reason": "OutOfpods", "message": "Node didn't have enough resource: pods"});
    assert_eq!(
        fails(&new, &[evicted], &[]),
        "the node did not run the pod (OutOfpods): Node didn't have enough resource: pods"
    );
    let gone = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}]});
    assert_eq!(
        fails(&job(gone), &[], &[]),
        "the Job failed: Job has reached the specified backoff limit (BackoffLimitExceeded)"
    );
    assert_eq!(
        judge(None, &[], &[]),
        Progress::Failed("the Job was deleted by somebody else".to_owned())
    );
}

#[test]
fn what_no_waiting_mends_is_not_waited_for() {
    let new = job(json!({}));
    let creating = pod(json!({"waiting": {"reason": "ContainerCreating"}}));
    let mount = |message: &str| json!({"reason": "FailedMount", "message": message});
    let lacking = mount(
        "MountVolume.SetUp failed for volume \"program\" : hostPath type check failed: /var/lib/stratum/bin/stratum is not a file",
    );
    let why = fails(&new, std::slice::from_ref(&creating), &[lacking]);
    assert!(
        why.starts_with("/var/lib/stratum/bin/stratum is not on this node: `stratum up` puts it there"),
        "{why}"
    );
    let never =
        pod(json!({"waiting": {"reason": "ErrImageNeverPull", "message": "Container image \"p\" is not present"}}));
    assert_eq!(
        fails(&new, &[never], &[]),
        "its container cannot be made (ErrImageNeverPull): Container image \"p\" is not present"
    );
    assert!(waits(creating.clone(), &[mount("timed out")]).contains("timed out"));
    assert!(waits(creating, &[]).contains("ContainerCreating"));
}

#[test]
fn what_it_waits_for_is_told() {
    let error = pod(json!({"waiting": {"reason": "CreateContainerError", "message": "context deadline\nexceeded"}}));
    assert!(waits(error, &[]).ends_with("(CreateContainerError): context deadline exceeded"));
    assert_eq!(waits(pod(json!({"running": {}})), &[]), "it runs");
    assert!(waits(json!({"phase": "Pending"}), &[]).contains("kubelet"));
    let none = judged(&job(json!({})), &[], &[]);
    assert!(
        matches!(&none, Progress::Waiting(why) if why.contains("kube-controller-manager")),
        "{none:?}"
    );
    let refused = |message: &str| json!({"reason": "FailedCreate", "message": message});
    let refused = judged(
        &job(json!({})),
        &[],
        &[
            refused("first"),
            refused("violates PodSecurity"),
            json!({"reason": "Other", "message": "no"}),
        ],
    );
    assert_eq!(
        refused,
        Progress::Waiting("its pod cannot be made: violates PodSecurity".to_owned())
    );
}
