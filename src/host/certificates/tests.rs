//! The roster of both forms, and what is read of files that `openssl` made.

use super::fixtures::{CLIENT, Openssl};
use super::*;
use crate::host::clock;
use crate::host::node_pki;
use crate::host::node_state::examples::one_controller;
use crate::host::node_state::{Profile, Role as NodeRole};

fn machine(layout: Layout) -> Machine {
    Machine::load(layout).unwrap()
}

fn names(entries: &[Entry], role: Role) -> Vec<&str> {
    let of = entries.iter().filter(|entry| entry.role == role);
    of.map(|entry| entry.name.as_str()).collect()
}

fn entry(machine: &Machine, name: &str) -> Entry {
    let mut entries = machine.entries().into_iter();
    entries.find(|entry| entry.name == name).unwrap()
}

fn addresses(listeners: &[SocketAddr]) -> Vec<String> {
    listeners.iter().map(ToString::to_string).collect()
}

#[test]
fn a_controller_of_ours_has_what_is_made_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    let state = NodeState {
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        ..one_controller()
    };
    atomic_file_folder(&layout);
    node_state::save(&layout.node_state(), &state).unwrap();
    node_pki::prepare(&layout, &state, clock::now()).unwrap();
    node_pki::write_kubeconfigs(&layout, &state).unwrap();
    let machine = machine(layout.clone());
    let entries = machine.entries();
    assert_eq!(
        names(&entries, Role::Leaf),
        node_pki::leaves(&state)
            .iter()
            .map(|leaf| leaf.name)
            .filter(|name| *name != "kubelet-client")
            .collect::<Vec<_>>()
    );
    assert_eq!(names(&entries, Role::KubeletClient), ["kubelet-client"]);
    assert_eq!(names(&entries, Role::KubeletServer), [""; 0]);
    assert_eq!(
        names(&entries, Role::Authority),
        ["ca", "etcd/ca", "front-proxy-ca", "kubelet-client-ca"]
    );
    let of = |name: &str| entry(&machine, name);
    assert_eq!(
        addresses(&of("apiserver").listeners),
        ["127.0.0.1:6443", "10.0.0.1:6443", "[fd00::1]:6443"]
    );
    assert_eq!(
        addresses(&of("etcd/server").listeners),
        ["127.0.0.1:2379", "10.0.0.1:2379"]
    );
    assert_eq!(addresses(&of("etcd/peer").listeners), ["10.0.0.1:2380"]);
    assert_eq!(addresses(&of("kubelet").listeners), ["10.0.0.1:10250"]);
    assert_eq!(of("etcd/peer").signer.as_deref(), Some("etcd/ca"));
    assert_eq!(
        of("admin").kubeconfig,
        Some(layout.kubeconfig(crate::host::layout::Identity::Admin))
    );
    assert_eq!(of("kubelet").kubeconfig, None);
    assert!(of("apiserver").expected.is_some() && of("ca").expected.is_none());
    for entry in &entries {
        let found = entry.read().unwrap();
        match &found {
            None => assert_eq!(entry.name, "kubelet-client-ca"),
            Some(found) => assert!(matches!(found.key, KeyState::Matches(_)), "{}: {found:?}", entry.name),
        }
    }
    // Under the other profile the kubelet asks for what it serves with.
    let cis = NodeState {
        profile: Profile::Cis,
        ..state.clone()
    };
    let asks = stratum::entries(&layout, &cis);
    assert_eq!(names(&asks, Role::KubeletServer), ["kubelet-server"]);
    assert!(!names(&asks, Role::Leaf).contains(&"kubelet"));
    // A worker has the kubelet's two, and whom it trusts.
    let worker = NodeState {
        role: NodeRole::Worker,
        etcd: None,
        ..state
    };
    let has = stratum::entries(&layout, &worker);
    let all: Vec<&str> = has.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(all, ["kubelet-client", "kubelet-server", "ca"]);
    assert!(matches!(has[2].store, Store::Bundle(_)), "{has:?}");
    assert!(has[0].expected.is_some());
}

fn atomic_file_folder(layout: &Layout) {
    use crate::host::atomic_file::{Access, create_folder};
    create_folder(&layout.state(), Access::Secret).unwrap();
}

