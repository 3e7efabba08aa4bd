//! Nodes whose files `openssl` made, with something wrong on them.

use crate::host::certificates::fixtures::{BOTH, CLIENT, Openssl, SERVER};
use crate::host::layout::Layout;
use crate::host::node_state::examples::one_controller;
use crate::host::{atomic_file, clock, node_pki, node_state};
use crate::reconcilers::certificates::status::{CertStatus, Kind, Renewal, Verdict};

use super::*;

const PKI: &str = "etc/kubernetes/pki";
const NAMES: &str = "-addext subjectAltName=DNS:alpha,IP:127.0.0.1,IP:10.0.0.1";

/// Nobody answers at the addresses of these nodes, and a network may swallow what is sent there.
const LIMITS: Limits = Limits {
    listener: Duration::from_millis(20),
    cluster: Duration::from_millis(20),
};

async fn look_at(layout: Layout, now: Timestamp) -> Report {
    let machine = Machine::load(layout).unwrap();
    check(&machine, now, None, LIMITS).await.unwrap()
}

async fn look(made: &Openssl) -> Report {
    look_at(made.kubeadm(), clock::now()).await
}

fn row<'a>(report: &'a Report, name: &str) -> &'a CertStatus {
    report.certificates.iter().find(|row| row.name == name).unwrap()
}

/// Everything that is wrong, as `NAME: WHAT`.
fn wrong(report: &Report) -> Vec<String> {
    let all = report.certificates.iter();
    all.flat_map(|row| {
        row.problems
            .iter()
            .map(move |problem| format!("{}: {}", row.name, problem.kind.words()))
    })
    .collect()
}

/// A node with these files of its own, so that nothing is served where the tests run.
fn controller() -> Openssl {
    let made = Openssl::kubeadm_controller();
    made.manifest("etcd", &["--listen-client-urls=https://10.0.0.1:1"]);
    made.manifest("kube-apiserver", &["--bind-address=10.0.0.1", "--secure-port=1"]);
    made.write("var/lib/kubelet/config.yaml", "address: 10.0.0.1\nport: 1\n");
    made
}

fn leaf(made: &Openssl, name: &str, signer: &str, subject: &str, more: &str) {
    made.leaf(&format!("{PKI}/{name}"), &format!("{PKI}/{signer}"), subject, more);
}

#[tokio::test]
async fn a_sound_node_of_kubeadm_is_fine_and_its_dates_count() {
    let made = controller();
    let now = clock::now();
    let report = look_at(made.kubeadm(), now).await;
    assert_eq!((report.verdict, wrong(&report)), (Verdict::Fine, vec![]));
    assert_eq!(report.certificates.len(), 16);
    let apiserver = row(&report, "apiserver");
    assert_eq!(
        (apiserver.days_left, apiserver.signer.as_deref()),
        (Some(364), Some("ca"))
    );
    assert_eq!(apiserver.subject.as_deref(), Some("CN=kube-apiserver"));
    let serial = made.run(&format!("x509 -in {PKI}/apiserver.crt -noout -serial"));
    assert_eq!(
        serial.trim().to_lowercase(),
        format!("serial={}", apiserver.serial.clone().unwrap())
    );
    let key_id = made.run(&format!("x509 -in {PKI}/ca.crt -noout -ext subjectKeyIdentifier"));
    let key_id = key_id.lines().nth(1).unwrap().trim().replace(':', "").to_lowercase();
    assert_eq!(apiserver.issuer_key_id.as_deref(), Some(key_id.as_str()));
    assert_eq!(report.staged_key, StagedKey::Absent);
    let day = jiff::SignedDuration::from_hours(24);
    let at = |days| look_at(made.kubeadm(), now + day * days);
    let soon = at(300).await;
    assert_eq!(soon.verdict, Verdict::Expiring);
    let ahead = at(366).await;
    assert_eq!(ahead.verdict, Verdict::Expired);
    assert_eq!(wrong(&ahead).len(), 13, "all but the authorities: {:?}", wrong(&ahead));
    let behind = at(-365).await;
    assert_eq!((behind.verdict, wrong(&behind).len()), (Verdict::Expired, 16));
    let end = at(3651).await;
    assert!(
        wrong(&end).contains(&"apiserver: signer expired".to_owned())
            && wrong(&end).contains(&"ca: expired".to_owned())
    );
    let ca_soon = at(3600).await;
    assert!(row(&ca_soon, "ca").expiring);
}

