//! What `certs check --cluster` makes on a real API server, and what it reads there. No kubelet and no Job controller runs: a
//! test plays both, and tells of a pod what they would.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use stratum::controllers::certificates::cluster::{ClusterCheck, Question};
use stratum::controllers::node_jobs::{Error, NodeJobs};
use stratum::host::clock;
use stratum::reconcilers::certificates::status::Verdict;
use stratum::reconcilers::node_jobs::{Ended, Step};

use crate::support::{Cluster, Options, wait_for};

const SOON: Duration = Duration::from_secs(20);

fn step(node: &str, run: &str) -> Step {
    Step {
        purpose: "test",
        run: run.to_owned(),
        node: node.to_owned(),
        image: "registry.k8s.io/pause:3.10".to_owned(),
        program: "/var/lib/stratum/bin/stratum".to_owned(),
        command: vec!["/bin/true".to_owned()],
        deadline: Duration::from_secs(60),
    }
}

/// A namespace in which pods can be made.
async fn namespace(cluster: &Cluster) -> String {
    let namespace = cluster.namespace("node-jobs").await;
    cluster
        .kubectl_in(&namespace, &["create", "serviceaccount", "default"])
        .await;
    namespace
}

/// Plays the Job controller and the kubelet: makes the Job's pod, and says of it what `status` says.
async fn play(cluster: &Cluster, namespace: &str, job: &str, status: Value) {
    let there = || async { get(cluster, namespace, job).await };
    let made = wait_for("the Job", SOON, there).await;
    let mut pod = made["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(job);
    pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = json!(job);
    pod["metadata"]["namespace"] = json!(namespace);
    cluster.apply(&pod.to_string()).await;
    let patch = json!({"status": status}).to_string();
    let words = [
        "patch",
        "pod",
        job,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ];
    cluster.kubectl_in(namespace, &words).await;
}

async fn get(cluster: &Cluster, namespace: &str, job: &str) -> Option<Value> {
    let words = ["get", "job", job, "--ignore-not-found", "--output=json"];
    let text = cluster.kubectl_in(namespace, &words).await;
    serde_json::from_str(&text).ok()
}

async fn names(cluster: &Cluster, namespace: &str) -> String {
    cluster.kubectl_in(namespace, &["get", "jobs", "--output=name"]).await
}

fn terminated(code: i32, message: &str) -> Value {
    let ended = json!({"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "message": message});
    json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": [
        {"name": "step", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": ended}},
    ]})
}

#[tokio::test]
async fn a_step_is_a_pinned_privileged_job_and_its_end_is_what_its_pod_says() {
    let cluster = Cluster::shared().await;
    let namespace = namespace(cluster).await;
    let jobs = NodeJobs::new(cluster.client().await, &namespace);
    let step = step("some-node.example", "one");
    let name = step.name();
    let watch = async {
        let made = wait_for("the Job", SOON, || get(cluster, &namespace, &name)).await;
        play(cluster, &namespace, &name, terminated(21, "what it said")).await;
        made
    };
    let (ended, made) = tokio::join!(jobs.run(&step), watch);
    let message = "what it said".to_owned();
    assert_eq!(ended.unwrap(), Ended { code: 21, message });
    assert_eq!(names(cluster, &namespace).await, "", "nothing is left");

    // Nothing that was asked for was dropped or changed by the API server.
    fn is_within(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => part
                .iter()
                .all(|(key, part)| whole.get(key).is_some_and(|whole| is_within(part, whole))),
            (Value::Array(part), Value::Array(whole)) => {
                part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_within(part, whole))
            }
            (part, whole) => part == whole,
        }
    }
    assert!(is_within(&step.job(), &made), "{:#}\n{made:#}", step.job());
    let made: Job = serde_json::from_value(made).unwrap();
    assert!(step.is_done_by(&made));
}

#[tokio::test]
async fn a_job_of_an_earlier_try_is_taken_over_and_a_foreign_one_is_left_alone() {
    let cluster = Cluster::shared().await;
    let namespace = namespace(cluster).await;
    let jobs = NodeJobs::new(cluster.client().await, &namespace);
    let step = step("worker", "resumed");
    let name = step.name();
    // Whoever asked first is gone.
    let cut_off = tokio::time::timeout(Duration::from_secs(2), jobs.run(&step)).await;
    assert!(cut_off.is_err());
    let first = get(cluster, &namespace, &name).await.unwrap();
    play(cluster, &namespace, &name, terminated(0, "")).await;
    let other = Step {
        command: vec!["/bin/false".to_owned()],
        ..step.clone()
    };
    let refused = jobs.run(&other).await.unwrap_err();
    assert!(matches!(refused, Error::Foreign { .. }), "{refused:?}");
    let still = get(cluster, &namespace, &name).await.unwrap();
    assert_eq!(still["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(jobs.run(&step).await.unwrap().code, 0);
    assert_eq!(names(cluster, &namespace).await, "");
}

#[tokio::test]
async fn what_does_not_end_is_given_up_with_what_it_waited_for() {
    let cluster = Cluster::shared().await;
    let namespace = namespace(cluster).await;
    let jobs = NodeJobs::new(cluster.client().await, &namespace);
    let step = Step {
        deadline: Duration::from_secs(3),
        ..step("worker", "late")
    };
    let overdue = jobs.run(&step).await.unwrap_err().to_string();
    assert!(overdue.contains("within 3 s: no pod was made"), "{overdue}");
    assert_eq!(names(cluster, &namespace).await, "", "removed all the same");

    // What the kubelet says in an Event counts.
    let step = Step {
        deadline: SOON,
        ..step.clone()
    };
    let name = step.name();
    let waits = json!({"phase": "Pending", "containerStatuses": [{
        "name": "step", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}},
    }]});
    let tell = async {
        // The pod of the first try: nobody collects garbage here.
        cluster
            .kubectl_in(&namespace, &["delete", "pods", "--all", "--force"])
            .await;
        play(cluster, &namespace, &name, waits).await;
        let uid = ["get", "pod", &name, "--output=jsonpath={.metadata.uid}"];
        let uid = cluster.kubectl_in(&namespace, &uid).await;
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "told", "namespace": namespace},
            "involvedObject": {"kind": "Pod", "name": name, "namespace": namespace, "uid": uid},
            "reason": "FailedMount", "type": "Warning",
            "message": "MountVolume.SetUp failed for volume \"program\" : hostPath type check failed: /var/lib/stratum/bin/stratum is not a file",
        });
        cluster.apply(&event.to_string()).await;
    };
    let (ended, ()) = tokio::join!(jobs.run(&step), tell);
    let reason = ended.unwrap_err().to_string();
    assert!(
        reason.contains("/var/lib/stratum/bin/stratum is not on this node"),
        "{reason}"
    );
}

