//! What is read of the Deployment, its pods and the Nodes: only the fields a decision goes by.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Taint as NodeTaint, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use serde::Deserialize;

use super::placement::{Taint, Template, unjudged_rule};
use super::resources::{PodResources, Resources};
use crate::reconcilers::object::Uid;

type Labels = BTreeMap<String, String>;

/// The Deployment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "DeploymentView")]
pub struct DeploymentFacts {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether somebody holds its rollout.
    pub is_paused: bool,
    /// How often its spec was changed.
    pub generation: i64,
    /// Up to which change its controller has seen it.
    pub observed_generation: i64,
    /// How many replicas there are.
    pub replicas: Replicas,
    /// Which pods may be its own.
    pub selector: LabelSelector,
    /// Where its pods may run.
    pub template: Template,
}

/// Counts of replicas, as the Deployment's controller last wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// How many there should be.
    pub wanted: i32,
    /// How many there are.
    pub total: i32,
    /// Those of the current template.
    pub updated: i32,
    /// Those that are Ready.
    pub ready: i32,
    /// Those that have been Ready for long enough.
    pub available: i32,
}

impl DeploymentFacts {
    /// Its selector, as the API server reads one from a query.
    #[must_use]
    pub fn selector_text(&self) -> String {
        let equal = self.selector.match_labels.iter().flatten();
        let mut terms: Vec<String> = equal.map(|(key, value)| format!("{key}={value}")).collect();
        for term in self.selector.match_expressions.iter().flatten() {
            let key = &term.key;
            let values = || term.values.as_deref().unwrap_or_default().join(",");
            terms.push(match term.operator.as_str() {
                "Exists" => key.clone(),
                "DoesNotExist" => format!("!{key}"),
                "In" => format!("{key} in ({})", values()),
                // NotIn: there is no other.
                _ => format!("{key} notin ({})", values()),
            });
        }
        terms.join(",")
    }

    /// The value of a label that the selector asks for.
    #[must_use]
    pub fn selected_label(&self, key: &str) -> Option<&str> {
        let labels = self.selector.match_labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }
}

/// One of the pods the selector finds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "PodView")]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// When it was made, by the API server's clock.
    pub created: Timestamp,
    /// Its node; none while it waits for one.
    pub node: Option<String>,
    /// Whether it is Ready.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether it has ended and only its object is left.
    pub has_ended: bool,
    /// The name of the ReplicaSet that made it.
    pub replica_set: Option<String>,
    /// Which template it was made from.
    pub template_hash: Option<String>,
    /// What it takes of its node.
    pub asked: Resources,
}

impl PodFacts {
    /// Whether it is a live replica of a Deployment: the selector may find pods of others. A Deployment's ReplicaSets are
    /// named after it and the hash of their template.
    #[must_use]
    pub fn is_replica_of(&self, deployment: &str) -> bool {
        let hash = self.template_hash.as_deref();
        let maker = hash.map(|hash| format!("{deployment}-{hash}"));
        maker.is_some() && self.replica_set == maker && !self.has_ended
    }
}

/// A Node, for whether a pod could run there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "NodeView")]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// Whether it is Ready.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether somebody has cordoned it.
    pub is_cordoned: bool,
    /// Its labels.
    pub labels: Labels,
    /// What keeps pods off it.
    pub taints: Vec<Taint>,
    /// What it gives to pods altogether.
    pub allocatable: Resources,
}

/// A Node as it is read. Everything else of it is dropped while it is read.
#[derive(Deserialize)]
struct NodeView {
    metadata: MetadataView,
    #[serde(default)]
    spec: NodeSpecView,
    #[serde(default)]
    status: NodeStatusView,
}

#[derive(Default, Deserialize)]
struct NodeSpecView {
    unschedulable: Option<bool>,
    taints: Option<Vec<NodeTaint>>,
}

#[derive(Default, Deserialize)]
struct NodeStatusView {
    allocatable: Option<BTreeMap<String, Quantity>>,
    conditions: Option<Vec<ConditionView>>,
}

