//! What is published, what is read, and which signatures stand beside it.

use jiff::SignedDuration;
use k8s_openapi::ByteString;

use super::*;
use crate::pki::authority::Authority;
use crate::pki::key::{Key, KeyKind, Serial};
use crate::reconcilers::joining::token::{self, Kind};

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn authority() -> Certificate {
    let key = Key::generate(KeyKind::default()).unwrap();
    let authority = Authority::make("ca", key, Serial::random().unwrap(), now());
    authority.unwrap().certificate().clone()
}

/// A token that ends so many seconds from now.
fn found(text: &str, seconds: i64) -> Found {
    let token = text.parse().unwrap();
    let end = now() + SignedDuration::from_secs(seconds);
    let secret = token::secret("kube-system", &token, Kind::Worker, Some(end), None);
    let data = secret["stringData"].as_object().unwrap();
    let data = data
        .iter()
        .map(|(key, value)| (key.clone(), ByteString(value.as_str().unwrap().as_bytes().to_vec())));
    Found::read(&token.id().secret_name(), &data.collect()).unwrap()
}

fn applied(data: &BTreeMap<String, String>, changes: BTreeMap<String, Option<String>>) -> BTreeMap<String, String> {
    let mut data = data.clone();
    for (key, value) in changes {
        match value {
            Some(value) => data.insert(key, value),
            None => data.remove(&key),
        };
    }
    data
}

#[test]
fn what_is_published_reads_back() {
    let bundle = vec![authority(), authority()];
    for server in [
        "https://10.0.0.1:6443",
        "https://[fd00::1]:6443",
        "https://api.example.com:8443",
    ] {
        let text = render(server, &bundle);
        let expected = Published {
            server: server.to_owned(),
            bundle: bundle.clone(),
        };
        assert_eq!(parse(&text).unwrap(), expected);
        let kube = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(
            kube.clusters[0].cluster.as_ref().unwrap().server.as_deref(),
            Some(server)
        );
        assert!(kube.auth_infos.is_empty());
    }
}

#[test]
fn the_published_text_stays_as_it_is() {
    // Another text would need every token's signature anew.
    let text = render("https://10.0.0.1:6443", &[]);
    assert_eq!(
        text,
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: \"https://10.0.0.1:6443\"\n    certificate-authority-data: \ncontexts: []\ncurrent-context: \"\"\npreferences: {}\nusers: []\n"
    );
}

#[test]
fn kubeadms_form_is_read_too() {
    let authority = authority();
    let data = STANDARD.encode(authority.to_pem());
    let cluster = format!("cluster: {{certificate-authority-data: {data}, server: 'https://a:1'}}");
    for text in [
        format!(
            "apiVersion: v1\nclusters:\n- {cluster}\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n"
        ),
        format!(
            "clusters: [{{name: other, cluster: {{server: x}}}}, {{name: b, {cluster}}}]\ncontexts: [{{name: c, context: {{cluster: b, user: ''}}}}]\ncurrent-context: c\n"
        ),
    ] {
        let read = parse(&text).unwrap();
        assert_eq!(
            (read.server.as_str(), read.bundle.as_slice()),
            ("https://a:1", &[authority.clone()][..])
        );
    }
}

type Is = fn(&Malformed) -> bool;

