//! Failures, foreign hands and dead helms.

use serde_json::json;

use super::bed::{Bed, SOON, SYSTEM, chart};
use crate::support::wait_for;

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upgrade_leaves_what_is_deployed_and_policies_differ() {
    let bed = Bed::new(&[]).await;
    bed.apply(&chart(SYSTEM, "web", json!({"values": {"greeting": "one"}})))
        .await;
    bed.greets(SYSTEM, "web", "one").await;
    // The API server refuses an object of it.
    bed.apply(&chart(
        SYSTEM,
        "web",
        json!({"values": {"greeting": "one", "refused": true}}),
    ))
    .await;
    let condition = bed.reason(SYSTEM, "web", "Failed").await;
    assert!(
        condition["message"].as_str().unwrap().contains("Not_A_Name"),
        "{condition}"
    );
    assert_eq!(bed.listed(SYSTEM, "web").await.unwrap(), ("failed".into(), "2".into()));
    bed.greets(SYSTEM, "web", "one").await;
    // It is mended by another wish.
    bed.apply(&chart(SYSTEM, "web", json!({"values": {"greeting": "two"}})))
        .await;
    bed.greets(SYSTEM, "web", "two").await;
    bed.reason(SYSTEM, "web", "Deployed").await;
    // A first install that fails, and is mended.
    bed.apply(&chart(SYSTEM, "first", json!({"values": {"refused": true}})))
        .await;
    bed.reason(SYSTEM, "first", "Failed").await;
    bed.apply(&chart(SYSTEM, "first", json!({"values": {"greeting": "at last"}})))
        .await;
    bed.greets(SYSTEM, "first", "at last").await;
    bed.reason(SYSTEM, "first", "Deployed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_release_is_left_alone_until_it_is_to_be_taken() {
    let bed = Bed::new(&[]).await;
    bed.helm(&[
        "install",
        "web",
        "--namespace",
        SYSTEM,
        &bed.packed("1.0.0"),
        "--set",
        "greeting=theirs",
    ])
    .await;
    bed.apply(&chart(SYSTEM, "web", json!({"values": {"greeting": "ours"}})))
        .await;
    bed.reason(SYSTEM, "web", "Foreign").await;
    bed.greets(SYSTEM, "web", "theirs").await;
    // Nor is it uninstalled with the HelmChart that never had it.
    bed.delete("helmchart", SYSTEM, "web").await;
    bed.apply(&chart(
        SYSTEM,
        "web",
        json!({"values": {"greeting": "ours"}, "takeOwnership": true}),
    ))
    .await;
    bed.greets(SYSTEM, "web", "ours").await;
    bed.reason(SYSTEM, "web", "Deployed").await;
    // By hand, behind our back.
    bed.helm(&["uninstall", "web", "--namespace", SYSTEM]).await;
    bed.greets(SYSTEM, "web", "ours").await;
}

/// What a killed helm leaves is made by hand here, as helm leaves it: the newest revision is pending.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_helm_left_is_gone_on_from() {
    let mut bed = Bed::new(&[]).await;
    for name in ["upgraded", "installed"] {
        bed.apply(&chart(SYSTEM, name, json!({"values": {"greeting": "one"}})))
            .await;
        bed.reason(SYSTEM, name, "Deployed").await;
    }
    bed.apply(&chart(SYSTEM, "upgraded", json!({"values": {"greeting": "two"}})))
        .await;
    bed.greets(SYSTEM, "upgraded", "two").await;
    bed.reason(SYSTEM, "upgraded", "Deployed").await;
    // Dropped: killed.
    bed.operator = None;
    for (release, revision, status) in [("upgraded", 2, "pending-upgrade"), ("installed", 1, "pending-install")] {
        let secret = format!("sh.helm.release.v1.{release}.v{revision}");
        let label = format!("status={status}");
        bed.cluster
            .kubectl_in(SYSTEM, &["label", "--overwrite", "secret", &secret, &label])
            .await;
    }
    bed.start();
    for (release, greeting) in [("upgraded", "two"), ("installed", "one")] {
        let deployed = || async {
            let newest = bed.get("helmchart", SYSTEM, release).await?["status"]["revision"].as_u64()?;
            let secret = format!("sh.helm.release.v1.{release}.v{newest}");
            let secret = bed.get("secret", SYSTEM, &secret).await?;
            (secret["metadata"]["labels"]["status"] == "deployed").then_some(())
        };
        wait_for(&format!("{release} to be deployed"), SOON, deployed).await;
        bed.reason(SYSTEM, release, "Deployed").await;
        bed.greets(SYSTEM, release, greeting).await;
    }
}

/// SIGKILL of the operator, at any moment of a run: helm dies with it, and the next one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_takes_helm_with_it_and_the_next_goes_on() {
    let mut bed = Bed::new(&[]).await;
    bed.apply(&chart(SYSTEM, "web", json!({"values": {"greeting": "0"}})))
        .await;
    bed.reason(SYSTEM, "web", "Deployed").await;
    for number in 1..=5_u64 {
        let greeting = number.to_string();
        bed.apply(&chart(SYSTEM, "web", json!({"values": {"greeting": greeting}})))
            .await;
        stratum::host::clock::sleep(std::time::Duration::from_millis(number * 170)).await;
        bed.operator = None;
        bed.start();
        bed.greets(SYSTEM, "web", &greeting).await;
        bed.reason(SYSTEM, "web", "Deployed").await;
    }
}
