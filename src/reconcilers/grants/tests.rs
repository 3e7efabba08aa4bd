//! Every state of a grant, of its token and of the Secret, and what becomes of it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use strum::IntoEnumIterator;
use zeroize::Zeroizing;

use super::entry::{self, Head, OpenError};
use super::material::{self, Material};
use super::plan::{LIMIT, MintError, Stored, Update, Wanted, mint, prune_expired_grants, rekey};
use super::token::{Expiration, Gone, SKEW, Token, TokenId, Tokens, gone};
use super::{LEGACY, NAME};
use crate::pki::seal::{self, CertificateKey};
use crate::reconcilers::object::Uid;

type Data = BTreeMap<String, ByteString>;

fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn id(text: &str) -> TokenId {
    text.parse().unwrap()
}

fn key(byte: u8) -> CertificateKey {
    CertificateKey::new([byte; 32])
}

fn token(uid: &str, expiration: Expiration) -> Token {
    Token {
        uid: Uid(uid.to_owned()),
        expiration,
        terminating: false,
    }
}

fn tokens(all: &[(&str, Token)]) -> Tokens {
    Tokens::complete(all.iter().map(|(name, token)| (id(name), token.clone())))
}

fn material() -> Material {
    let mut material = Material::new();
    for (name, content) in [
        ("ca.crt", "certificate"),
        ("ca.key", "a private key"),
        ("etcd/ca.crt", "another"),
    ] {
        let content = Zeroizing::new(content.as_bytes().to_vec());
        material.insert(name, content).unwrap();
    }
    material
}

/// The entry of a token with that UID, sealed under key 1.
fn entry_of(name: &str, uid: &str) -> Vec<u8> {
    let token = token(uid, Expiration::At(after(3600)));
    entry::seal(&id(name), &token, &material(), &key(1), [3; 12]).unwrap()
}

/// `NAME=UID` is an entry, any other text a key with something in it.
fn data(keys: &[&str]) -> Data {
    let value = |text: &&str| match text.split_once('=') {
        Some((name, uid)) => (name.to_owned(), ByteString(entry_of(name, uid))),
        None => ((*text).to_owned(), ByteString(b"something".to_vec())),
    };
    keys.iter().map(value).collect()
}

/// `ID=UID` is a token's Secret, `KIND/NAME=UID` anything.
fn owners(texts: &[&str]) -> Vec<OwnerReference> {
    let owner = |text: &&str| {
        let (object, uid) = text.split_once('=').unwrap();
        let (kind, name) = match object.split_once('/') {
            Some((kind, name)) => (kind, name.to_owned()),
            None => ("Secret", id(object).secret_name()),
        };
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            name,
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    };
    texts.iter().map(owner).collect()
}

/// What the Secret is after an update; owners and keys as in [`owners`] and [`data`], without UIDs of entries.
fn carried_out(data: &Data, before: &[OwnerReference], update: &Update) -> (Vec<String>, Vec<OwnerReference>) {
    let mut keys: Vec<String> = data.keys().cloned().collect();
    keys.retain(|key| !update.drop.keys().any(|id| id.as_str() == key));
    if let Some((id, _)) = &update.add {
        keys.retain(|key| key != id.as_str());
        keys.push(id.to_string());
        keys.sort();
    }
    (keys, update.owners.clone().unwrap_or_else(|| before.to_vec()))
}

#[test]
fn a_token_id_is_six_small_letters_and_digits() {
    for good in ["abcdef", "012345", "a1b2c3"] {
        assert_eq!(id(good).as_str(), good);
        assert_eq!(TokenId::of_secret(&id(good).secret_name()), Some(id(good)));
    }
    let token = "abcdef.0123456789abcdef";
    for bad in [
        "", "abcde", "abcdefg", "ABCDEF", "abc-ef", "abcdé", "ca.crt", token, LEGACY,
    ] {
        let error = bad.parse::<TokenId>().unwrap_err().to_string();
        assert!(!error.contains("0123456789abcdef"), "{error}");
        assert_eq!(TokenId::of_secret(&format!("bootstrap-token-{bad}")), None, "{bad}");
    }
    assert_eq!(TokenId::of_secret("abcdef"), None);
}

