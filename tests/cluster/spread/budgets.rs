//! PodDisruptionBudgets: what they refuse is told, and tried again after a while and never at once.

use std::time::Duration;

use serde_json::json;
use stratum::controllers::cluster::CallError;
use stratum::controllers::concern::Wake;
use stratum::controllers::hands;
use stratum::host::clock;
use stratum::reconcilers::object::Uid;

use super::bed::{Bed, hasty};
use crate::support::Cluster;

/// Refused once, and not asked again in the passes after it.
async fn refused(bed: &Bed<'_>, result: &'static str, words: &[&str]) {
    let leader = bed.leader(hasty()).await;
    let before = bed.pods().await;
    let started = clock::monotonic();
    let (decision, wake) = leader.pass().await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "not retried inside the call"
    );
    assert_eq!((decision, leader.evictions(result)), ("evict", 1));
    let Wake::After(wait) = wake else { panic!("{wake:?}") };
    assert!(
        wait > Duration::from_secs(55) && wait <= Duration::from_secs(60),
        "{wait:?}"
    );
    for _ in 0..5 {
        let (decision, wake) = leader.pass().await;
        assert_eq!(decision, "refused");
        assert!(
            matches!(wake, Wake::After(wait) if wait > Duration::from_secs(50)),
            "{wake:?}"
        );
    }
    assert_eq!(leader.evictions(result), 1);
    assert_eq!(bed.pods().await, before);
    let told = bed.told("EvictionRefused").await;
    assert_eq!(told.len(), 1, "{told:?}");
    for word in words {
        assert!(told[0].contains(word), "{told:?}");
    }
}

#[tokio::test]
async fn a_budget_that_allows_nothing_is_named_and_not_pressed() {
    let bed = Bed::new(Cluster::shared().await).await;
    bed.budget("strict", 0).await;
    refused(
        &bed,
        "budget",
        &["disruption budget strict needs 2 healthy pods and has 2"],
    )
    .await;
    bed.budget_allows("strict", 1).await;
    assert_eq!(bed.leader(hasty()).await.decides().await, "evict");
    assert_eq!(bed.pods().await.len(), 1);
}

/// The API server asks for ten seconds, for its controller has not counted the pods yet.
#[tokio::test]
async fn a_budget_nobody_has_looked_at_yet_refuses_too() {
    let bed = Bed::new(Cluster::shared().await).await;
    bed.budget("new", 1).await;
    let path = bed.path("apis/policy/v1", "poddisruptionbudgets/new");
    bed.send(http::Method::PATCH, &path, json!({"spec": {"minAvailable": 0}}))
        .await;
    refused(&bed, "budget", &["new is still being processed"]).await;
}

#[tokio::test]
async fn two_budgets_are_a_fault_of_the_cluster_and_not_pressed() {
    let bed = Bed::new(Cluster::shared().await).await;
    for budget in ["one", "another"] {
        bed.budget(budget, 1).await;
    }
    refused(&bed, "server_error", &["more than one PodDisruptionBudget"]).await;
    let uid = bed.pods().await["coredns-1"].clone();
    let error = hands::evict(&bed.operator().await, &bed.namespace, "coredns-1", &Uid(uid)).await;
    assert!(matches!(error, Err(CallError::Refused { status, .. }) if status.code == 500));
}
