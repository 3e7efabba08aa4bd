//! `stratum operator` as a process.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use stratum::host::child::{Child, Exit, Output, Program};
use stratum::host::layout::Identity;

use super::{Cluster, stratum, wait_for};

/// How long something may take that should be instant.
const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Operator {
    child: Child,
    log: std::path::PathBuf,
}

impl Operator {
    pub(crate) fn start(cluster: &Cluster, folder: &Path, node: &str) -> Self {
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

    pub(crate) async fn address(&self) -> SocketAddr {
        let address = || async {
            let text = std::fs::read_to_string(&self.log).ok()?;
            let line = text.lines().find(|line| line.contains("\"listening\""))?;
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["address"].as_str()?.parse().ok()
        };
        wait_for("the operator to listen", SOON, address).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        ask(self.address().await, "GET", path, "").await
    }

    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await.1
    }

    pub(crate) async fn leads(&self) {
        let leads = || async {
            let metrics = self.metrics().await;
            metrics.contains("stratum_operator_leader 1\n").then_some(())
        };
        wait_for("the operator to lead", SOON, leads).await;
    }

    /// Stops it, which has to end well.
    pub(crate) async fn stop(&mut self) {
        let exit = self.child.terminate(Duration::from_secs(20)).await.unwrap();
        assert_eq!(exit, Exit::Status(0));
    }

    pub(crate) async fn ends(mut self) -> Exit {
        tokio::time::timeout(Duration::from_secs(25), self.child.wait())
            .await
            .unwrap()
            .unwrap()
    }
}

pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, body: &'static str) -> (u16, String) {
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
