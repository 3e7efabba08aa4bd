use std::cell::Cell;
use std::os::unix::net::UnixListener;

use jiff::Timestamp;

use super::super::tests::{chain, listing, machine, put};
use super::*;
use crate::pki::authority::Authority;
use crate::pki::key::{Key, KeyKind, Serial};

/// Every file that a text makes, one after the other, as containerd sees the folder.
fn rendered(text: &str) -> Result<String, String> {
    let path = Path::new("/etc/stratum/registries.yaml");
    let registries = file::parse(path, text.as_bytes()).map_err(|error| chain(&error))?;
    let files = hosts::render(&registries).map_err(|error| chain(&error))?;
    let mut all = String::new();
    for (name, file) in files {
        // containerd skips what it cannot parse.
        file.text.parse::<toml::Table>().unwrap();
        all.push_str(&format!("== {name} {:?}\n{}", file.access, file.text));
    }
    Ok(all)
}

fn refused(text: &str) -> String {
    let error = rendered(text).unwrap_err();
    assert!(
        error.contains("/etc/stratum/registries.yaml") && error.lines().count() == 1,
        "{error}"
    );
    error
}

#[test]
fn mirrors_in_their_order_and_the_wildcard() {
    insta::assert_snapshot!(
        rendered(
            "mirrors:\n  docker.io:\n    endpoint:\n      - https://zeta.example.org\n      - https://alpha.example.org:8443/\n      - http://10.0.0.9:5000\n  '*':\n    endpoint: ['https://cache.example.org/v2/']\n  ghcr.io:\nconfigs:\n  '*':\n    tls: {ca_file: /ca.crt}\n  quay.io:\n"
        )
        .unwrap()
    );
}

#[test]
fn ports_paths_and_plain_http() {
    insta::assert_snapshot!(
        rendered(
            "mirrors:\n  registry.example.org:5000:\n    endpoint: ['https://harbor.example.org/v2/cache/', 'http://registry.example.org:5000']\n  '[fd00::1]:5000':\n    endpoint: ['http://[fd00::2]:5000/api']\nconfigs:\n  registry.example.org:5000:\n    tls: {insecure_skip_verify: true}\n"
        )
        .unwrap()
    );
}

#[test]
fn passwords_and_client_certificates() {
    insta::assert_snapshot!(
        rendered(
            "mirrors:\n  docker.io:\n    endpoint: ['https://a.example.org']\nconfigs:\n  a.example.org:\n    auth: {username: me, password: 'p:w'}\n    tls: {ca_file: /ca.crt, cert_file: /c.crt, key_file: /c.key}\n  registry-1.docker.io:\n    auth: {auth: bWU6cHc=}\n  b.example.org:\n    auth: {username: '', password: ''}\n"
        )
        .unwrap()
    );
}

#[test]
fn nothing_is_no_file() {
    for text in ["", "# nothing\n\n", "mirrors: {}\n", "mirrors:\nconfigs:\n"] {
        assert_eq!(rendered(text).unwrap(), "", "{text:?}");
    }
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    for (text, line, word) in [
        ("mirrors:\n  docker.io:\n    endpont: []\n", "line 3", "endpont"),
        ("mirror: {}\n", "line 1", "mirror"),
        ("configs:\n  a.io:\n    tls:\n      ca: /x\n", "line 4", "ca"),
        ("configs:\n  a.io:\n    auth:\n      user: x\n", "line 4", "user"),
        ("configs:\n  a.io:\n    token: x\n", "line 3", "token"),
        (
            "mirrors:\n  a.io: {endpoint: ['https://x.io']}\n  a.io: {}\n",
            "line 3",
            "a.io",
        ),
        ("mirrors: [docker.io]\n", "line 1", ""),
        ("mirrors:\n  docker.io: {\n", "line", ""),
        (
            "mirrors:\n  a.io:\n    endpoint:\n      - https://b.io\n      - ftp://c.io\n",
            "line 5",
            "ftp://c.io",
        ),
        (
            "mirrors:\n  a.io:\n    endpoint: [b.io]\n",
            "line 3",
            "mirrors.\"a.io\".endpoint",
        ),
        (
            "mirrors:\n  a.io:\n    rewrite:\n      '^x': y\n",
            "line 4",
            "mirrors.\"a.io\".rewrite",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(line) && error.contains(word), "{error}");
    }
}

