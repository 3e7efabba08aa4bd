//! A cluster of its own, kubelets that register and speak, and the concern as the operator runs it.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};
use stratum::controllers::concern::{Concern, ConcernName, Observer};
use stratum::controllers::departed::{DepartedNodes, Marking, Settings, Shared, mark};
use stratum::controllers::events::Events;
use stratum::controllers::identities::Identities;
use stratum::controllers::metrics::Metrics;
use stratum::controllers::nodes::{self, Nodes};
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::reconcilers::departed::{Kept, MARK, Mark, Observed, Plan};
use stratum::reconcilers::node::NodeFacts;
use tokio_util::task::AbortOnDropHandle;

use crate::support::requests::send;
use crate::support::{Cluster, Options, wait_for};

/// The bundled stack: the admission policy and its binding.
pub(crate) const STACK: &str = include_str!("../../../deploy/stacks/departed-nodes/uninstall-mark.yaml");
pub(crate) const MACHINE: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const OTHER_MACHINE: &str = "ffffffffffffffffffffffffffffffff";
/// How long something may take that should be instant.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// The concern lives so much later than the kubelets, so that they have been silent for long.
const LATER: SignedDuration = SignedDuration::from_mins(10);

pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Client,
    pub(crate) nodes: Nodes,
    pub(crate) identities: Identities,
    pub(crate) metrics: Metrics,
    _watching: [AbortOnDropHandle<()>; 2],
}

impl Bed {
    /// Without the policy.
    pub(crate) async fn new() -> Self {
        let cluster = Cluster::dedicated(Options::default()).await;
        let operator = cluster.client_as(Identity::Operator).await;
        let (nodes, watching) = nodes::watch(operator.clone(), Arc::new(Nobody));
        let identities = Identities::new(operator);
        let remembering = identities.clone().watch(Arc::new(Nobody));
        let bed = Self {
            admin: cluster.client().await,
            nodes,
            identities,
            metrics: Metrics::new(),
            _watching: [tokio::spawn(watching), tokio::spawn(remembering)].map(AbortOnDropHandle::new),
            cluster,
        };
        bed.nodes.ready().await;
        bed.identities.ready().await;
        bed
    }

    /// With the policy in force.
    pub(crate) async fn protected() -> Self {
        let bed = Self::new().await;
        bed.protect().await;
        bed
    }

    /// Applies the stack, and waits until the API server goes by it.
    pub(crate) async fn protect(&self) {
        self.cluster.apply(STACK).await;
        let marked = json!({"metadata": {"name": "probe", "annotations": {MARK: "x"}}});
        let refused = || async {
            let created = send(&self.admin, Method::POST, "/api/v1/nodes?dryRun=All", &marked).await;
            created.err().filter(|status| names_the_policy(status))
        };
        wait_for("the policy to be in force", SOON, refused).await;
    }

    /// Registers a Node as its kubelet does, which then says that it is not ready, and falls silent.
    pub(crate) async fn join(&self, name: &str) -> Client {
        let kubelet = self.cluster.kubelet(name).await;
        register(&kubelet, name, json!({"name": name})).await;
        let last = clock::now() - SignedDuration::from_secs(60);
        speak(&kubelet, name, MACHINE, "False", last).await;
        renew(&kubelet, name, last).await;
        kubelet
    }

    /// A Node of a machine that has just been uninstalled.
    pub(crate) async fn leave(&self, name: &str) -> Client {
        let kubelet = self.join(name).await;
        let marked = mark(&kubelet, name, &MACHINE.parse().unwrap(), clock::now())
            .await
            .unwrap();
        assert!(matches!(marked, Marking::Done(_)), "{marked:?}");
        self.shows(name, |facts| facts.uninstalled.is_some()).await;
        kubelet
    }

    /// Waits until the shared watch has seen a Node so.
    pub(crate) async fn shows(&self, name: &str, condition: impl Fn(&NodeFacts) -> bool) {
        let shown = || async { self.nodes.get(name).filter(|facts| condition(facts)) };
        wait_for("the watch to see the Node so", SOON, shown).await;
    }

    /// The Node as the API server has it; none when there is none.
    pub(crate) async fn node(&self, name: &str) -> Option<Value> {
        match send(&self.admin, Method::GET, &node(name), &Value::Null).await {
            Ok(found) => Some(found),
            Err(status) if status.is_not_found() => None,
            Err(status) => panic!("{status:?}"),
        }
    }

