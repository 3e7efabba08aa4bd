//! Finding the right cluster, and every way in which a token or a pin can be wrong.

use std::time::Duration;

use serde_json::json;
use stratum::controllers::joining::discovery::{DiscoveryError, Told, discover};
use stratum::controllers::joining::publishing::sign_cluster_info;
use stratum::controllers::joining::wire::Limits;
use stratum::host::clock;
use stratum::pki::jws;
use stratum::pki::pin::Pin;
use stratum::reconcilers::joining::cluster_info::Malformed;
use stratum::reconcilers::joining::token::Kind;
use stratum::reconcilers::joining::verify::{Refusal, ServerRefusal};

use super::bed::{BRIEF, Bed, NAMESPACE, other_authority};
use crate::support::wait_for;

fn other_pin() -> Pin {
    Pin::of(other_authority().certificate())
}

#[tokio::test]
async fn one_fitting_pin_is_enough_wherever_it_stands() {
    let bed = Bed::shared().await;
    let token = bed.token(Kind::Worker, 3600).await;
    sign_cluster_info(&bed.admin().await, NAMESPACE).await.unwrap();
    let (right, wrong) = (bed.pin(), other_pin());
    for pins in [&[right][..], &[right, wrong], &[wrong, right]] {
        bed.find(&token, pins).await.unwrap();
    }
    for pins in [&[wrong][..], &[]] {
        let error = bed.find(&token, pins).await.unwrap_err();
        let DiscoveryError::Refused(Refusal::NotPinned { found }) = &error else {
            panic!("{error}")
        };
        assert_eq!(found, &[right]);
    }
}