impl From<NodeView> for NodeFacts {
    fn from(view: NodeView) -> Self {
        let NodeView { metadata, spec, status } = view;
        let taint = |taint: NodeTaint| Taint {
            key: taint.key,
            value: taint.value.unwrap_or_default(),
            effect: taint.effect,
        };
        Self {
            name: metadata.name,
            uid: metadata.uid,
            is_ready: status.conditions.iter().flatten().any(ConditionView::is_ready),
            is_leaving: metadata.deletion_timestamp.is_some(),
            is_cordoned: spec.unschedulable.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            taints: spec.taints.into_iter().flatten().map(taint).collect(),
            allocatable: Resources::given(status.allocatable.as_ref()),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataView {
    #[serde(default)]
    name: String,
    uid: Uid,
    #[serde(default)]
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    labels: Option<Labels>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
struct DeploymentView {
    metadata: MetadataView,
    spec: DeploymentSpecView,
    #[serde(default)]
    status: DeploymentStatusView,
}

#[derive(Deserialize)]
struct DeploymentSpecView {
    replicas: Option<i32>,
    paused: Option<bool>,
    selector: LabelSelector,
    template: TemplateView,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatusView {
    observed_generation: i64,
    replicas: i32,
    updated_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
}

#[derive(Deserialize)]
struct TemplateView {
    #[serde(default)]
    metadata: TemplateMetadataView,
    spec: TemplateSpecView,
}

#[derive(Default, Deserialize)]
struct TemplateMetadataView {
    labels: Option<Labels>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TemplateSpecView {
    node_selector: Option<Labels>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
    topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    #[serde(flatten)]
    resources: PodResources,
}

impl From<DeploymentView> for DeploymentFacts {
    fn from(view: DeploymentView) -> Self {
        let DeploymentView { metadata, spec, status } = view;
        let labels = spec.template.metadata.labels.unwrap_or_default();
        let pod = spec.template.spec;
        let affinity = pod.affinity.unwrap_or_default();
        let constraints = pod.topology_spread_constraints.unwrap_or_default();
        let unjudged = unjudged_rule(&labels, &affinity, &constraints);
        let required = affinity
            .node_affinity
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        Self {
            name: metadata.name,
            uid: metadata.uid,
            is_leaving: metadata.deletion_timestamp.is_some(),
            is_paused: spec.paused.unwrap_or_default(),
            generation: metadata.generation,
            observed_generation: status.observed_generation,
            replicas: Replicas {
                wanted: spec.replicas.unwrap_or(1),
                total: status.replicas,
                updated: status.updated_replicas,
                ready: status.ready_replicas,
                available: status.available_replicas,
            },
            selector: spec.selector,
            template: Template {
                node_selector: pod.node_selector.unwrap_or_default(),
                node_affinity: required.map(|required| required.node_selector_terms),
                tolerations: pod.tolerations.unwrap_or_default(),
                asked: pod.resources.effective(),
                unjudged,
            },
        }
    }
}

#[derive(Deserialize)]
struct PodView {
    metadata: MetadataView,
    spec: PodSpecView,
    #[serde(default)]
    status: PodStatusView,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpecView {
    node_name: Option<String>,
    #[serde(flatten)]
    resources: PodResources,
}

#[derive(Default, Deserialize)]
struct PodStatusView {
    phase: Option<String>,
    conditions: Option<Vec<ConditionView>>,
}

#[derive(Deserialize)]
struct ConditionView {
    r#type: String,
    status: String,
}

impl ConditionView {
    fn is_ready(&self) -> bool {
        self.r#type == "Ready" && self.status == "True"
    }
}

impl From<PodView> for PodFacts {
    fn from(view: PodView) -> Self {
        let PodView { metadata, spec, status } = view;
        let made_it = |owner: &OwnerReference| owner.controller == Some(true) && owner.kind == "ReplicaSet";
        let owners = metadata.owner_references.unwrap_or_default();
        let labels = metadata.labels.unwrap_or_default();
        Self {
            name: metadata.name,
            uid: metadata.uid,
            created: metadata.creation_timestamp.unwrap_or_default(),
            node: spec.node_name.filter(|node| !node.is_empty()),
            is_ready: status.conditions.iter().flatten().any(ConditionView::is_ready),
            is_leaving: metadata.deletion_timestamp.is_some(),
            has_ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            replica_set: owners.into_iter().find(made_it).map(|owner| owner.name),
            template_hash: labels.get("pod-template-hash").cloned(),
            asked: spec.resources.effective(),
        }
    }
}

#[cfg(test)]
mod tests;