#[test]
fn names_that_containerd_would_never_look_for() {
    for (name, word) in [
        ("*.example.org", "no patterns"),
        ("docker.*", "no patterns"),
        ("https://docker.io", "without https://"),
        ("docker.io/library", "a part of one"),
        ("index.docker.io", "docker.io"),
        ("dockerhub", "no registry's name"),
        ("..", "no registry's name"),
        (".hidden.io", "no registry's name"),
        ("_default", "no registry's name"),
        ("a.io:", "no registry's name"),
        ("a.io:0", "no registry's name"),
        ("a.io:70000", "no registry's name"),
        ("[::1", "no registry's name"),
        ("a b.io", "no registry's name"),
        ("", "no registry's name"),
    ] {
        for section in ["mirrors", "configs"] {
            let error = refused(&format!("{section}: {{'{name}': {{}}}}\n"));
            assert!(
                error.contains(word) && error.contains(&format!("{section}.\"{name}\"")),
                "{error}"
            );
        }
    }
    for name in [
        "localhost",
        "a.io",
        "a_b.io:5000",
        "10.0.0.1",
        "host:5000",
        "[::1]:5000",
    ] {
        rendered(&format!("mirrors: {{'{name}': {{}}}}\n")).unwrap();
    }
}

#[test]
fn endpoints_that_mean_nothing() {
    for (endpoint, word) in [
        ("mirror.example.org", "no endpoint"),
        ("mirror.example.org:5000", "no endpoint"),
        ("https://", "no endpoint"),
        ("https:///v2", "no endpoint"),
        ("https://a.io?x=1", "no endpoint"),
        ("https://a.io/#x", "no endpoint"),
        ("https://a b.io", "no endpoint"),
        ("https://a.io:x", "no endpoint"),
    ] {
        let error = refused(&format!("mirrors: {{b.io: {{endpoint: ['{endpoint}']}}}}\n"));
        assert!(error.contains(word) && error.contains("line 1"), "{error}");
    }
    // The same table twice would make the whole file one that containerd skips.
    let twice = refused("mirrors: {b.io: {endpoint: ['https://a.io', 'https://a.io/v2/']}}\n");
    assert!(twice.contains("twice"), "{twice}");
    let error = refused("mirrors: {b.io: {endpoint: ['https://me:hunter2@a.io']}}\n");
    assert!(
        error.contains("belong into configs") && !error.contains("hunter2"),
        "{error}"
    );
}

#[test]
fn passwords_that_cannot_be_sent() {
    let config = |name: &str, config: &str| refused(&format!("configs: {{'{name}': {{{config}}}}}\n"));
    assert!(config("*", "auth: {username: a, password: hunter2}").contains("every registry"));
    assert!(config("a.io", "auth: {identity_token: hunter2}").contains("auth.identity_token"));
    for auth in [
        "username: me",
        "password: hunter2",
        "username: 'm:e', password: hunter2",
        "username: me, password: hunter2, auth: aHVudGVyMjp4",
        "auth: 'hunter2!'",
        "auth: aHVudGVyMg==",
    ] {
        let error = config("a.io", &format!("auth: {{{auth}}}"));
        assert!(error.contains("username and password, or auth alone"), "{error}");
        assert!(!error.contains("hunter2") && !error.contains("aHVudGVy"), "{error}");
    }
    assert!(config("a.io", "tls: {cert_file: /x}").contains("go together"));
    let text = "configs: {a.io: {auth: {username: me, password: hunter2}}}\n";
    let registries = file::parse(Path::new("/x"), text.as_bytes()).unwrap();
    let files = hosts::render(&registries).unwrap();
    assert!(!format!("{registries:?} {files:?}").contains("bWU6aHVudGVyMg"));
}

/// A node whose registries.yaml can be changed, and whose containerd can be made to run.
struct Node {
    root: tempfile::TempDir,
    layout: Layout,
    restarts: Cell<u32>,
}

impl Node {
    fn new() -> Self {
        let root = machine(&[]);
        Self {
            layout: Layout::under(root.path()),
            root,
            restarts: Cell::new(0),
        }
    }

    fn says(&self, text: &str) {
        put(&self.layout.registries(), text);
    }

    fn runs(&self) -> UnixListener {
        let socket = self.layout.containerd_socket();
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let _ = std::fs::remove_file(&socket);
        UnixListener::bind(&socket).unwrap()
    }

    fn apply(&self) -> Result<ApplyRegistryResult, Unfinished> {
        self.apply_with(async || {
            self.restarts.set(self.restarts.get() + 1);
            Ok(())
        })
    }

