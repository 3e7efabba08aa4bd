//! The control plane itself: ready, separate credentials, the same after a restart, and gone with its parent.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stratum::host::child::{Exit, Output, Program};
use stratum::host::dev_plane::DevPlane;
use stratum::host::layout::Identity;

use crate::support::{Cluster, Options, stratum, wait_for};

#[tokio::test]
async fn the_administrator_administers() {
    let cluster = Cluster::shared().await;
    assert_eq!(cluster.kubectl(&["get", "--raw", "/readyz"]).await, "ok");
    let list = || async {
        let found = cluster.kubectl(&["get", "namespaces", "-o", "name"]).await;
        found.contains("namespace/kube-system").then_some(found)
    };
    let names = wait_for("kube-system to be made", Duration::from_secs(20), list).await;
    assert!(names.contains("namespace/default"), "{names}");
    let version = cluster.client().await.apiserver_version().await.unwrap();
    assert_eq!(
        version.git_version,
        format!("v{}", stratum::host::assets::KUBERNETES_VERSION)
    );
}

#[tokio::test]
async fn no_written_credential_is_all_powerful_by_itself() {
    let cluster = Cluster::shared().await;
    let who = |identity| async move {
        let finished = cluster
            .kubectl_as(identity, &["auth", "whoami", "-o", "json"], "")
            .await;
        assert!(
            finished.exit.is_success(),
            "{}",
            String::from_utf8_lossy(&finished.stderr)
        );
        let answer: serde_json::Value = serde_json::from_slice(&finished.stdout).unwrap();
        answer["status"]["userInfo"].clone()
    };
    for (identity, name) in [
        (Identity::Admin, "stratum:admin"),
        (Identity::Operator, "stratum:operator"),
        (Identity::Deployer, "stratum:deployer"),
    ] {
        let user = who(identity).await;
        assert_eq!(user["username"], name);
        let groups: Vec<&str> = user["groups"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|group| group.as_str())
            .collect();
        assert!(!groups.contains(&"system:masters"), "{user}");
        assert_eq!(
            groups.contains(&"stratum:cluster-admins"),
            identity == Identity::Admin,
            "{user}"
        );
    }
    let finished = cluster
        .kubectl_as(Identity::Operator, &["get", "secrets", "-A"], "")
        .await;
    assert_eq!(finished.exit, Exit::Status(1));
    assert!(String::from_utf8_lossy(&finished.stderr).contains("Forbidden"));
}

#[tokio::test]
async fn the_audit_log_and_etcd_can_be_read() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("audited").await;
    let object = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: seen, namespace: {namespace}}}\n");
    cluster.apply(&object).await;
    let find = || async {
        let created = |event: &serde_json::Value| {
            event["verb"] == "patch"
                && event["objectRef"]["resource"] == "configmaps"
                && event["objectRef"]["namespace"] == *namespace
        };
        cluster.audit_events().into_iter().find(created)
    };
    let event = wait_for("the audit log to have it", Duration::from_secs(10), find).await;
    assert_eq!(event["user"]["username"], "stratum:admin");
    let key = format!("/registry/configmaps/{namespace}/seen");
    assert_eq!(cluster.etcdctl(&["get", &key, "--keys-only"]).await.trim(), key);
}

#[tokio::test]
async fn a_restart_keeps_objects_certificates_and_ports() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options {
        data: Some(folder.path().to_owned()),
        ..Options::default()
    };
    let first = Cluster::dedicated(options()).await;
    first.kubectl(&["create", "configmap", "kept", "-n", "default"]).await;
    let server = first.plane.server();
    let read = || fs::read(folder.path().join("var/lib/stratum/pki/apiserver.crt")).unwrap();
    let certificate = read();
    first.plane.stop(Duration::from_secs(20)).await.unwrap();
    let second = Cluster::dedicated(options()).await;
    assert_eq!(second.plane.server(), server);
    assert_eq!(read(), certificate);
    assert_eq!(
        second
            .kubectl(&["get", "configmap", "kept", "-n", "default", "-o", "name"])
            .await,
        "configmap/kept\n"
    );
}