#[test]
fn an_expiration_is_read_as_the_token_cleaner_reads_it() {
    let at = |text: &str| Expiration::At(text.parse().unwrap());
    for (text, expected) in [
        ("", Expiration::Never),
        ("2026-06-01T12:00:00Z", Expiration::At(now())),
        ("2026-06-01T14:00:00+02:00", Expiration::At(now())),
        ("2026-06-01T11:29:59.5-00:30", at("2026-06-01T11:59:59.5Z")),
        ("2026-06-01T12:00:00", Expiration::Unreadable),
        ("2026-06-01 12:00:00Z", Expiration::Unreadable),
        ("2026-06-01t12:00:00z", Expiration::Unreadable),
        ("2026-06-01T12:00:00Z\n", Expiration::Unreadable),
        ("2026-06-01T12:00:00+0200", Expiration::Unreadable),
        ("2026-06-01T12:00Z", Expiration::Unreadable),
        ("2026-13-01T12:00:00Z", Expiration::Unreadable),
        ("2026-06-01T12:00:00.Z", Expiration::Unreadable),
        ("2026-06-01T12:00:00Z[UTC]", Expiration::Unreadable),
        ("10000-01-01T00:00:00Z", Expiration::Unreadable),
        ("1780315200", Expiration::Unreadable),
        ("never", Expiration::Unreadable),
        ("2026-06-01T12:00:0\u{661}Z", Expiration::Unreadable),
    ] {
        assert_eq!(Expiration::parse(Some(text.as_bytes())), expected, "{text:?}");
    }
    assert_eq!(Expiration::parse(None), Expiration::Never);
    assert_eq!(Expiration::parse(Some(b"\xff")), Expiration::Unreadable);
}

#[test]
fn a_grant_is_gone_with_its_token_and_not_before() {
    let skew = SKEW.as_secs();
    let known = Uid("u".to_owned());
    let ends = |seconds| Some(token("u", Expiration::At(after(seconds))));
    let terminating = Token {
        terminating: true,
        ..token("u", Expiration::Never)
    };
    let cases = [
        ("no token", None, Some(Gone::Revoked)),
        ("being deleted", Some(terminating), Some(Gone::Revoked)),
        ("made again", Some(token("v", Expiration::Never)), Some(Gone::Recreated)),
        ("never ends", Some(token("u", Expiration::Never)), None),
        (
            "no time",
            Some(token("u", Expiration::Unreadable)),
            Some(Gone::ExpirationUnreadable),
        ),
        ("ends in a second", ends(1), None),
        ("ended a second ago", ends(-1), None),
        ("ended nearly too long ago", ends(1 - skew), None),
        ("ended too long ago", ends(-skew), Some(Gone::Expired)),
    ];
    for (name, live, expected) in cases {
        let all: Vec<_> = live.into_iter().map(|token| ("abcdef", token)).collect();
        // Others do not matter.
        let all = [all, vec![("zzzzzz", token("u", Expiration::Never))]].concat();
        assert_eq!(gone(&id("abcdef"), &known, &tokens(&all), now()), expected, "{name}");
    }
    let words: Vec<&str> = Gone::iter().map(Into::into).collect();
    assert_eq!(words, ["revoked", "recreated", "expired", "expiration_unreadable"]);
}

