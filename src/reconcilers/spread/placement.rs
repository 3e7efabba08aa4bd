//! Whether a Node could take one more replica, by the rules of the scheduler that can be judged from the Node and the pods
//! on it; and which rules of a template cannot.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::facts::NodeFacts;
use super::quantity::Amount;
use super::resources::{Resources, Usage};

/// The label by which a single node is told.
const HOST: &str = "kubernetes.io/hostname";

/// What a pod template says about where its pods may run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    /// Labels a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of these terms must hold. None: there is no such rule.
    pub node_affinity: Option<Vec<NodeSelectorTerm>>,
    /// The taints its pods put up with.
    pub tolerations: Vec<Toleration>,
    /// What one pod needs.
    pub asked: Resources,
    /// A rule of it that this version cannot judge; see [`unjudged_rule`].
    pub unjudged: Option<&'static str>,
}

/// A taint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; often empty.
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `PreferNoSchedule`.
    pub effect: String,
}

impl fmt::Display for Taint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.key)?;
        if !self.value.is_empty() {
            write!(formatter, "={}", self.value)?;
        }
        write!(formatter, ":{}", self.effect)
    }
}

/// Why a Node cannot take one more replica, from the farthest miss to the nearest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The template's nodeSelector does not match.
    #[error("it lacks the label {0} of the pods' nodeSelector")]
    NodeSelector(String),
    /// The template's required node affinity does not match.
    #[error("it matches no term of the pods' required node affinity")]
    NodeAffinity,
    /// It is being deleted.
    #[error("it is being deleted")]
    Leaving,
    /// It is not Ready.
    #[error("it is not Ready")]
    NotReady,
    /// Somebody cordoned it.
    #[error("it is cordoned")]
    Cordoned,
    /// A taint is not tolerated.
    #[error("its taint {0} is not tolerated")]
    Tainted(Taint),
    /// There is no room.
    #[error("it has {free} {resource} left, and one replica needs {needed}")]
    Full {
        /// Of which resource.
        resource: String,
        /// How much is left.
        free: Amount,
        /// How much one replica takes.
        needed: Amount,
    },
}

impl Misfit {
    /// How near the Node is to being fit.
    #[must_use]
    pub fn nearness(&self) -> u8 {
        match self {
            Self::NodeSelector(_) => 0,
            Self::NodeAffinity => 1,
            Self::Leaving => 2,
            Self::NotReady => 3,
            Self::Cordoned => 4,
            Self::Tainted(_) => 5,
            Self::Full { .. } => 6,
        }
    }
}

/// Whether a Node suits a template, whatever else is on it.
///
/// # Errors
/// Why not.
pub fn suits(template: &Template, node: &NodeFacts) -> Result<(), Misfit> {
    let lacks = |(key, value): &(&String, &String)| node.labels.get(*key) != Some(*value);
    if let Some((key, value)) = template.node_selector.iter().find(lacks) {
        return Err(Misfit::NodeSelector(format!("{key}={value}")));
    }
    if let Some(terms) = &template.node_affinity
        && !terms.iter().any(|term| holds(term, node))
    {
        return Err(Misfit::NodeAffinity);
    }
    if node.is_leaving {
        return Err(Misfit::Leaving);
    }
    if !node.is_ready {
        return Err(Misfit::NotReady);
    }
    // Even for pods that tolerate it: whoever cordons a node wants it to become empty.
    if node.is_cordoned {
        return Err(Misfit::Cordoned);
    }
    let kept_off = |taint: &&Taint| {
        !template
            .tolerations
            .iter()
            .any(|toleration| tolerates(toleration, taint))
    };
    let mut binding = node.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    if let Some(taint) = binding.find(kept_off) {
        return Err(Misfit::Tainted(taint.clone()));
    }
    has_room(&template.asked, node, &Usage::default())
}

/// Whether there is room for one more pod beside those on a Node.
///
/// # Errors
/// Of what there is too little.
pub fn has_room(asked: &Resources, node: &NodeFacts, usage: &Usage) -> Result<(), Misfit> {
    let one_pod = ("pods", Amount::units(1), Amount::units(usage.pods));
    let others = asked.iter().map(|(name, needed)| (name, needed, usage.asked.of(name)));
    for (resource, needed, used) in std::iter::once(one_pod).chain(others) {
        let free = node.allocatable.of(resource).without(used);
        if needed > free {
            return Err(Misfit::Full {
                resource: resource.to_owned(),
                free,
                needed,
            });
        }
    }
    Ok(())
}

/// Whether every requirement of a term holds. A term without any matches nothing.
fn holds(term: &NodeSelectorTerm, node: &NodeFacts) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label = |rule: &NodeSelectorRequirement| requires(rule, node.labels.get(&rule.key).map(String::as_str));
    // The only field there is.
    let by_field = |rule: &NodeSelectorRequirement| rule.key == "metadata.name" && requires(rule, Some(&node.name));
    !(expressions.is_empty() && fields.is_empty()) && expressions.iter().all(by_label) && fields.iter().all(by_field)
}

/// Whether a requirement holds for a value; none: there is no such label.
fn requires(rule: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let is_named = || value.is_some_and(|value| values.iter().any(|named| named == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let numbers = || match values {
        [bound] => Some((number(value?)?, number(bound)?)),
        [] | [_, _, ..] => None,
    };
    match rule.operator.as_str() {
        "In" => is_named(),
        "NotIn" => !is_named(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// Whether a toleration lets a new pod stay beside a taint. One that ends after a while would only let it come.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let applies = (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key);
    let ends = taint.effect == "NoExecute" && toleration.toleration_seconds.is_some();
    let matches = match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => value == taint.value,
        "Exists" => true,
        // Gt and Lt stand behind a feature gate; without it they tolerate nothing.
        _ => false,
    };
    applies && matches && !ends
}

/// The first rule of a template whose outcome depends on more than the Node and the pods on it, if there is one.
///
/// Rules that keep the template's own pods apart by host are judged: a node without any of them can only please those.
#[must_use]
pub fn unjudged_rule(
    labels: &BTreeMap<String, String>,
    affinity: &Affinity,
    constraints: &[TopologySpreadConstraint],
) -> Option<&'static str> {
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|rule| rule.required_during_scheduling_ignored_during_execution.as_deref());
    if near.is_some_and(|terms| !terms.is_empty()) {
        return Some("required podAffinity");
    }
    let own_by_host = |term: &PodAffinityTerm| {
        term.topology_key == HOST
            && term.namespaces.as_deref().unwrap_or_default().is_empty()
            && term.namespace_selector.is_none()
            && term
                .label_selector
                .as_ref()
                .is_some_and(|selector| selects(selector, labels))
    };
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|rule| rule.required_during_scheduling_ignored_during_execution.as_deref());
    if apart.is_some_and(|terms| !terms.iter().all(own_by_host)) {
        return Some("required podAntiAffinity that is not about its own pods on one host");
    }
    let by_host = |constraint: &TopologySpreadConstraint| {
        constraint.topology_key == HOST
            && constraint
                .label_selector
                .as_ref()
                .is_some_and(|selector| selects(selector, labels))
    };
    let mut strict = constraints
        .iter()
        .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule");
    (!strict.all(by_host)).then_some("a strict topologySpreadConstraint that is not about its own pods on one host")
}

/// Whether a label selector selects these labels.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|rule| {
            let rule = NodeSelectorRequirement {
                key: rule.key.clone(),
                operator: rule.operator.clone(),
                values: rule.values.clone(),
            };
            requires(&rule, labels.get(&rule.key).map(String::as_str))
        })
}

#[cfg(test)]
mod tests;
