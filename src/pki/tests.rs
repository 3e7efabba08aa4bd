//! Certificates judged by two programs that did not make them: the `openssl` command and rustls.
#![expect(
    clippy::disallowed_methods,
    reason = "the judge is a program, and pki may not use host::child"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use strum::IntoEnumIterator;
use tempfile::TempDir;

use super::authority::{self, Authority};
use super::certificate::{self, Certificate};
use super::key::{self, Key, KeyKind, Serial};
use super::leaf::{self, Request, Usage, issue};
use super::name::{AlternativeName, Subject};

fn openssl(folder: &Path, arguments: &str) -> Result<String, String> {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .output()
        .expect("openssl is installed");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn new_authority(kind: KeyKind) -> Authority {
    Authority::make(
        "test-ca",
        Key::generate(kind).unwrap(),
        Serial::random().unwrap(),
        now(),
    )
    .unwrap()
}

fn request() -> Request {
    let subject = Subject::user("system:node:w\u{fc}rm")
        .in_group("system:nodes")
        .in_group("second")
        .in_group("third");
    let names = vec![
        AlternativeName::dns("api.example"),
        AlternativeName::ip([10, 0, 0, 5]),
        AlternativeName::ip([0, 0, 0, 0, 0, 0, 0, 1]),
    ];
    Request {
        usages: vec![Usage::Server, Usage::Client],
        ..Request::server(subject, names)
    }
}

fn new_leaf(signer: &Authority, request: &Request) -> Result<Certificate, leaf::Error> {
    issue(
        signer,
        request,
        &Key::generate(KeyKind::default()).unwrap(),
        Serial::random().unwrap(),
        now(),
    )
}

fn verify(authority: &Authority, certificate: &Certificate) -> Result<String, String> {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("ca.crt"), authority.certificate().to_pem()).unwrap();
    fs::write(folder.path().join("leaf.crt"), certificate.to_pem()).unwrap();
    openssl(folder.path(), "verify -x509_strict -CAfile ca.crt leaf.crt")
}

#[test]
fn openssl_verifies_every_kind_of_key() {
    for kind in [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::Rsa2048] {
        let authority = new_authority(kind);
        assert_eq!(
            verify(&authority, &new_leaf(&authority, &request()).unwrap()),
            Ok("leaf.crt: OK\n".into()),
            "{kind}"
        );
        assert!(
            verify(&new_authority(kind), &new_leaf(&authority, &request()).unwrap()).is_err(),
            "{kind}"
        );
    }
}