struct Case {
    name: &'static str,
    keys: &'static [&'static str],
    owners: &'static [&'static str],
    live: &'static [(&'static str, &'static str)],
    keys_after: &'static [&'static str],
    owners_after: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "nothing",
        keys: &[],
        owners: &[],
        live: &[],
        keys_after: &[],
        owners_after: &[],
    },
    Case {
        name: "all is well",
        keys: &["aaaaaa=1", "bbbbbb=2"],
        owners: &["bbbbbb=2", "aaaaaa=1"],
        live: &[("aaaaaa", "1"), ("bbbbbb", "2"), ("cccccc", "3")],
        keys_after: &["aaaaaa", "bbbbbb"],
        owners_after: &["bbbbbb=2", "aaaaaa=1"],
    },
    Case {
        name: "one token is gone",
        keys: &["aaaaaa=1", "bbbbbb=2"],
        owners: &["aaaaaa=1", "bbbbbb=2"],
        live: &[("bbbbbb", "2")],
        keys_after: &["bbbbbb"],
        owners_after: &["bbbbbb=2"],
    },
    Case {
        name: "all tokens are gone",
        keys: &["aaaaaa=1", "bbbbbb=2"],
        owners: &["aaaaaa=1", "bbbbbb=2"],
        live: &[],
        keys_after: &[],
        owners_after: &[],
    },
    Case {
        name: "all tokens are gone, and there is a legacy entry that nobody should own",
        keys: &["aaaaaa=1", "bbbbbb=2", "certs"],
        owners: &["aaaaaa=1", "bbbbbb=2"],
        live: &[],
        keys_after: &["certs"],
        owners_after: &[],
    },
    Case {
        name: "a legacy entry beside live grants",
        keys: &["aaaaaa=1", "certs"],
        owners: &["aaaaaa=1", "ConfigMap/theirs=9"],
        live: &[("aaaaaa", "1")],
        keys_after: &["aaaaaa", "certs"],
        owners_after: &[],
    },
    Case {
        name: "a key of others beside live grants",
        keys: &["aaaaaa=1", "ca.crt"],
        owners: &["aaaaaa=1", "ConfigMap/theirs=9"],
        live: &[("aaaaaa", "1")],
        keys_after: &["aaaaaa", "ca.crt"],
        owners_after: &["ConfigMap/theirs=9"],
    },
    Case {
        name: "keys of others that are nearly token ids",
        keys: &["aaaaa", "aaaaaaa", "AAAAAA", "aaa.aa", "aaaaaa=1"],
        owners: &[],
        live: &[],
        keys_after: &["AAAAAA", "aaa.aa", "aaaaa", "aaaaaaa"],
        owners_after: &[],
    },
    Case {
        name: "the token was made again under its id",
        keys: &["aaaaaa=1", "bbbbbb=2"],
        owners: &["aaaaaa=1", "bbbbbb=2"],
        live: &[("aaaaaa", "new"), ("bbbbbb", "2")],
        keys_after: &["bbbbbb"],
        owners_after: &["bbbbbb=2"],
    },
    Case {
        name: "an owner by its earlier UID, another is missing, a third was never one",
        keys: &["aaaaaa=1", "bbbbbb=2"],
        owners: &["aaaaaa=old", "cccccc=3"],
        live: &[("aaaaaa", "1"), ("bbbbbb", "2"), ("cccccc", "3")],
        keys_after: &["aaaaaa", "bbbbbb"],
        owners_after: &["aaaaaa=1", "bbbbbb=2"],
    },
    Case {
        name: "an owner twice, and an owner of others",
        keys: &["aaaaaa=1"],
        owners: &["aaaaaa=1", "Secret/other=7", "aaaaaa=1"],
        live: &[("aaaaaa", "1")],
        keys_after: &["aaaaaa"],
        owners_after: &["aaaaaa=1", "Secret/other=7"],
    },
    Case {
        name: "keys of others that are token ids stay, with a token of that id and without",
        keys: &["aaaaaa", "bbbbbb"],
        owners: &[],
        live: &[("aaaaaa", "1")],
        keys_after: &["aaaaaa", "bbbbbb"],
        owners_after: &[],
    },
    Case {
        name: "a key of others that is a token id beside grants, of which one is gone",
        keys: &["aaaaaa=1", "bbbbbb=2", "cccccc"],
        owners: &["aaaaaa=1", "bbbbbb=2"],
        live: &[("aaaaaa", "1")],
        keys_after: &["aaaaaa", "cccccc"],
        owners_after: &[],
    },
];

