//! `stratum operator` as a process: ready, scraped, handed over, stopped, and its exit codes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use stratum::controllers::leader::LEASE;
use stratum::host::child::{Child, Exit, Output, Program};
use stratum::host::layout::Identity;

use super::{SOON, series};
use crate::support::{Cluster, Options, stratum, wait_for};

pub(super) struct Operator {
    child: Child,
    log: std::path::PathBuf,
}

impl Operator {
    pub(super) fn start(cluster: &Cluster, folder: &Path, node: &str) -> Self {
        let log = folder.join(format!("{node}.log"));
        let manifests = folder.join("manifests");
        std::fs::create_dir_all(&manifests).unwrap();
        let child = Program::new(stratum())
            .arguments([
                "operator",
                "--listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--node-name",
                node,
            ])
            .arguments([
                "--kubeconfig".into(),
                cluster.kubeconfig(Identity::Operator).into_os_string(),
            ])
            .arguments([
                "--deployer-kubeconfig".into(),
                cluster.kubeconfig(Identity::Deployer).into_os_string(),
            ])
            .arguments(["--manifests-dir".into(), manifests.into_os_string()])
            .arguments(["--state-dir".into(), folder.join(node).into_os_string()])
            .variable("STRATUM_CONFIG", "/dev/null")
            .dies_with_us(stratum())
            .start(&Output::Log(log.clone()))
            .unwrap();
        Self { child, log }
    }

    async fn address(&self) -> SocketAddr {
        let address = || async {
            let text = std::fs::read_to_string(&self.log).ok()?;
            let line = text.lines().find(|line| line.contains("\"listening\""))?;
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["address"].as_str()?.parse().ok()
        };
        wait_for("the operator to listen", SOON, address).await
    }

    async fn get(&self, path: &str) -> (u16, String) {
        ask(self.address().await, "GET", path, "").await
    }

    pub(super) async fn metrics(&self) -> String {
        self.get("/metrics").await.1
    }

    pub(super) async fn leads(&self) {
        let leads = || async {
            let metrics = self.metrics().await;
            metrics.contains("stratum_operator_leader 1\n").then_some(())
        };
        wait_for("the operator to lead", SOON, leads).await;
    }

    /// Stops it, which has to end well.
    pub(super) async fn stop(&mut self) {
        let exit = self.child.terminate(Duration::from_secs(20)).await.unwrap();
        assert_eq!(exit, Exit::Status(0));
    }

    async fn ends(mut self) -> Exit {
        tokio::time::timeout(Duration::from_secs(25), self.child.wait())
            .await
            .unwrap()
            .unwrap()
    }
}

async fn ask(address: SocketAddr, method: &str, path: &str, body: &'static str) -> (u16, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = http::Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let answer = client.request(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Prometheus' own parser and linter.
async fn lint(exposition: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/assets/promlint");
    let finished = Program::new("go")
        .arguments(["run", "."])
        .folder(folder)
        .variable("PATH", std::env::var_os("PATH").unwrap())
        .variable("HOME", std::env::var_os("HOME").unwrap())
        .run(exposition.as_bytes().to_vec())
        .await
        .unwrap();
    let output = [finished.stdout, finished.stderr].concat();
    assert!(finished.exit.is_success(), "{}", String::from_utf8_lossy(&output));
}

#[tokio::test]
async fn the_operator_process_is_watched_scraped_handed_over_and_stopped() {
    let cluster = Cluster::dedicated(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let mut first = Operator::start(&cluster, folder.path(), "one");
    first.leads().await;
    let ready = || async { (first.get("/readyz").await.0 == 200).then_some(()) };
    wait_for("the operator to be ready", SOON, ready).await;
    assert_eq!(first.get("/healthz").await, (200, "ok\n".to_owned()));
    let (_, metrics) = first.get("/metrics").await;
    assert!(metrics.contains("stratum_operator_requests_total{role=\"operator\",method=\"GET\",status=\"2xx\"}"));
    lint(&metrics).await;

    let address = first.address().await;
    assert_eq!(ask(address, "PUT", "/debug/log-level", "debug").await.0, 200);
    assert_eq!(ask(address, "PUT", "/debug/log-level", "loud").await.0, 400);
    assert_eq!(first.get("/debug/log-level").await.1, "debug\n");

    series::do_not_grow_with_objects(&cluster, &first, &folder.path().join("manifests")).await;

    let second = Operator::start(&cluster, folder.path(), "two");
    let ready = || async { (second.get("/readyz").await.0 == 200).then_some(()) };
    wait_for("an instance that does not lead to be ready", SOON, ready).await;
    assert!(second.get("/metrics").await.1.contains("stratum_operator_leader 0\n"));

    first.stop().await;
    second.leads().await;
    assert!(
        second
            .get("/metrics")
            .await
            .1
            .contains("stratum_operator_lease_transitions_total 1\n")
    );

    cluster.kubectl(&["-n", "kube-system", "delete", "lease", LEASE]).await;
    assert_eq!(second.ends().await, Exit::Status(4));
}
