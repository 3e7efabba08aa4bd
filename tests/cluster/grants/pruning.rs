//! What the operator drops, why, and what it leaves alone.

use k8s_openapi::api::core::v1::Secret;
use kube::client::{Body, ClientBuilder};
use stratum::controllers::concern::{Failure, chain};
use stratum::controllers::grants::minting::MintingError;
use stratum::controllers::grants::pruning::PruneError;
use stratum::host::layout::Identity;
use stratum::reconcilers::grants::plan::MintError;
use stratum::reconcilers::grants::token::SKEW;
use tower::util::MapRequestLayer;

use super::bed::{Bed, SOON, in_seconds, is_collected, key, material};
use crate::support::{Cluster, wait_for};

#[tokio::test]
async fn each_way_in_which_a_token_goes_takes_its_grant() {
    let bed = Bed::new(Cluster::shared().await, "grants-ends").await;
    for name in ["aaaaaa", "bbbbbb", "cccccc", "dddddd", "eeeeee", "ffffff", "gggggg"] {
        bed.granted(name).await;
    }
    bed.pass().await;
    assert_eq!(bed.keys().await.len(), 7);
    // Expired, revoked, made again, nonsense, being deleted, and one that has ended a moment ago by this clock.
    bed.ends("aaaaaa", &in_seconds(-3600)).await;
    bed.revoke("bbbbbb").await;
    bed.revoke("cccccc").await;
    let again = bed.token("cccccc", None).await;
    bed.ends("dddddd", "soon").await;
    let held = r#"{"metadata":{"finalizers":["stratum.ciq.com/test"]}}"#;
    bed.kubectl(&["patch", "secret", "bootstrap-token-eeeeee", "--type=merge", "-p", held])
        .await;
    bed.kubectl(&["delete", "secret", "bootstrap-token-eeeeee", "--wait=false"])
        .await;
    bed.ends("ffffff", &in_seconds(-5)).await;
    bed.pass().await;
    assert_eq!(bed.keys().await, ["ffffff", "gggggg"]);
    let reasons = ["expired", "revoked", "recreated", "expiration_unreadable"];
    assert_eq!(reasons.map(|reason| bed.dropped(reason)), [1, 2, 1, 1]);
    let owners = bed.owners().await;
    let names: Vec<&str> = owners.keys().map(String::as_str).collect();
    assert_eq!(names, ["bootstrap-token-ffffff", "bootstrap-token-gggggg"]);

    // The one that was made again can have a grant of its own, which stays.
    bed.mint("cccccc", &key(3)).await.unwrap();
    bed.pass().await;
    assert_eq!(bed.open("cccccc", &key(3)).await.unwrap(), material("cccccc"));
    assert_eq!(bed.owners().await["bootstrap-token-cccccc"], again);

    // With nothing to do, nothing is written.
    let before = bed.secret().await;
    bed.pass().await;
    assert_eq!(bed.secret().await, before);
    let freed = r#"{"metadata":{"finalizers":null}}"#;
    bed.kubectl(&["patch", "secret", "bootstrap-token-eeeeee", "--type=merge", "-p", freed])
        .await;
}

/// All tokens of the namespace, as 'stratum token' would delete them for a rotation.
async fn revoke_all(bed: &Bed<'_>) {
    let selector = "--field-selector=type=bootstrap.kubernetes.io/token";
    bed.kubectl(&["delete", "secrets", selector]).await;
}

