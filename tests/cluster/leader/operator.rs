//! `stratum operator` as a process: ready, scraped, handed over, stopped, and its exit codes.

use std::path::Path;

use stratum::controllers::leader::LEASE;
use stratum::host::child::{Exit, Program};

use super::{SOON, series};
use crate::support::operator::{Operator, ask};
use crate::support::{Cluster, Options, wait_for};

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
