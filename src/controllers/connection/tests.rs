//! The connector against a real TLS listener on loopback.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;

use super::{ClientSettings, Fence, client};
use crate::host::clock;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Issuer {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

fn leaf(issuer: &Issuer, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = parameters.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// A TLS server that answers each request with the number of the connection it came over; `/slow` never ends its body,
/// `/mute` never answers, `?watch=true` sends a line and stays open.
struct Server {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Server {
    async fn start(server_ca: &Issuer, client_cas: &[&Issuer]) -> Self {
        let (certificate, key) = leaf(server_ca, "server");
        let mut roots = RootCertStore::empty();
        for issuer in client_cas {
            roots.add(issuer.der().clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .build()
            .unwrap();
        use rustls_pki_types::pem::PemObject;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![rustls_pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                rustls_pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((tcp, _)) = listener.accept().await {
                connection += 1;
                let (acceptor, counter) = (acceptor.clone(), counter.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request| answer(request, connection, counter.clone()));
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(tls), service)
                        .await;
                });
            }
        });
        Self { port, requests }
    }
}

type AnswerBody = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    counter: Arc<AtomicUsize>,
) -> Result<Response<AnswerBody>, std::convert::Infallible> {
    counter.fetch_add(1, Ordering::SeqCst);
    let endless = || {
        let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"first\n")))]);
        StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending())).boxed()
    };
    let body = match (request.uri().path(), request.uri().query()) {
        ("/mute", _) => std::future::pending().await,
        ("/slow", _) | (_, Some("watch=true")) => endless(),
        _ => {
            let agent = request.headers()[http::header::USER_AGENT].to_str().unwrap();
            Full::new(Bytes::from(format!("{connection} {agent}"))).boxed()
        }
    };
    Ok(Response::new(body))
}

/// A folder with a kubeconfig and the files it names.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(port: u16, server_ca: &Issuer, identity: &(String, String)) -> Self {
        let files = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        files.put("ca.crt", &server_ca.pem());
        files.put("op.crt", &identity.0);
        files.put("op.key", &identity.1);
        files.put(
            "kubeconfig",
            &format!(
                "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
                 clusters: [{{name: k, cluster: {{server: 'https://localhost:{port}', certificate-authority: ca.crt}}}}]\n\
                 users: [{{name: u, user: {{client-certificate: op.crt, client-key: op.key}}}}]\n"
            ),
        );
        files
    }

    #[expect(clippy::disallowed_methods, reason = "a test's own folder")]
    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn settings(&self) -> ClientSettings {
        let path: PathBuf = self.folder.path().join("kubeconfig");
        ClientSettings {
            reload_interval: Duration::from_millis(20),
            request_limit: Duration::from_millis(1500),
            ..ClientSettings::new(path, "test")
        }
    }
}

async fn text(client: &kube::Client, path: &str) -> Result<String, kube::Error> {
    client.request_text(Request::get(path).body(Vec::new()).unwrap()).await
}

/// Asks until the answer satisfies `wanted`.
async fn until(client: &kube::Client, wanted: impl Fn(&Result<String, kube::Error>) -> bool) {
    let asking = async {
        while !wanted(&text(client, "/").await) {
            clock::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking)
        .await
        .expect("the awaited answer comes within 20 s");
}

fn describe(error: &kube::Error) -> String {
    format!("{error:?}")
}

#[tokio::test]
async fn a_changed_certificate_is_taken_over_and_a_half_written_pair_is_not() {
    let (server_ca, client_ca) = (authority("server"), authority("client"));
    let server = Server::start(&server_ca, &[&client_ca]).await;
    let files = Files::new(server.port, &server_ca, &leaf(&client_ca, "old"));
    let client = client(&files.settings(), None).await.unwrap();
    let agent = format!("stratum/{} (test)", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&client, "/").await.unwrap(), format!("1 {agent}"));

    let (certificate, key) = leaf(&client_ca, "new");
    files.put("op.crt", &certificate);
    clock::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        text(&client, "/").await.unwrap(),
        format!("1 {agent}"),
        "a certificate without its key changes nothing"
    );
    files.put("op.key", &key);
    until(&client, |answer| {
        answer.as_ref().is_ok_and(|text| text.starts_with("2 "))
    })
    .await;
}

