//! Leaders that are killed or stopped: processes of their own, which do nothing but write in their term.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process};
use stratum::controllers::connection::{self, ClientSettings};
use stratum::controllers::leader::{CampaignError, CampaignSettings, Leadership, Term, campaign};
use stratum::host::child::{Child, Exit, Output, Program};
use stratum::host::clock;
use stratum::host::layout::Identity;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Candidate, EXPIRY, SOON};
use crate::support::{Cluster, stratum, wait_for};

const NAMESPACE: &str = "STRATUM_TEST_NAMESPACE";
const KUBECONFIG: &str = "STRATUM_TEST_KUBECONFIG";
/// Of the identity that may write what the test reads.
const DEPLOYER_KUBECONFIG: &str = "STRATUM_TEST_DEPLOYER_KUBECONFIG";
/// How many writes of the old term are on their way at any moment.
const IN_FLIGHT: usize = 16;

/// Not a test: the leader process that the tests of this file start. Writes as fast as it can while it leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by other tests, as a process of its own"]
#[expect(clippy::exit, reason = "its exit code is what it tells")]
async fn writing_leader() {
    let variables = [NAMESPACE, KUBECONFIG, DEPLOYER_KUBECONFIG].map(std::env::var);
    let [Ok(namespace), Ok(kubeconfig), Ok(deployer)] = variables else {
        return;
    };
    let settings = CampaignSettings {
        namespace: namespace.clone(),
        node: "writer".to_owned(),
        drain: Duration::from_secs(5),
    };
    let kubeconfig = PathBuf::from(kubeconfig);
    let client = connection::client(&ClientSettings::new(&kubeconfig, "election"), None)
        .await
        .unwrap();
    let (status, _status) = watch::channel(Leadership::Standing { holder: None });
    let work = move |term: Term| async move {
        let settings = ClientSettings::new(&deployer, "writer");
        let client = connection::client(&settings, Some(term.fence)).await.unwrap();
        write(&Api::namespaced(client, &namespace)).await;
    };
    let ended = campaign(&settings, client, &status, CancellationToken::new(), work).await;
    let lost = matches!(ended, Err(CampaignError::LeadershipLost { .. }));
    std::process::exit(if lost { 4 } else { 1 });
}

/// For ever: does not even look at errors, as a leader that knows nothing of its end.
#[expect(clippy::disallowed_methods, reason = "the test's own writes")]
async fn write(config_maps: &Api<ConfigMap>) {
    futures::stream::iter(0_u64..)
        .for_each_concurrent(IN_FLIGHT, |count| async move {
            let body = serde_json::json!({"data": {format!("k{}", count % 16): count.to_string()}});
            let written = config_maps
                .patch("written", &PatchParams::default(), &Patch::Merge(&body))
                .await;
            if written.is_err() {
                clock::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
}

struct Writer {
    child: Child,
}

impl Writer {
    /// Starts it and waits for its first writes.
    async fn start(cluster: &Cluster, namespace: &str) -> Self {
        cluster
            .kubectl(&["-n", namespace, "create", "configmap", "written"])
            .await;
        let child = Program::new(std::env::current_exe().unwrap())
            .arguments(["--exact", "leader::process::writing_leader", "--ignored", "--nocapture"])
            .variable(NAMESPACE, namespace)
            .variable(KUBECONFIG, cluster.kubeconfig(Identity::Operator))
            .variable(DEPLOYER_KUBECONFIG, cluster.kubeconfig(Identity::Deployer))
            .dies_with_us(stratum())
            .start(&Output::Discard)
            .unwrap();
        let writes = || async { (writes_of(cluster, namespace, "writer").len() > 50).then_some(()) };
        wait_for("the leader process to write", SOON, writes).await;
        Self { child }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

/// When the API server received each write to the ConfigMap by clients of a role that it carried out.
fn writes_of(cluster: &Cluster, namespace: &str, role: &str) -> Vec<Timestamp> {
    let role = format!("({role})");
    cluster
        .audit_events()
        .iter()
        .filter(|event| event["verb"] == "patch" && event["objectRef"]["namespace"] == namespace)
        .filter(|event| event["userAgent"].as_str().unwrap_or_default().ends_with(&role))
        .map(|event| event["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn a_killed_leader_is_followed_after_its_lease() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("killed").await;
    let mut writer = Writer::start(cluster, &namespace).await;
    let mut next = Candidate::new(&cluster.kubeconfig(Identity::Operator), &namespace, "next").await;
    next.has_seen_a_holder().await;
    let killed = clock::since_boot();
    writer.signal(Signal::KILL);
    writer.child.wait().await.unwrap();
    next.leads(EXPIRY).await;
    let took = clock::since_boot() - killed;
    // It renewed at most a retry period before it was killed.
    assert!(
        took >= Duration::from_secs(12) && took <= Duration::from_secs(17),
        "{took:?}"
    );
    next.stop().await;
}

#[tokio::test]
async fn a_leader_that_was_stopped_sends_nothing_of_its_term_when_it_goes_on() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("stopped").await;
    let mut writer = Writer::start(cluster, &namespace).await;
    let mut next = Candidate::new(&cluster.kubeconfig(Identity::Operator), &namespace, "next").await;
    next.has_seen_a_holder().await;
    writer.signal(Signal::STOP);
    next.leads(EXPIRY).await;
    let began = clock::now();
    writer.signal(Signal::CONT);
    let exit = tokio::time::timeout(SOON, writer.child.wait()).await.unwrap().unwrap();
    assert_eq!(exit, Exit::Status(4));
    // The log is written after the answer: what the old leader sent is in it once this later request is.
    let marker = cluster.namespace("marker").await;
    let logged = || async {
        let seen = |event: &serde_json::Value| event["objectRef"]["name"] == marker.as_str();
        cluster.audit_events().iter().any(seen).then_some(())
    };
    wait_for("the audit log to catch up", SOON, logged).await;
    let writes = writes_of(cluster, &namespace, "writer");
    let late = writes.iter().filter(|received| **received >= began).count();
    assert_eq!(late, 0, "of {} writes", writes.len());
    next.stop().await;
}
