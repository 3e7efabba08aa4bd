//! What a certificate's dates, its signer and everything beside it amount to. Files are for another test.

use jiff::SignedDuration;
use strum::IntoEnumIterator;

use super::*;
use crate::pki::authority::Authority;
use crate::pki::key::{Key, KeyKind, Serial};
use crate::pki::leaf::issue;
use crate::pki::name::{AlternativeName, Subject};

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn day(days: i32) -> Timestamp {
    start() + DAY * days
}

fn authority() -> Authority {
    Authority::make("test", new_key(), Serial::random().unwrap(), start()).unwrap()
}

fn new_key() -> Key {
    Key::generate(KeyKind::default()).unwrap()
}

fn request() -> Request {
    let names = vec![AlternativeName::dns("alpha"), AlternativeName::ip([10, 0, 0, 1])];
    Request::server(Subject::user("kube-apiserver"), names)
}

fn leaf(signer: &Authority, request: &Request) -> Certificate {
    issue(signer, request, &new_key(), Serial::random().unwrap(), start()).unwrap()
}

fn seen(name: &str, part: Part, certificate: Certificate) -> Seen {
    Seen {
        name: name.to_owned(),
        part,
        path: format!("/pki/{name}.crt"),
        content: Ok(Held {
            certificate,
            more: Vec::new(),
            key: KeySeen::Own,
        }),
        signer: matches!(part, Part::Leaf | Part::KubeletClient | Part::KubeletServer).then(|| "ca".to_owned()),
        expected: None,
        usages: Vec::new(),
        addresses: Vec::new(),
        served: Vec::new(),
        kubeconfig: None,
        bundle: None,
    }
}

fn observed(certificates: Vec<Seen>) -> Observed {
    Observed {
        node: None,
        layout: "stratum".to_owned(),
        certificates,
        renewal: Renewal::None,
        rotation: Rotation {
            phase: "idle".to_owned(),
            ..Rotation::default()
        },
        staged_key: StagedKey::Absent,
    }
}

/// The row of one leaf beside its authority, with something about the leaf changed.
fn row(now: Timestamp, change: impl FnOnce(&mut Seen, &Authority)) -> CertStatus {
    let ca = authority();
    let mut leaf = seen("apiserver", Part::Leaf, leaf(&ca, &request()));
    change(&mut leaf, &ca);
    let authority = seen("ca", Part::Authority, ca.certificate().clone());
    judge(&observed(vec![leaf, authority]), now, None)
        .certificates
        .remove(0)
}

fn kinds(row: &CertStatus) -> Vec<Kind> {
    row.problems.iter().map(|problem| problem.kind).collect()
}

fn hold(seen: &mut Seen, change: impl FnOnce(&mut Held)) {
    change(seen.content.as_mut().unwrap());
}

#[test]
fn days_and_windows() {
    let at = |now| row(now, |_, _| {});
    let fine = at(day(100));
    assert_eq!(
        (fine.days_left, fine.expiring, fine.verdict()),
        (Some(265), false, Verdict::Fine)
    );
    assert_eq!((fine.rotatable, fine.is_ca, fine.kubelet), (true, false, false));
    let due = at(day(275));
    assert_eq!(
        (due.days_left, due.expiring, due.verdict()),
        (Some(90), true, Verdict::Expiring)
    );
    assert!(!at(day(275) - SignedDuration::from_secs(1)).expiring);
    let last = at(day(365));
    assert_eq!(
        (last.days_left, kinds(&last)),
        (Some(0), vec![]),
        "its last second counts"
    );
    let over = at(day(365) + SignedDuration::from_secs(1));
    assert_eq!(
        (over.days_left, kinds(&over), over.verdict()),
        (Some(-1), vec![Kind::Expired], Verdict::Expired)
    );
    // A year ahead and a year behind.
    assert_eq!(kinds(&at(day(365 + 100))), [Kind::Expired]);
    let early = at(day(-365));
    assert_eq!(
        (kinds(&early), early.verdict()),
        (vec![Kind::NotYetValid], Verdict::Expired)
    );
    // A window of one's own, wider or narrower.
    let ca = authority();
    let rows = |now, days: i32| {
        let leaf = seen("apiserver", Part::Leaf, leaf(&ca, &request()));
        judge(&observed(vec![leaf]), now, Some(DAY * days)).certificates[0].expiring
    };
    assert!(rows(day(100), 300) && !rows(day(100), 30) && !rows(day(300), 30) && rows(day(340), 30));
    // One that lives for nine days is due after six.
    let short = Request {
        lifetime: DAY * 9,
        ..request()
    };
    let expiring = |now| row(now, |seen, ca| hold(seen, |held| held.certificate = leaf(ca, &short))).expiring;
    assert!(!expiring(day(5)) && expiring(day(7)));
}

