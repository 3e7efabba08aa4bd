//! What pods ask of a node, counted as the scheduler counts it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;

use super::quantity::Amount;

/// Amounts by the name of their resource. What is not named is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, Amount>);

impl Resources {
    /// What somebody asks for. What cannot be read counts as more than any node has: nothing is moved on a guess.
    #[must_use]
    pub fn asked(quantities: Option<&BTreeMap<String, Quantity>>) -> Self {
        Self::read(quantities, Some(Amount::MAX))
    }

    /// What a node gives. What cannot be read is not given.
    #[must_use]
    pub fn given(quantities: Option<&BTreeMap<String, Quantity>>) -> Self {
        Self::read(quantities, None)
    }

    fn read(quantities: Option<&BTreeMap<String, Quantity>>, unreadable: Option<Amount>) -> Self {
        let read = |(name, quantity): (&String, &Quantity)| {
            let amount = quantity.0.parse().ok().or(unreadable)?;
            Some((name.clone(), amount))
        };
        Self(quantities.into_iter().flatten().filter_map(read).collect())
    }

    /// How much of a resource.
    #[must_use]
    pub fn of(&self, resource: &str) -> Amount {
        self.0.get(resource).copied().unwrap_or_default()
    }

    /// Every resource of which there is more than nothing.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Amount)> {
        let more = |(_, amount): &(&String, &Amount)| **amount > Amount::ZERO;
        self.0
            .iter()
            .filter(more)
            .map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Adds everything of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = own.plus(*amount);
        }
    }

    /// Makes every amount at least that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }

    /// Takes every amount of `other` for its own.
    fn replace_by(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// What a pod asks for, as its spec says it, and nothing else of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodResources {
    containers: Option<Vec<ContainerResources>>,
    init_containers: Option<Vec<ContainerResources>>,
    overhead: Option<BTreeMap<String, Quantity>>,
    resources: Option<ResourceRequirements>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerResources {
    restart_policy: Option<String>,
    resources: Option<ResourceRequirements>,
}

impl PodResources {
    /// What a node must have for it (Kubernetes, "Sidecar containers: resource sharing within containers", and "Pod
    /// overhead"): the containers and sidecars together or, if that is more, the largest step of starting up.
    #[must_use]
    pub fn effective(&self) -> Resources {
        let mut running = Resources::default();
        for container in self.containers.iter().flatten() {
            running.add(&container.asked());
        }
        let mut sidecars = Resources::default();
        let mut starting = Resources::default();
        for container in self.init_containers.iter().flatten() {
            let asked = container.asked();
            if container.restart_policy.as_deref() == Some("Always") {
                running.add(&asked);
                sidecars.add(&asked);
                starting.raise_to(&sidecars);
            } else {
                let mut step = sidecars.clone();
                step.add(&asked);
                starting.raise_to(&step);
            }
        }
        running.raise_to(&starting);
        // What is set for the pod as a whole stands for the sum of its containers.
        running.replace_by(asked(self.resources.as_ref()));
        running.add(&Resources::asked(self.overhead.as_ref()));
        running
    }
}

impl ContainerResources {
    fn asked(&self) -> Resources {
        asked(self.resources.as_ref())
    }
}

/// Requests; a limit without a request is one, as the API server makes it for pods, but not in a template.
fn asked(requirements: Option<&ResourceRequirements>) -> Resources {
    let mut asked = Resources::asked(requirements.and_then(|requirements| requirements.limits.as_ref()));
    asked.replace_by(Resources::asked(
        requirements.and_then(|requirements| requirements.requests.as_ref()),
    ));
    asked
}

/// A pod somewhere, for what it takes from its node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PlacedPod {
    #[serde(default)]
    spec: PodResources,
    #[serde(default)]
    status: PlacedStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PlacedStatus {
    phase: Option<String>,
}

/// What is taken of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many pods are on it.
    pub pods: usize,
    /// What they ask for.
    pub asked: Resources,
}

