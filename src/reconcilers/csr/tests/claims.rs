use super::bootstrap::{Claimant, World, decide, read};
use super::identity::{CertificateEnd, Identity};
use super::*;

fn claimant(request: &Request) -> Claimant {
    read(request).unwrap().unwrap()
}

fn judge(request: &Request, world: World<'_>, second: i64) -> Decision {
    decide(request, &claimant(request), world, at(second))
}

const FREE: World<'_> = World {
    registered: false,
    identity: None,
};

/// The record of a name that `request` has claimed.
fn claimed(request: &Request) -> Identity {
    Identity::claimed_by(None, request, claimant(request).key, at(0))
}

#[test]
fn every_field_of_the_form_is_checked() {
    let good = || joiner("aaaaaa", "n9");
    let with_subject = |subject: &str| Request {
        pem: kit::request(kit::P256, subject, &[]),
        ..good()
    };
    let names = Request {
        pem: kit::request(kit::P256, &kit::subject("n9"), &["subjectAltName=DNS:n9"]),
        ..good()
    };
    let asks = |extension: &str| Request {
        pem: kit::request(kit::P256, &kit::subject("n9"), &[extension]),
        ..good()
    };
    for (request, why) in [
        (
            Request {
                groups: owned(&["system:authenticated"]),
                ..good()
            },
            "not_a_bootstrapper",
        ),
        (
            Request {
                usages: owned(USAGES_SERVING),
                ..good()
            },
            "usages",
        ),
        (
            Request {
                usages: owned(&["digital signature", "client auth", "server auth"]),
                ..good()
            },
            "usages",
        ),
        (with_subject("/O=system:nodes/CN=system:node:"), "node_name"),
        (with_subject("/O=system:nodes/CN=system:node:a:b"), "node_name"),
        (with_subject("/O=system:nodes/CN=system:node:N9"), "node_name"),
        (with_subject("/O=system:nodes/CN=n9"), "node_name"),
        (with_subject("/CN=system:node:n9"), "organizations"),
        (with_subject("/O=system:masters/CN=system:node:n9"), "organizations"),
        (names, "names"),
        (asks("basicConstraints=CA:TRUE"), "extension"),
        (asks("extendedKeyUsage=serverAuth"), "extension"),
        (
            Request {
                pem: Vec::new(),
                ..good()
            },
            "unreadable",
        ),
    ] {
        assert_eq!(read(&request).unwrap_err().word(), why);
    }
    let three = Request {
        usages: owned(&["digital signature", "key encipherment", "client auth"]),
        ..good()
    };
    assert_eq!(claimant(&three).node, "n9");
}

#[test]
fn renewals_and_what_is_decided_are_others_business() {
    let good = joiner("aaaaaa", "n9");
    let renewal = Request {
        requester: "system:node:n9".to_owned(),
        groups: owned(&[NODES]),
        ..good.clone()
    };
    assert_eq!(read(&renewal), Ok(None));
    for standing in [
        Standing::Approved,
        Standing::Issued,
        Standing::Refused,
        Standing::Deleted,
    ] {
        assert_eq!(
            read(&Request {
                standing,
                ..good.clone()
            }),
            Ok(None)
        );
    }
}

#[test]
fn a_new_name_is_for_who_comes_first() {
    let (first, second) = (joiner("aaaaaa", "n9"), joiner("bbbbbb", "n9"));
    assert_eq!(judge(&first, FREE, 0), Decision::Approve);
    let record = claimed(&first);
    let world = World {
        identity: Some(&record),
        ..FREE
    };
    let decision = judge(&second, world, 1);
    let Decision::Wait(reason) = &decision else {
        panic!("{decision:?}")
    };
    let text = reason.to_string();
    assert!(
        text.contains("claimed by system:bootstrap:aaaaaa until 2028-") && text.ends_with("stratum node forget n9"),
        "{text}"
    );
    // The operator that stored the claim and was killed before it approved goes on.
    assert_eq!(judge(&first, world, 1), Decision::Approve);
}

#[test]
fn a_registered_name_is_nobody_elses() {
    let request = joiner("aaaaaa", "n1");
    let record = claimed(&request);
    for identity in [None, Some(&record)] {
        let world = World {
            registered: true,
            identity,
        };
        assert_eq!(word(&judge(&request, world, 1)), "registered");
    }
}

#[test]
fn a_name_whose_node_is_gone_is_held_by_its_certificate() {
    let request = joiner("aaaaaa", "n1");
    let record = Identity {
        node_uid: Some(Uid("u".to_owned())),
        certificate: Some(CertificateEnd {
            not_after: at(100),
            assumed: false,
        }),
        ..Identity::default()
    };
    let world = World {
        identity: Some(&record),
        ..FREE
    };
    let decision = judge(&request, world, 99);
    assert!(
        matches!(&decision, Decision::Wait(reason) if reason.to_string().contains("claimed by system:node:n1")),
        "{decision:?}"
    );
    assert_eq!(judge(&request, world, 100), Decision::Approve);
}

#[test]
fn the_same_token_may_try_again_and_another_joiner_on_it_may_not_take_the_name() {
    let first = joiner("aaaaaa", "n9");
    let record = claimed(&first);
    let world = World {
        registered: false,
        identity: Some(&record),
    };
    // With its key it proves that it is the same machine. Whether the first request still waits makes no difference: it may
    // be approved in this moment.
    let same_key = Request {
        name: "other".to_owned(),
        uid: Uid("other".to_owned()),
        ..first.clone()
    };
    let new_key = Request {
        uid: Uid("new".to_owned()),
        ..joiner("aaaaaa", "n9")
    };
    let other_token = joiner("bbbbbb", "n9");
    let stolen_key = Request {
        requester: "system:bootstrap:bbbbbb".to_owned(),
        ..same_key.clone()
    };
    for (request, want) in [
        (&same_key, "approve"),
        (&new_key, "claimed"),
        (&other_token, "claimed"),
        (&stolen_key, "claimed"),
    ] {
        let decision = judge(request, world, 1);
        assert_eq!(word(&decision), want, "{}", request.requester);
    }
}

#[test]
fn the_end_that_was_seen_counts_and_the_later_of_two() {
    let record = claimed(&joiner("aaaaaa", "n9"));
    assert!(record.certificate.as_ref().unwrap().assumed);
    let seen = record.after_certificate(at(50)).unwrap();
    assert_eq!(
        seen.certificate,
        Some(CertificateEnd {
            not_after: at(50),
            assumed: false
        })
    );
    assert_eq!(seen.after_certificate(at(40)), None);
    assert_eq!(seen.after_certificate(at(50)), None);
    assert_eq!(
        seen.after_certificate(at(60)).unwrap().certificate.unwrap().not_after,
        at(60)
    );
    assert_eq!(seen.claim, record.claim);
}