    pub(crate) async fn uid(&self, name: &str) -> Option<String> {
        Some(self.node(name).await?["metadata"]["uid"].as_str().unwrap().to_owned())
    }

    /// The concern under the operator's own identity.
    pub(crate) async fn concern(&self) -> DepartedNodes {
        self.concern_of(self.cluster.client_as(Identity::Operator).await)
    }

    /// The concern under somebody's identity.
    pub(crate) fn concern_of(&self, client: Client) -> DepartedNodes {
        let settings = Settings {
            system_namespace: "kube-system".to_owned(),
            now: || clock::now() + LATER,
        };
        let shared = Shared {
            nodes: self.nodes.clone(),
            identities: self.identities.clone(),
            events: Events::new(client.clone(), "test"),
            metrics: self.metrics.departed.clone(),
        };
        DepartedNodes::new(client, shared, settings)
    }

    /// How often the deletion of a Node ended so.
    pub(crate) fn counted(&self, result: &'static str) -> u64 {
        let result = stratum::controllers::metrics::Word(result);
        let label = stratum::controllers::metrics::ByResult { result };
        self.metrics.departed.nodes.get_or_create(&label).get()
    }
}

/// One pass of the concern, and what it had decided.
pub(crate) async fn pass(concern: &DepartedNodes) -> Plan {
    let (observed, plan) = decide(concern).await;
    concern.act(observed, plan.clone()).await.unwrap();
    plan
}

/// A pass up to what it does.
pub(crate) async fn decide(concern: &DepartedNodes) -> (Observed, Plan) {
    let observed = concern.observe(Arc::new(Namespace::default())).await.unwrap();
    let plan = concern.decide(&observed, clock::now());
    (observed, plan)
}

/// Why a Node stays, by a plan.
pub(crate) fn kept<'a>(plan: &'a Plan, name: &str) -> &'a Kept {
    let found = plan.kept.iter().find(|(kept, _)| &**kept == name);
    &found.unwrap_or_else(|| panic!("{name} is not kept: {plan:?}")).1
}

pub(crate) fn node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

pub(crate) async fn register(kubelet: &Client, name: &str, metadata: Value) {
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
    let made = send(kubelet, Method::POST, "/api/v1/nodes", &object).await;
    made.unwrap_or_else(|status| panic!("{name}: {status:?}"));
}

/// What a kubelet reports: its machine, and the condition Ready.
pub(crate) async fn speak(kubelet: &Client, name: &str, machine: &str, ready: &str, at: Timestamp) {
    let status = json!({"status": {
        "nodeInfo": {"machineID": machine},
        "conditions": [{"type": "Ready", "status": ready, "reason": "Test", "message": "",
            "lastHeartbeatTime": Time(at), "lastTransitionTime": Time(at)}],
    }});
    let path = format!("{}/status", node(name));
    let told = send(kubelet, Method::PATCH, &path, &status).await;
    told.unwrap_or_else(|status| panic!("{name}: {status:?}"));
}

/// A kubelet's Lease, made or renewed.
pub(crate) async fn renew(kubelet: &Client, name: &str, at: Timestamp) {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(at)}});
    let renewed = match send(kubelet, Method::POST, leases, &lease).await {
        Err(status) if status.is_already_exists() => {
            send(kubelet, Method::PATCH, &format!("{leases}/{name}"), &lease).await
        }
        made => made,
    };
    renewed.unwrap_or_else(|status| panic!("{name}: {status:?}"));
}

/// A change of annotations.
pub(crate) fn annotate(key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// A mark of that time.
pub(crate) fn mark_of(at: Timestamp) -> String {
    let machine = MACHINE.parse().unwrap();
    Mark { at, machine }.to_string()
}

/// Whether a refusal is that of the policy.
pub(crate) fn names_the_policy(status: &Status) -> bool {
    let ours = "ValidatingAdmissionPolicy 'stratum-node-uninstall-mark' with binding 'stratum-node-uninstall-mark' denied request: annotation stratum.ciq.com/uninstalled-at says";
    status.message.contains(ours)
}

pub(crate) struct Nobody;

impl Observer for Nobody {
    fn watch_ready(&self, _: ConcernName) {}
    fn watch_failed(&self, _: ConcernName) {}
    fn reconciled(&self, _: ConcernName, _: Duration, _: Option<&'static str>) {}
}