impl Usage {
    /// Counts a pod, unless it has ended. One that is terminating still has its place.
    pub fn count(&mut self, pod: &PlacedPod) {
        if matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return;
        }
        self.pods += 1;
        self.asked.add(&pod.spec.effective());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn effective(spec: serde_json::Value) -> Resources {
        serde_json::from_value::<PodResources>(spec).unwrap().effective()
    }

    fn resources(amounts: &[(&str, &str)]) -> Resources {
        let read = |(name, amount): &(&str, &str)| ((*name).to_owned(), amount.parse().unwrap());
        Resources(amounts.iter().map(read).collect())
    }

    #[test]
    fn containers_are_added_and_starting_up_counts_if_it_is_more() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        for (name, spec, cpu) in [
            ("none", json!({"containers": [{}]}), "0"),
            ("two", json!({"containers": [asks("100m"), asks("0.2")]}), "300m"),
            (
                "a small step",
                json!({"containers": [asks("1")], "initContainers": [asks("500m")]}),
                "1",
            ),
            (
                "a large step",
                json!({"containers": [asks("1")], "initContainers": [asks("1500m"), asks("1")]}),
                "1500m",
            ),
            (
                "a sidecar",
                json!({"containers": [asks("1")], "initContainers": [sidecar("200m")]}),
                "1200m",
            ),
            (
                "a step after a sidecar",
                json!({"containers": [asks("100m")], "initContainers": [sidecar("200m"), asks("1"), sidecar("1m")]}),
                "1200m",
            ),
            (
                "a step before a sidecar",
                json!({"containers": [asks("100m")], "initContainers": [asks("1"), sidecar("200m")]}),
                "1",
            ),
            (
                "overhead",
                json!({"containers": [asks("1")], "overhead": {"cpu": "250m"}}),
                "1250m",
            ),
            (
                "the pod as a whole",
                json!({"containers": [asks("1")], "overhead": {"cpu": "1"}, "resources": {"requests": {"cpu": "3"}}}),
                "4",
            ),
            (
                "a limit without a request",
                json!({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}),
                "2",
            ),
            (
                "a limit beside a request",
                json!({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}),
                "1",
            ),
            ("nulls", json!({"containers": null, "initContainers": null}), "0"),
        ] {
            assert_eq!(effective(spec).of("cpu"), cpu.parse().unwrap(), "{name}");
        }
        let large = effective(json!({"containers": [asks("1 core")]}));
        assert_eq!(large.of("cpu"), Amount::MAX, "unreadable");
    }

    #[test]
    fn a_node_is_used_by_what_has_not_ended() {
        let pod = |phase: &str| {
            let asks = json!({"requests": {"cpu": "100m", "memory": "1Mi"}});
            let pod = json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n", "containers": [{"resources": asks}]}, "status": {"phase": phase}});
            serde_json::from_value::<PlacedPod>(pod).unwrap()
        };
        let mut usage = Usage::default();
        for phase in ["Running", "Pending", "Succeeded", "Failed", "Unknown"] {
            usage.count(&pod(phase));
        }
        usage.count(&serde_json::from_value(json!({"spec": {"containers": [{}]}})).unwrap());
        assert_eq!(usage.pods, 4);
        assert_eq!(usage.asked, resources(&[("cpu", "300m"), ("memory", "3Mi")]));
    }

    #[test]
    fn what_a_node_gives_is_not_guessed() {
        let quantities =
            [("cpu", "4"), ("memory", "much")].map(|(name, text)| (name.to_owned(), Quantity(text.to_owned())));
        let quantities = BTreeMap::from(quantities);
        assert_eq!(Resources::given(Some(&quantities)), resources(&[("cpu", "4")]));
        assert_eq!(Resources::asked(Some(&quantities)).of("memory"), Amount::MAX);
        assert_eq!(Resources::given(None).of("cpu"), Amount::ZERO);
        let named: Vec<_> = resources(&[("a", "0"), ("b", "1")])
            .iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        assert_eq!(named, ["b"]);
    }
}
