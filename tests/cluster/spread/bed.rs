//! A namespace with a CoreDNS of its own, and Nodes only its pods may run on.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use stratum::controllers::concern::{self, Wake};
use stratum::controllers::connection::{self, ClientSettings};
use stratum::controllers::events::Events;
use stratum::controllers::metrics::spread::SpreadMetrics;
use stratum::controllers::metrics::{ByReason, ByResult, Word};
use stratum::controllers::nodes::Nodes;
use stratum::controllers::spread::Spread;
use stratum::host::layout::Identity;
use stratum::reconcilers::spread::EVICT;
use stratum::reconcilers::spread::memory::Pace;
use stratum::reconcilers::spread::reason::ReasonKind;
use strum::IntoEnumIterator;

use crate::support::Cluster;
use crate::support::requests::send;

/// The label that keeps beds on a shared cluster apart.
const LABEL: &str = "stratum.test/bed";

pub(crate) struct Bed<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) namespace: String,
    admin: Client,
}

impl<'a> Bed<'a> {
    /// Two Nodes, `a` and `b`, and two Ready replicas on `a`.
    pub(crate) async fn new(cluster: &'a Cluster) -> Self {
        let bed = Self {
            cluster,
            namespace: cluster.namespace("spread").await,
            admin: cluster.client().await,
        };
        let account = json!({"metadata": {"name": "default"}});
        bed.send(Method::POST, &bed.path("api/v1", "serviceaccounts"), account)
            .await;
        bed.send(Method::POST, &bed.path("apis/apps/v1", "deployments"), bed.deployment())
            .await;
        bed.counts(2).await;
        for node in ["a", "b"] {
            bed.node(node).await;
        }
        for replica in ["coredns-1", "coredns-2"] {
            bed.replica(replica, "a").await;
        }
        bed
    }

    fn deployment(&self) -> Value {
        json!({
            "metadata": {"name": "coredns"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
                "template": {
                    "metadata": {"labels": {"k8s-app": "kube-dns"}},
                    "spec": {
                        "nodeSelector": {LABEL: self.namespace},
                        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
                        "containers": [container("100m")],
                    },
                },
            },
        })
    }