#[tokio::test]
async fn every_node_is_a_row_and_a_run_that_was_cut_off_is_swept() {
    // Of its own: all of its Nodes are asked.
    let cluster = Cluster::dedicated(Options::default()).await;
    let namespace = namespace(&cluster).await;
    cluster.register(&["alpha", "beta", "gamma"]).await;
    for (node, status) in [("alpha", "True"), ("beta", "True"), ("gamma", "Unknown")] {
        let condition = json!({"type": "Ready", "status": status, "reason": "r", "message": "told so"});
        let patch = json!({"status": {"conditions": [condition], "images": [{"names": ["mirror/pause:3.9"]}]}});
        let patch = patch.to_string();
        let words = [
            "patch",
            "node",
            node,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &patch,
        ];
        cluster.kubectl(&words).await;
    }
    let question = |run: &str, seconds| Question {
        run: run.to_owned(),
        limit: Duration::from_secs(seconds),
        image: None,
        warn_days: Some(30),
    };
    let client = cluster.client().await;
    let check = ClusterCheck::new(client.clone(), &namespace, question("first", 15));
    let playing = async {
        let job = || async {
            let all = cluster.kubectl_in(&namespace, &["get", "jobs", "--output=json"]).await;
            let all: Value = serde_json::from_str(&all).unwrap();
            let items = all["items"].as_array().unwrap().clone();
            (items.len() == 2).then_some(items)
        };
        let made = wait_for("two Jobs", SOON, job).await;
        for job in &made {
            let pod = &job["spec"]["template"]["spec"];
            let command = pod["containers"][0]["command"].to_string();
            assert!(
                command.contains(r#""certs","check","--output","summary","--warn-days","30""#),
                "{command}"
            );
            assert_eq!(pod["containers"][0]["image"], "mirror/pause:3.9");
            let name = job["metadata"]["name"].as_str().unwrap();
            let said = match pod["nodeName"].as_str().unwrap() {
                "alpha" => terminated(
                    20,
                    r#"{"verdict":"expiring","certificates":[{"name":"apiserver","notAfter":null,"daysLeft":4,"state":"expiring"}]}"#,
                ),
                _ => terminated(1, "error: it is on fire\n"),
            };
            play(&cluster, &namespace, name, said).await;
        }
    };
    let (report, ()) = tokio::join!(check.ask(clock::now()), playing);
    let report = report.unwrap();
    assert_eq!(report.verdict, Verdict::Broken);
    let rows: Vec<(String, String, Option<String>)> = report
        .nodes
        .iter()
        .map(|node| (node.node.clone(), node.verdict.to_string(), node.reason.clone()))
        .collect();
    assert_eq!(rows[0], ("alpha".to_owned(), "expiring".to_owned(), None));
    assert_eq!(report.nodes[0].certificates[0].name, "apiserver");
    let reason = Some("its check ended with 1: error: it is on fire".to_owned());
    assert_eq!(rows[1], ("beta".to_owned(), "unreachable".to_owned(), reason));
    assert_eq!((rows[2].0.as_str(), rows[2].1.as_str()), ("gamma", "unreachable"));
    assert!(rows[2].2.as_ref().unwrap().contains("not Ready"), "{rows:?}");
    assert_eq!(names(&cluster, &namespace).await, "");

    let cut_off = ClusterCheck::new(client.clone(), &namespace, question("second", 60));
    let bystander = ClusterCheck::new(client, &namespace, question("third", 60));
    for check in [&cut_off, &bystander] {
        let asked = tokio::time::timeout(Duration::from_secs(3), check.ask(clock::now())).await;
        assert!(asked.is_err());
    }
    assert_eq!(cut_off.sweep().await.unwrap(), 2);
    assert_eq!(cut_off.sweep().await.unwrap(), 0);
    let left = names(&cluster, &namespace).await;
    assert!(
        left.lines().count() == 2 && left.lines().all(|name| name.contains("-third-")),
        "{left}"
    );
}
