//! What a mint adds, drops and leaves alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use stratum::controllers::concern::chain;
use stratum::controllers::grants::guard::GuardError;
use stratum::controllers::grants::join::JoinError;
use stratum::controllers::grants::minting::{self, MintingError};
use stratum::pki::seal;
use stratum::reconcilers::grants::entry::OpenError;
use stratum::reconcilers::grants::plan::MintError;

use super::bed::{Bed, Pause, SOON, id, in_seconds, is_collected, key, material};
use crate::support::Cluster;

#[tokio::test]
async fn each_joiner_opens_its_own_grant_and_no_other() {
    let bed = Bed::new(Cluster::shared().await, "grants-mint").await;
    let missing = bed.open("aaaaaa", &key(1)).await.unwrap_err();
    assert!(matches!(missing, JoinError::NoSecret), "{missing}");
    let mut uids = BTreeMap::new();
    for (number, name) in (1..).zip(["aaaaaa", "bbbbbb", "cccccc"]) {
        let uid = bed.token(name, Some(&in_seconds(3600))).await;
        uids.insert(format!("bootstrap-token-{name}"), uid);
        let minted = bed.mint(name, &key(number)).await.unwrap();
        assert_eq!(minted.dropped.len(), 0);
    }
    for (number, name) in (1..).zip(["aaaaaa", "bbbbbb", "cccccc"]) {
        assert_eq!(bed.open(name, &key(number)).await.unwrap(), material(name));
        let wrong = bed.open(name, &key(number + 1)).await.unwrap_err();
        let JoinError::Open(OpenError::Sealed { source, .. }) = &wrong else {
            panic!("{wrong}")
        };
        assert_eq!(*source, seal::Error::OtherKey);
        assert!(chain(&wrong).contains("another certificate key"), "{}", chain(&wrong));
    }
    let none = bed.open("dddddd", &key(1)).await.unwrap_err();
    assert!(matches!(none, JoinError::Open(OpenError::NoGrant { .. })), "{none}");
    assert_eq!(bed.owners().await, uids);
    let secret = bed.secret().await;
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    let stored = secret.data.unwrap();
    let bytes: Vec<u8> = stored.into_values().flat_map(|value| value.0).collect();
    assert!(
        !String::from_utf8_lossy(&bytes).contains("ca.key of"),
        "nothing stands there openly"
    );
}

#[tokio::test]
async fn a_mint_drops_the_dead_and_keeps_what_is_not_its_own() {
    let bed = Bed::new(Cluster::shared().await, "grants-foreign").await;
    let arguments = [
        "create",
        "secret",
        "generic",
        "stratum-certs",
        "--from-literal=certs=legacy",
        "--from-literal=theirs.txt=x",
    ];
    bed.kubectl(&arguments).await;
    bed.kubectl(&["label", "secret", "stratum-certs", "team=mine"]).await;
    bed.kubectl(&["annotate", "secret", "stratum-certs", "team=mine"]).await;
    for name in ["aaaaaa", "bbbbbb", "cccccc"] {
        bed.granted(name).await;
    }
    bed.ends("aaaaaa", &in_seconds(-3600)).await;
    bed.revoke("bbbbbb").await;
    bed.token("dddddd", None).await;
    let minted = bed.mint("dddddd", &key(2)).await.unwrap();
    let dropped: Vec<String> = minted.dropped.keys().map(ToString::to_string).collect();
    assert_eq!(dropped, ["aaaaaa", "bbbbbb"]);
    assert_eq!(bed.keys().await, ["cccccc", "certs", "dddddd", "theirs.txt"]);
    assert!(
        bed.owners().await.is_empty(),
        "it would go with the last token, and the legacy entry with it"
    );

    let secret = bed.secret().await;
    assert_eq!(secret.metadata.labels.unwrap()["team"], "mine");
    assert_eq!(secret.metadata.annotations.unwrap()["team"], "mine");
    let data = secret.data.unwrap();
    assert_eq!(
        (data["certs"].0.as_slice(), data["theirs.txt"].0.as_slice()),
        (&b"legacy"[..], &b"x"[..])
    );
    assert_eq!(bed.open("cccccc", &key(1)).await.unwrap(), material("cccccc"));
}