#[test]
fn the_kubelet_is_late_when_nine_tenths_are_over() {
    let ca = authority();
    let status = |part, now| {
        let client = Request {
            lifetime: DAY * 100 - crate::pki::BACKDATE,
            ..Request::client(Subject::user("n"))
        };
        judge(
            &observed(vec![seen("kubelet-client", part, leaf(&ca, &client))]),
            now,
            None,
        )
        .certificates
        .remove(0)
    };
    // A hundred days that began five minutes before the first: nine tenths end five minutes before the ninetieth.
    let deadline = day(90) - crate::pki::BACKDATE;
    let before = status(Part::KubeletClient, deadline);
    assert_eq!(
        (before.renewal_overdue, before.expiring, before.verdict()),
        (false, true, Verdict::Fine),
        "the kubelet renews it"
    );
    let after = status(Part::KubeletClient, deadline + SignedDuration::from_secs(1));
    assert_eq!(
        (after.renewal_overdue, after.kubelet, after.verdict()),
        (true, true, Verdict::Expiring)
    );
    assert!(!status(Part::Leaf, day(95)).renewal_overdue);
    let mut own = seen("kubelet-server", Part::KubeletServer, leaf(&ca, &request()));
    own.signer = None;
    assert!(
        !judge(&observed(vec![own]), day(360), None).certificates[0].renewal_overdue,
        "nobody renews it"
    );
}

#[test]
fn signers_are_told_by_key_and_signature() {
    let wrong = |change: &dyn Fn(&mut Seen, &Authority)| row(day(1), change);
    // The same name, another key: what kubeadm's authorities look like after a reinstallation.
    let other = authority();
    let foreign = wrong(&|seen, _| hold(seen, |held| held.certificate = leaf(&other, &request())));
    assert_eq!(
        (kinds(&foreign), foreign.verdict()),
        (vec![Kind::WrongSigner], Verdict::Broken)
    );
    // Nothing is said about a signer that is not here.
    assert_eq!(kinds(&wrong(&|seen, _| seen.signer = Some("elsewhere".to_owned()))), []);
    // The kubelet may have it of an authority that its bundle trusts; nobody else may.
    let ahead = |part| {
        wrong(&|seen, _| {
            seen.part = part;
            hold(seen, |held| held.certificate = leaf(&other, &request()));
            seen.bundle = Some(Bundle {
                path: "b".to_owned(),
                content: Ok(vec![other.certificate().clone()]),
            });
        })
    };
    assert_eq!(kinds(&ahead(Part::KubeletClient)), []);
    assert_eq!(kinds(&ahead(Part::Leaf)), [Kind::WrongSigner]);
    // An authority that has expired takes its leaves along.
    let late = row(day(3651), |_, _| {});
    assert_eq!(kinds(&late), [Kind::Expired, Kind::SignerExpired]);
}

#[test]
fn what_a_certificate_should_say() {
    let status = |change: &dyn Fn(&mut Request)| {
        row(day(1), |seen, _| {
            let mut wanted = request();
            change(&mut wanted);
            seen.expected = Some(wanted);
        })
    };
    assert_eq!(kinds(&status(&|_| {})), []);
    let missing = status(&|wanted| {
        wanted.alternative_names.push(AlternativeName::dns("ALPHA"));
        wanted.alternative_names.push(AlternativeName::dns("new.example"));
        wanted.alternative_names.push(AlternativeName::ip([10, 0, 0, 9]));
    });
    assert_eq!(
        missing.problems,
        [Problem::new(Kind::MissingName, "new.example, 10.0.0.9")]
    );
    assert_eq!(
        kinds(&status(&|wanted| wanted.alternative_names.clear())),
        [],
        "more than is needed is no fault"
    );
    assert_eq!(
        kinds(&status(&|wanted| wanted.usages.push(Usage::Client))),
        [Kind::MissingUsage]
    );
    let drifted = status(&|wanted| wanted.subject = Subject::user("kube-apiserver").in_group("other"));
    assert_eq!(kinds(&drifted), [Kind::SubjectDrift]);
    // Where nobody remembers, the addresses it is reached at.
    let taken_over = row(day(1), |seen, _| {
        seen.addresses = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        seen.usages = vec![Usage::Client];
    });
    assert_eq!(kinds(&taken_over), [Kind::MissingUsage, Kind::MissingName]);
}