#[test]
fn the_operator_drops_what_is_gone_and_nothing_else() {
    for case in CASES {
        let name = case.name;
        let (data, before) = (data(case.keys), owners(case.owners));
        let live: Vec<_> = case
            .live
            .iter()
            .map(|(id, uid)| (*id, token(uid, Expiration::Never)))
            .collect();
        let plan = prune_expired_grants(&Stored::read(&data, before.clone()), &tokens(&live), now());
        let (keys, after) = carried_out(&data, &before, &plan.update);
        assert_eq!(keys, case.keys_after, "{name}");
        assert_eq!(after, owners(case.owners_after), "{name}");
        assert_eq!(plan.update.add, None, "{name}");
        let unchanged = keys.len() == data.len() && after == before;
        assert_eq!(
            plan.update.is_nothing(),
            unchanged,
            "{name}: nothing is written for nothing"
        );
        let is_grant = |key: &&String| case.keys.iter().any(|text| text.starts_with(&format!("{key}=")));
        assert_eq!(plan.live, keys.iter().filter(is_grant).count(), "{name}");
        let foreign = |key: &&&str| key.parse::<TokenId>().is_ok();
        assert_eq!(plan.foreign.len(), case.keys.iter().filter(foreign).count(), "{name}");

        // Once carried out, there is nothing left to do.
        let mut rest = data.clone();
        rest.retain(|key, _| keys.contains(key));
        let again = prune_expired_grants(&Stored::read(&rest, after), &tokens(&live), now());
        assert!(again.update.is_nothing(), "{name}: {again:?}");
        assert_eq!(
            again.bytes,
            rest.values().map(|value| value.0.len()).sum::<usize>(),
            "{name}"
        );
        assert_eq!(plan.bytes, again.bytes, "{name}");
    }
}

/// What somebody may keep under a key that is a token id. Whatever tokens there are, it is neither removed nor replaced.
#[test]
fn what_only_looks_like_an_entry_is_never_removed_and_is_told() {
    let ours = entry_of("aaaaaa", "1");
    let (head, sealed) = ours.split_at(ours.iter().position(|byte| *byte == b'\n').unwrap());
    let nearly = |from: &str, to: &str| {
        let head = String::from_utf8(head.to_vec()).unwrap();
        assert!(head.contains(from), "{head}");
        [head.replacen(from, to, 1).as_bytes(), sealed].concat()
    };
    let values = [
        b"".to_vec(),
        b"\n".to_vec(),
        b"a password".to_vec(),
        vec![0, 159, 146, 150, b'\n'],
        b"{}\n".to_vec(),
        b"-----BEGIN CERTIFICATE-----\n".to_vec(),
        b"{\"form\":1,\"token\":\"aaaaaa\"}\nx".to_vec(),
        // A head that ends nowhere, one of another token, and heads that lack one thing each.
        head.to_vec(),
        entry_of("bbbbbb", "1"),
        nearly("\"form\":1,", ""),
        nearly("\"form\":1", "\"form\":\"1\""),
        nearly("\"token\":\"aaaaaa\",", ""),
        nearly("\"tokenUID\"", "\"uid\""),
    ];
    let (material, key, wanted) = (material(), key(9), id("aaaaaa"));
    for value in values {
        let shown = String::from_utf8_lossy(&value).into_owned();
        let data = Data::from([("aaaaaa".to_owned(), ByteString(value))]);
        let owned = owners(&["aaaaaa=1"]);
        let stored = Stored::read(&data, owned.clone());
        assert!(!stored.has_entries(), "{shown}");
        for live in [
            tokens(&[]),
            tokens(&[("aaaaaa", token("1", Expiration::Never))]),
            tokens(&[("aaaaaa", token("2", Expiration::At(after(-3600))))]),
        ] {
            let plan = prune_expired_grants(&stored, &live, now());
            let (keys, owners) = carried_out(&data, &owned, &plan.update);
            assert_eq!(
                (keys.as_slice(), owners.len()),
                (&["aaaaaa".to_owned()][..], 0),
                "{shown}"
            );
            assert_eq!((plan.live, plan.foreign.contains(&wanted)), (0, true), "{shown}");
        }
        let live = tokens(&[("aaaaaa", token("1", Expiration::Never))]);
        let refused = mint(&stored, &live, &wanted_for(&wanted, &material, &key), now()).unwrap_err();
        assert!(matches!(refused, MintError::Occupied { .. }), "{shown}: {refused}");
    }
    // What is ours goes, whatever became of the rest of it, and of whatever form it is.
    for value in [
        ours[..=head.len()].to_vec(),
        nearly("\"form\":1", "\"form\":7,\"more\":{}"),
    ] {
        let stored = Stored::read(&Data::from([("aaaaaa".to_owned(), ByteString(value))]), Vec::new());
        let plan = prune_expired_grants(&stored, &tokens(&[]), now());
        assert_eq!(plan.update.drop[&wanted], Gone::Revoked);
    }
}