#[test]
fn openssl_reads_what_was_asked_for() {
    let authority = new_authority(KeyKind::default());
    let folder = TempDir::new().unwrap();
    fs::write(
        folder.path().join("leaf.crt"),
        new_leaf(&authority, &request()).unwrap().to_pem(),
    )
    .unwrap();
    let text = openssl(
        folder.path(),
        "x509 -in leaf.crt -noout -text -nameopt utf8,sep_comma_plus",
    )
    .unwrap();
    for expected in [
        "O=system:nodes,O=second,O=third,CN=system:node:w\u{fc}rm",
        "DNS:api.example, IP Address:10.0.0.5, IP Address:0:0:0:0:0:0:0:1",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "CA:FALSE",
        "X509v3 Authority Key Identifier",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn rustls_accepts_a_leaf_for_its_names_only() {
    let authority = new_authority(KeyKind::default());
    let certificate = new_leaf(&authority, &request()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(authority.certificate().der())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now().as_second().unsigned_abs()));
    let accepts = |name: &str| {
        use rustls::client::danger::ServerCertVerifier;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .verify_server_cert(&CertificateDer::from(certificate.der()), &[], &name, &[], at)
            .is_ok()
    };
    assert!(accepts("api.example") && accepts("10.0.0.5") && accepts("::1"));
    assert!(!accepts("other.example") && !accepts("10.0.0.6"));
}

#[test]
fn the_parsed_view_says_what_was_asked_for() {
    let authority = new_authority(KeyKind::default());
    let (request, before) = (request(), now());
    let certificate = new_leaf(&authority, &request).unwrap();
    let details = certificate.details();
    assert_eq!(details.common_name.as_deref(), Some("system:node:w\u{fc}rm"));
    assert_eq!(details.organizations, request.subject.organizations);
    assert_eq!(details.alternative_names, request.alternative_names);
    assert!(details.server_auth && details.client_auth && !details.is_ca && !details.may_sign);
    assert_eq!(details.authority_key_id, authority.certificate().details().key_id);
    assert_eq!(details.serial.len(), 16);
    let backdated = before.duration_since(details.not_before);
    assert!((299..=301).contains(&backdated.as_secs()), "{backdated:?}");
    let life = details.not_after.duration_since(before).as_secs();
    assert!((life - 365 * 86_400).abs() <= 1, "{life}");
    let authority = authority.certificate().details();
    assert!(authority.is_ca && authority.may_sign);
    assert!((authority.not_after.duration_since(before).as_secs() - 3650 * 86_400).abs() <= 1);
}

#[test]
fn a_leaf_with_a_short_life_is_not_due_when_it_begins() {
    let authority = new_authority(KeyKind::default());
    for (minutes, backdated) in [(1, 15), (8, 120), (20, 300), (60, 300)] {
        let short = Request {
            lifetime: SignedDuration::from_mins(minutes),
            ..request()
        };
        let before = now();
        let certificate = new_leaf(&authority, &short).unwrap();
        let back = before.duration_since(certificate.details().not_before).as_secs();
        assert!((back - backdated).abs() <= 1, "{minutes} min: {back} s");
        assert!(!certificate.is_due(before), "{minutes} min");
    }
}

#[test]
fn a_leaf_ends_with_its_signer_and_a_dead_signer_signs_nothing() {
    let authority = new_authority(KeyKind::default());
    let end = authority.certificate().details().not_after;
    let key = Key::generate(KeyKind::default()).unwrap();
    let at = |now| issue(&authority, &request(), &key, Serial::random().unwrap(), now);
    let late = at(end - SignedDuration::from_hours(1)).unwrap();
    assert_eq!(late.details().not_after, end);
    for dead in [
        end + SignedDuration::from_secs(1),
        now() - SignedDuration::from_hours(1),
    ] {
        assert!(matches!(at(dead), Err(leaf::Error::SignerOutOfDate { .. })));
    }
}

#[test]
fn renewal_is_due_ninety_days_or_a_third_before_the_end() {
    let authority = new_authority(KeyKind::default());
    let days = |days: i64| SignedDuration::from_hours(24 * days);
    for (lifetime, due) in [(365, 90), (30, 10)] {
        let request = Request {
            lifetime: days(lifetime),
            ..request()
        };
        let certificate = new_leaf(&authority, &request).unwrap();
        let end = certificate.details().not_after;
        assert!(
            !certificate.is_due(end - days(due) - SignedDuration::from_mins(5)),
            "{lifetime}"
        );
        assert!(certificate.is_due(end - days(due)), "{lifetime}");
    }
}

/// rcgen alone loses one of two OUs of an imported authority, and re-encodes its strings (rcgen 0.14.10).
#[test]
fn an_imported_authority_keeps_its_name_byte_for_byte() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("config"), "[req]\nprompt=no\ndistinguished_name=dn\nx509_extensions=ca\nstring_mask=pkix\n[dn]\nC=CH\n0.OU=one\n1.OU=two\nCN=imported\n[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\nsubjectKeyIdentifier=hash\n").unwrap();
    openssl(
        folder.path(),
        "req -x509 -newkey rsa:2048 -nodes -days 30 -config config -keyout ca.key -out ca.crt",
    )
    .unwrap();
    let read = |name| fs::read(folder.path().join(name)).unwrap();
    let authority = Authority::load(&read("ca.crt"), &read("ca.key")).unwrap();
    assert_eq!(
        verify(&authority, &new_leaf(&authority, &request()).unwrap()),
        Ok("leaf.crt: OK\n".into())
    );
}

#[test]
fn an_authority_is_checked_when_loaded() {
    let (one, two) = (new_authority(KeyKind::default()), new_authority(KeyKind::default()));
    let (pem, key) = (one.certificate().to_pem(), one.key().to_pem());
    assert!(Authority::load(pem.as_bytes(), key.expose().as_bytes()).is_ok());
    let other = Authority::load(pem.as_bytes(), two.key().to_pem().expose().as_bytes());
    assert!(matches!(other, Err(authority::Error::OtherKey)));
    let bundle = Authority::load(
        format!("{pem}{}", two.certificate().to_pem()).as_bytes(),
        key.expose().as_bytes(),
    );
    assert!(matches!(
        bundle,
        Err(authority::Error::Certificate(certificate::Error::Several(2)))
    ));
    let leaf_key = Key::generate(KeyKind::default()).unwrap();
    let leaf = issue(&one, &request(), &leaf_key, Serial::random().unwrap(), now()).unwrap();
    let leaf = Authority::load(leaf.to_pem().as_bytes(), leaf_key.to_pem().expose().as_bytes());
    assert!(matches!(leaf, Err(authority::Error::MayNotSign)));
    assert_ne!(one.certificate().subject_der(), two.certificate().subject_der());
}

#[test]
fn a_certificate_of_another_signer_is_told_apart() {
    let (one, two) = (new_authority(KeyKind::default()), new_authority(KeyKind::default()));
    let certificate = new_leaf(&one, &request()).unwrap();
    assert!(matches!(
        certificate.check_issued_by(two.certificate()),
        Err(certificate::Error::OtherIssuer)
    ));
    let mut damaged = certificate.der().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = Certificate::from_der(&damaged).unwrap();
    assert!(matches!(
        damaged.check_issued_by(one.certificate()),
        Err(certificate::Error::Signature(_))
    ));
}

