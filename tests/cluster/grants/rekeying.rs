//! The shared certificate key made anew.

use std::collections::{BTreeMap, BTreeSet};

use stratum::controllers::grants::guard::GuardError;
use stratum::controllers::grants::join::JoinError;
use stratum::controllers::grants::rekeying::{self, RekeyError};
use stratum::reconcilers::grants::entry::OpenError;

use super::bed::{Bed, id, in_seconds, key, material};
use crate::support::Cluster;

#[tokio::test]
async fn only_the_new_key_opens_and_the_live_grants_are_named() {
    let bed = Bed::new(Cluster::shared().await, "grants-rekey").await;
    let rekey = async |number| rekeying::rekey(&bed.admin, &bed.namespace, &key(number), &material("disk")).await;
    // Without a Secret there is one afterwards, and it belongs to no token.
    assert_eq!(rekey(7).await.unwrap(), BTreeSet::new());
    assert_eq!(bed.owners().await, BTreeMap::new());
    assert_eq!(bed.open("zzzzzz", &key(7)).await.unwrap(), material("disk"));
    bed.granted("aaaaaa").await;
    bed.token("bbbbbb", Some(&in_seconds(3600))).await;
    bed.mint("bbbbbb", &key(2)).await.unwrap();
    bed.revoke("bbbbbb").await;
    assert_eq!(bed.open("aaaaaa", &key(1)).await.unwrap(), material("aaaaaa"));
    assert_eq!(
        rekey(8).await.unwrap(),
        [id("aaaaaa")].into(),
        "the other was dead already"
    );
    assert_eq!(bed.keys().await, ["certs"]);
    assert_eq!(bed.owners().await, BTreeMap::new());
    for (name, number) in [("aaaaaa", 1), ("bbbbbb", 2), ("zzzzzz", 7)] {
        let error = bed.open(name, &key(number)).await.unwrap_err();
        assert!(matches!(error, JoinError::Open(OpenError::NoGrant { .. })), "{error}");
        assert_eq!(bed.open(name, &key(8)).await.unwrap(), material("disk"));
    }
    // A grant that is minted afterwards is one again, beside it.
    bed.granted("cccccc").await;
    assert_eq!(bed.open("cccccc", &key(1)).await.unwrap(), material("cccccc"));
    assert_eq!(bed.keys().await, ["cccccc", "certs"]);
}

#[tokio::test]
async fn nothing_is_re_encrypted_while_cas_are_replaced() {
    let bed = Bed::new(Cluster::shared().await, "grants-rekey-guard").await;
    bed.granted("aaaaaa").await;
    bed.kubectl(&["create", "secret", "generic", "stratum-carotate"]).await;
    let error = rekeying::rekey(&bed.admin, &bed.namespace, &key(7), &material("disk")).await;
    assert!(matches!(error, Err(RekeyError::Guard(GuardError::Staged))), "{error:?}");
    assert_eq!(bed.keys().await, ["aaaaaa"]);
}
