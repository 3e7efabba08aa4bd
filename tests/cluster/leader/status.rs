//! `stratum operator status` as a process.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stratum::host::child::{Exit, Program};
use stratum::host::layout::Identity;

use super::SOON;
use crate::support::operator::Operator;
use crate::support::{Cluster, Options, stratum, wait_for};

/// The keys that the README documents.
const KEYS: [&str; 8] = [
    "instances",
    "inventoryClosed",
    "inventoryNodesMissing",
    "inventoryProblem",
    "leader",
    "renewed",
    "term",
    "unreadable",
];

struct Answer {
    exit: Exit,
    stdout: String,
    stderr: String,
}

async fn status(kubeconfig: &Path, more: &[&str]) -> Answer {
    ask(kubeconfig, &[&["operator", "status"], more].concat()).await
}

async fn ask(kubeconfig: &Path, command: &[&str]) -> Answer {
    let program = Program::new(stratum())
        .arguments(command.iter().copied())
        .arguments(["--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
    let finished = tokio::time::timeout(Duration::from_secs(40), program.run(Vec::new()))
        .await
        .unwrap()
        .unwrap();
    Answer {
        exit: finished.exit,
        stdout: String::from_utf8(finished.stdout).unwrap(),
        stderr: String::from_utf8(finished.stderr).unwrap(),
    }
}

async fn page(kubeconfig: &Path) -> String {
    let answer = status(kubeconfig, &[]).await;
    assert_eq!((answer.exit, answer.stderr.as_str()), (Exit::Status(0), ""));
    answer.stdout
}

async fn document(kubeconfig: &Path) -> Value {
    let answer = status(kubeconfig, &["-o", "json"]).await;
    assert_eq!((answer.exit, answer.stderr.as_str()), (Exit::Status(0), ""));
    let document: Value = serde_json::from_str(&answer.stdout).unwrap();
    let mut keys: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, KEYS);
    document
}

#[tokio::test]
async fn the_status_tells_what_is_known_and_what_is_not() {
    let cluster = Cluster::dedicated(Options::default()).await;
    let kubeconfig = cluster.kubeconfig(Identity::Admin);
    let empty = page(&kubeconfig).await;
    assert!(empty.starts_with("leader     none;"), "{empty}");
    assert!(
        empty.contains("\ninventory  no control-plane Node is registered yet\n"),
        "{empty}"
    );
    let found = document(&kubeconfig).await;
    assert_eq!((&found["leader"], &found["term"]), (&Value::Null, &Value::Null));

    cluster.register(&["one", "gone"]).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("manifests/s")).unwrap();
    let declared = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n";
    let file = folder.path().join("manifests/s/a.yaml");
    stratum::host::atomic_file::write(&file, declared.as_bytes(), stratum::host::atomic_file::Access::Public).unwrap();
    let mut operator = Operator::start(&cluster, folder.path(), "one");
    operator.leads().await;
    let told = || async {
        let found = document(&kubeconfig).await;
        let one = &found["instances"]["one"];
        (one["manifests"]["stacks"]["s"]["created"] == 1 && one["inventorySync"].is_object()).then_some(found)
    };
    let found = wait_for("the operator to tell of both its concerns", SOON, told).await;
    assert!(found["leader"].as_str().unwrap().starts_with("one_"), "{found}");
    assert_eq!(found["term"], found["instances"]["one"]["term"], "{found}");
    assert_eq!(found["inventoryClosed"], false);
    assert_eq!(found["inventoryNodesMissing"], json!(["gone"]));
    assert_eq!(found["instances"]["one"]["inventorySync"]["note"], "waiting");
    let known = page(&kubeconfig).await;
    for line in [
        "inventory  waits for gone\n",
        "\none  stratum ",
        "\nsync       waits for gone, since ",
        "\nmanifests  ",
        "\nnot pruned: ",
    ] {
        assert!(known.contains(line), "{line:?} in {known}");
    }

    // The operator says its part; what a hand broke beside it is named, and hides nothing else.
    let patch = async |name: &str, patch: &str| {
        let arguments = ["patch", "configmap", name, "--type=merge", "-p", patch];
        cluster.kubectl_in("kube-system", &arguments).await
    };
    let unreadable = "\ntwo  its key of ConfigMap kube-system/stratum-operator-status cannot be read: ";
    patch("stratum-operator-status", r#"{"data":{"two":"junk"}}"#).await;
    let listed = ask(&kubeconfig, &["manifests", "list"]).await;
    assert!(
        listed.stdout.contains(unreadable) && listed.stdout.contains("\nlast pass on one at "),
        "{}",
        listed.stdout
    );
    patch("stratum-addon-inventory", r#"{"data":{"inventory":"{\"nodes\":7}"}}"#).await;
    let found = document(&kubeconfig).await;
    assert!(
        found["unreadable"]["two"].as_str().unwrap().contains("line 1"),
        "{found}"
    );
    assert!(
        found["inventoryProblem"]
            .as_str()
            .unwrap()
            .contains("nodes: invalid type"),
        "{found}"
    );
    assert!(
        found["instances"]["one"].is_object() && found["leader"].is_string(),
        "{found}"
    );
    let broken = page(&kubeconfig).await;
    assert!(broken.contains("\ninventory  key \"inventory\": nodes: "), "{broken}");
    assert!(broken.contains(unreadable), "{broken}");

    operator.stop().await;
    let released = document(&kubeconfig).await;
    assert_eq!(
        (&released["leader"], &released["term"]),
        (&Value::Null, &found["term"]),
        "{released}"
    );
}

#[tokio::test]
async fn without_an_api_server_the_status_is_one_clear_line() {
    let cluster = Cluster::shared().await;
    let original = cluster.kubeconfig(Identity::Admin);
    let text = std::fs::read_to_string(&original).unwrap();
    // Nobody listens on the discard port of loopback.
    let text = text.replace(&cluster.plane.server(), "https://127.0.0.1:9");
    let path = original.with_file_name("nowhere.conf");
    stratum::host::atomic_file::write(&path, text.as_bytes(), stratum::host::atomic_file::Access::Secret).unwrap();
    for more in [&[][..], &["-o", "json"]] {
        let answer = status(&path, more).await;
        assert_eq!(
            (answer.exit, answer.stdout.as_str()),
            (Exit::Status(1), ""),
            "{}",
            answer.stderr
        );
        assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
        for says in [
            "error: cannot ask the API server that ",
            "nowhere.conf names",
            "refused",
        ] {
            assert!(answer.stderr.contains(says), "{says}: {}", answer.stderr);
        }
    }
    let answer = status(Path::new("/nonexistent/admin.conf"), &[]).await;
    assert_eq!(answer.exit, Exit::Status(1));
    assert!(answer.stderr.contains("/nonexistent/admin.conf"), "{}", answer.stderr);
}