#[test]
fn keys_listeners_kubeconfigs_and_bundles() {
    let with_key = |key: KeySeen| row(day(1), |seen, _| hold(seen, |held| held.key = key));
    for (key, expected) in [
        (KeySeen::Own, vec![]),
        (KeySeen::Other, vec![Kind::KeyMismatch]),
        (KeySeen::Absent, vec![Kind::KeyMissing]),
        (KeySeen::Encrypted, vec![Kind::KeyEncrypted]),
        (KeySeen::Unusable("x".to_owned()), vec![Kind::KeyUnreadable]),
        (KeySeen::Denied, vec![Kind::KeyDenied]),
    ] {
        assert_eq!(kinds(&with_key(key)), expected);
    }
    assert_eq!(
        with_key(KeySeen::Denied).verdict(),
        Verdict::Fine,
        "what may not be read is not broken"
    );
    let serves = |shown: &dyn Fn(&Certificate, &Authority) -> Result<Certificate, String>| {
        row(day(1), |seen, ca| {
            let own = seen.content.as_ref().unwrap().certificate.clone();
            let at = "127.0.0.1:6443".parse().unwrap();
            seen.served = vec![Served {
                at,
                shown: shown(&own, ca),
            }];
        })
    };
    assert_eq!(serves(&|own, _| Ok(own.clone())).served_at, ["127.0.0.1:6443"]);
    assert_eq!(kinds(&serves(&|_, ca| Ok(leaf(ca, &request())))), [Kind::ServedDiffers]);
    assert_eq!(kinds(&serves(&|_, _| Err("plain HTTP".to_owned()))), [Kind::NotServed]);
    type Trusts<'a> = &'a dyn Fn(&Authority) -> Option<Result<Vec<Certificate>, String>>;
    let leads = |elsewhere: Option<&str>, trusts: Trusts<'_>| {
        kinds(&row(day(1), |seen, ca| {
            let says = KubeconfigSays::Client {
                elsewhere: elsewhere.map(str::to_owned),
                trusts: trusts(ca),
            };
            let path = "/kc".to_owned();
            seen.kubeconfig = Some(KubeconfigSeen { path, says });
        }))
    };
    assert_eq!(
        leads(None, &|ca| Some(Ok(vec![
            authority().certificate().clone(),
            ca.certificate().clone()
        ]))),
        []
    );
    assert_eq!(leads(None, &|_| None), []);
    assert_eq!(
        leads(None, &|_| Some(Ok(vec![authority().certificate().clone()]))),
        [Kind::KubeconfigTrust]
    );
    assert_eq!(
        leads(Some("names x"), &|_| Some(Err("gone".to_owned()))),
        [Kind::KubeconfigElsewhere, Kind::KubeconfigTrust]
    );
    let trusted = |content: &dyn Fn(&Authority) -> Result<Vec<Certificate>, String>| {
        let ca = authority();
        let mut of = seen("ca", Part::Authority, ca.certificate().clone());
        hold(&mut of, |held| held.key = KeySeen::Absent);
        of.bundle = Some(Bundle {
            path: "b".to_owned(),
            content: content(&ca),
        });
        judge(&observed(vec![of]), day(1), None).certificates.remove(0)
    };
    let fine = trusted(&|ca| Ok(vec![ca.certificate().clone()]));
    assert_eq!(
        (kinds(&fine), fine.externally_managed, fine.is_ca),
        (vec![], true, true)
    );
    assert_eq!(kinds(&trusted(&|_| Ok(Vec::new()))), [Kind::NotInBundle]);
    assert_eq!(kinds(&trusted(&|_| Err("cut".to_owned()))), [Kind::BundleUnreadable]);
}

#[test]
fn the_worst_counts() {
    let verdict = |kinds: &[Kind], open: bool, now: Timestamp| {
        let ca = authority();
        let mut certificates = vec![seen("apiserver", Part::Leaf, leaf(&ca, &request()))];
        if kinds.contains(&Kind::Unreadable) {
            certificates[0].content = Err("x".to_owned());
        }
        let mut seen = observed(certificates);
        seen.rotation.incomplete = open;
        judge(&seen, now, None).verdict
    };
    assert_eq!(verdict(&[], false, day(1)), Verdict::Fine);
    assert_eq!(verdict(&[], false, day(300)), Verdict::Expiring);
    assert_eq!(verdict(&[], true, day(300)), Verdict::RotationOpen);
    assert_eq!(verdict(&[], true, day(400)), Verdict::Expired);
    assert_eq!(verdict(&[Kind::Unreadable], true, day(400)), Verdict::Broken);
    let with = |change: &dyn Fn(&mut Observed)| {
        let mut seen = observed(Vec::new());
        change(&mut seen);
        judge(&seen, day(1), None).verdict
    };
    assert_eq!(with(&|seen| seen.staged_key = StagedKey::Unknown), Verdict::Fine);
    assert_eq!(
        with(&|seen| seen.staged_key = StagedKey::Present),
        Verdict::RotationOpen
    );
    assert_eq!(
        with(&|seen| seen.rotation.phase = "trust-new".to_owned()),
        Verdict::RotationOpen
    );
    // The words of one are the words of no other.
    let words: std::collections::BTreeSet<&str> = Kind::iter().map(Kind::words).collect();
    assert_eq!(words.len(), Kind::iter().count());
}
