use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::host::certificates::fixtures::Openssl;

async fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn loopback() -> AdminSettings {
    AdminSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: None,
    }
}

#[tokio::test]
async fn it_is_scraped_while_it_runs_and_ends_when_it_is_told() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    let daemon = Daemon::bind(layout.clone(), &loopback()).await.unwrap();
    let address = daemon.address();
    let second = Daemon::bind(layout.clone(), &loopback()).await.err().unwrap();
    assert!(
        matches!(second, DaemonError::Runs { .. }) && second.is_refusal(),
        "{second}"
    );
    let stop = CancellationToken::new();
    let running = tokio::spawn(daemon.run(None, async |_| panic!("nothing is due"), stop.clone()));
    let metrics = ask(address, "/metrics").await;
    assert!(
        metrics.contains("stratum_certificate_not_after_timestamp_seconds{name=\"apiserver\"}"),
        "{metrics}"
    );
    assert!(!metrics.contains("stratum_operator_"), "{metrics}");
    assert!(ask(address, "/healthz").await.ends_with("ok\n"));
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), running)
        .await
        .unwrap()
        .unwrap();
    // Its lock is free again. Its port may be another test's by now.
    Daemon::bind(layout, &loopback()).await.map(|_| ()).unwrap();
}

#[tokio::test]
async fn it_does_not_listen_to_everybody_without_tls() {
    let machine = Openssl::new();
    let open = AdminSettings {
        listen: "0.0.0.0:0".parse().unwrap(),
        tls: None,
    };
    let error = Daemon::bind(machine.kubeadm(), &open).await.err().unwrap();
    assert!(
        matches!(error, DaemonError::Server(AdminError::NeedsTls { .. })) && error.is_refusal(),
        "{error}"
    );
}