#[tokio::test]
async fn a_bad_flag_is_told_with_the_programs_last_words() {
    let tools = stratum::host::assets::Source::choose(|name| std::env::var_os(name), None).unwrap();
    let binaries = tools
        .provide([
            stratum::host::assets::Tool::Etcd,
            stratum::host::assets::Tool::KubeApiserver,
        ])
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = stratum::host::dev_plane::Settings::new(folder.path(), binaries, stratum());
    settings.api_server_arguments.push("--no-such-flag".to_owned());
    let error = DevPlane::start(&settings).await.unwrap_err().to_string();
    assert!(
        error.starts_with("kube-apiserver ended (exit status 1)") && error.contains("no-such-flag"),
        "{error}"
    );
    let mut settings = stratum::host::dev_plane::Settings {
        api_server_arguments: Vec::new(),
        ..settings
    };
    settings.etcd = PathBuf::from("/nowhere/etcd");
    let error = DevPlane::start(&settings).await.unwrap_err().to_string();
    assert!(
        error.starts_with("etcd ended (exit status 127)") && error.contains("/nowhere/etcd"),
        "{error}"
    );
}

/// The parent is this test binary once more, running [`a_parent_to_be_killed`]. It gets SIGKILL, so nothing of ours can
/// clean up: what ends its children is the kernel.
#[tokio::test]
async fn a_killed_parent_takes_both_processes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let parent = Program::new(std::env::current_exe().unwrap())
        .arguments(["--exact", "plane::a_parent_to_be_killed", "--ignored", "--nocapture"])
        .variable(PARENT_FOLDER, folder.path());
    let log = folder.path().join("parent.log");
    let parent = parent.start(&Output::Log(log.clone())).unwrap();
    let started = || async {
        assert_eq!(parent.exit(), None, "{}", fs::read_to_string(&log).unwrap());
        fs::read_to_string(folder.path().join(PROCESSES)).ok()
    };
    let processes = wait_for("the parent's control plane", Duration::from_secs(90), started).await;
    let processes: Vec<u32> = processes.split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert!(
        processes.len() == 2 && processes.iter().all(|id| is_running(*id)),
        "{processes:?}"
    );
    // The leader of a group of its own; the children are in others, so this signal reaches the parent alone.
    let [etcd, api_server] = processes[..] else {
        panic!("{processes:?}")
    };
    assert!(group(etcd) != parent.id() && group(api_server) != parent.id());
    kill(parent.id()).await;
    let gone = || async { (!is_running(etcd) && !is_running(api_server)).then_some(()) };
    wait_for("the children to end", Duration::from_secs(10), gone).await;
}

/// No test: the victim of the one above.
#[tokio::test]
#[ignore = "run by a_killed_parent_takes_both_processes_with_it"]
async fn a_parent_to_be_killed() {
    let Some(folder) = std::env::var_os(PARENT_FOLDER).map(PathBuf::from) else {
        return;
    };
    let cluster = Cluster::dedicated(Options {
        data: Some(folder.join("data")),
        ..Options::default()
    })
    .await;
    let ids = cluster.plane.processes().map(|(_, id)| id.to_string()).join(" ");
    stratum::host::atomic_file::write(
        &folder.join(PROCESSES),
        ids.as_bytes(),
        stratum::host::atomic_file::Access::Public,
    )
    .unwrap();
    std::future::pending::<()>().await;
}

const PARENT_FOLDER: &str = "STRATUM_TEST_PARENT_FOLDER";
const PROCESSES: &str = "processes";

async fn kill(process: u32) {
    let finished = Program::new("/bin/kill")
        .arguments([OsString::from("-KILL"), process.to_string().into()])
        .run(Vec::new())
        .await;
    assert!(finished.unwrap().exit.is_success());
}

/// A zombie whose new parent has not looked yet has ended too.
fn is_running(process: u32) -> bool {
    stat(process).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

fn group(process: u32) -> u32 {
    stat(process).unwrap()[2].parse().unwrap()
}

/// The fields of `/proc/PID/stat` after the program's name: state, parent, group, ...
fn stat(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}
