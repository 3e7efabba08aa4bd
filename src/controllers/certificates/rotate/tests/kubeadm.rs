//! Nodes that kubeadm made: everything is taken over from the certificates that are there.

use base64::Engine;

use super::*;
use crate::host::rotation_incomplete::Incomplete;

fn bench() -> Bench {
    let openssl = Openssl::kubeadm_controller();
    let machine = Machine::load(openssl.kubeadm()).unwrap();
    Bench { openssl, machine }
}

const PLAIN: [&str; 7] = [
    "apiserver",
    "apiserver-etcd-client",
    "apiserver-kubelet-client",
    "etcd-healthcheck-client",
    "etcd-peer",
    "etcd-server",
    "front-proxy-client",
];
const EMBEDDED: [&str; 4] = [
    "admin.conf",
    "controller-manager.conf",
    "scheduler.conf",
    "super-admin.conf",
];

fn field(text: &str, name: &str) -> Option<String> {
    let field = format!("{name}: ");
    text.lines()
        .find_map(|line| line.trim().strip_prefix(&field).map(str::to_owned))
}

/// What a certificate says, without what a new one says otherwise.
fn said(bench: &Bench, pem: &str) -> String {
    put(&bench.openssl.path().join("said.pem"), pem.as_bytes());
    let said = "x509 -in said.pem -noout -subject -issuer -ext subjectAltName,extendedKeyUsage -nameopt utf8";
    let said = bench.openssl.run(said);
    // In the order in which the extensions stand, which nobody reads anything from.
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn embedded(bench: &Bench, name: &str, what: &str) -> String {
    let text = bench.openssl.text(&format!("etc/kubernetes/{name}"));
    let data = field(&text, what).unwrap();
    let decoded = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    String::from_utf8(decoded).unwrap()
}

#[tokio::test]
async fn leaves_and_kubeconfigs_are_made_anew_and_say_what_they_said() {
    let bench = bench();
    let file = |name: &str| match name {
        "etcd-server" | "etcd-peer" => format!("etc/kubernetes/pki/etcd/{}.crt", &name[5..]),
        "etcd-healthcheck-client" => "etc/kubernetes/pki/etcd/healthcheck-client.crt".to_owned(),
        other => format!("etc/kubernetes/pki/{other}.crt"),
    };
    let before: Vec<(String, String)> = PLAIN
        .iter()
        .map(|name| bench.openssl.text(&file(name)))
        .map(|pem| (said(&bench, &pem), pem))
        .collect();
    let confs = EMBEDDED.map(|name| embedded(&bench, name, "client-certificate-data"));
    // The CA was made anew with another beside it, which nobody put into the kubeconfigs.
    bench.openssl.authority("other", "");
    let ca = bench.openssl.text("etc/kubernetes/pki/ca.crt");
    let both = format!("{ca}{}", bench.openssl.text("other.crt"));
    bench.openssl.write("etc/kubernetes/pki/ca.crt", &both);
    let rotated = bench.rotate(&forced(Keys::New)).await.unwrap();
    let expected: BTreeSet<String> = PLAIN.iter().chain(&EMBEDDED).map(|name| (*name).to_owned()).collect();
    assert_eq!(names(&rotated), expected);
    for (name, (said_before, pem)) in PLAIN.iter().zip(before) {
        let after = bench.openssl.text(&file(name));
        assert_ne!(after, pem, "{name}");
        assert_eq!(said(&bench, &after), said_before, "{name}");
    }
    for (name, before) in EMBEDDED.iter().zip(confs) {
        let after = embedded(&bench, name, "client-certificate-data");
        assert_ne!(after, before);
        assert_eq!(said(&bench, &after), said(&bench, &before), "{name}");
        let key = embedded(&bench, name, "client-key-data");
        let key = Key::from_pem(key.as_bytes()).unwrap();
        let certificate = Certificate::from_pem(after.as_bytes()).unwrap();
        assert_eq!(key.public_key_der(), certificate.public_key_der());
        assert_eq!(embedded(&bench, name, "certificate-authority-data"), both);
        let text = bench.openssl.text(&format!("etc/kubernetes/{name}"));
        assert_eq!(field(&text, "server").unwrap(), "https://10.0.0.1:6443");
    }
    bench.judge(None);
    assert!(!bench.has_marker() && rotated.by_hand.is_empty());
    let kubelet = bench.openssl.text("etc/kubernetes/kubelet.conf");
    assert!(kubelet.contains("kubelet-client-current.pem"), "{kubelet}");
}

/// A kubelet that was left on its first certificate would not start a year later.
#[tokio::test]
async fn a_kubelet_that_names_its_first_certificate_is_re_pointed() {
    let bench = bench();
    bench
        .openssl
        .kubeconfig("etc/kubernetes/kubelet.conf", "etc/kubernetes/pki/ca", "made/kubelet");
    bench.rotate(&forced(Keys::New)).await.unwrap();
    let text = bench.openssl.text("etc/kubernetes/kubelet.conf");
    let current = bench.layout().kubelet_client().display().to_string();
    assert_eq!(field(&text, "client-certificate"), Some(current.clone()));
    assert_eq!(field(&text, "client-key"), Some(current));
    assert_eq!(field(&text, "client-certificate-data"), None);
    assert_eq!(field(&text, "server").unwrap(), "https://10.0.0.1:6443");
}

#[tokio::test]
async fn an_expired_kubelet_is_helped_and_its_service_left_to_its_owner() {
    let bench = bench();
    let (rotated, told) = bench.rotate_at(&forced(Keys::Keep), DAY * 400).await;
    let rotated = rotated.unwrap();
    assert!(rotated.reissued.contains(&KUBELET.to_owned()), "{told}");
    assert_eq!(rotated.by_hand, ["systemctl restart kubelet"]);
}

/// Nothing else says what it has to say.
#[tokio::test]
async fn what_cannot_be_read_is_left_to_kubeadm() {
    let bench = bench();
    bench.openssl.write("etc/kubernetes/pki/apiserver.crt", "");
    // The rest is not left to expire with it.
    let rotated = bench.rotate(&forced(Keys::New)).await.unwrap();
    assert!(!rotated.reissued.contains(&"apiserver".to_owned()) && rotated.reissued.len() > 5);
    let [skipped] = rotated.skipped.as_slice() else {
        panic!("{:?}", rotated.skipped)
    };
    assert!(
        skipped.contains("kubeadm init phase certs apiserver --config"),
        "{skipped}"
    );
    let nothing_else = Options {
        if_expiring: Some(SignedDuration::from_hours(1)),
        ..forced(Keys::New)
    };
    let error = bench.rotate(&nothing_else).await.unwrap_err();
    assert!(error.is_refusal(), "{error}");
    bench.openssl.remove("etc/kubernetes/pki/ca.key");
    let error = bench.rotate(&forced(Keys::New)).await.unwrap_err();
    assert!(
        error.to_string().contains("the CA ca is not on this machine"),
        "{error}"
    );
}

/// Whoever waits for a server that waits for him waits for ever.
#[tokio::test]
async fn an_api_server_that_needs_what_is_made_anew_is_not_waited_for() {
    let bench = bench();
    let (stop, options) = (CancellationToken::new(), forced(Keys::New));
    let why = || {
        let run = bench.run(&options, &stop);
        run.decide(clock::now()).unwrap().why_nobody_answers()
    };
    assert_eq!(why(), None, "all is well, and merely asked for");
    let key = bench.openssl.text("etc/kubernetes/pki/etcd/server.key");
    let own = bench.openssl.text("etc/kubernetes/pki/apiserver-etcd-client.key");
    bench
        .openssl
        .write("etc/kubernetes/pki/apiserver-etcd-client.key", &key);
    assert!(why().unwrap().contains("apiserver-etcd-client"));
    bench
        .openssl
        .write("etc/kubernetes/pki/apiserver-etcd-client.key", &own);
    assert_eq!(why(), None);
    let begun = Incomplete::new(OPERATION, false, ["apiserver".to_owned()].into(), clock::now());
    begun.save(bench.layout()).unwrap();
    assert!(why().unwrap().contains("has to be finished"));
}
