//! Campaigns of one process against each other, and against somebody's hand on the Lease.

use std::time::Duration;

use stratum::controllers::leader::{CampaignError, LEASE, Outcome};
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::reconcilers::election::LossReason;

use super::{Candidate, EXPIRY, SOON};
use crate::support::Cluster;

async fn lease(cluster: &Cluster, namespace: &str) -> serde_json::Value {
    let text = cluster
        .kubectl(&["-n", namespace, "get", "lease", LEASE, "-o", "json"])
        .await;
    serde_json::from_str(&text).unwrap()
}

fn reason(error: &CampaignError) -> LossReason {
    match error {
        CampaignError::LeadershipLost { reason, .. } => *reason,
        CampaignError::Work(_) => panic!("{error}"),
    }
}

#[tokio::test]
async fn one_leads_and_a_clean_hand_over_is_instant() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("hand-over").await;
    let kubeconfig = cluster.kubeconfig(Identity::Operator);
    let mut leader = Candidate::new(&kubeconfig, &namespace, "a").await;
    let first = leader.leads(SOON).await;
    let mut others = [
        Candidate::new(&kubeconfig, &namespace, "b").await,
        Candidate::new(&kubeconfig, &namespace, "c").await,
    ];
    for other in &mut others {
        other.has_seen_a_holder().await;
        assert!(!other.is_leading());
    }
    let held = lease(cluster, &namespace).await;
    assert_eq!(held["spec"]["holderIdentity"], first.identity);
    assert!(first.identity.starts_with("a_"), "{}", first.identity);
    assert_eq!(held["spec"]["leaseDurationSeconds"], 15);

    let [mut second, mut third] = others;
    let stopped = clock::since_boot();
    assert_eq!(leader.stop().await, Outcome::Finished(()));
    let term = tokio::select! {
        term = second.leads(SOON) => term,
        term = third.leads(SOON) => term,
    };
    let took = clock::since_boot() - stopped;
    // The benchmark measures; this only tells a watch from a poll of 2 s.
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(term.number, first.number + 1);
    assert!(first.fence.has_ended() && !term.fence.has_ended());
    assert_ne!(second.is_leading(), third.is_leading());

    let (leading, standing) = if second.is_leading() {
        (second, third)
    } else {
        (third, second)
    };
    assert_eq!(standing.stop().await, Outcome::NeverLed);
    assert_eq!(leading.stop().await, Outcome::Finished(()));
    let released = lease(cluster, &namespace).await;
    assert_eq!(released["spec"]["holderIdentity"], "");
    assert_eq!(released["spec"]["leaseDurationSeconds"], 1);
    assert_eq!(released["spec"]["leaseTransitions"], term.number);
}

#[tokio::test]
async fn a_lease_edited_to_nonsense_ends_the_term_and_heals() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("nonsense").await;
    let kubeconfig = cluster.kubeconfig(Identity::Operator);
    let patch = |patch: &'static str| {
        let namespace = namespace.clone();
        async move {
            let arguments = ["-n", &namespace, "patch", "lease", LEASE, "--type=merge", "-p", patch];
            cluster.kubectl(&arguments).await
        }
    };
    let mut leader = Candidate::new(&kubeconfig, &namespace, "a").await;
    let first = leader.leads(SOON).await;
    patch(r#"{"spec":{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":0,"renewTime":null}}"#).await;
    assert_eq!(reason(&leader.fails(SOON).await), LossReason::Erased);
    assert!(first.fence.has_ended());

    let mut leader = Candidate::new(&kubeconfig, &namespace, "b").await;
    assert!(leader.leads(SOON).await.number > first.number);
    patch(r#"{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":1,"leaseTransitions":7}}"#).await;
    assert_eq!(reason(&leader.fails(SOON).await), LossReason::Taken);

    // Nobody renews for somebody, so it runs out; the short duration is not believed.
    let started = clock::since_boot();
    let mut leader = Candidate::new(&kubeconfig, &namespace, "c").await;
    assert_eq!(leader.leads(EXPIRY).await.number, 8);
    assert!(clock::since_boot() - started >= Duration::from_secs(14));
    leader.stop().await;
}

#[tokio::test]
async fn a_deleted_lease_ends_the_term_and_terms_go_on_counting() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("deleted").await;
    let kubeconfig = cluster.kubeconfig(Identity::Operator);
    let mut leader = Candidate::new(&kubeconfig, &namespace, "a").await;
    let first = leader.leads(SOON).await;
    let mut other = Candidate::new(&kubeconfig, &namespace, "b").await;
    other.has_seen_a_holder().await;
    cluster.kubectl(&["-n", &namespace, "delete", "lease", LEASE]).await;
    assert_eq!(reason(&leader.fails(SOON).await), LossReason::Deleted);
    // It saw the Lease held, and lets that holder's time pass.
    let second = other.leads(EXPIRY).await;
    assert_eq!(second.number, first.number + 1);
    other.stop().await;
}

#[tokio::test]
async fn a_new_lease_begins_after_the_last_term_on_record() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("recorded").await;
    let inventory = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: stratum-addon-inventory\n  namespace: {namespace}\n  \
         annotations: {{stratum.ciq.com/term: '41'}}\n"
    );
    cluster.apply(&inventory).await;
    let mut leader = Candidate::new(&cluster.kubeconfig(Identity::Operator), &namespace, "a").await;
    assert_eq!(leader.leads(SOON).await.number, 42);
    leader.stop().await;
}