    fn apply_with<R>(&self, restart: R) -> Result<ApplyRegistryResult, Unfinished>
    where
        R: AsyncFnOnce() -> Result<(), Box<dyn std::error::Error + Send + Sync>>,
    {
        futures::executor::block_on(apply_registry(&self.layout, restart))
    }

    fn files(&self) -> Vec<String> {
        listing(&self.layout.containerd())
    }
}

const ONE: &str = "mirrors: {docker.io: {endpoint: ['https://a.example.org']}}\n";
const TWO: &str = "mirrors: {docker.io: {endpoint: ['https://b.example.org']}, quay.io: {endpoint: ['https://b.example.org']}}\n\
                   configs: {b.example.org: {auth: {username: me, password: pw}}}\n";

fn result(changed: bool, restarted: bool) -> ApplyRegistryResult {
    ApplyRegistryResult { changed, restarted }
}

#[test]
fn changed_and_restarted_are_two_things() {
    let node = Node::new();
    // No file, nothing to do.
    assert_eq!(node.apply().unwrap(), result(false, false));
    assert_eq!(node.files(), ["755 conf.d"]);
    // The drop-in appears; nothing runs that could be restarted.
    node.says(ONE);
    assert_eq!(node.apply().unwrap(), result(true, false));
    let drop_in = std::fs::read_to_string(drop_in_path(&node.layout)).unwrap();
    insta::assert_snapshot!(drop_in.replace(node.root.path().to_str().unwrap(), ""));
    let listener = node.runs();
    assert_eq!(node.apply().unwrap(), result(false, false));
    // Other mirrors are read live.
    node.says(TWO);
    assert_eq!(node.apply().unwrap(), result(false, false));
    assert_eq!(
        node.files(),
        [
            "755 certs.d",
            "755 certs.d/b.example.org",
            "600 certs.d/b.example.org/hosts.toml",
            "755 certs.d/docker.io",
            "600 certs.d/docker.io/hosts.toml",
            "755 certs.d/quay.io",
            "600 certs.d/quay.io/hosts.toml",
            "755 conf.d",
            "644 conf.d/10-registry.toml"
        ]
    );
    // A mirror that went leaves nothing; a file without a password is everybody's again.
    node.says(ONE);
    assert_eq!(node.apply().unwrap(), result(false, false));
    assert_eq!(
        node.files(),
        [
            "755 certs.d",
            "755 certs.d/docker.io",
            "644 certs.d/docker.io/hosts.toml",
            "755 conf.d",
            "644 conf.d/10-registry.toml"
        ]
    );
    assert_eq!(node.restarts.get(), 0);
    // The last one goes, and the drop-in with it: one restart.
    std::fs::remove_file(node.layout.registries()).unwrap();
    assert_eq!(node.apply().unwrap(), result(true, true));
    assert_eq!(node.files(), ["755 certs.d", "755 conf.d"]);
    assert_eq!(node.restarts.get(), 1);
    assert_eq!(node.apply().unwrap(), result(false, false));
    assert_eq!(node.restarts.get(), 1);
    drop(listener);
}

#[test]
fn a_restart_that_fell_through_is_made_up_for() {
    let node = Node::new();
    let listener = node.runs();
    node.says(ONE);
    let error = node.apply_with(async || Err("no supervisor".into())).unwrap_err();
    assert!(
        error.changed && chain(&error).contains("no supervisor"),
        "{}",
        chain(&error)
    );
    // The drop-in is as it should be, but what runs has not read it.
    assert_eq!(node.apply().unwrap(), result(false, true));
    assert_eq!(node.apply().unwrap(), result(false, false));
    assert_eq!(node.restarts.get(), 1);
    // Restarted, and gone.
    node.says("");
    let socket = node.layout.containerd_socket();
    let mut listener = Some(listener);
    let error = node
        .apply_with(async || {
            listener.take();
            Ok(())
        })
        .unwrap_err();
    assert!(
        error.changed && chain(&error).contains(socket.to_str().unwrap()),
        "{}",
        chain(&error)
    );
    // Started by somebody else since, or not: nothing runs now, and a start reads everything.
    assert_eq!(node.apply().unwrap(), result(false, false));
    let _listener = node.runs();
    assert_eq!(node.apply().unwrap(), result(false, false));
}