/// What kube-controller-manager's garbage collector does: it deletes an object that has owners, of which none exists.
fn is_collected(owners: &[OwnerReference], existing: &[&str]) -> bool {
    !owners.is_empty() && owners.iter().all(|owner| !existing.contains(&owner.uid.as_str()))
}

#[test]
fn the_legacy_entry_is_never_collected_whatever_was_owned_before() {
    let live = tokens(&[("aaaaaa", token("1", Expiration::Never))]);
    for before in [
        &[][..],
        &["aaaaaa=1"],
        &["aaaaaa=1", "bbbbbb=2"],
        &["ConfigMap/gone=9"],
        &["aaaaaa=old"],
    ] {
        let before = owners(before);
        for keys in [&["certs"][..], &["aaaaaa=1", "certs"]] {
            let data = data(keys);
            let stored = Stored::read(&data, before.clone());
            let plan = prune_expired_grants(&stored, &live, now());
            let (_, after) = carried_out(&data, &before, &plan.update);
            assert!(!is_collected(&after, &[]), "{before:?} {keys:?}");
            let wanted = id("cccccc");
            let more = tokens(&[("cccccc", token("3", Expiration::Never))]);
            let update = mint(&stored, &more, &wanted_for(&wanted, &material(), &key(1)), now()).unwrap();
            let (keys_after, after) = carried_out(&data, &before, &update);
            assert!(!is_collected(&after, &[]), "{before:?} {keys:?}");
            assert_eq!(keys_after, ["cccccc", "certs"]);
        }
    }
    let plan = prune_expired_grants(&Stored::read(&data(&["aaaaaa=1"]), Vec::new()), &live, now());
    let owners = plan.update.owners.unwrap();
    assert!(
        !is_collected(&owners, &["1"]) && is_collected(&owners, &[]),
        "it goes with its last grant"
    );
}

#[test]
fn the_next_look_is_when_the_first_grant_ends() {
    let ends = |seconds| Expiration::At(after(seconds));
    let stored = Stored::read(&data(&["aaaaaa=1", "bbbbbb=2", "cccccc=3", "dddddd=4"]), Vec::new());
    let all = tokens(&[
        ("aaaaaa", token("1", ends(600))),
        ("bbbbbb", token("2", ends(60))),
        ("cccccc", token("3", Expiration::Never)),
        // Of a token without a grant.
        ("eeeeee", token("5", ends(1))),
    ]);
    let plan = prune_expired_grants(&stored, &all, now());
    assert_eq!(plan.next_end.unwrap().as_secs(), 60 + SKEW.as_secs().unsigned_abs());
    let later = after(60 + SKEW.as_secs());
    let plan = prune_expired_grants(&stored, &all, later);
    assert_eq!(plan.update.drop[&id("bbbbbb")], Gone::Expired);
    assert_eq!(plan.next_end.unwrap().as_secs(), 540);
    let never = tokens(&[("cccccc", token("3", Expiration::Never))]);
    assert_eq!(prune_expired_grants(&stored, &never, now()).next_end, None);
}

fn wanted_for<'a>(id: &'a TokenId, material: &'a Material, key: &'a CertificateKey) -> Wanted<'a> {
    let nonce = [5; 12];
    Wanted {
        id,
        material,
        key,
        nonce,
    }
}