#[tokio::test]
async fn all_tokens_deleted_at_once_take_every_grant_and_leave_the_legacy_entry() {
    let bed = Bed::new(Cluster::shared().await, "grants-all").await;
    for name in ["aaaaaa", "bbbbbb"] {
        bed.granted(name).await;
    }
    let owners = bed.owners().await;
    assert!(owners.len() == 2 && is_collected(&owners, &[]));
    // Whatever puts the legacy entry there and leaves the owners: now it would go with the tokens.
    let legacy = r#"{"stringData":{"certs":"legacy"}}"#;
    bed.kubectl(&["patch", "secret", "stratum-certs", "--type=merge", "-p", legacy])
        .await;
    bed.pass().await;
    assert!(bed.owners().await.is_empty());
    assert_eq!(bed.keys().await, ["aaaaaa", "bbbbbb", "certs"]);
    revoke_all(&bed).await;
    bed.pass().await;
    assert_eq!(bed.keys().await, ["certs"]);
    assert_eq!(bed.secret().await.data.unwrap()["certs"].0, b"legacy");
    assert!(bed.owners().await.is_empty());

    // Without it the Secret is owned by its grants, and what is left of it after the last one is nobody's.
    let without = r#"{"data":{"certs":null}}"#;
    bed.kubectl(&["patch", "secret", "stratum-certs", "--type=merge", "-p", without])
        .await;
    let uid = bed.granted("cccccc").await;
    assert!(!is_collected(&bed.owners().await, &[&uid]));
    revoke_all(&bed).await;
    bed.pass().await;
    assert!(bed.keys().await.is_empty() && bed.owners().await.is_empty());
}

#[tokio::test]
async fn what_is_not_a_grant_is_left_alone() {
    let bed = Bed::new(Cluster::shared().await, "grants-alone").await;
    let legacy = [
        "create",
        "secret",
        "generic",
        "stratum-certs",
        "--from-literal=certs=legacy",
    ];
    bed.kubectl(
        &[
            &legacy[..],
            &[
                "--from-literal=ABCDEF=x",
                "--from-literal=abc.ef=y",
                "--from-literal=aaaaaa=z",
            ],
        ]
        .concat(),
    )
    .await;
    bed.kubectl(&["label", "secret", "stratum-certs", "team=mine"]).await;
    bed.token("aaaaaa", None).await;
    let before: Secret = bed.secret().await;
    bed.pass().await;
    assert_eq!(bed.secret().await, before, "with a token of that id");
    bed.revoke("aaaaaa").await;
    bed.pass().await;
    assert_eq!(bed.secret().await, before, "without one, and everything is as it was");
    assert_eq!(bed.state("foreign"), 1, "what looks like a grant is told");
}

/// Somebody's own key of six small letters, in a Secret that was owned by the tokens of its grants.
#[tokio::test]
async fn a_key_that_only_looks_like_a_grant_outlives_every_grant() {
    let bed = Bed::new(Cluster::shared().await, "grants-looks").await;
    bed.granted("aaaaaa").await;
    assert_eq!(bed.owners().await.len(), 1);
    let theirs = r#"{"stringData":{"backup":"a password of somebody's","bbbbbb":"{}"}}"#;
    bed.kubectl(&["patch", "secret", "stratum-certs", "--type=merge", "-p", theirs])
        .await;
    bed.pass().await;
    assert!(bed.owners().await.is_empty(), "the garbage collector would take it");
    assert_eq!((bed.state("live"), bed.state("foreign")), (1, 2));

    // No mint takes their place, and none drops them.
    bed.token("bbbbbb", None).await;
    let before = bed.secret().await;
    match bed.mint("bbbbbb", &key(2)).await.unwrap_err() {
        MintingError::Refused(MintError::Occupied { .. }) => {}
        other => panic!("{}", chain(&other)),
    }
    assert_eq!(bed.secret().await, before);
    bed.revoke("bbbbbb").await;
    bed.granted("cccccc").await;
    revoke_all(&bed).await;
    bed.pass().await;
    assert_eq!(bed.keys().await, ["backup", "bbbbbb"]);
    let data = bed.secret().await.data.unwrap();
    assert_eq!(data["backup"].0, b"a password of somebody's");
    assert_eq!((bed.state("live"), bed.state("foreign")), (0, 2));
}

/// Takes a right away from the operator in this namespace, or gives it back.
async fn change_right(bed: &Bed<'_>, patch: serde_json::Value, allowed: bool) {
    let patch = serde_json::Value::Array(vec![patch]).to_string();
    bed.kubectl(&["patch", "role", "stratum:operator", "--type=json", "-p", &patch])
        .await;
    let arguments = ["-n", &bed.namespace, "auth", "can-i", "list", "secrets"];
    let known = || async {
        let answer = bed.cluster.kubectl_as(Identity::Operator, &arguments, "").await;
        (String::from_utf8_lossy(&answer.stdout) == if allowed { "yes\n" } else { "no\n" }).then_some(())
    };
    wait_for("the API server to know of the right", SOON, known).await;
}

