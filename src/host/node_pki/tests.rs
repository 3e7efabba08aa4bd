//! What a node's certificates say, judged by the `openssl` command; what stays, and what is refused.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::super::atomic_file::{self, Access};
use super::super::child::Program;
use super::super::clock;
use super::super::layout::Identity;
use super::super::node_state::{
    Endpoint, Etcd, EtcdAuthority, InitialClusterState, Member, Networks, Profile, Role, Vip,
};
use super::super::rotation_incomplete;
use super::*;
use crate::pki::certificate::Certificate;
use crate::pki::key::{Key, KeyKind, Serial};
use crate::pki::leaf::{Request, issue};
use crate::pki::name::{AlternativeName, Subject};

fn controller() -> NodeState {
    NodeState {
        node_name: "Alpha".to_owned(),
        role: Role::Controller,
        profile: Profile::Default,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        networks: Networks {
            services: vec!["10.96.0.0/12".parse().unwrap(), "fd01::/112".parse().unwrap()],
            pods: vec!["10.244.0.0/16".parse().unwrap()],
            domain: "corp.example".to_owned(),
            learned_dns: None,
        },
        endpoint: Endpoint {
            host: "API.example.org.".to_owned(),
            port: 6443,
        },
        vip: Some(Vip {
            address: "10.0.0.100".parse().unwrap(),
            interface: "eth0".to_owned(),
        }),
        extra_names: vec![
            "other.example.org".to_owned(),
            "[fd00::9]".to_owned(),
            "10.0.0.1".to_owned(),
        ],
        etcd: Some(Etcd {
            authority: EtcdAuthority::Own,
            initial_cluster: vec![Member {
                name: "alpha".to_owned(),
                address: "10.0.0.1".parse().unwrap(),
            }],
            initial_cluster_state: InitialClusterState::New,
        }),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        keys: KeyKind::EcdsaP256,
    }
}

fn with_etcd(change: impl FnOnce(&mut Etcd)) -> NodeState {
    let mut state = controller();
    change(state.etcd.as_mut().unwrap());
    state
}

fn worker() -> NodeState {
    NodeState {
        role: Role::Worker,
        etcd: None,
        vip: None,
        ..controller()
    }
}

struct Node {
    _folder: tempfile::TempDir,
    layout: Layout,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        Self {
            _folder: folder,
            layout,
        }
    }

    fn prepared(state: &NodeState) -> Self {
        let node = Self::new();
        prepare(&node.layout, state, clock::now()).unwrap();
        node
    }

    /// What was written, relative to the PKI folder, without the kubelet's own.
    fn prepare(&self, state: &NodeState) -> Vec<String> {
        let changed = prepare(&self.layout, state, clock::now()).unwrap().changed;
        let below = changed
            .iter()
            .map(|path| path.strip_prefix(self.layout.pki()).unwrap_or(path));
        below.map(|path| path.display().to_string()).collect()
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.layout.pki().join(name)).unwrap()
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        atomic_file::write(&self.layout.pki().join(name), bytes, Access::Secret).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.layout.pki().join(name)).unwrap();
    }

    fn certificate(&self, name: &str) -> Certificate {
        Certificate::from_pem(&self.file(&format!("{name}.crt"))).unwrap()
    }

    fn authority(&self, name: &str) -> Authority {
        Authority::load(&self.file(&format!("{name}.crt")), &self.file(&format!("{name}.key"))).unwrap()
    }

    /// Every file below the root: its path, its content (a link's target) and its inode.
    fn everything(&self) -> BTreeMap<PathBuf, (Vec<u8>, u64)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.layout.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = std::fs::symlink_metadata(&path).unwrap();
                if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_symlink() {
                    let target = std::fs::read_link(&path).unwrap();
                    found.insert(path, (target.display().to_string().into_bytes(), metadata.ino()));
                } else {
                    found.insert(path.clone(), (std::fs::read(path).unwrap(), metadata.ino()));
                }
            }
        }
        found
    }
}

