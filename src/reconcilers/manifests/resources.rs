//! What the API server serves: the mapping from an object's `apiVersion` and `kind` to its canonical resource.
//!
//! It is built from aggregated discovery, and from the CustomResourceDefinitions of the pass itself, so that a custom
//! resource has an identity before its definition has reached the API server.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::discovery::v2::APIGroupDiscoveryList;
use serde_json::Value;

use crate::reconcilers::object::GroupResource;

/// Whether objects of a resource live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One object of a name in the whole cluster.
    Cluster,
    /// One object of a name in each namespace.
    Namespaced,
}

/// What one version of a resource allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The canonical resource, without the version.
    pub resource: GroupResource,
    /// The version this entry is about.
    pub version: String,
    /// The kind an object of it names.
    pub kind: String,
    /// Whether its objects have a namespace.
    pub scope: Scope,
    /// Whether objects can be patched: a kind such as TokenReview can only be created.
    pub patchable: bool,
    /// Whether objects can be listed and deleted.
    pub prunable: bool,
}

/// Why an `apiVersion` and `kind` have no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The group is known but could not be asked (its aggregated API server is down): absent is not gone.
    GroupUnavailable,
    /// Nothing serves it.
    Unknown,
}

/// Everything served, by kind and by resource. A snapshot: read again after CustomResourceDefinitions changed.
#[derive(Clone, Debug, Default)]
pub struct ResourceMap {
    kinds: BTreeMap<(String, String, String), Served>,
    preferred: BTreeMap<GroupResource, Served>,
    unavailable: BTreeSet<String>,
}

impl ResourceMap {
    /// Builds the map from the answers of `/api` and `/apis` (aggregated discovery, `apidiscovery.k8s.io/v2`).
    ///
    /// A version marked stale makes its whole group unavailable: what is missing in it proves nothing.
    #[must_use]
    pub fn from_discovery<'a>(lists: impl IntoIterator<Item = &'a APIGroupDiscoveryList>) -> Self {
        let mut map = Self::default();
        for group in lists.into_iter().flat_map(|list| &list.items) {
            let name = group
                .metadata
                .as_ref()
                .and_then(|metadata| metadata.name.clone())
                .unwrap_or_default();
            for version in &group.versions {
                if version.freshness.as_deref() == Some("Stale") {
                    map.unavailable.insert(name.clone());
                }
                for resource in &version.resources {
                    let (Some(plural), Some(kind)) = (&resource.resource, &resource.response_kind) else {
                        continue;
                    };
                    let allows = |verb: &str| resource.verbs.iter().any(|allowed| allowed == verb);
                    map.insert(Served {
                        resource: GroupResource::new(name.clone(), plural.clone()),
                        version: version.version.clone().unwrap_or_default(),
                        kind: kind.kind.clone().unwrap_or_default(),
                        scope: if resource.scope.as_deref() == Some("Namespaced") {
                            Scope::Namespaced
                        } else {
                            Scope::Cluster
                        },
                        patchable: allows("patch"),
                        prunable: allows("delete") && allows("list"),
                    });
                }
            }
        }
        map
    }

    /// Adds what a CustomResourceDefinition (apiextensions.k8s.io/v1) of this pass will serve; what the API server
    /// says already wins, and so does its silence: a group that could not be asked stays unavailable, since its objects
    /// could not be sent either. A definition that lacks a field is left to the API server to refuse.
    ///
    /// Returns the `apiVersion` and kind of everything it defines.
    pub fn insert_definition(&mut self, definition: &Value) -> Vec<(String, String)> {
        let spec = &definition["spec"];
        let (Some(group), Some(kind), Some(plural)) = (
            spec["group"].as_str(),
            spec["names"]["kind"].as_str(),
            spec["names"]["plural"].as_str(),
        ) else {
            return Vec::new();
        };
        if self.unavailable.contains(group) {
            return Vec::new();
        }
        let mut defined = Vec::new();
        let scope = if spec["scope"] == "Cluster" {
            Scope::Cluster
        } else {
            Scope::Namespaced
        };
        for version in spec["versions"].as_array().into_iter().flatten() {
            let Some(name) = version["name"].as_str().filter(|_| version["served"] == true) else {
                continue;
            };
            defined.push((format!("{group}/{name}"), kind.to_owned()));
            let key = (group.to_owned(), name.to_owned(), kind.to_owned());
            if !self.kinds.contains_key(&key) {
                self.insert(Served {
                    resource: GroupResource::new(group, plural),
                    version: name.to_owned(),
                    kind: kind.to_owned(),
                    scope,
                    patchable: true,
                    prunable: true,
                });
            }
        }
        defined
    }

    /// The resource of an object's `apiVersion` and `kind`.
    ///
    /// # Errors
    /// Says whether nothing serves it or its group could not be asked.
    pub fn resolve(&self, api_version: &str, kind: &str) -> Result<&Served, Unresolved> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kinds
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
            .ok_or_else(|| self.why_missing(group))
    }

    /// The preferred version of a recorded resource.
    ///
    /// # Errors
    /// Says whether the resource is gone or its group could not be asked.
    pub fn preferred(&self, resource: &GroupResource) -> Result<&Served, Unresolved> {
        self.preferred
            .get(resource)
            .ok_or_else(|| self.why_missing(&resource.group))
    }

    /// Every namespaced resource that can be listed, in its preferred version.
    pub fn namespaced(&self) -> impl Iterator<Item = &Served> {
        self.preferred
            .values()
            .filter(|served| served.scope == Scope::Namespaced && served.prunable)
    }

    /// Groups that could not be asked.
    pub fn unavailable(&self) -> impl Iterator<Item = &str> {
        self.unavailable.iter().map(String::as_str)
    }

    fn why_missing(&self, group: &str) -> Unresolved {
        if self.unavailable.contains(group) {
            Unresolved::GroupUnavailable
        } else {
            Unresolved::Unknown
        }
    }

    fn insert(&mut self, served: Served) {
        // Versions come in descending order of preference, so the first one seen stays the preferred one.
        self.preferred
            .entry(served.resource.clone())
            .or_insert_with(|| served.clone());
        let key = (
            served.resource.group.clone(),
            served.version.clone(),
            served.kind.clone(),
        );
        self.kinds.entry(key).or_insert(served);
    }
}

#[cfg(test)]
pub(crate) mod fixtures;

#[cfg(test)]
mod tests;