#[tokio::test]
async fn a_refused_mint_leaves_everything_as_it_was() {
    let bed = Bed::new(Cluster::shared().await, "grants-refused").await;
    bed.granted("aaaaaa").await;
    bed.token("bbbbbb", None).await;
    bed.token("cccccc", Some(&in_seconds(-3600))).await;
    bed.token("dddddd", Some("tomorrow")).await;
    let before = bed.secret().await;
    let refused = async |name: &str| match bed.mint(name, &key(2)).await.unwrap_err() {
        MintingError::Refused(error) => error,
        other => panic!("{}", chain(&other)),
    };
    assert!(matches!(refused("aaaaaa").await, MintError::Granted { .. }));
    assert!(matches!(refused("cccccc").await, MintError::TokenGone { .. }));
    assert!(matches!(refused("dddddd").await, MintError::TokenGone { .. }));
    assert!(matches!(refused("eeeeee").await, MintError::NoToken { .. }));

    // The operator may not look at the staged key, so it cannot tell.
    let minted = minting::mint(&bed.operator, &bed.namespace, &id("bbbbbb"), &key(2), &material("x")).await;
    let error = minted.unwrap_err();
    assert!(
        matches!(error, MintingError::Guard(GuardError::Unknown(_))),
        "{}",
        chain(&error)
    );
    bed.kubectl(&["create", "configmap", "stratum-ca-rotation"]).await;
    let error = bed.mint("bbbbbb", &key(2)).await.unwrap_err();
    assert!(
        matches!(error, MintingError::Guard(GuardError::Unfinished)),
        "{}",
        chain(&error)
    );
    bed.kubectl(&["create", "secret", "generic", "stratum-carotate"]).await;
    let error = bed.mint("bbbbbb", &key(2)).await.unwrap_err();
    assert!(
        matches!(error, MintingError::Guard(GuardError::Staged)),
        "{}",
        chain(&error)
    );
    assert_eq!(bed.secret().await, before);

    bed.kubectl(&["delete", "secret/stratum-carotate", "configmap/stratum-ca-rotation"])
        .await;
    bed.mint("bbbbbb", &key(2)).await.unwrap();
}

const WRITERS: u8 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mints_and_prunes_at_one_time_lose_nothing() {
    let bed = Bed::new(Cluster::shared().await, "grants-race").await;
    let name = |prefix: char, number: u8| format!("{prefix}{number:05}");
    let all = ('a'..='b').flat_map(|prefix| (0..WRITERS).map(move |number| name(prefix, number)));
    let declared: Vec<String> = all.map(|name| bed.declared(&name, None)).collect();
    bed.cluster.apply(&declared.join("---\n")).await;
    for number in 0..WRITERS {
        bed.mint(&name('a', number), &key(1)).await.unwrap();
    }
    // What was minted before is revoked while the rest is minted, the operator prunes all the time, and a person edits.
    let done = tokio_util::sync::CancellationToken::new();
    let bed = &bed;
    let mints = async {
        let mint = |number| async move { bed.mint(&name('b', number), &key(number)).await };
        for minted in join_all((0..WRITERS).map(mint)).await {
            minted.unwrap();
        }
        done.cancel();
    };
    let revocations = async {
        let mut arguments = vec!["delete".to_owned(), "secret".to_owned()];
        arguments.extend((0..WRITERS).map(|number| format!("bootstrap-token-{}", name('a', number))));
        bed.kubectl(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
            .await;
    };
    let prunes = async {
        while !done.is_cancelled() {
            bed.pass().await;
        }
    };
    let person = async {
        for value in ["1", "2", "3"] {
            let annotation = format!("note={value}");
            bed.kubectl(&["annotate", "--overwrite", "secret", "stratum-certs", &annotation])
                .await;
        }
    };
    tokio::join!(mints, revocations, prunes, person);
    bed.pass().await;
    let expected: Vec<String> = (0..WRITERS).map(|number| name('b', number)).collect();
    assert_eq!(bed.keys().await, expected);
    for number in 0..WRITERS {
        let name = name('b', number);
        assert_eq!(bed.open(&name, &key(number)).await.unwrap(), material(&name));
    }
    assert_eq!(bed.owners().await.len(), usize::from(WRITERS));
    assert!(is_collected(&bed.owners().await, &[]), "it goes with its last grant");
    assert_eq!(bed.secret().await.metadata.annotations.unwrap()["note"], "3");
}

/// Before the Secret is read, before the tokens are listed, and before the Secret is written.
#[tokio::test]
async fn a_grant_that_is_minted_in_the_middle_of_a_pass_is_not_lost() {
    let bed = Bed::new(Cluster::shared().await, "grants-middle").await;
    for (number, [gone, new]) in (1..).zip([["aaaaaa", "bbbbbb"], ["cccccc", "dddddd"], ["eeeeee", "ffffff"]]) {
        bed.granted(gone).await;
        bed.revoke(gone).await;
        let pause = Arc::new(Pause::default());
        let middle = async {
            pause.reached.notified().await;
            bed.granted(new).await;
            pause.over.notify_one();
        };
        let pass = bed.pass_of(pause.before(number, bed.operator.clone()));
        let both = async { tokio::join!(pass, middle) };
        let (pass, ()) = tokio::time::timeout(SOON, both).await.unwrap();
        pass.unwrap();
        let opened = bed.open(new, &key(1)).await;
        assert_eq!(opened.unwrap(), material(new), "before request {number}");
        let owner = format!("bootstrap-token-{new}");
        assert!(bed.owners().await.contains_key(&owner), "before request {number}");
    }
    bed.pass().await;
    assert_eq!(bed.keys().await, ["bbbbbb", "dddddd", "ffffff"]);
    assert_eq!(bed.owners().await.len(), 3);
}