async fn openssl(folder: &Path, arguments: &str) -> Result<String, String> {
    let program = Program::new("openssl").arguments(arguments.split(' ')).folder(folder);
    let finished = program.run(Vec::new()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if finished.exit.is_success() {
        Ok(text(finished.stdout))
    } else {
        Err(text(finished.stderr))
    }
}

fn relative(layout: &Layout, path: &Path) -> String {
    path.strip_prefix(layout.root()).unwrap().display().to_string()
}

/// Each row: signer, subject, purposes and names, as `openssl` reads and verifies them.
async fn table(state: &NodeState, node: &Node) -> String {
    let root = node.layout.root();
    let mut rows = String::new();
    for leaf in leaves(state) {
        let file = relative(&node.layout, &leaf.certificate_file(&node.layout));
        let bundle = relative(&node.layout, &node.layout.pki().join(leaf.signer.bundle()));
        let verified = openssl(root, &format!("verify -x509_strict -CAfile {bundle} {file}")).await;
        assert_eq!(verified, Ok(format!("{file}: OK\n")));
        // The same key in both files.
        let key = relative(&node.layout, &leaf.key_file(&node.layout));
        let of_key = openssl(root, &format!("pkey -in {key} -pubout")).await.unwrap();
        let of_certificate = openssl(root, &format!("x509 -in {file} -noout -pubkey")).await.unwrap();
        assert_eq!(of_key, of_certificate, "{file}");
        let mode = std::fs::metadata(leaf.key_file(&node.layout))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
        let said = "-noout -subject -ext subjectAltName,extendedKeyUsage -nameopt utf8,sep_comma_plus";
        let said = openssl(root, &format!("x509 -in {file} {said}")).await.unwrap();
        let said: Vec<&str> = said.lines().map(str::trim).collect();
        rows.push_str(&format!(
            "{} < {}\n  {}\n",
            leaf.name,
            leaf.signer.name(),
            said.join("\n  ")
        ));
    }
    rows
}

#[tokio::test]
async fn openssl_reads_the_whole_table() {
    let node = Node::prepared(&controller());
    insta::assert_snapshot!(table(&controller(), &node).await);
}

/// A hardened node's kubelet asks for its serving certificate; etcd of older clusters stands under the root; one family.
#[tokio::test]
async fn openssl_reads_the_table_of_other_nodes() {
    let mut state = with_etcd(|etcd| etcd.authority = EtcdAuthority::Root);
    state.profile = Profile::Cis;
    state.addresses = vec!["fd00::1".parse().unwrap()];
    state.networks.services = vec!["fd01::/112".parse().unwrap()];
    state.vip = None;
    state.extra_names.clear();
    let node = Node::prepared(&state);
    insta::assert_snapshot!(table(&state, &node).await);
    assert!(!node.layout.pki().join("etcd/ca.crt").exists());
    assert!(!node.layout.pki().join("kubelet.crt").exists());
    assert_eq!(node.file(ETCD_BUNDLE), node.file("ca.crt"));
}

#[test]
fn nobody_who_is_written_is_a_master() {
    for state in [controller(), with_etcd(|etcd| etcd.authority = EtcdAuthority::Root)] {
        for leaf in leaves(&state) {
            let groups = leaf.request.subject.organizations;
            assert!(groups.iter().all(|group| group != "system:masters"), "{}", leaf.name);
        }
    }
    assert!(leaves(&worker()).is_empty());
    let node = Node::prepared(&controller());
    let now = clock::now();
    let credential = bootstrap_credential(&node.layout, &controller(), SignedDuration::from_mins(10), now).unwrap();
    let certificate = Certificate::from_pem(credential.certificate.as_bytes()).unwrap();
    assert_eq!(certificate.details().organizations, ["system:masters"]);
    certificate.check_issued_by(&node.certificate("ca")).unwrap();
}

#[test]
fn what_is_good_stays() {
    let node = Node::prepared(&controller());
    let before = node.everything();
    assert_eq!(node.prepare(&controller()), Vec::<String>::new());
    assert_eq!(node.everything(), before);
    // A worker's kubelet asks for everything it has.
    let worker_node = Node::prepared(&worker());
    assert!(worker_node.everything().is_empty());
}

#[test]
fn a_new_name_renews_what_carries_it_and_keeps_the_key() {
    let node = Node::prepared(&controller());
    let before = node.everything();
    let mut state = controller();
    state.extra_names.push("new.example.org".to_owned());
    assert_eq!(node.prepare(&state), ["apiserver.crt"]);
    let names = node.certificate("apiserver").details().alternative_names.clone();
    assert!(names.contains(&AlternativeName::dns("new.example.org")), "{names:?}");
    for (path, after) in node.everything() {
        assert_eq!(
            before[&path] == after,
            !path.ends_with("apiserver.crt"),
            "{}",
            path.display()
        );
    }
    // Another order of the same names is no change.
    state.extra_names.reverse();
    assert_eq!(node.prepare(&state), Vec::<String>::new());
    state.addresses[0] = "10.0.0.2".parse().unwrap();
    assert_eq!(
        node.prepare(&state),
        ["apiserver.crt", "etcd/server.crt", "etcd/peer.crt", "kubelet.crt"]
    );
}

#[test]
fn what_is_due_is_left_alone_and_what_expired_is_made_anew() {
    let node = Node::prepared(&controller());
    let days = |days: i64| clock::now() + SignedDuration::from_hours(24 * days);
    let due = prepare(&node.layout, &controller(), days(364)).unwrap().changed;
    assert!(
        due.is_empty(),
        "a renewal restarts those who use it, and this does not: {due:?}"
    );
    let changed = prepare(&node.layout, &controller(), days(366)).unwrap().changed;
    // All pairs of the table, their keys kept, and what the kubelet cannot renew any more.
    let ours = changed.iter().filter(|path| path.starts_with(node.layout.pki()));
    assert_eq!(ours.clone().count(), leaves(&controller()).len() - 1, "{changed:?}");
    assert!(
        ours.clone().all(|path| path.extension().unwrap() == "crt"),
        "{changed:?}"
    );
    assert!(changed.contains(&node.layout.kubelet_client()), "{changed:?}");
}

/// Nobody is restarted here, so whoever can has to be told.
#[test]
fn what_is_repaired_beside_pods_leaves_the_marker() {
    let node = Node::prepared(&controller());
    let marker = || rotation_incomplete::load(&node.layout).unwrap();
    node.remove("scheduler.crt");
    node.prepare(&controller());
    assert_eq!(marker(), None, "no pod can run");
    let manifest = node.layout.static_pods().join("kube-scheduler.yaml");
    atomic_file::create_folder(manifest.parent().unwrap(), Access::Secret).unwrap();
    atomic_file::write(&manifest, b"", Access::Secret).unwrap();
    assert!(node.prepare(&controller()).is_empty());
    assert_eq!(marker(), None, "nothing was repaired");
    node.remove("scheduler.crt");
    node.prepare(&controller());
    let first = marker().unwrap();
    assert_eq!(first.leaves, ["scheduler".to_owned()].into());
    assert!(!first.expired && first.waiting.is_none() && first.written.is_some());
    // A second repair forgets nobody of the first.
    let later = clock::now() + SignedDuration::from_hours(24 * 366);
    node.remove("admin.crt");
    prepare(&node.layout, &controller(), later).unwrap();
    let second = marker().unwrap();
    assert!(
        second.expired && second.leaves.len() == leaves(&controller()).len() - 1,
        "{second:?}"
    );
    // One that cannot be read stands for everybody.
    atomic_file::write(&rotation_incomplete::path(&node.layout), b"{", Access::Secret).unwrap();
    node.remove("admin.crt");
    prepare(&node.layout, &controller(), later).unwrap();
    let third = marker().unwrap();
    assert!(third.expired && third.leaves == second.leaves, "{third:?}");
}

#[test]
fn a_wrong_signer_is_noticed() {
    let (node, other) = (Node::prepared(&controller()), Node::prepared(&controller()));
    for name in ["front-proxy-client", "apiserver-etcd-client", "scheduler"] {
        node.put(&format!("{name}.crt"), &other.file(&format!("{name}.crt")));
        node.put(&format!("{name}.key"), &other.file(&format!("{name}.key")));
    }
    std::fs::remove_file(node.layout.kubelet_client()).unwrap();
    let current = std::fs::read(other.layout.kubelet_client()).unwrap();
    atomic_file::write(&node.layout.kubelet_client(), &current, Access::Secret).unwrap();
    let changed = node.prepare(&controller());
    assert_eq!(
        changed[..3],
        ["apiserver-etcd-client.crt", "front-proxy-client.crt", "scheduler.crt"]
    );
    assert_eq!(changed.len(), 5, "{changed:?}");
    // The kubelet's would have been good under an authority that its bundle names.
    atomic_file::write(&node.layout.kubelet_client(), &current, Access::Secret).unwrap();
    node.put(KUBELET_CLIENT_BUNDLE, &other.file("ca.crt"));
    node.prepare(&controller());
    assert_eq!(std::fs::read(node.layout.kubelet_client()).unwrap(), current);
    assert_eq!(
        node.file(KUBELET_CLIENT_BUNDLE),
        other.file("ca.crt"),
        "never widened again"
    );
}

/// The kubelet's store reads a plain file in the link's place, and refuses to replace it.
#[test]
fn the_kubelets_certificate_is_a_link_to_a_dated_file() {
    let node = Node::prepared(&controller());
    let current = node.layout.kubelet_client();
    let target = std::fs::read_link(&current).unwrap();
    let name = target.to_str().unwrap();
    assert_eq!(name.len(), "kubelet-client-2006-01-02-15-04-05.pem".len(), "{name}");
    let pem = std::fs::read_to_string(&current).unwrap();
    let order: Vec<&str> = pem.lines().filter(|line| line.starts_with("-----BEGIN")).collect();
    assert_eq!(order, ["-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----"]);
    std::fs::remove_file(&current).unwrap();
    std::fs::rename(current.with_file_name(name), &current).unwrap();
    assert_eq!(node.prepare(&controller()).len(), 2);
    assert!(current.is_symlink());
    assert_eq!(std::fs::read_to_string(&current).unwrap(), pem);
}

#[test]
fn half_an_authority_or_a_lost_one_is_never_replaced() {
    let refused = |state: &NodeState, remove: &[&str]| {
        let node = Node::prepared(&controller());
        remove.iter().for_each(|name| node.remove(name));
        let before = node.everything();
        let error = prepare(&node.layout, state, clock::now()).unwrap_err();
        assert_eq!(node.everything(), before);
        assert_eq!(error.to_string().lines().count(), 1);
        assert!(error.to_string().contains(remove[0]), "{error}");
        error
    };
    let half = |error: Error| matches!(error, Error::Folder(pki_folder::Error::HalfAuthority { .. }));
    for name in ["ca", "etcd/ca", "front-proxy-ca"] {
        let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
        assert!(half(refused(&controller(), &[&certificate])));
        assert!(half(refused(&controller(), &[&key])));
        let lost = refused(&controller(), &[&certificate, &key]);
        assert!(matches!(lost, Error::LostAuthority { .. }), "{lost}");
    }
    let lost = refused(&controller(), &["sa.key"]);
    assert!(
        matches!(lost, Error::Folder(pki_folder::Error::HalfKey { .. })),
        "{lost}"
    );
    // A controller that joined makes none, whatever is left of it.
    let joined = with_etcd(|etcd| etcd.initial_cluster_state = InitialClusterState::Existing);
    let node = Node::new();
    let error = prepare(&node.layout, &joined, clock::now()).unwrap_err();
    assert!(matches!(error, Error::NoAuthority { .. }), "{error}");
    assert!(node.everything().is_empty());
}

#[test]
fn an_unreadable_key_is_told_or_replaced() {
    let node = Node::prepared(&controller());
    node.put("scheduler.key", b"nothing");
    assert_eq!(node.prepare(&controller()), ["scheduler.key", "scheduler.crt"]);
    // A leaf's key of another pair counts: the certificate follows it.
    node.put("scheduler.key", &node.file("admin.key"));
    assert_eq!(node.prepare(&controller()), ["scheduler.crt"]);
    for name in ["ca.key", "sa.key"] {
        let node = Node::prepared(&controller());
        node.put(
            name,
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        );
        let error = prepare(&node.layout, &controller(), clock::now()).unwrap_err();
        assert!(matches!(error, Error::Folder(_)), "{error}");
    }
    node.put("ca.key", &node.file("etcd/ca.key"));
    let error = prepare(&node.layout, &controller(), clock::now()).unwrap_err();
    assert!(error.to_string().contains("ca.crt"), "{error}");
    let node = Node::prepared(&controller());
    node.remove("ca.key");
    std::fs::create_dir(node.layout.pki().join("ca.key")).unwrap();
    let error = prepare(&node.layout, &controller(), clock::now()).unwrap_err();
    assert!(
        matches!(error, Error::Folder(pki_folder::Error::Read { .. })),
        "{error}"
    );
}

#[test]
fn no_leaf_outlives_its_signer_and_an_expired_one_signs_nothing() {
    let node = Node::prepared(&controller());
    let last_month = clock::now() + SignedDuration::from_hours(24 * (3650 - 30));
    prepare(&node.layout, &controller(), last_month).unwrap();
    for leaf in leaves(&controller()) {
        if leaf.place == Place::Pair {
            let end = node.certificate(leaf.signer.name()).details().not_after;
            assert_eq!(node.certificate(leaf.name).details().not_after, end, "{}", leaf.name);
        }
    }
    assert!(
        prepare(&node.layout, &controller(), last_month)
            .unwrap()
            .changed
            .is_empty()
    );
    let before = node.everything();
    let after_all = clock::now() + SignedDuration::from_hours(24 * 3651);
    let error = prepare(&node.layout, &controller(), after_all).unwrap_err();
    assert!(
        matches!(error, Error::Folder(pki_folder::Error::Issue { .. })),
        "{error}"
    );
    assert_eq!(node.everything(), before);
}

/// The folder of etcd's files stands for a disk that is full there only: nothing else changes either.
#[test]
fn a_folder_that_cannot_be_written_leaves_nothing_half_written() {
    let node = Node::new();
    atomic_file::create_folder(&node.layout.pki(), Access::Secret).unwrap();
    let in_the_way = node.layout.kubelet_root();
    atomic_file::create_folder(in_the_way.parent().unwrap(), Access::Public).unwrap();
    atomic_file::write(&in_the_way, b"no folder", Access::Public).unwrap();
    let before = node.everything();
    prepare(&node.layout, &controller(), clock::now()).unwrap_err();
    assert_eq!(node.everything(), before);
    std::fs::remove_file(in_the_way).unwrap();
    node.prepare(&controller());
    assert_eq!(node.prepare(&controller()), [""; 0], "it was done");
}

#[test]
fn bundles_only_grow_and_are_compared_by_content() {
    let (node, other) = (Node::prepared(&controller()), Node::prepared(&controller()));
    for (bundle, file) in [
        (ROOT_BUNDLE, "ca.crt"),
        (ETCD_BUNDLE, "etcd/ca.crt"),
        ("front-proxy-ca-bundle.crt", "front-proxy-ca.crt"),
        (KUBELET_CLIENT_BUNDLE, "ca.crt"),
        (SERVICE_ACCOUNT_BUNDLE, "sa.pub"),
    ] {
        assert_eq!(node.file(bundle), node.file(file), "{bundle}");
        let (own, foreign) = (node.file(file), other.file(file));
        // The other one first, a comment, other line ends: it holds all it has to.
        let wide = [b"# both\r\n", &foreign[..], &own].concat();
        node.put(bundle, &wide);
        assert_eq!(node.prepare(&controller()), Vec::<String>::new(), "{bundle}");
        // The other one alone: ours is added, unless a migration has taken it out.
        node.put(bundle, &foreign);
        if bundle == KUBELET_CLIENT_BUNDLE {
            assert_eq!(node.prepare(&controller()), Vec::<String>::new());
        } else {
            assert_eq!(node.prepare(&controller()), [bundle]);
            assert_eq!(node.file(bundle), [&foreign[..], &own].concat(), "{bundle}");
        }
        for damaged in [
            &b""[..],
            b"text",
            &own[..own.len() / 2],
            &[&own[..], &node.file("sa.key")].concat(),
        ] {
            node.put(bundle, damaged);
            let error = prepare(&node.layout, &controller(), clock::now()).unwrap_err();
            assert!(
                matches!(error, Error::Folder(pki_folder::Error::Bundle { .. })),
                "{bundle}: {error}"
            );
            assert_eq!(node.file(bundle), damaged);
        }
        node.put(bundle, &own);
    }
    node.put("sa.pub", b"lost");
    assert_eq!(node.prepare(&controller()), ["sa.pub"]);
}

#[test]
fn rsa_keys_are_made_ahead_and_of_the_kind_that_was_asked_for() {
    let state = NodeState {
        keys: KeyKind::Rsa2048,
        ..controller()
    };
    let node = Node::prepared(&state);
    for leaf in leaves(&state) {
        let key = Key::from_pem(&std::fs::read(leaf.key_file(&node.layout)).unwrap()).unwrap();
        assert_eq!(key.kind(), KeyKind::Rsa2048, "{}", leaf.name);
    }
    // Every one is another key.
    let all = node.everything();
    let keys: std::collections::BTreeSet<&[u8]> = all
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "key"))
        .map(|(_, (bytes, _))| bytes.as_slice())
        .collect();
    assert_eq!(keys.len(), leaves(&state).len() - 1 + 4);
    // An authority that is there keeps its kind.
    node.remove("admin.key");
    node.prepare(&controller());
    assert_eq!(node.authority("ca").key().kind(), KeyKind::Rsa2048);
    assert_eq!(
        Key::from_pem(&node.file("admin.key")).unwrap().kind(),
        KeyKind::EcdsaP256
    );
}

mod handing_over;
mod kubeconfig_files;