#[tokio::test]
async fn a_list_of_tokens_that_is_forbidden_drops_nothing() {
    let bed = Bed::new(Cluster::shared().await, "grants-forbidden").await;
    bed.granted("aaaaaa").await;
    bed.revoke("aaaaaa").await;
    let before = bed.secret().await;
    let role: serde_json::Value =
        serde_json::from_str(&bed.kubectl(&["get", "role", "stratum:operator", "-o", "json"]).await).unwrap();
    let rules = role["rules"].as_array().unwrap();
    let lists = |rule: &serde_json::Value| rule["resources"][0] == "secrets" && rule["verbs"][0] == "list";
    let index = rules.iter().position(lists).unwrap();
    change_right(
        &bed,
        serde_json::json!({"op": "remove", "path": format!("/rules/{index}")}),
        false,
    )
    .await;
    let error = bed.pass_of(bed.operator.clone()).await.unwrap_err();
    assert!(matches!(error, PruneError::Tokens(_)), "{}", chain(&error));
    assert_eq!(error.category(), "tokens");
    assert!(
        chain(&error).contains("stay as they are") && chain(&error).contains("forbidden"),
        "{}",
        chain(&error)
    );
    assert_eq!(bed.secret().await, before);
    change_right(
        &bed,
        serde_json::json!({"op": "add", "path": "/rules/-", "value": rules[index]}),
        true,
    )
    .await;
    bed.pass().await;
    assert!(bed.keys().await.is_empty());
}

/// More tokens than one page of a list has.
const MANY: usize = 501;

#[tokio::test]
async fn a_list_of_tokens_that_ends_early_drops_nothing() {
    let bed = Bed::new(Cluster::shared().await, "grants-partial").await;
    // The last page has the token of the only grant.
    bed.granted("zzzzzz").await;
    let declared: Vec<String> = (1..MANY)
        .map(|number| bed.declared(&format!("a{number:05}"), None))
        .collect();
    bed.cluster.apply(&declared.join("---\n")).await;
    let before = bed.secret().await;
    bed.pass().await;
    assert_eq!(bed.secret().await, before, "the second page counts");

    // The API server itself refuses a page that is asked for wrongly.
    let kubeconfig = kube::config::Kubeconfig::read_from(bed.cluster.kubeconfig(Identity::Operator)).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    let spoil = MapRequestLayer::new(|mut request: http::Request<Body>| {
        let spoiled = request.uri().to_string().replace("continue=", "continue=spoiled");
        *request.uri_mut() = spoiled.parse().unwrap();
        request
    });
    let client = ClientBuilder::try_from(config).unwrap().with_layer(&spoil).build();
    let error = bed.pass_of(client).await.unwrap_err();
    assert!(matches!(error, PruneError::Tokens(_)), "{}", chain(&error));
    assert!(chain(&error).contains("continue"), "{}", chain(&error));
    assert_eq!(bed.secret().await, before);
}

#[tokio::test]
async fn the_operator_looks_when_a_token_goes_and_when_one_ends() {
    let bed = Bed::new(Cluster::shared().await, "grants-wake").await;
    for name in ["aaaaaa", "bbbbbb", "cccccc"] {
        bed.granted(name).await;
    }
    let _running = bed.running();
    bed.watches().await;
    bed.revoke("aaaaaa").await;
    let gone = |name: &'static str| {
        let bed = &bed;
        wait_for("the grant to be dropped", SOON, move || async move {
            (!bed.keys().await.iter().any(|key| key == name)).then_some(())
        })
    };
    gone("aaaaaa").await;
    // Its end, with the tolerance, is reached without any event.
    bed.ends("bbbbbb", &in_seconds(5 - SKEW.as_secs())).await;
    let before = bed.keys().await;
    assert_eq!(before, ["bbbbbb", "cccccc"]);
    gone("bbbbbb").await;
    assert_eq!((bed.dropped("revoked"), bed.dropped("expired")), (1, 1));
}