#[tokio::test]
async fn a_node_of_ours_as_it_is_made_is_fine() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    let mut state = one_controller();
    // Reserved for documentation: nobody is there.
    state.addresses = vec!["192.0.2.7".parse().unwrap()];
    atomic_file::create_folder(&layout.state(), atomic_file::Access::Secret).unwrap();
    node_state::save(&layout.node_state(), &state).unwrap();
    let now = clock::now();
    node_pki::prepare(&layout, &state, now).unwrap();
    node_pki::write_kubeconfigs(&layout, &state).unwrap();
    let without_listeners = |report: Report| -> Vec<String> {
        wrong(&report)
            .into_iter()
            .filter(|text| !text.contains("served"))
            .collect()
    };
    let found = look_at(layout.clone(), now).await;
    assert_eq!(without_listeners(found), [""; 0]);
    // The endpoint and the addresses may change: what should be in the certificate is what the state says now.
    state.extra_names = vec!["new.example".to_owned()];
    state.addresses.push("2001:db8::7".parse().unwrap());
    node_state::save(&layout.node_state(), &state).unwrap();
    let found = look_at(layout.clone(), now).await;
    let names = [
        "apiserver: missing SAN",
        "etcd/server: missing SAN",
        "etcd/peer: missing SAN",
        "kubelet: missing SAN",
    ];
    assert_eq!(without_listeners(found.clone()), names);
    let detail = &row(&found, "apiserver")
        .problems
        .iter()
        .find(|problem| problem.kind == Kind::MissingName)
        .unwrap()
        .detail;
    assert_eq!(detail, "2001:db8::7, new.example");
    // What a node of ours has is known: what is not there is missed.
    std::fs::remove_file(layout.pki().join("scheduler.crt")).unwrap();
    let found = look_at(layout.clone(), now).await;
    assert_eq!(row(&found, "scheduler").problems.len(), 1, "{found:?}");
    assert_eq!(found.verdict, Verdict::Broken);
    // A leaf of an earlier release, and a bundle that lost its authority.
    node_pki::prepare(&layout, &state, now).unwrap();
    let made = Openssl::new();
    let pki = layout.pki();
    let (ca, admin) = (
        pki.join("ca").display().to_string(),
        pki.join("admin").display().to_string(),
    );
    made.run(&format!("req -x509 -CA {ca}.crt -CAkey {ca}.key -key {admin}.key -out {admin}.crt -subj /O=system:masters/CN=admin -days 300 {CLIENT}"));
    made.authority("other", "");
    atomic_file::write(
        &pki.join("etcd/ca-bundle.crt"),
        &made.read("other.crt"),
        atomic_file::Access::Public,
    )
    .unwrap();
    // Made a moment after the others.
    let now = clock::now();
    let found = look_at(layout.clone(), now).await;
    assert_eq!(found.subject_drift, ["admin"]);
    assert_eq!(
        without_listeners(found),
        ["admin: subject drift", "etcd/ca: not in its bundle"]
    );
    // A kubeconfig that was edited.
    let path = layout.kubeconfig(Identity::Operator);
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        (
            "pki/operator.crt",
            "pki/admin.crt",
            "operator: kubeconfig leads elsewhere",
        ),
        (
            "pki/operator.key",
            "pki/gone.key",
            "operator: kubeconfig leads elsewhere",
        ),
        (
            "pki/ca-bundle.crt",
            "pki/front-proxy-ca.crt",
            "operator: kubeconfig lacks the CA",
        ),
        ("pki/ca-bundle.crt", "pki/gone.crt", "operator: kubeconfig lacks the CA"),
        ("users:", "users: [", "operator: kubeconfig unreadable"),
    ] {
        atomic_file::write(&path, text.replace(from, to).as_bytes(), atomic_file::Access::Secret).unwrap();
        let found = without_listeners(look_at(layout.clone(), now).await);
        assert!(found.contains(&expected.to_owned()), "{from} -> {to}: {found:?}");
    }
}