#[test]
fn keys_are_read_in_every_form_openssl_writes() {
    let folder = TempDir::new().unwrap();
    for (command, kind) in [
        (
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key",
            KeyKind::EcdsaP256,
        ),
        ("ecparam -genkey -name prime256v1 -out key", KeyKind::EcdsaP256),
        ("ecparam -genkey -noout -name secp384r1 -out key", KeyKind::EcdsaP384),
        ("genrsa -traditional -out key 2048", KeyKind::Rsa2048),
        ("genrsa -out key 3072", KeyKind::Rsa3072),
    ] {
        openssl(folder.path(), command).unwrap();
        let key = Key::from_pem(&fs::read(folder.path().join("key")).unwrap()).unwrap();
        assert_eq!(key.kind(), kind, "{command}");
        assert_eq!(
            openssl(folder.path(), "pkey -in key -pubout").unwrap(),
            key.public_key_pem().replace("\r\n", "\n")
        );
        let written = key.to_pem();
        assert!(
            written.expose().starts_with("-----BEGIN PRIVATE KEY-----\n"),
            "{command}"
        );
        fs::write(folder.path().join("written"), written.expose()).unwrap();
        openssl(folder.path(), "pkey -in written -check -noout").unwrap();
    }
}

#[test]
fn what_is_no_key_is_named() {
    let folder = TempDir::new().unwrap();
    openssl(
        folder.path(),
        "genrsa -traditional -aes128 -passout pass:secret -out old 2048",
    )
    .unwrap();
    openssl(folder.path(), "genrsa -aes128 -passout pass:secret -out new 2048").unwrap();
    openssl(folder.path(), "genrsa -out small 1024").unwrap();
    let read = |name| Key::from_pem(&fs::read(folder.path().join(name)).unwrap());
    assert!(matches!(read("old"), Err(key::Error::Encrypted)));
    assert!(matches!(read("new"), Err(key::Error::Encrypted)));
    assert!(matches!(read("small"), Err(key::Error::Unsupported(_))));
    assert!(matches!(Key::from_pem(b""), Err(key::Error::Missing(_))));
    let certificate = new_authority(KeyKind::default()).certificate().to_pem();
    let error = Key::from_pem(certificate.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "no private key in the PEM data (found CERTIFICATE)");
    let key = Key::generate(KeyKind::default()).unwrap();
    let twice = key.to_pem().expose().repeat(2);
    assert!(matches!(Key::from_pem(twice.as_bytes()), Err(key::Error::Several(2))));
}

#[test]
fn odd_certificate_files() {
    let (one, two) = (new_authority(KeyKind::default()), new_authority(KeyKind::default()));
    let (pem, other) = (one.certificate().to_pem(), two.certificate().to_pem());
    let bundle = |text: String| Certificate::bundle_from_pem(text.as_bytes());
    assert_eq!(bundle(format!("a comment\n\n{pem}\n{other}")).unwrap().len(), 2);
    assert_eq!(bundle(pem.replace('\n', "\r\n")).unwrap().len(), 1);
    assert_eq!(bundle(pem.trim_end().to_owned()).unwrap().len(), 1);
    assert!(bundle(String::new()).is_err());
    assert!(
        bundle(format!("{pem}{}", &other[..other.len() / 2])).is_err(),
        "a cut block is not dropped silently"
    );
    let with_key = bundle(format!("{pem}{}", one.key().to_pem().expose()));
    assert!(matches!(with_key, Err(certificate::Error::Foreign(label)) if label == "PRIVATE KEY"));
    assert_eq!(Certificate::from_pem(pem.as_bytes()).unwrap(), *one.certificate());
}

#[test]
fn names_no_certificate_can_hold_are_refused() {
    let authority = new_authority(KeyKind::default());
    for name in ["", "w\u{fc}rm.example"] {
        let request = Request::server(Subject::user("x"), vec![AlternativeName::dns(name)]);
        assert!(
            matches!(new_leaf(&authority, &request), Err(leaf::Error::AlternativeName(_))),
            "{name:?}"
        );
    }
    let mapped: std::net::IpAddr = "::ffff:10.0.0.5".parse().unwrap();
    assert_eq!(AlternativeName::ip(mapped), AlternativeName::ip([10, 0, 0, 5]));
}

#[test]
fn secrets_do_not_show() {
    let key = Key::generate(KeyKind::default()).unwrap();
    assert_eq!(format!("{key:?}"), "Key(ecdsa-p256, redacted)");
    assert!(format!("{:?}", key.to_pem()).ends_with("bytes, redacted)"));
    let authority = new_authority(KeyKind::default());
    assert!(!format!("{authority:?}").contains("PRIVATE"));
    for kind in KeyKind::iter() {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
}
