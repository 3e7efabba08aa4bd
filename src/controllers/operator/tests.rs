use super::*;
use crate::controllers::connection::{CredentialsError, KubeconfigError};

fn settings(folder: &std::path::Path) -> Settings {
    Settings {
        kubeconfig: folder.join("operator.conf"),
        deployer_kubeconfig: folder.join("deployer.conf"),
        node: "a".to_owned(),
        manifests: folder.join("manifests"),
        state: folder.join("state"),
        machine: crate::host::layout::Layout::under(folder),
        admin: AdminSettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: None,
        },
        resync: Duration::from_secs(300),
        prune_max_share: None,
        drain: Duration::from_secs(5),
        system_namespace: SYSTEM_NAMESPACE.to_owned(),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's own folder")]
fn put(path: &std::path::Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(
        settings(folder.path()),
        Concerns::default(),
        None,
        CancellationToken::new(),
    )
    .await
    .unwrap_err();
    let OperatorError::Client(ConnectionError::Credentials {
        source: CredentialsError::Kubeconfig(KubeconfigError::Read { path, .. }),
        ..
    }) = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(path, folder.path().join("operator.conf"));
}

#[tokio::test]
async fn while_the_api_server_does_not_answer_it_is_alive_not_ready_and_stops_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    // A port that was free a moment ago.
    let port = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for path in [&settings.kubeconfig, &settings.deployer_kubeconfig] {
        let text = format!(
            "contexts: [{{name: c, context: {{cluster: k}}}}]\nclusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
        );
        put(path, &text);
    }
    let operator = Operator::bind(settings, None).await.unwrap();
    let address = operator.address();
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator.run(Concerns::default(), stop.clone()));
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<http_body_util::Empty<hyper::body::Bytes>>();
    for (path, want) in [("healthz", 200), ("readyz", 503), ("metrics", 200)] {
        let answer = client
            .get(format!("http://{address}/{path}").parse().unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), want, "{path}");
    }
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .unwrap()
        .unwrap();
    assert!(ended.is_ok());
}
