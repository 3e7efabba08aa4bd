//! The renewal loop against a real API server: what people are told on the Node, by a controller's administrator and by a
//! kubelet. The machine is of kubeadm's form, with the cluster's own credentials.

use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use stratum::controllers::certificates::renewal::{Failure, Looked, Renewal, Teller, Wish};
use stratum::host::atomic_file::{self, Access};
use stratum::host::clock;
use stratum::host::layout::{Identity, Layout};
use stratum::pki::authority::Authority;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::leaf::{Request, issue};
use stratum::pki::name::{AlternativeName, Subject};
use tokio_util::sync::CancellationToken;

use crate::support::{Cluster, Options, wait_for};

const NODE: &str = "renewed";

fn put(path: &Path, bytes: &[u8]) {
    atomic_file::create_folder(path.parent().unwrap(), Access::Secret).unwrap();
    atomic_file::write(path, bytes, Access::Secret).unwrap();
}

fn authority() -> Authority {
    let key = Key::generate(KeyKind::EcdsaP256).unwrap();
    Authority::make("kubernetes", key, Serial::random().unwrap(), clock::now()).unwrap()
}

/// A leaf that lives for so many seconds, and its key.
fn leaf(signer: &Authority, request: Request, seconds: i64) -> (String, String) {
    let key = Key::generate(KeyKind::EcdsaP256).unwrap();
    let lifetime = SignedDuration::from_secs(seconds);
    let request = Request { lifetime, ..request };
    let made = issue(signer, &request, &key, Serial::random().unwrap(), clock::now()).unwrap();
    (made.to_pem(), key.to_pem().expose().to_owned())
}

/// A machine whose API server's certificate is due, and whose kubelet's is overdue.
fn machine(folder: &Path, administrator: &Path) -> Layout {
    let layout = Layout::kubeadm(folder);
    let signer = authority();
    put(&layout.pki().join("ca.crt"), signer.certificate().to_pem().as_bytes());
    put(&layout.pki().join("ca.key"), signer.key().to_pem().expose().as_bytes());
    let server = Request::server(Subject::user("kube-apiserver"), vec![AlternativeName::dns("a")]);
    let (certificate, key) = leaf(&signer, server, 1);
    put(&layout.pki().join("apiserver.crt"), certificate.as_bytes());
    put(&layout.pki().join("apiserver.key"), key.as_bytes());
    let kubelet = Subject::user(format!("system:node:{NODE}")).in_group("system:nodes");
    let (certificate, key) = leaf(&signer, Request::client(kubelet), 1);
    put(&layout.kubelet_client(), format!("{certificate}{key}").as_bytes());
    put(
        &layout.kubeconfig(Identity::Admin),
        &std::fs::read(administrator).unwrap(),
    );
    layout
}

#[tokio::test]
async fn renewals_are_told_on_the_node() {
    let cluster = Cluster::dedicated(Options::default()).await;
    cluster.register(&[NODE]).await;
    let folder = tempfile::tempdir().unwrap();
    let layout = machine(folder.path(), &cluster.kubeconfig(Identity::Admin));
    clock::sleep(Duration::from_millis(1500)).await;
    let stop = CancellationToken::new();

    let fails = async |_: Wish| {
        Err(Failure {
            words: "the key is gone".to_owned(),
            refused: false,
        })
    };
    let looked = Renewal::new(layout.clone(), Teller::default(), fails).look(&stop).await;
    assert!(matches!(looked, Looked::Failed(_)), "{looked:?}");
    clock::sleep(Duration::from_millis(1500)).await;
    let succeeds = async |wish: Wish| {
        assert_eq!(wish.machine.layout.pki().file_name().unwrap(), "pki");
        Ok(vec!["apiserver".to_owned()])
    };
    let looked = Renewal::new(layout.clone(), Teller::default(), succeeds)
        .look(&stop)
        .await;
    assert!(matches!(looked, Looked::Renewed { .. }), "{looked:?}");

    let events = || async {
        let field = format!("--field-selector=involvedObject.name={NODE},involvedObject.kind=Node");
        let format = "-o=jsonpath={range .items[*]}{.type} {.reason} {.message}{\"\\n\"}{end}";
        cluster.kubectl(&["get", "events", "-A", &field, format]).await
    };
    let told = || async {
        let events = events().await;
        events.contains(" CertificatesRenewed ").then_some(events)
    };
    let told = wait_for("the Events", Duration::from_secs(20), told).await;
    for line in [
        "Warning CertificateRenewalFailed the key is gone (renewing: apiserver has ended at ",
        "Normal CertificatesRenewed made new: apiserver",
        "Warning CertificateEndsSoon kubelet-client ends at ",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let described = cluster.kubectl(&["describe", "node", NODE]).await;
    assert!(described.contains("CertificateRenewalFailed"), "{described}");
    assert!(
        described.contains("stratum.ciq.com/renewal") || described.contains("renewal"),
        "{described}"
    );
}