#[tokio::test]
async fn damaged_files_are_rows_and_their_neighbours_are_told_all_the_same() {
    let made = controller();
    let file = format!("{PKI}/apiserver.crt");
    let whole = made.text(&file);
    for (bytes, expected) in [
        (String::new(), "no certificate"),
        (whole[..whole.len() / 2].to_owned(), "no certificate"),
        (format!("\u{feff}{whole}"), "start of a line"),
        (made.text(&format!("{PKI}/apiserver.key")), "PRIVATE KEY block"),
        (whole.replacen("MII", "AAA", 1), "cannot be parsed"),
    ] {
        made.write(&file, bytes);
        let report = look(&made).await;
        assert_eq!(
            (report.verdict, wrong(&report)),
            (Verdict::Broken, vec!["apiserver: unreadable".to_owned()])
        );
        let row = row(&report, "apiserver");
        assert!(
            row.problems[0].detail.contains(expected) && row.problems[0].detail.contains("apiserver.crt"),
            "{row:?}"
        );
        assert_eq!((row.not_after, row.days_left), (None, None));
    }
    for text in [
        whole.replace('\n', "\r\n"),
        whole.trim_end().to_owned(),
        format!("# comment\n{whole}"),
    ] {
        made.write(&file, text);
        assert_eq!(wrong(&look(&made).await), [""; 0]);
    }
}

#[tokio::test]
async fn damaged_keys() {
    let made = controller();
    let file = format!("{PKI}/apiserver.key");
    let key = made.text(&file);
    for (bytes, expected) in [
        (made.text(&format!("{PKI}/etcd/server.key")), "key mismatch"),
        (
            made.run(&format!("pkcs8 -topk8 -in {file} -passout pass:x")),
            "key encrypted",
        ),
        (String::new(), "key unreadable"),
        (key[..key.len() / 2].to_owned(), "key unreadable"),
        (made.text(&format!("{PKI}/ca.crt")), "key missing"),
    ] {
        made.write(&file, bytes);
        let report = look(&made).await;
        assert_eq!(
            (report.verdict, wrong(&report)),
            (Verdict::Broken, vec![format!("apiserver: {expected}")])
        );
    }
    let sec1 = made.write("sec1", &key);
    let sec1 = made.run(&format!("ec -in {}", sec1.display()));
    made.write(&file, format!("{}{sec1}", made.run("ecparam -name prime256v1")));
    assert_eq!(wrong(&look(&made).await), [""; 0], "SEC1 behind EC PARAMETERS");
    made.remove(&file);
    assert_eq!(wrong(&look(&made).await), ["apiserver: key missing"]);
}

#[tokio::test]
async fn odd_authorities() {
    // No key: somebody else signs, and nothing is wrong with that.
    let made = controller();
    made.remove(&format!("{PKI}/ca.key"));
    let report = look(&made).await;
    assert_eq!((report.verdict, wrong(&report)), (Verdict::Fine, vec![]));
    assert!(row(&report, "ca").externally_managed && row(&report, "apiserver").externally_managed);
    assert!(!row(&report, "etcd-server").externally_managed);

    // Two certificates in a signer's file.
    let made = controller();
    let ca = made.text(&format!("{PKI}/ca.crt"));
    made.write(
        &format!("{PKI}/ca.crt"),
        format!("{ca}{}", made.text(&format!("{PKI}/etcd/ca.crt"))),
    );
    assert_eq!(wrong(&look(&made).await), ["ca: several certificates"]);

    // Another authority of the same name: what it did not sign is told, and who does not trust it.
    let made = controller();
    made.authority(&format!("{PKI}/ca"), "-subj /CN=kubernetes");
    let report = look(&made).await;
    assert_eq!(report.verdict, Verdict::Broken);
    for name in ["apiserver", "apiserver-kubelet-client", "kubelet-client"] {
        assert!(
            wrong(&report).contains(&format!("{name}: wrong signer")),
            "{:?}",
            wrong(&report)
        );
    }
    for name in ["admin.conf", "scheduler.conf", "kubelet-client"] {
        assert!(
            wrong(&report).contains(&format!("{name}: kubeconfig lacks the CA")),
            "{:?}",
            wrong(&report)
        );
    }
    assert!(!wrong(&report).iter().any(|text| text.starts_with("etcd")));

    // A certificate that may not sign.
    let made = controller();
    made.remove(&format!("{PKI}/front-proxy-client.crt"));
    leaf(&made, "front-proxy-ca", "ca", "/CN=front-proxy-ca", SERVER);
    assert_eq!(wrong(&look(&made).await), ["front-proxy-ca: may not sign"]);
}