#[test]
fn what_is_half_written_is_told_as_what_it_is() {
    let data = STANDARD.encode(authority().to_pem());
    let key = STANDARD.encode("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let one = |fields: &str| format!("clusters: [{{name: '', cluster: {{{fields}}}}}]");
    let cut = STANDARD.encode(&authority().to_pem()[..200]);
    let cases: [(String, Is); 11] = [
        ("clusters: [".to_owned(), |error| matches!(error, Malformed::Yaml(_))),
        ("just text".to_owned(), |error| matches!(error, Malformed::Yaml(_))),
        ("apiVersion: v1".to_owned(), |error| {
            matches!(error, Malformed::Clusters(0))
        }),
        ("clusters: null".to_owned(), |error| {
            matches!(error, Malformed::Clusters(0))
        }),
        (
            "clusters: [{name: a, cluster: {}}, {name: b, cluster: {}}]".to_owned(),
            |error| matches!(error, Malformed::Clusters(2)),
        ),
        (one(&format!("certificate-authority-data: {data}")), |error| {
            matches!(error, Malformed::Field("server"))
        }),
        (one("server: 'https://a:1'"), |error| {
            matches!(error, Malformed::Field("certificate-authority-data"))
        }),
        (one("server: 'https://a:1', certificate-authority-data: ''"), |error| {
            matches!(error, Malformed::Field("certificate-authority-data"))
        }),
        (one("server: 'https://a:1', certificate-authority-data: '*'"), |error| {
            matches!(error, Malformed::Base64(_))
        }),
        (
            one(&format!("server: 'https://a:1', certificate-authority-data: {cut}")),
            |error| matches!(error, Malformed::Bundle(_)),
        ),
        (
            one(&format!("server: 'https://a:1', certificate-authority-data: {key}")),
            |error| matches!(error, Malformed::Bundle(_)),
        ),
    ];
    for (text, is) in cases {
        let error = parse(&text).unwrap_err();
        assert!(is(&error), "{text}: {error:?}");
    }
}

#[test]
fn content_and_signatures_change_together() {
    let tokens = [
        found("aaaaaa.0123456789abcdef", 60),
        found("bbbbbb.0123456789abcdef", 60),
    ];
    let empty = BTreeMap::new();
    assert_eq!(
        changes(&empty, None, &tokens, now()),
        BTreeMap::new(),
        "nothing to sign"
    );
    let first = applied(&empty, changes(&empty, Some("one"), &tokens, now()));
    let signed = |content: &str, id: &str| jws::detached(b"0123456789abcdef", id, content.as_bytes());
    let expected = |content: &str, ids: &[&str]| -> BTreeMap<String, String> {
        let signatures = ids
            .iter()
            .map(|id| (format!("jws-kubeconfig-{id}"), signed(content, id)));
        let kubeconfig = (KUBECONFIG.to_owned(), content.to_owned());
        signatures.chain([kubeconfig]).collect()
    };
    assert_eq!(first, expected("one", &["aaaaaa", "bbbbbb"]));
    assert_eq!(changes(&first, None, &tokens, now()), BTreeMap::new(), "nothing to do");
    assert_eq!(changes(&first, Some("one"), &tokens, now()), BTreeMap::new());
    let second = applied(&first, changes(&first, Some("two"), &tokens, now()));
    assert_eq!(second, expected("two", &["aaaaaa", "bbbbbb"]));
    let third = changes(&second, None, &tokens[1..], now());
    assert_eq!(third, BTreeMap::from([("jws-kubeconfig-aaaaaa".to_owned(), None)]));
    let later = now() + SignedDuration::from_secs(60);
    let ended = applied(&second, changes(&second, None, &tokens, later));
    assert_eq!(ended, expected("two", &[]));
}

#[test]
fn what_others_keep_beside_it_stays_and_what_is_wrong_is_corrected() {
    let tokens = [found("aaaaaa.0123456789abcdef", 60)];
    let mut data = applied(&BTreeMap::new(), changes(&BTreeMap::new(), Some("one"), &tokens, now()));
    let right = data.clone();
    data.insert("theirs".to_owned(), "x".to_owned());
    data.insert("jws-kubeconfig-aaaaaa".to_owned(), "forged".to_owned());
    data.insert("jws-kubeconfig-not an id".to_owned(), "x".to_owned());
    let mut corrected = applied(&data, changes(&data, None, &tokens, now()));
    assert_eq!(corrected.remove("theirs").as_deref(), Some("x"));
    assert_eq!(corrected, right);
}
