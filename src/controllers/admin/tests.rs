use std::path::Path;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::sync::watch;

use super::super::connection::{self, ClientSettings};
use super::super::leader::Leadership;
use super::*;

fn shown() -> Shown {
    let (_, receiver) = watch::channel(Leadership::Over);
    Shown {
        metrics: Metrics::new(),
        health: Health::new(receiver),
        log: None,
    }
}

async fn start(settings: &AdminSettings, shown: Shown) -> SocketAddr {
    let admin = Admin::bind(settings).await.unwrap();
    let address = admin.address;
    tokio::spawn(admin.serve(shown, CancellationToken::new()));
    address
}

async fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = client
        .get(format!("http://{address}{path}").parse().unwrap())
        .await
        .unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn local() -> AdminSettings {
    AdminSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: None,
    }
}

#[tokio::test]
async fn answers_on_a_free_port_of_loopback() {
    let shown = shown();
    let address = start(&local(), shown.clone()).await;
    assert_ne!(address.port(), 0);
    assert_eq!(ask(address, "/healthz").await, (200, "ok\n".to_owned()));
    let (status, body) = ask(address, "/readyz").await;
    assert_eq!((status, body.as_str()), (503, "the API server has not answered yet\n"));
    shown.health.reached();
    assert_eq!(ask(address, "/readyz").await.0, 200);
    assert!(ask(address, "/metrics").await.1.contains("stratum_operator_leader 0\n"));
    assert_eq!(ask(address, "/debug/log-level").await.0, 404);
    assert_eq!(ask(address, "/elsewhere").await.0, 404);
}

#[tokio::test]
async fn a_taken_port_and_an_open_address_are_refused() {
    let address = start(&local(), shown()).await;
    let taken = AdminSettings {
        listen: address,
        tls: None,
    };
    assert!(matches!(Admin::bind(&taken).await, Err(AdminError::Listen { .. })));
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.7:0"] {
        let open = AdminSettings {
            listen: open.parse().unwrap(),
            tls: None,
        };
        assert!(matches!(Admin::bind(&open).await, Err(AdminError::NeedsTls { .. })));
    }
}

#[tokio::test]
async fn the_log_level_is_checked_before_it_is_changed() {
    // The one test of this binary that owns the process's logs.
    let log = super::super::telemetry::install(Default::default(), &"warn".parse().unwrap()).unwrap();
    let shown = Shown {
        log: Some(log),
        ..shown()
    };
    let address = start(&local(), shown).await;
    let put = |body: &'static str| async move {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let request = axum::http::Request::put(format!("http://{address}/debug/log-level"));
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        client.request(request).await.unwrap().status().as_u16()
    };
    assert_eq!(ask(address, "/debug/log-level").await.1, "warn\n");
    assert_eq!(put("loud").await, 400);
    assert_eq!(ask(address, "/debug/log-level").await.1, "warn\n");
    assert_eq!(put("error,stratum=info\n").await, 200);
    let (_, now) = ask(address, "/debug/log-level").await;
    assert!(now.contains("stratum=info") && now.contains("error"), "{now}");
    assert_eq!(put("warn").await, 200);
}

#[expect(clippy::disallowed_methods, reason = "a test's own folder")]
fn put(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[tokio::test]
async fn elsewhere_only_clients_with_a_certificate_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    put(folder.path(), "ca.crt", &issuer.pem());
    let renew = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        put(
            folder.path(),
            &format!("{name}.crt"),
            &parameters.signed_by(&key, &issuer).unwrap().pem(),
        );
        put(folder.path(), &format!("{name}.key"), &key.serialize_pem());
    };
    renew("server");
    renew("client");
    let file = |name: &str| folder.path().join(name);
    let settings = AdminSettings {
        listen: "0.0.0.0:0".parse().unwrap(),
        tls: Some(TlsFiles {
            certificate: file("server.crt"),
            key: file("server.key"),
            client_ca: file("ca.crt"),
        }),
    };
    let port = start(&settings, shown()).await.port();
    let get = |user: &'static str| {
        let kubeconfig = format!(
            "contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://localhost:{port}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        put(folder.path(), "kubeconfig", &kubeconfig);
        let settings = ClientSettings::new(file("kubeconfig"), "test");
        async move {
            let client = connection::client(&settings, None).await.unwrap();
            let request = axum::http::Request::get("/healthz").body(Vec::new()).unwrap();
            client.request_text(request).await
        }
    };
    assert_eq!(
        get("client-certificate: client.crt, client-key: client.key")
            .await
            .unwrap(),
        "ok\n"
    );
    assert!(get("token: guess").await.is_err());
    renew("server");
    assert_eq!(
        get("client-certificate: client.crt, client-key: client.key")
            .await
            .unwrap(),
        "ok\n"
    );
}