#[tokio::test]
async fn odd_kinds_of_authorities_sign_all_the_same() {
    for (kind, subject) in [
        ("-newkey rsa:4096", "/CN=kubernetes"),
        ("-newkey ec -pkeyopt ec_paramgen_curve:P-384", "/CN=kubernetes"),
        ("-newkey ec -pkeyopt ec_paramgen_curve:P-256", "/O=a/OU=one/OU=two/CN=k"),
    ] {
        let made = Openssl::new();
        made.manifest("kube-apiserver", &["--bind-address=127.0.0.1", "--secure-port=1"]);
        made.authority(&format!("{PKI}/ca"), &format!("{kind} -subj {subject}"));
        leaf(&made, "apiserver", "ca", "/CN=kube-apiserver", SERVER);
        let report = look(&made).await;
        assert_eq!(
            (report.verdict, wrong(&report)),
            (Verdict::Fine, vec![]),
            "{kind} {subject}"
        );
    }
    // An authority without a key identifier, which its leaves cannot name.
    let made = Openssl::new();
    made.manifest("kube-apiserver", &["--bind-address=127.0.0.1", "--secure-port=1"]);
    let none = "-subj /CN=kubernetes -addext subjectKeyIdentifier=none";
    made.authority(&format!("{PKI}/ca"), none);
    made.write("usage", "extendedKeyUsage=serverAuth\n");
    let (file, ca) = (format!("{PKI}/apiserver"), format!("{PKI}/ca"));
    made.run(&format!(
        "req -new -newkey rsa:2048 -nodes -keyout {file}.key -out a.csr -subj /CN=kube-apiserver"
    ));
    made.run(&format!(
        "x509 -req -in a.csr -CA {ca}.crt -CAkey {ca}.key -out {file}.crt -days 365 -extfile usage"
    ));
    let report = look(&made).await;
    assert_eq!(
        (wrong(&report), row(&report, "apiserver").issuer_key_id.clone()),
        (vec![], None)
    );
    // Ed25519 is good for Go, and no key of it can be used here: said, and nothing more.
    let made = Openssl::new();
    made.manifest("kube-apiserver", &["--bind-address=127.0.0.1", "--secure-port=1"]);
    made.authority(&format!("{PKI}/ca"), "-newkey ed25519 -subj /CN=kubernetes");
    leaf(
        &made,
        "apiserver",
        "ca",
        "/CN=kube-apiserver",
        &format!("-newkey ed25519 {SERVER}"),
    );
    let report = look(&made).await;
    assert_eq!(wrong(&report), ["apiserver: unsupported", "ca: unsupported"]);
    assert_eq!(report.verdict, Verdict::Fine);
}

#[tokio::test]
async fn names_and_usages_of_servers() {
    // An address that is mapped into IPv6 is none that a client of IPv4 accepts.
    let made = controller();
    leaf(
        &made,
        "apiserver",
        "ca",
        "/CN=kube-apiserver",
        &format!("{SERVER} -addext subjectAltName=IP:::ffff:10.0.0.1"),
    );
    let report = look(&made).await;
    assert_eq!(wrong(&report), ["apiserver: missing SAN"]);
    assert!(row(&report, "apiserver").problems[0].detail.contains("mapped"));
    // Every spelling of an address of IPv6 is the same one.
    made.manifest("kube-apiserver", &["--bind-address=2001:db8:0:0::1", "--secure-port=1"]);
    leaf(
        &made,
        "apiserver",
        "ca",
        "/CN=kube-apiserver",
        &format!("{SERVER} -addext subjectAltName=IP:2001:0db8::0001"),
    );
    // etcd uses what it serves with as a client, too.
    leaf(
        &made,
        "etcd/server",
        "etcd/ca",
        "/CN=alpha",
        &format!("{SERVER} {NAMES}"),
    );
    assert_eq!(wrong(&look(&made).await), ["etcd-server: missing usage"]);
    leaf(&made, "etcd/server", "etcd/ca", "/CN=alpha", &format!("{BOTH} {NAMES}"));
    assert_eq!(wrong(&look(&made).await), [""; 0]);
}