#[test]
fn a_mint_adds_its_entry_and_drops_the_dead_in_one_update() {
    let all = tokens(&[
        ("aaaaaa", token("1", Expiration::At(after(3600)))),
        ("bbbbbb", token("2", Expiration::At(after(-3600)))),
        ("cccccc", token("new", Expiration::Never)),
    ]);
    let data = data(&["aaaaaa=1", "bbbbbb=2", "cccccc=old", "dddddd=4"]);
    let before = owners(&["aaaaaa=1", "cccccc=old", "dddddd=4"]);
    let stored = Stored::read(&data, before.clone());
    let (material, key, id) = (material(), key(9), id("cccccc"));
    let update = mint(&stored, &all, &wanted_for(&id, &material, &key), now()).unwrap();
    let (keys, owned) = carried_out(&data, &before, &update);
    assert_eq!(keys, ["aaaaaa", "cccccc"]);
    assert_eq!(owned, owners(&["aaaaaa=1", "cccccc=new"]));
    let dropped: Vec<&str> = update.drop.keys().map(TokenId::as_str).collect();
    assert_eq!(
        dropped,
        ["bbbbbb", "dddddd"],
        "the entry of the new one is set, not removed"
    );

    let (_, entry) = update.add.unwrap();
    let head = Head::of(&id, &entry).unwrap();
    assert_eq!((head.token_uid, head.expires), (Uid("new".to_owned()), None));
    let stored = BTreeMap::from([("cccccc".to_owned(), ByteString(entry))]);
    assert_eq!(entry::open(&stored, &id, &key).unwrap(), material);
}

#[test]
fn a_mint_into_nothing_makes_the_first_owner() {
    let (material, key, id) = (material(), key(9), id("aaaaaa"));
    let all = tokens(&[("aaaaaa", token("1", Expiration::Never))]);
    let update = mint(&Stored::default(), &all, &wanted_for(&id, &material, &key), now()).unwrap();
    assert_eq!(update.owners, Some(owners(&["aaaaaa=1"])));
}

#[test]
fn what_cannot_be_minted_is_refused_with_its_reason() {
    let (key, wanted) = (key(9), id("aaaaaa"));
    let expired = token("1", Expiration::At(after(-3600)));
    let live = token("1", Expiration::Never);
    let refused = |data: &Data, token: Option<&Token>, material: &Material| {
        let all = tokens(
            &token
                .into_iter()
                .map(|token| ("aaaaaa", token.clone()))
                .collect::<Vec<_>>(),
        );
        let stored = Stored::read(data, Vec::new());
        mint(&stored, &all, &wanted_for(&wanted, material, &key), now()).unwrap_err()
    };
    let none = data(&[]);
    let full = material();
    assert!(matches!(refused(&none, None, &full), MintError::NoToken { .. }));
    assert!(matches!(
        refused(&none, Some(&expired), &full),
        MintError::TokenGone {
            reason: Gone::Expired,
            ..
        }
    ));
    assert!(matches!(
        refused(&data(&["aaaaaa=1"]), Some(&live), &full),
        MintError::Granted { .. }
    ));
    let error = refused(&none, Some(&live), &Material::new());
    assert!(matches!(error, MintError::Seal { .. }), "{error}");

    let own = entry_of("aaaaaa", "1").len();
    let expiry = r#","expires":"2026-06-01T13:00:00Z""#.len();
    let filler = |bytes: usize| Data::from([("theirs.txt".to_owned(), ByteString(vec![0; bytes]))]);
    let room = LIMIT - (own - expiry);
    let all = tokens(&[("aaaaaa", live.clone())]);
    let fits = Stored::read(&filler(room), Vec::new());
    mint(&fits, &all, &wanted_for(&wanted, &full, &key), now()).unwrap();
    let error = refused(&filler(room + 1), Some(&live), &full);
    assert!(
        matches!(error, MintError::TooLarge { bytes, .. } if bytes == LIMIT + 1),
        "{error}"
    );
    // What is dropped in the same update makes room.
    let mut crowded = filler(room);
    crowded.extend(data(&["bbbbbb=2"]));
    mint(
        &Stored::read(&crowded, Vec::new()),
        &all,
        &wanted_for(&wanted, &full, &key),
        now(),
    )
    .unwrap();
}