#[tokio::test]
async fn a_token_that_was_deleted_expired_mistyped_or_never_signed_for_is_told_apart() {
    let bed = Bed::shared().await;
    let admin = bed.admin().await;
    let pins = [bed.pin()];
    let unsigned = |error: &DiscoveryError| matches!(error, DiscoveryError::Refused(Refusal::NotSigned { .. }));
    let never = "zzzzzz.0123456789abcdef".parse().unwrap();
    let error = bed.find(&never, &pins).await.unwrap_err();
    assert!(unsigned(&error), "{error}");

    let token = bed.token(Kind::Worker, 3600).await;
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    let mistyped = format!("{}.0123456789abcdef", token.id()).parse().unwrap();
    let error = bed.find(&mistyped, &pins).await.unwrap_err();
    assert!(
        matches!(
            &error,
            DiscoveryError::Refused(Refusal::OtherSignature { by: None, .. })
        ),
        "{error}"
    );

    let expired = bed.token(Kind::Worker, -1).await;
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    let error = bed.find(&expired, &pins).await.unwrap_err();
    assert!(unsigned(&error), "{error}");

    bed.done(&["token", "delete", token.id().as_str()]).await;
    let error = bed.find(&token, &pins).await.unwrap_err();
    assert!(unsigned(&error), "{error}");

    // Where nobody takes signatures away, the API server has the last word.
    let ending = bed.token(Kind::Worker, 2).await;
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    let refused = || async {
        match bed.find(&ending, &pins).await {
            Ok(_) => None,
            Err(error) if unsigned(&error) => {
                // Another test has just signed anew.
                let key = format!("jws-kubeconfig-{}", ending.id());
                let content = bed.cluster_info().await.data.unwrap()["kubeconfig"].clone();
                let secret = ending.expose_secret().as_bytes();
                let signature = jws::detached(secret, ending.id().as_str(), content.as_bytes());
                bed.patch(&json!({key: signature})).await;
                None
            }
            Err(error) => Some(error),
        }
    };
    let error = wait_for("the end of the token", Duration::from_secs(30), refused).await;
    assert!(
        matches!(&error, DiscoveryError::TokenRefused { id } if id == ending.id()),
        "{error}"
    );

    let foreign = "foreig.0123456789abcdef";
    let secret = format!(
        "apiVersion: v1\nkind: Secret\ntype: bootstrap.kubernetes.io/token\nmetadata: {{name: bootstrap-token-foreig, namespace: {NAMESPACE}}}\nstringData: {{token-id: foreig, token-secret: 0123456789abcdef, usage-bootstrap-authentication: \"true\", usage-bootstrap-signing: \"true\"}}\n"
    );
    bed.cluster.apply(&secret).await;
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    let error = bed.find(&foreign.parse().unwrap(), &pins).await.unwrap_err();
    assert!(
        matches!(&error, DiscoveryError::OtherKind { admits: None, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn times_of_another_clock_are_told_with_both_clocks() {
    let bed = Bed::shared().await;
    let token = bed.token(Kind::Worker, 3600).await;
    sign_cluster_info(&bed.admin().await, NAMESPACE).await.unwrap();
    let (endpoint, pins) = (bed.endpoint(), [bed.pin()]);
    let at = |hours: i64| {
        let (endpoint, token, pins) = (&endpoint, &token, &pins);
        async move {
            let told = Told {
                endpoint,
                token,
                pins,
                kind: Kind::Worker,
            };
            let now = clock::now() + jiff::SignedDuration::from_hours(hours);
            discover(&told, BRIEF, now).await
        }
    };
    at(0).await.unwrap();
    let ahead = at(1).await.unwrap_err();
    assert!(matches!(&ahead, DiscoveryError::Clocks(_)), "{ahead}");
    assert!(ahead.to_string().contains("set the clock that is wrong"), "{ahead}");
    let behind = at(-24).await.unwrap_err();
    assert!(
        matches!(&behind, DiscoveryError::Refused(Refusal::AuthorityOutOfDate { .. })),
        "{behind}"
    );
    let year = at(24 * 500).await.unwrap_err();
    let DiscoveryError::Server(ServerRefusal::OutOfDate { now, theirs, .. }) = &year else {
        panic!("{year}")
    };
    assert!(now.duration_since(theirs.unwrap()).as_hours() > 24 * 499, "{year}");
}

#[tokio::test]
async fn half_written_and_foreign_content_is_not_believed_and_a_repair_is_waited_for() {
    let bed = Bed::new().await;
    let token = bed.token(Kind::Worker, 3600).await;
    let other = bed.token(Kind::Worker, 3600).await;
    let admin = bed.admin().await;
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    let pins = [bed.pin()];
    let whole = bed.cluster_info().await.data.unwrap();
    let (key, others) = (
        format!("jws-kubeconfig-{}", token.id()),
        format!("jws-kubeconfig-{}", other.id()),
    );
    bed.find(&token, &pins).await.unwrap();
    let error = |data: serde_json::Value| {
        let (bed, token, pins) = (&bed, &token, &pins);
        async move {
            bed.patch(&data).await;
            bed.find(token, pins).await.unwrap_err()
        }
    };
    let refused = error(json!({"kubeconfig": null})).await;
    assert!(matches!(refused, DiscoveryError::Refused(Refusal::Empty)), "{refused}");
    let refused = error(json!({"kubeconfig": ""})).await;
    assert!(matches!(refused, DiscoveryError::Refused(Refusal::Empty)), "{refused}");
    // Content without its new signature.
    let refused = error(json!({"kubeconfig": &whole["kubeconfig"][..100]})).await;
    assert!(
        matches!(refused, DiscoveryError::Refused(Refusal::OtherSignature { .. })),
        "{refused}"
    );
    // Both, but cut off by whoever wrote it.
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    let refused = bed.find(&token, &pins).await.unwrap_err();
    let is_malformed = matches!(
        refused,
        DiscoveryError::Refused(Refusal::Malformed(Malformed::Field(_) | Malformed::Yaml(_)))
    );
    assert!(is_malformed, "{refused}");
    let refused = error(json!({"kubeconfig": whole["kubeconfig"], key.clone(): whole[&others]})).await;
    let DiscoveryError::Refused(Refusal::OtherSignature { by, .. }) = &refused else {
        panic!("{refused}")
    };
    assert!(by.as_ref().unwrap().ends_with(other.id().as_str()), "{refused}");
    let refused = error(json!({key: null})).await;
    assert!(
        matches!(refused, DiscoveryError::Refused(Refusal::NotSigned { .. })),
        "{refused}"
    );

    let endpoint = bed.endpoint();
    let told = Told {
        endpoint: &endpoint,
        token: &token,
        pins: &pins,
        kind: Kind::Worker,
    };
    let patient = Limits {
        patience: Duration::from_secs(10),
        ..BRIEF
    };
    let repair = async {
        clock::sleep(Duration::from_secs(1)).await;
        sign_cluster_info(&admin, NAMESPACE).await
    };
    let (found, repaired) = tokio::join!(discover(&told, patient, clock::now()), repair);
    repaired.unwrap();
    found.unwrap();

    bed.cluster
        .kubectl_in("kube-public", &["delete", "rolebinding", "stratum:cluster-info"])
        .await;
    let hidden = bed.find(&token, &pins).await.unwrap_err();
    assert!(matches!(hidden, DiscoveryError::Hidden { status: 403, .. }), "{hidden}");
    bed.publish(&[bed.authority()]).await;
    bed.find(&token, &pins).await.unwrap();
    bed.cluster
        .kubectl_in("kube-public", &["delete", "configmap", "cluster-info"])
        .await;
    let none = bed.find(&token, &pins).await.unwrap_err();
    assert!(matches!(none, DiscoveryError::NoClusterInfo { .. }), "{none}");
}

#[tokio::test]
async fn of_a_bundle_only_what_is_pinned_vouches_for_a_server() {
    let bed = Bed::new().await;
    let token = bed.token(Kind::Worker, 3600).await;
    let (ours, next) = (bed.authority(), other_authority());
    let next = next.certificate().clone();
    let (old, new) = (Pin::of(&ours), Pin::of(&next));
    for bundle in [[ours.clone(), next.clone()], [next.clone(), ours.clone()]] {
        bed.publish(&bundle).await;
        for pins in [&[old][..], &[old, new], &[new, old]] {
            let found = bed.find(&token, pins).await.unwrap();
            assert_eq!(found.bundle, bundle, "all of it is trusted from then on");
        }
        let error = bed.find(&token, &[new]).await.unwrap_err();
        let DiscoveryError::Server(ServerRefusal::NotPinned { pin, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*pin, old);
    }
    // What two readings of one publication say is the same; publishing it again changes nothing.
    let before = bed.cluster_info().await.metadata.resource_version;
    bed.publish(&[next, ours]).await;
    assert_eq!(bed.cluster_info().await.metadata.resource_version, before);
}
