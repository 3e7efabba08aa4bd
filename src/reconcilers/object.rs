//! Names of Kubernetes objects, as every concern and the inventory spell them.
//!
//! An object's identity here leaves the API version out on purpose: an object that a release re-versions is still the
//! same object, and must survive the pass that applies it under its new version (seed, `manifests.go`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How the core group is spelled in `group/resource`. No other group can have this name: a group of a
/// CustomResourceDefinition or an APIService needs a dot.
const CORE: &str = "core";

/// The longest label value Kubernetes accepts, in bytes.
const LABEL_VALUE_LIMIT: usize = 63;

/// An API group and the plural resource name in it, without a version. Written `apps/deployments`, `core/configmaps`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural, lower-case resource name.
    pub resource: String,
}

impl GroupResource {
    /// Names a resource; `group` is empty for the core group.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.group.is_empty() { CORE } else { &self.group };
        write!(formatter, "{group}/{}", self.resource)
    }
}

/// A text that is no `group/resource`.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not of the form group/resource, such as apps/deployments or core/configmaps")]
pub struct NotAGroupResource(String);

impl FromStr for GroupResource {
    type Err = NotAGroupResource;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((group, resource)) if !group.is_empty() && !resource.is_empty() && !resource.contains('/') => {
                Ok(Self::new(if group == CORE { "" } else { group }, resource))
            }
            Some(_) | None => Err(NotAGroupResource(text.to_owned())),
        }
    }
}

impl Serialize for GroupResource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GroupResource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Which object: its resource, its effective namespace and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The resource, without a version.
    pub resource: GroupResource,
    /// The effective namespace; `None` for a cluster-scoped object, whatever its file said.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.resource, self.name),
            None => write!(formatter, "{} {}", self.resource, self.name),
        }
    }
}

/// The UID the API server gave an object at its creation; a re-created object of the same name has another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Uid(pub String);

impl fmt::Display for Uid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The name of a stack: a first-level folder of the manifests folder. Always a valid, non-empty label value, since
/// every object of the stack carries it as the label `stratum.ciq.com/stack`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct StackName(String);

/// A text that cannot be the value of a label, so no stack can be called so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name a stack: a label value has 1 to 63 letters, digits, '-', '_' or '.', and begins and ends with a letter or digit"
)]
pub struct NotAStackName(String);

impl StackName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StackName {
    type Err = NotAStackName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        let valid = bytes.len() <= LABEL_VALUE_LIMIT
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAStackName(text.to_owned()))
        }
    }
}

impl fmt::Display for StackName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for StackName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_resource_reads_back_what_it_prints() {
        for (text, group) in [("core/configmaps", ""), ("apps/deployments", "apps")] {
            let parsed: GroupResource = text.parse().unwrap();
            assert_eq!(parsed.group, group);
            assert_eq!(parsed.to_string(), text);
        }
        for bad in ["", "configmaps", "/configmaps", "apps/", "a/b/c"] {
            assert!(bad.parse::<GroupResource>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_stack_name_is_a_label_value() {
        let long = "a".repeat(64);
        for good in ["a", "core-dns", "a.b_c", "9z", &long[..63]] {
            assert!(good.parse::<StackName>().is_ok(), "{good:?}");
        }
        for bad in ["", "_x", "x_", ".git", "a b", "ü", &long] {
            assert!(bad.parse::<StackName>().is_err(), "{bad:?}");
        }
    }
}