#[tokio::test]
async fn kubeconfigs_of_kubelets() {
    let made = controller();
    let conf = "etc/kubernetes/kubelet.conf";
    let text = made.text(conf);
    // It embeds the first certificate, which nobody renews (kubernetes/kubeadm#1317).
    made.kubeconfig(conf, &format!("{PKI}/ca"), "made/kubelet");
    assert_eq!(
        wrong(&look(&made).await),
        ["kubelet-client: kubeconfig leads elsewhere"]
    );
    // It names what was there before the first rotation, or nothing that is there.
    let current = made
        .path()
        .join("var/lib/kubelet/pki/kubelet-client-current.pem")
        .display()
        .to_string();
    made.write("var/lib/kubelet/pki/kubelet-client.crt", made.read("made/kubelet.crt"));
    for other in ["kubelet-client.crt", "gone.pem"] {
        made.write(conf, text.replace("kubelet-client-current.pem", other));
        assert_eq!(
            wrong(&look(&made).await),
            ["kubelet-client: kubeconfig leads elsewhere"],
            "{other}"
        );
    }
    // A relative path is seen from the kubeconfig.
    made.write(
        conf,
        text.replace(&current, "../../var/lib/kubelet/pki/kubelet-client-current.pem"),
    );
    assert_eq!(wrong(&look(&made).await), [""; 0]);
    // The link is there and leads nowhere.
    made.write(conf, text);
    made.remove("var/lib/kubelet/pki/kubelet-client-2026.pem");
    let report = look(&made).await;
    assert_eq!(wrong(&report), ["kubelet-client: unreadable"]);
    assert!(row(&report, "kubelet-client").problems[0].detail.contains("not there"));
}

#[tokio::test]
async fn kubeconfigs_that_embed_something_else() {
    let made = controller();
    made.leaf("made/other", &format!("{PKI}/etcd/ca"), "/CN=other", CLIENT);
    made.kubeconfig("etc/kubernetes/admin.conf", &format!("{PKI}/ca"), "made/other");
    made.kubeconfig(
        "etc/kubernetes/scheduler.conf",
        &format!("{PKI}/etcd/ca"),
        "made/scheduler",
    );
    made.write("etc/kubernetes/controller-manager.conf", "users: [\n");
    let report = look(&made).await;
    let expected = [
        "admin.conf: wrong signer",
        "controller-manager.conf: unreadable",
        "scheduler.conf: kubeconfig lacks the CA",
    ];
    assert_eq!(wrong(&report), expected);
    // Certificate and key of two pairs.
    made.leaf("made/mixed", &format!("{PKI}/ca"), "/CN=system:kube-scheduler", CLIENT);
    made.write("made/mixed.key", made.read("made/other.key"));
    made.kubeconfig("etc/kubernetes/scheduler.conf", &format!("{PKI}/ca"), "made/mixed");
    assert!(wrong(&look(&made).await).contains(&"scheduler.conf: key mismatch".to_owned()));
}

#[tokio::test]
async fn a_worker_and_a_machine_with_nothing() {
    let made = Openssl::new();
    made.authority(&format!("{PKI}/ca"), "-subj /CN=kubernetes");
    made.kubelet(&format!("{PKI}/ca"));
    made.remove(&format!("{PKI}/ca.key"));
    made.write("var/lib/kubelet/config.yaml", "address: 10.0.0.1\nport: 1\n");
    let report = look_at(Layout::detect(made.path()).unwrap(), clock::now()).await;
    let names: Vec<&str> = report.certificates.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["kubelet-client", "kubelet-server", "ca"]);
    assert_eq!((report.verdict, wrong(&report)), (Verdict::Fine, vec![]));
    let empty = Openssl::new();
    let machine = Machine::load(empty.kubeadm()).unwrap();
    let error = check(&machine, clock::now(), None, LIMITS)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no certificate") && error.contains("--layout"),
        "{error}"
    );
    assert!(
        Machine::load(Layout::under(empty.path()))
            .unwrap_err()
            .to_string()
            .contains("stratum server")
    );
}