#[test]
fn a_controller_of_kubeadm_has_what_kubeadm_lists() {
    let made = Openssl::kubeadm_controller();
    let machine = machine(made.kubeadm());
    let entries = machine.entries();
    // The order and the names of `kubeadm certs check-expiration`.
    let listed = [
        "admin.conf",
        "apiserver",
        "apiserver-etcd-client",
        "apiserver-kubelet-client",
        "controller-manager.conf",
        "etcd-healthcheck-client",
        "etcd-peer",
        "etcd-server",
        "front-proxy-client",
        "scheduler.conf",
        "super-admin.conf",
    ];
    assert_eq!(names(&entries, Role::Leaf), listed);
    assert_eq!(names(&entries, Role::Authority), ["ca", "etcd-ca", "front-proxy-ca"]);
    for entry in &entries {
        let found = entry.read().unwrap().unwrap();
        assert!(matches!(found.key, KeyState::Matches(_)), "{}: {found:?}", entry.name);
        assert_eq!(found.more, [], "{}", entry.name);
    }
    let of = |name: &str| addresses(&entry(&machine, name).listeners);
    assert_eq!(of("apiserver"), ["127.0.0.1:6443", "10.0.0.1:6443"]);
    assert_eq!(of("etcd-server"), ["127.0.0.1:2379", "10.0.0.1:2379"]);
    assert_eq!(of("etcd-peer"), ["10.0.0.1:2380"]);
    assert_eq!(of("kubelet-server"), ["127.0.0.1:10250"]);
    let kubelet = entry(&machine, "kubelet-client");
    assert_eq!(kubelet.store, Store::Together(made.kubeadm().kubelet_client()));
    assert_eq!(
        kubelet.kubeconfig,
        Some(made.path().join("etc/kubernetes/kubelet.conf"))
    );
    assert_eq!(entry(&machine, "kubelet-server").signer, None);

    made.manifest(
        "kube-apiserver",
        &[
            "--secure-port=443",
            "--secure-port=7443",
            "--bind-address=fd00::5",
            "--advertise-address=10.0.0.1",
        ],
    );
    made.manifest(
        "etcd",
        &[
            "--listen-client-urls=https://0.0.0.0:2379,http://127.0.0.1:2381,https://[::]:4001/",
            "--listen-peer-urls-other=x",
        ],
    );
    made.write(
        "var/lib/kubelet/config.yaml",
        "address: 10.0.0.1\nport: 10350\nother: [1]\n",
    );
    assert_eq!(of("apiserver"), ["[fd00::5]:7443"]);
    assert_eq!(of("etcd-server"), ["127.0.0.1:2379", "[::1]:4001"]);
    assert_eq!(of("etcd-peer"), [""; 0]);
    assert_eq!(of("kubelet-server"), ["10.0.0.1:10350"]);
    made.write("etc/kubernetes/manifests/kube-apiserver.yaml", "a: [");
    made.write("var/lib/kubelet/config.yaml", "- a\n");
    assert_eq!(of("apiserver"), ["127.0.0.1:6443"]);
    assert_eq!(of("kubelet-server"), ["127.0.0.1:10250"]);

    // A kubelet that asked for its serving certificate, and one that does not rotate its client certificate.
    let both = format!("{}{}", made.text("made/kubelet.crt"), made.text("made/kubelet.key"));
    made.write("var/lib/kubelet/pki/kubelet-server-current.pem", both);
    assert_eq!(entry(&machine, "kubelet-server").signer.as_deref(), Some("ca"));
    made.remove("var/lib/kubelet/pki/kubelet-client-current.pem");
    made.kubeconfig("etc/kubernetes/kubelet.conf", "etc/kubernetes/pki/ca", "made/kubelet");
    let embedded = entry(&machine, "kubelet-client");
    assert_eq!(
        embedded.store,
        Store::Kubeconfig(made.path().join("etc/kubernetes/kubelet.conf"))
    );
    assert!(matches!(embedded.read().unwrap().unwrap().key, KeyState::Matches(_)));
}

