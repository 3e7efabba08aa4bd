//! States in which nothing is moved, whatever room there is elsewhere.

use serde_json::{Value, json};

use super::bed::{Bed, hasty};
use crate::support::Cluster;

async fn scale(bed: &Bed<'_>, count: u32) {
    bed.patch_deployment(json!({"spec": {"replicas": count}})).await;
    bed.counts(count).await;
}

#[tokio::test]
async fn nothing_is_moved_while_anything_is_going_on() {
    let cluster = Cluster::shared().await;
    let zones = json!([{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }]);
    for (name, decision) in [
        ("scaled to 0", "too_few_replicas"),
        ("scaled to 1", "too_few_replicas"),
        ("scaled to 1, and the other pod still there", "too_few_replicas"),
        ("scaled to 3, and the pod not there yet", "rollout"),
        ("3 replicas, one elsewhere", "spread"),
        ("3 replicas", "evict"),
        ("changed", "rollout"),
        ("paused", "rollout"),
        ("half rolled out", "rollout"),
        ("a pod on its way out", "rollout"),
        ("a pod not Ready", "not_all_ready"),
        ("both pods not Ready", "not_all_ready"),
        ("spread by zones", "unjudged"),
    ] {
        let bed = Bed::new(cluster).await;
        match name {
            "scaled to 0" => {
                scale(&bed, 0).await;
                bed.delete_pod("coredns-1", 0).await;
                bed.delete_pod("coredns-2", 0).await;
            }
            "scaled to 1" => {
                scale(&bed, 1).await;
                bed.delete_pod("coredns-1", 0).await;
            }
            "scaled to 1, and the other pod still there" => scale(&bed, 1).await,
            "scaled to 3, and the pod not there yet" => scale(&bed, 3).await,
            "3 replicas, one elsewhere" => {
                scale(&bed, 3).await;
                bed.replica("coredns-3", "b").await;
            }
            "3 replicas" => {
                scale(&bed, 3).await;
                bed.replica("coredns-3", "a").await;
            }
            "changed" => {
                bed.patch_deployment(template(json!({"priority": null, "hostname": "dns"})))
                    .await
            }
            "paused" => {
                bed.patch_deployment(json!({"spec": {"paused": true}})).await;
                bed.counts(2).await;
            }
            "half rolled out" => bed.patch_counts(json!({"updatedReplicas": 1})).await,
            "a pod on its way out" => bed.delete_pod("coredns-1", 300).await,
            "a pod not Ready" => bed.replica_is("coredns-1", "False").await,
            "both pods not Ready" => {
                bed.replica_is("coredns-1", "False").await;
                bed.replica_is("coredns-2", "False").await;
            }
            "spread by zones" => {
                bed.patch_deployment(template(json!({"topologySpreadConstraints": zones.clone()})))
                    .await;
                bed.counts(2).await;
            }
            other => panic!("{other}"),
        }
        let before = bed.pods().await;
        let leader = bed.leader(hasty()).await;
        assert_eq!(leader.decides().await, decision, "{name}");
        let evicted = usize::from(decision == "evict");
        assert_eq!(bed.pods().await.len(), before.len() - evicted, "{name}");
        let asked: u64 = ["granted", "budget", "changed"]
            .map(|result| leader.evictions(result))
            .iter()
            .sum();
        assert_eq!(asked, u64::try_from(evicted).unwrap(), "{name}");
    }
}

fn template(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}