#[tokio::test]
async fn a_watch_over_old_credentials_is_closed_after_the_grace() {
    let (server_ca, client_ca) = (authority("server"), authority("client"));
    let server = Server::start(&server_ca, &[&client_ca]).await;
    let files = Files::new(server.port, &server_ca, &leaf(&client_ca, "old"));
    let client = client(&files.settings(), None).await.unwrap();
    let watch = client
        .send(Request::get("/?watch=true").body(kube::client::Body::empty()).unwrap())
        .await
        .unwrap();
    let mut body = watch.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    let second = tokio::time::timeout(Duration::from_secs(2), body.frame()).await;
    assert!(second.is_err(), "a watch outlives the request limit");

    let (certificate, key) = leaf(&client_ca, "new");
    files.put("op.crt", &certificate);
    files.put("op.key", &key);
    let ended = tokio::time::timeout(Duration::from_secs(20), body.frame())
        .await
        .unwrap();
    assert!(ended.unwrap().is_err());
    assert!(text(&client, "/").await.unwrap().starts_with("2 "));
}

#[tokio::test]
async fn a_new_ca_is_trusted_without_a_new_client() {
    let (old_ca, new_ca, client_ca) = (authority("old"), authority("new"), authority("client"));
    let identity = leaf(&client_ca, "operator");
    let server = Server::start(&new_ca, &[&client_ca]).await;
    let files = Files::new(server.port, &old_ca, &identity);
    let client = client(&files.settings(), None).await.unwrap();
    let refused = text(&client, "/").await.unwrap_err();
    assert!(describe(&refused).contains("UnknownIssuer"), "{refused:?}");
    files.put("ca.crt", &format!("{}{}", old_ca.pem(), new_ca.pem()));
    assert!(text(&client, "/").await.is_ok(), "files are read at connect time");
}

#[tokio::test]
async fn a_request_ends_whether_the_head_or_the_body_is_missing() {
    let (server_ca, client_ca) = (authority("server"), authority("client"));
    let server = Server::start(&server_ca, &[&client_ca]).await;
    let files = Files::new(server.port, &server_ca, &leaf(&client_ca, "operator"));
    let client = client(&files.settings(), None).await.unwrap();
    for path in ["/mute", "/slow"] {
        let answer = tokio::time::timeout(Duration::from_secs(10), text(&client, path)).await;
        let error = answer.expect("the request has a limit of its own").unwrap_err();
        assert!(describe(&error).contains("TimedOut"), "{path}: {error:?}");
    }
}

#[tokio::test]
async fn after_the_fence_nothing_is_sent_and_what_waits_is_woken() {
    let (server_ca, client_ca) = (authority("server"), authority("client"));
    let server = Server::start(&server_ca, &[&client_ca]).await;
    let files = Files::new(server.port, &server_ca, &leaf(&client_ca, "operator"));
    let fence = Fence::until(clock::since_boot() + Duration::from_secs(60));
    let client = client(&files.settings(), Some(fence.clone())).await.unwrap();
    assert!(text(&client, "/").await.is_ok());
    let pending = tokio::spawn({
        let client = client.clone();
        async move { text(&client, "/mute").await }
    });
    let arrived = async {
        while server.requests.load(Ordering::SeqCst) < 2 {
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrived).await.unwrap();

    fence.revoke();
    let woken = tokio::time::timeout(Duration::from_secs(1), pending).await;
    let error = woken.expect("woken at once").unwrap().unwrap_err();
    assert!(describe(&error).contains("Fenced"), "{error:?}");
    let error = text(&client, "/").await.unwrap_err();
    assert!(describe(&error).contains("Fenced"), "{error:?}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}