#[tokio::test]
async fn links_and_folders_that_may_not_be_written() {
    let made = controller();
    let (real, pki) = (made.path().join("disk"), made.path().join(PKI));
    std::fs::rename(&pki, &real).unwrap();
    std::os::unix::fs::symlink(&real, &pki).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(wrong(&look(&made).await), [""; 0]);
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn what_is_remembered_beside_the_certificates() {
    let made = controller();
    assert_eq!(look(&made).await.renewal, Renewal::None);
    let record = |text: &str| {
        made.write("var/lib/stratum/renewal.json", text);
        super::beside::renewal(&made.kubeadm())
    };
    let at = "2026-01-01T00:00:00Z".to_owned();
    let text = |rest: &str| format!("{{\"attemptedAt\": \"{at}\"{rest}}}");
    let attempted_at = at.clone();
    assert_eq!(
        record(&text("")),
        Renewal::Succeeded {
            attempted_at: attempted_at.clone()
        }
    );
    assert_eq!(
        record(&text(", \"finishedAt\": \"2026-01-01T00:01:00Z\"")),
        Renewal::Succeeded {
            attempted_at: attempted_at.clone()
        }
    );
    let running = text(", \"state\": \"in progress\", \"result\": \"in progress\"");
    assert_eq!(
        record(&running),
        Renewal::InProgress {
            attempted_at: attempted_at.clone()
        }
    );
    let result = "no CA".to_owned();
    assert_eq!(
        record(&text(", \"result\": \"no CA\"")),
        Renewal::Failed { attempted_at, result }
    );
    for bad in ["", "{", "[]", "{\"attemptedAt\": 1}"] {
        assert!(matches!(record(bad), Renewal::Unreadable { .. }), "{bad}");
    }
    made.write("var/lib/stratum/rotation-incomplete.json", "{\"expired\": true}");
    let report = look(&made).await;
    assert_eq!(report.verdict, Verdict::RotationOpen);
    assert!(report.rotation.incomplete && report.rotation.incomplete_from_expired);
    made.write("var/lib/stratum/rotation-incomplete.json", "{");
    assert!(look(&made).await.rotation.incomplete, "one that cannot be read counts");
}

#[tokio::test]
async fn what_is_served_is_compared() {
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    use std::sync::Arc;
    let made = controller();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let chain = vec![CertificateDer::from_pem_slice(&made.read(&format!("{PKI}/apiserver.crt"))).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(&made.read(&format!("{PKI}/apiserver.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(stream).await.map(drop) });
        }
    });
    made.manifest(
        "kube-apiserver",
        &["--bind-address=127.0.0.1", &format!("--secure-port={}", at.port())],
    );
    let patient = Limits {
        listener: Duration::from_secs(5),
        ..LIMITS
    };
    let ask = async || {
        check(&Machine::load(made.kubeadm()).unwrap(), clock::now(), None, patient)
            .await
            .unwrap()
    };
    let report = ask().await;
    assert_eq!(
        (wrong(&report), row(&report, "apiserver").served_at.clone()),
        (vec![], vec![at.to_string()])
    );
    leaf(
        &made,
        "apiserver",
        "ca",
        "/CN=kube-apiserver",
        &format!("{SERVER} {NAMES}"),
    );
    let report = ask().await;
    assert_eq!(
        (report.verdict, wrong(&report)),
        (
            Verdict::Broken,
            vec!["apiserver: served certificate differs".to_owned()]
        )
    );
}

/// Nobody can tell who signed the others.
#[tokio::test]
async fn a_signer_that_is_not_there_is_missed() {
    let made = controller();
    made.remove("etc/kubernetes/pki/ca.crt");
    let found = look(&made).await;
    assert_eq!(found.verdict, Verdict::Broken);
    assert_eq!(row(&found, "ca").problems.len(), 1, "{found:?}");
    // Of etcd it may be somebody else's.
    let made = controller();
    made.remove("etc/kubernetes/pki/etcd/ca.crt");
    assert_eq!(look(&made).await.verdict, Verdict::Fine);
}