/// What became of reading a pair of files with this content, in words.
fn read_pair(certificate: Option<&[u8]>, key: Option<&[u8]>) -> String {
    let made = Openssl::new();
    if let Some(bytes) = certificate {
        made.write("a.crt", bytes);
    }
    if let Some(bytes) = key {
        made.write("a.key", bytes);
    }
    let store = Store::pair(made.path(), "a");
    let entry = Entry::new("a", Role::Leaf, store);
    let looked = entry.look().map(|found| found.map(|found| state(&found.key)));
    let read = entry.read().map(|found| found.map(|found| state(&found.key)));
    assert_eq!(
        looked.map_err(|error| chain(&error)),
        read.map_err(|error| chain(&error))
    );
    match entry.read() {
        Ok(None) => "absent".to_owned(),
        Ok(Some(Found { key, more, .. })) => format!("{} more, {}", more.len(), state(&key)),
        Err(error) => chain(&error).replace(&made.path().display().to_string(), ""),
    }
}

fn state<K>(key: &KeyState<K>) -> String {
    match key {
        KeyState::Matches(_) => "its key".to_owned(),
        KeyState::Other => "another key".to_owned(),
        KeyState::Absent => "no key".to_owned(),
        KeyState::Denied => "denied".to_owned(),
        KeyState::Unreadable(error) => chain(error),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[test]
fn odd_certificate_files() {
    let made = Openssl::new();
    made.authority("ca", "");
    made.leaf("a", "ca", "/CN=a", CLIENT);
    let (pem, key, ca) = (made.text("a.crt"), made.text("a.key"), made.text("ca.crt"));
    let read = |bytes: &[u8]| read_pair(Some(bytes), Some(key.as_bytes()));
    let fine = "0 more, its key";
    assert_eq!(read(pem.as_bytes()), fine);
    assert_eq!(read(pem.replace('\n', "\r\n").as_bytes()), fine, "CRLF");
    assert_eq!(read(pem.trim_end().as_bytes()), fine, "no final newline");
    assert_eq!(
        read(format!("a comment\n\n{pem}\n# more\n").as_bytes()),
        fine,
        "text around"
    );
    assert_eq!(
        read(made.run("x509 -in a.crt -text").as_bytes()),
        fine,
        "openssl's text"
    );
    assert_eq!(read(format!("{pem}{ca}").as_bytes()), "1 more, its key");
    for (bytes, expected) in [
        (Vec::new(), "/a.crt cannot be used: no certificate"),
        (pem.as_bytes()[..pem.len() / 2].to_vec(), "no certificate"),
        (pem.replace("-----END", "----END").into_bytes(), "no certificate"),
        (format!("\u{feff}{pem}").into_bytes(), "start of a line"),
        (format!("{}{ca}", pem.trim_end()).into_bytes(), "start of a line"),
        (key.clone().into_bytes(), "PRIVATE KEY block where only certificates"),
        (
            pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE").into_bytes(),
            "TRUSTED CERTIFICATE block",
        ),
        (
            made.run("req -new -key a.key -subj /CN=a").into_bytes(),
            "CERTIFICATE REQUEST block",
        ),
        (pem.replacen("MII", "AAA", 1).into_bytes(), "cannot be parsed"),
        (vec![b'x'; (1 << 20) + 1], "longer than"),
    ] {
        let said = read(&bytes);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(read_pair(None, Some(key.as_bytes())), "absent");
}

#[test]
fn odd_key_files() {
    let made = Openssl::new();
    made.authority("ca", "");
    made.leaf("a", "ca", "/CN=a", CLIENT);
    made.leaf("b", "ca", "/CN=b", CLIENT);
    made.leaf("rsa", "ca", "/CN=r", "-newkey rsa:2048");
    made.leaf("p384", "ca", "/CN=p", "-newkey ec -pkeyopt ec_paramgen_curve:P-384");
    made.leaf("ed", "ca", "/CN=e", "-newkey ed25519");
    let read = |certificate: &str, key: &str| read_pair(Some(&made.read(certificate)), Some(key.as_bytes()));
    let fine = "0 more, its key";
    let parameters = made.run("ecparam -name prime256v1");
    let sec1 = made.run("ec -in a.key");
    for key in [
        made.text("a.key"),
        sec1.clone(),
        format!("{parameters}{sec1}"),
        sec1.replace('\n', "\r\n"),
    ] {
        assert_eq!(read("a.crt", &key), fine);
    }
    assert_eq!(
        read("rsa.crt", &made.run("rsa -in rsa.key -traditional")),
        fine,
        "PKCS#1"
    );
    assert_eq!(read("rsa.crt", &made.text("rsa.key")), fine);
    assert_eq!(read("p384.crt", &made.text("p384.key")), fine);
    assert_eq!(read("a.crt", &made.text("b.key")), "0 more, another key");
    made.leaf("rsa2", "ca", "/CN=r", "-newkey rsa:2048");
    assert_eq!(read("rsa.crt", &made.text("rsa2.key")), "0 more, another key");
    assert_eq!(read("rsa.crt", &made.text("a.key")), "0 more, another key");
    assert_eq!(read("a.crt", &made.text("rsa.key")), "0 more, another key");
    made.leaf("weak", "ca", "/CN=r", "-newkey rsa:1024");
    assert!(read("weak.crt", &made.text("weak.key")).contains("no RSA key of 2048"));
    for (key, expected) in [
        (made.text("ed.key"), "no RSA key of 2048"),
        (made.run("pkcs8 -topk8 -in a.key -passout pass:x"), "encrypted"),
        (
            made.run("rsa -in rsa.key -traditional -aes128 -passout pass:x"),
            "encrypted",
        ),
        (String::new(), "no private key"),
        (made.text("a.key") + &made.text("b.key"), "2 private keys"),
        (parameters, "no private key"),
    ] {
        let said = read("a.crt", &key);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(read_pair(Some(&made.read("a.crt")), None), "0 more, no key");
    // Its own key is of a kind nobody here can use, and that is said: the certificate itself is read.
    assert!(read("ed.crt", &made.text("ed.key")).contains("no RSA key"));
}

#[test]
fn odd_places() {
    let made = Openssl::new();
    made.authority("ca", "");
    made.leaf("real/a", "ca", "/CN=a", CLIENT);
    let read = |store: Store| match Entry::new("a", Role::Leaf, store).read() {
        Ok(None) => "absent".to_owned(),
        Ok(Some(found)) => state(&found.key),
        Err(error) => chain(&error),
    };
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, made.path().join(name)).unwrap();
    link("real", "pki");
    assert_eq!(read(Store::pair(&made.path().join("pki"), "a")), "its key");
    link("gone.pem", "current.pem");
    let said = read(Store::Together(made.path().join("current.pem")));
    assert!(said.contains("gone.pem, which is not there"), "{said}");
    // The kubelet's folder of an earlier certificate: only the certificate is left.
    made.write("half.pem", made.read("real/a.crt"));
    assert_eq!(read(Store::Together(made.path().join("half.pem"))), "no key");
    assert!(read(Store::Together(made.path().join("real"))).contains("is no file"));
    assert_eq!(read(Store::Together(made.path().join("half.pem/x"))), "absent");
    rustix::fs::mkfifoat(rustix::fs::CWD, made.path().join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    assert!(
        read(Store::Together(made.path().join("pipe"))).contains("is no file"),
        "nobody writes into it"
    );

    // A kubeconfig that names files, one of them gone; the folder it is seen from is its own.
    let named = "contexts: [{name: c, context: {user: u}}]\nusers: [{name: u, user: {client-certificate: real/a.crt, client-key: real/a.key}}]\n";
    made.write("kc.conf", named);
    let kubeconfig = || Store::Kubeconfig(made.path().join("kc.conf"));
    assert_eq!(read(kubeconfig()), "its key");
    made.remove("real/a.key");
    assert!(read(kubeconfig()).contains("a.key is named by the kubeconfig and is not there"));
    made.remove("real/a.crt");
    assert!(read(kubeconfig()).contains("a.crt, which is not there"));
    made.write(
        "kc.conf",
        "contexts: [{name: c, context: {user: u}}]\nusers: [{name: u, user: {token: t}}]\n",
    );
    assert!(read(kubeconfig()).contains("no client certificate"));
}
