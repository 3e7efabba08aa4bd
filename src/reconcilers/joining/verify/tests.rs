//! Tokens, pins, bundles, servers and clocks that do not fit, each by itself.

use super::*;
use crate::pki::authority::Authority;
use crate::pki::key::{Key, KeyKind, Serial};
use crate::pki::leaf::{Request, issue};
use crate::pki::name::{AlternativeName, Subject};

const TOKEN: &str = "abc123.0123456789abcdef";

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn later(days: i64) -> Timestamp {
    now() + SignedDuration::from_hours(24 * days)
}

fn token() -> BootstrapToken {
    TOKEN.parse().unwrap()
}

fn authority() -> Authority {
    let key = Key::generate(KeyKind::default()).unwrap();
    Authority::make("ca", key, Serial::random().unwrap(), now()).unwrap()
}

fn bundle(authorities: &[&Authority]) -> Vec<Certificate> {
    authorities
        .iter()
        .map(|authority| authority.certificate().clone())
        .collect()
}

fn pin_of(authority: &Authority) -> Pin {
    Pin::of(authority.certificate())
}

/// A ConfigMap with this content, signed under a token.
fn signed(content: &str, token: &str) -> BTreeMap<String, String> {
    let token: BootstrapToken = token.parse().unwrap();
    let secret = token.expose_secret().as_bytes();
    let signature = jws::detached(secret, token.id().as_str(), content.as_bytes());
    [
        (KUBECONFIG.to_owned(), content.to_owned()),
        (cluster_info::signature_key(token.id()), signature),
    ]
    .into()
}

fn published(bundle: &[Certificate]) -> BTreeMap<String, String> {
    signed(&cluster_info::render("https://a:6443", bundle), TOKEN)
}

fn refused(data: &BTreeMap<String, String>, pins: &[Pin], now: Timestamp) -> Refusal {
    verify(data, &token(), pins, now).unwrap_err()
}

#[test]
fn any_pin_in_any_order_makes_a_bundle_believed_but_only_what_is_pinned_speaks_for_it() {
    let [old, new, other] = [authority(), authority(), authority()];
    let [o, n, x] = [&old, &new, &other].map(pin_of);
    let both = bundle(&[&old, &new]);
    let data = published(&both);
    let pinned = |pins: &[Pin]| {
        let believed = verify(&data, &token(), pins, now()).unwrap();
        assert_eq!(believed.published.server, "https://a:6443");
        assert_eq!(believed.published.bundle, both);
        believed.pinned
    };
    assert_eq!(pinned(&[o, n]), both);
    assert_eq!(pinned(&[n, o]), both);
    for pins in [&[o][..], &[o, x], &[x, o]] {
        assert_eq!(pinned(pins), bundle(&[&old]));
    }
    assert_eq!(pinned(&[x, n]), bundle(&[&new]));
    for pins in [&[x][..], &[]] {
        let Refusal::NotPinned { found } = refused(&data, pins, now()) else {
            panic!("{pins:?}")
        };
        assert_eq!(found, [o, n]);
    }
}

#[test]
fn a_signature_that_is_missing_wrong_or_anothers_is_told_apart() {
    let authority = authority();
    let content = cluster_info::render("https://a:6443", &bundle(&[&authority]));
    let pins = [pin_of(&authority)];
    let others = signed(&content, "other1.0123456789abcdef");
    let error = refused(&others, &pins, now());
    assert!(
        matches!(&error, Refusal::NotSigned { id } if id.as_str() == "abc123"),
        "{error}"
    );
    let mistyped = signed(&content, "abc123.0123456789abcdeg");
    let error = refused(&mistyped, &pins, now());
    assert!(matches!(&error, Refusal::OtherSignature { by: None, .. }), "{error}");
    let mut moved = others.clone();
    let signature = moved.remove("jws-kubeconfig-other1").unwrap();
    moved.insert("jws-kubeconfig-abc123".to_owned(), signature);
    let error = refused(&moved, &pins, now()).to_string();
    assert!(
        error.contains("not made with this token but with that of token other1"),
        "{error}"
    );
    let mut changed = signed(&content, TOKEN);
    changed.insert(KUBECONFIG.to_owned(), content.replace("https://a", "https://b"));
    let error = refused(&changed, &pins, now());
    assert!(matches!(&error, Refusal::OtherSignature { by: None, .. }), "{error}");
    for garbage in ["", "..", "x..y", "eyJraWQiOiJcdTAwMWJbMzFtIn0..x"] {
        changed.insert("jws-kubeconfig-abc123".to_owned(), garbage.to_owned());
        let error = refused(&changed, &pins, now());
        assert!(
            matches!(&error, Refusal::OtherSignature { by: None, .. }),
            "{garbage}: {error}"
        );
    }
}