    /// Sends a request as administrator: JSON, and a merge patch if it is one. Panics if it fails.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = send(&self.admin, method, path, &body).await;
        answer.unwrap_or_else(|status| panic!("{path} {body}: {status:?}"))
    }

    /// The path of a collection in this namespace.
    pub(crate) fn path(&self, version: &str, resource: &str) -> String {
        format!("/{version}/namespaces/{}/{resource}", self.namespace)
    }

    pub(crate) async fn patch_deployment(&self, patch: Value) {
        let path = self.path("apis/apps/v1", "deployments/coredns");
        self.send(Method::PATCH, &path, patch).await;
    }

    /// Writes what the Deployment's controller would: that it has seen the last change, and so many replicas are well.
    pub(crate) async fn counts(&self, count: u32) {
        let path = self.path("apis/apps/v1", "deployments/coredns");
        let now = self.send(Method::GET, &path, Value::Null).await;
        self.patch_counts(json!({
            "observedGeneration": now["metadata"]["generation"],
            "replicas": count, "updatedReplicas": count, "readyReplicas": count, "availableReplicas": count,
        }))
        .await;
    }

    pub(crate) async fn patch_counts(&self, status: Value) {
        let path = self.path("apis/apps/v1", "deployments/coredns/status");
        self.send(Method::PATCH, &path, json!({"status": status})).await;
    }

    /// How a Node of this bed is called in the cluster.
    pub(crate) fn node_name(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// Registers a Node that could take a replica.
    pub(crate) async fn node(&self, name: &str) {
        let node = json!({"metadata": {"name": self.node_name(name), "labels": {LABEL: self.namespace}}});
        self.send(Method::POST, "/api/v1/nodes", node).await;
        // Admission has given it the taint of a node that is not Ready yet.
        self.patch_node(name, json!({"spec": {"taints": null}})).await;
        self.patch_node_status(
            name,
            json!({"allocatable": allocatable("2"), "conditions": ready("True")}),
        )
        .await;
    }

    pub(crate) async fn patch_node(&self, name: &str, patch: Value) {
        let path = format!("/api/v1/nodes/{}", self.node_name(name));
        self.send(Method::PATCH, &path, patch).await;
    }

    pub(crate) async fn patch_node_status(&self, name: &str, status: Value) {
        let path = format!("/api/v1/nodes/{}/status", self.node_name(name));
        self.send(Method::PATCH, &path, json!({"status": status})).await;
    }

    /// Gives or takes a Node the label that the template asks for.
    pub(crate) async fn label_node(&self, name: &str, is_suitable: bool) {
        let value = if is_suitable { &self.namespace } else { "another" };
        self.patch_node(name, json!({"metadata": {"labels": {LABEL: value}}}))
            .await;
    }

    /// Creates a Ready replica on a Node. It is gone as soon as it is deleted.
    pub(crate) async fn replica(&self, name: &str, node: &str) {
        let metadata = json!({
            "name": name,
            "labels": {"k8s-app": "kube-dns", "pod-template-hash": "7f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "coredns-7f", "uid": "0", "controller": true}],
        });
        self.pod(metadata, node, "100m").await;
        self.replica_is(name, "True").await;
    }

    /// Says whether a replica is Ready.
    pub(crate) async fn replica_is(&self, name: &str, is_ready: &str) {
        let path = self.path("api/v1", &format!("pods/{name}/status"));
        let status = json!({"status": {"phase": "Running", "conditions": ready(is_ready)}});
        self.send(Method::PATCH, &path, status).await;
    }

    pub(crate) async fn pod(&self, metadata: Value, node: &str, cpu: &str) {
        let pod = json!({
            "metadata": metadata,
            "spec": {
                "nodeName": self.node_name(node),
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "containers": [container(cpu)],
            },
        });
        self.send(Method::POST, &self.path("api/v1", "pods"), pod).await;
    }

    /// Deletes a pod, which stays for so many seconds: nothing here would end it.
    pub(crate) async fn delete_pod(&self, name: &str, grace: u32) {
        let path = self.path("api/v1", &format!("pods/{name}"));
        self.send(Method::DELETE, &path, json!({"gracePeriodSeconds": grace}))
            .await;
    }

    /// The names of the pods, with their UIDs.
    pub(crate) async fn pods(&self) -> BTreeMap<String, String> {
        let list = self.send(Method::GET, &self.path("api/v1", "pods"), Value::Null).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"])))
            .collect()
    }

    /// Creates a PodDisruptionBudget for the replicas that allows so many disruptions.
    pub(crate) async fn budget(&self, name: &str, allowed: u32) {
        let budget = json!({
            "metadata": {"name": name},
            "spec": {"minAvailable": 2 - allowed, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}},
        });
        let path = self.path("apis/policy/v1", "poddisruptionbudgets");
        self.send(Method::POST, &path, budget).await;
        self.budget_allows(name, allowed).await;
    }

    pub(crate) async fn budget_allows(&self, name: &str, allowed: u32) {
        let path = self.path("apis/policy/v1", &format!("poddisruptionbudgets/{name}/status"));
        let status = json!({
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2 - allowed,
            "expectedPods": 2,
        });
        self.send(Method::PATCH, &path, json!({"status": status})).await;
    }

    /// What Events say of the Deployment under a reason.
    pub(crate) async fn told(&self, reason: &str) -> Vec<String> {
        let path = self.path("apis/events.k8s.io/v1", "events");
        let list = self.send(Method::GET, &path, Value::Null).await;
        let events = list["items"].as_array().unwrap().iter();
        events
            .filter(|event| event["reason"] == reason && event["regarding"]["name"] == "coredns")
            .map(|event| event["note"].as_str().unwrap().to_owned())
            .collect()
    }

    /// A client of the operator, as the process has it.
    pub(crate) async fn operator(&self) -> Client {
        let kubeconfig = self.cluster.kubeconfig(Identity::Operator);
        connection::client(&ClientSettings::new(kubeconfig, "operator"), None)
            .await
            .unwrap()
    }

    /// The concern as a new leader begins it.
    pub(crate) async fn leader(&self, pace: Pace) -> Leader {
        self.leader_with(Nodes::default(), pace).await
    }

    /// The same, woken by a watch of Nodes.
    pub(crate) async fn leader_with(&self, nodes: Nodes, pace: Pace) -> Leader {
        let client = self.operator().await;
        let metrics = SpreadMetrics::default();
        let events = Events::new(client.clone(), "test");
        Leader {
            spread: Spread::new(client, nodes, &self.namespace, events, metrics.clone(), pace),
            metrics,
        }
    }
}

/// The concern for one term.
pub(crate) struct Leader {
    pub(crate) spread: Spread,
    pub(crate) metrics: SpreadMetrics,
}

impl Leader {
    /// One pass: what was decided, and when it looks again.
    pub(crate) async fn pass(&self) -> (&'static str, Wake) {
        let root = Arc::new(PartialObjectMeta::<Deployment>::default());
        let wake = concern::pass(&self.spread, root).await.unwrap();
        (decision(&self.metrics), wake)
    }

    /// What was decided in one pass.
    pub(crate) async fn decides(&self) -> &'static str {
        self.pass().await.0
    }

    /// How many evictions had this result.
    pub(crate) fn evictions(&self, result: &'static str) -> u64 {
        let result = Word(result);
        self.metrics.evictions.get_or_create(&ByResult { result }).get()
    }
}

/// The last decision, as the metrics have it.
pub(crate) fn decision(metrics: &SpreadMetrics) -> &'static str {
    let labels = ReasonKind::iter().map(<&'static str>::from).chain([EVICT]);
    let is_last = |label: &&'static str| {
        let reason = Word(label);
        metrics.decision.get_or_create(&ByReason { reason }).get() == 1
    };
    let last: Vec<_> = labels.filter(is_last).collect();
    assert!(last.len() < 2, "{last:?}");
    last.first().copied().unwrap_or_default()
}

/// Without the waits that only time can end.
pub(crate) fn hasty() -> Pace {
    Pace {
        settle: SignedDuration::ZERO,
        between: SignedDuration::ZERO,
        between_at_most: SignedDuration::ZERO,
        ..Pace::default()
    }
}

pub(crate) fn allocatable(cpu: &str) -> Value {
    json!({"cpu": cpu, "memory": "4Gi", "pods": "110"})
}

pub(crate) fn ready(status: &str) -> Value {
    json!([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status}])
}

fn container(cpu: &str) -> Value {
    json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "70Mi"}}})
}