fn opened(data: &Data, name: &str, key: &CertificateKey) -> OpenError {
    entry::open(data, &id(name), key).unwrap_err()
}

#[test]
fn a_joiner_gets_everything_or_the_reason() {
    let data = data(&["aaaaaa=1", "certs"]);
    assert_eq!(entry::open(&data, &id("aaaaaa"), &key(1)).unwrap(), material());
    let error = opened(&data, "bbbbbb", &key(1));
    assert!(
        matches!(error, OpenError::NoGrant { .. }) && error.to_string().contains(NAME),
        "{error}"
    );
    let source = |error: OpenError| match error {
        OpenError::Sealed { source, .. } => source,
        other => panic!("{other}"),
    };
    assert_eq!(source(opened(&data, "aaaaaa", &key(2))), seal::Error::OtherKey);

    let entry = data["aaaaaa"].0.clone();
    let with = |name: &str, entry: &[u8]| Data::from([(name.to_owned(), ByteString(entry.to_vec()))]);
    for length in 0..entry.len() {
        let error = opened(&with("aaaaaa", &entry[..length]), "aaaaaa", &key(1));
        assert!(
            matches!(
                &error,
                OpenError::NotItsEntry { .. }
                    | OpenError::Sealed {
                        source: seal::Error::CutOff { .. },
                        ..
                    }
            ),
            "{length}: {error}"
        );
    }
    let error = opened(&with("bbbbbb", &entry), "bbbbbb", &key(1));
    assert!(matches!(error, OpenError::NotItsEntry { .. }), "{error}");
    let text = |from: &str, to: &str| {
        let at = entry
            .windows(from.len())
            .position(|part| part == from.as_bytes())
            .unwrap();
        [&entry[..at], to.as_bytes(), &entry[at + from.len()..]].concat()
    };
    for (from, to) in [(r#""1""#, r#""2""#), ("2026-06-01T13", "2027-06-01T13"), ("{", "{ ")] {
        let changed = with("aaaaaa", &text(from, to));
        assert_eq!(
            source(opened(&changed, "aaaaaa", &key(1))),
            seal::Error::Changed,
            "{from}"
        );
    }
    // Even one whose head was made to name the other token.
    let moved = with("bbbbbb", &text("aaaaaa", "bbbbbb"));
    assert_eq!(source(opened(&moved, "bbbbbb", &key(1))), seal::Error::Changed);
    let later = with("aaaaaa", &text(r#""form":1"#, r#""form":2,"more":{}"#));
    assert!(matches!(
        opened(&later, "aaaaaa", &key(1)),
        OpenError::Form { found: 2, .. }
    ));
    let head = Head::of(&id("aaaaaa"), &later["aaaaaa"].0).unwrap();
    assert_eq!(head.token_uid, Uid("1".to_owned()), "a later form can still be pruned");
}

#[test]
fn material_is_whole_and_stays_below_its_folder() {
    let bytes = material().to_bytes().unwrap();
    assert_eq!(Material::from_bytes(&bytes).unwrap(), material());
    assert_eq!(material().file("etcd/ca.crt"), Some(&b"another"[..]));
    for length in 0..bytes.len() {
        match Material::from_bytes(&bytes[..length]) {
            Err(_) => {}
            // Cut between two files it is shorter, not broken: the seal is what tells.
            Ok(part) => assert!(part.files().count() < 3),
        }
    }
    let insert = |name: &str, content: &[u8]| material().insert(name, Zeroizing::new(content.to_vec()));
    for name in [
        "",
        "/ca.crt",
        "../ca.crt",
        "etcd//ca.crt",
        "etcd/",
        "a/../b",
        ".hidden",
        "a\nb",
        "a b",
        "ü",
        "a\\b",
    ] {
        assert_eq!(insert(name, b"x"), Err(material::Error::Name(name.to_owned())));
    }
    assert!(insert(&"a".repeat(256), b"x").is_err());
    assert_eq!(insert("sa.key", b""), Err(material::Error::Empty("sa.key".to_owned())));
    assert_eq!(insert("ca.key", b"x"), Err(material::Error::Twice("ca.key".to_owned())));
    assert_eq!(insert("sa.key", b"x"), Ok(()));
    assert_eq!(Material::from_bytes(b""), Err(material::Error::Nothing));
    let hostile = b"\x00\x09../ca.crt\x00\x00\x00\x01x";
    assert_eq!(
        Material::from_bytes(hostile),
        Err(material::Error::Name("../ca.crt".to_owned()))
    );
    let shown = format!("{:?}", material());
    assert!(
        shown.contains("\"ca.key\": 13") && !shown.contains("private"),
        "{shown}"
    );
}

/// Whoever holds the new key opens it with any token, and no key of before opens anything.
#[test]
fn the_shared_entry_is_the_only_one_that_opens_after_a_rekey() {
    let shared = entry::seal_shared(&material(), &key(7), [5; 12]).unwrap();
    let mut data = data(&["aaaaaa=1", "bbbbbb=2", "certs", "other"]);
    let stored = Stored::read(&data, owners(&["aaaaaa=1"]));
    let known = tokens(&[("aaaaaa", token("1", Expiration::Never))]);
    let decided = rekey(&stored, &known, shared.clone(), now());
    assert_eq!(decided.drop, [id("aaaaaa"), id("bbbbbb")].into());
    assert_eq!(
        decided.live,
        [id("aaaaaa")].into(),
        "the bearer of the other could not join any more"
    );
    assert_eq!(decided.owners, Some(Vec::new()), "it would go with its last token");
    assert_eq!(rekey(&Stored::default(), &known, shared.clone(), now()).owners, None);
    for gone in &decided.drop {
        data.remove(gone.as_str());
    }
    data.insert(LEGACY.to_owned(), ByteString(decided.shared));
    assert!(data.contains_key("other"), "somebody else's");
    assert_eq!(entry::open(&data, &id("aaaaaa"), &key(7)).unwrap(), material());
    assert_eq!(entry::open(&data, &id("zzzzzz"), &key(7)).unwrap(), material());
    let old = entry::open(&data, &id("aaaaaa"), &key(1)).unwrap_err();
    assert!(matches!(old, OpenError::NoGrant { .. }), "{old}");
    // It is no grant, and opens as none: the place is a part of it.
    data.insert("cccccc".to_owned(), ByteString(shared.clone()));
    let moved = entry::open(&data, &id("cccccc"), &key(7)).unwrap_err();
    assert!(matches!(moved, OpenError::NotItsEntry { .. }), "{moved}");
    let mut damaged = shared;
    *damaged.last_mut().unwrap() ^= 1;
    data.insert(LEGACY.to_owned(), ByteString(damaged));
    let damaged = entry::open(&data, &id("aaaaaa"), &key(7)).unwrap_err();
    assert!(matches!(damaged, OpenError::Sealed { .. }), "{damaged}");
}

#[test]
fn a_legacy_entry_of_another_form_is_no_grant() {
    for text in ["", "something", "{}\nx", "{\"form\":1", "\n"] {
        let data: Data = [(LEGACY.to_owned(), ByteString(text.as_bytes().to_vec()))].into();
        let error = entry::open(&data, &id("aaaaaa"), &key(1)).unwrap_err();
        assert!(matches!(error, OpenError::NoGrant { .. }), "{text:?}: {error}");
    }
    let later: Data = [(LEGACY.to_owned(), ByteString(b"{\"form\":9}\nx".to_vec()))].into();
    let error = entry::open(&later, &id("aaaaaa"), &key(1)).unwrap_err();
    assert!(matches!(error, OpenError::Form { found: 9, .. }), "{error}");
}