#[test]
fn what_is_half_written_is_not_believed() {
    let authority = authority();
    let pins = [pin_of(&authority)];
    assert!(matches!(refused(&BTreeMap::new(), &pins, now()), Refusal::Empty));
    assert!(matches!(refused(&signed(" \n", TOKEN), &pins, now()), Refusal::Empty));
    let content = cluster_info::render("https://a:6443", &bundle(&[&authority]));
    for length in 1..content.len() {
        let half = &content[..length];
        match verify(&signed(half, TOKEN), &token(), &pins, now()) {
            // The end says nothing that matters.
            Ok(believed) => assert_eq!(believed.published.bundle, bundle(&[&authority]), "{half}"),
            Err(Refusal::Malformed(_) | Refusal::Empty) => {}
            Err(other) => panic!("{other}: {half}"),
        }
    }
    let unsigned = BTreeMap::from([(KUBECONFIG.to_owned(), "garbage: [".to_owned())]);
    assert!(
        matches!(refused(&unsigned, &pins, now()), Refusal::NotSigned { .. }),
        "nothing is read before its signature"
    );
}

#[test]
fn an_authority_of_another_time_is_none() {
    let authority = authority();
    let data = published(&bundle(&[&authority]));
    let pins = [pin_of(&authority)];
    for day in [later(-1), later(365 * 11)] {
        let error = refused(&data, &pins, day);
        assert!(
            matches!(&error, Refusal::AuthorityOutOfDate { now, .. } if *now == day),
            "{error}"
        );
    }
    verify(&data, &token(), &pins, later(365 * 9)).unwrap();
}

fn server(signer: &Authority, name: &str) -> Certificate {
    let request = Request::server(Subject::user("kube-apiserver"), vec![AlternativeName::dns(name)]);
    let key = Key::generate(KeyKind::default()).unwrap();
    issue(signer, &request, &key, Serial::random().unwrap(), now()).unwrap()
}

#[test]
fn a_server_that_did_not_verify_is_told_why() {
    let [old, new, foreign] = [authority(), authority(), authority()];
    let bundle = bundle(&[&old, &new]);
    let explained = |signer: &Authority, name: &str, pins: &[Pin], at: Timestamp| {
        let certificate = server(signer, name);
        let server = Server {
            endpoint: "b:6443",
            certificate: &certificate,
            clock: Some(now()),
        };
        explain(server, &bundle, pins, at)
    };
    let (endpoint, both) = ("b:6443".to_owned(), [pin_of(&new), pin_of(&old)]);
    let name = explained(&old, "a", &both, now());
    let expected = ServerRefusal::OtherName {
        endpoint: endpoint.clone(),
        names: vec!["a".to_owned()],
    };
    assert_eq!(name, expected);
    let expired = explained(&old, "b", &both, later(366));
    assert!(
        matches!(&expired, ServerRefusal::OutOfDate { now, .. } if *now == later(366)),
        "{expired}"
    );
    assert!(
        expired.to_string().contains("that of the server 2026-01-02T03:04:05Z"),
        "{expired}"
    );
    let early = explained(&old, "b", &both, later(-1));
    assert!(matches!(early, ServerRefusal::OutOfDate { .. }), "{early}");
    let pin = pin_of(&new);
    let unpinned = explained(&new, "b", &[pin_of(&old)], now());
    assert_eq!(
        unpinned,
        ServerRefusal::NotPinned {
            endpoint: endpoint.clone(),
            pin
        }
    );
    for at in [now(), later(366)] {
        assert_eq!(
            explained(&foreign, "b", &both, at),
            ServerRefusal::Foreign {
                endpoint: endpoint.clone()
            }
        );
    }
}

#[test]
fn clocks_may_differ_by_what_certificates_are_backdated() {
    let ahead = |seconds| now() + SignedDuration::from_secs(seconds);
    for seconds in [-300, -1, 0, 300] {
        let expected = Ok(SignedDuration::from_secs(seconds));
        assert_eq!(check_clocks(now(), ahead(seconds)), expected);
    }
    for seconds in [-301, 301, 86_400] {
        let error = check_clocks(now(), ahead(seconds)).unwrap_err();
        assert_eq!((error.ours, error.theirs), (now(), ahead(seconds)));
    }
}