#[test]
fn nothing_is_touched_when_the_file_is_bad() {
    let node = Node::new();
    let _listener = node.runs();
    node.says(TWO);
    assert_eq!(node.apply().unwrap(), result(true, true));
    let before = node.files();
    for bad in [
        "mirrors: {docker.io: {endpoint: ['ftp://x']}}",
        "mirrors: {docker.io: {endpoint: [",
        "configs: {a.io: {tls: {ca_file: /no/such/ca.crt}}}",
    ] {
        node.says(bad);
        let error = node.apply().unwrap_err();
        assert!(
            !error.changed && matches!(error.source, Error::Registries(_)),
            "{}",
            chain(&error)
        );
        assert_eq!(node.files(), before);
    }
    assert_eq!(node.restarts.get(), 1);
}

#[test]
fn files_of_others_stay() {
    let node = Node::new();
    let certs = node.layout.containerd().join("certs.d");
    put(
        &certs.join("mine.example.org/hosts.toml"),
        "server = 'https://mine.example.org'\n",
    );
    put(&certs.join("docker.io/client.cert"), "");
    put(&certs.join("note.txt"), "");
    std::fs::create_dir(certs.join("empty.example.org")).unwrap();
    node.says(ONE);
    node.apply().unwrap();
    node.says("");
    node.apply().unwrap();
    assert_eq!(
        node.files(),
        [
            "755 certs.d",
            "755 certs.d/docker.io",
            "644 certs.d/docker.io/client.cert",
            "755 certs.d/mine.example.org",
            "644 certs.d/mine.example.org/hosts.toml",
            "644 certs.d/note.txt",
            "755 conf.d"
        ]
    );
}

#[test]
fn changed_is_told_beside_an_error() {
    // The drop-in goes first when the last mirror goes; the leftover behind it cannot be read.
    let node = Node::new();
    node.says(ONE);
    node.apply().unwrap();
    let file = node.layout.containerd().join("certs.d/docker.io/hosts.toml");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    node.says("");
    let error = node.apply().unwrap_err();
    assert!(
        error.changed && chain(&error).contains("hosts.toml"),
        "{}",
        chain(&error)
    );
    // And it comes last when the first one comes.
    let node = Node::new();
    node.says(ONE);
    put(&node.layout.containerd().join("certs.d"), "in the way");
    let error = node.apply().unwrap_err();
    assert!(
        !error.changed && !drop_in_path(&node.layout).exists(),
        "{}",
        chain(&error)
    );
}

#[test]
fn every_file_that_is_named_is_looked_at() {
    let node = Node::new();
    let at = |name: &str| node.root.path().join(name);
    let (key, other) = (
        Key::generate(KeyKind::default()).unwrap(),
        Key::generate(KeyKind::default()).unwrap(),
    );
    let pem = certificate(&key);
    put(&at("ca.crt"), &format!("{pem}{pem}"));
    put(&at("c.key"), key.to_pem().expose());
    put(&at("other.key"), other.to_pem().expose());
    put(&at("empty.crt"), "");
    put(&at("cut.crt"), &pem[..pem.len() / 2]);
    let root = node.root.path().display();
    let tls = |tls: &str| {
        node.says(&format!(
            "configs: {{a.io: {{tls: {{{}}}}}}}\n",
            tls.replace('@', &root.to_string())
        ));
        node.apply().map_err(|error| chain(&error))
    };
    tls("ca_file: '@/ca.crt', cert_file: '@/ca.crt', key_file: '@/c.key'").unwrap();
    for (given, key, word) in [
        ("ca_file: '@/none.crt'", "ca_file", "none.crt"),
        ("ca_file: ca.crt", "ca_file", "not an absolute path"),
        ("ca_file: '@/empty.crt'", "ca_file", "no certificate"),
        ("ca_file: '@/cut.crt'", "ca_file", "no certificate"),
        ("ca_file: '@/c.key'", "ca_file", "where only certificates belong"),
        ("ca_file: '@'", "ca_file", "cannot read"),
        ("cert_file: '@/none.crt', key_file: '@/c.key'", "cert_file", "none.crt"),
        ("cert_file: '@/ca.crt', key_file: '@/none.key'", "key_file", "none.key"),
        (
            "cert_file: '@/ca.crt', key_file: '@/ca.crt'",
            "key_file",
            "no private key",
        ),
        (
            "cert_file: '@/ca.crt', key_file: '@/other.key'",
            "key_file",
            "is not the key",
        ),
    ] {
        let error = tls(given).unwrap_err();
        let key = format!("configs.\"a.io\".tls.{key}");
        assert!(error.contains(&key) && error.contains(word), "{given}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

fn certificate(key: &Key) -> String {
    let serial = Serial::random().unwrap();
    let authority = Authority::make("a", key.duplicate().unwrap(), serial, Timestamp::UNIX_EPOCH).unwrap();
    authority.certificate().to_pem()
}
