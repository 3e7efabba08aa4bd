//! A Node as it is read: everything that nobody asks for is skipped while the answer is parsed, and is never stored.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use kube::core::{ClusterResourceScope, ObjectMeta};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::reconcilers::node::{AddressKind, NodeAddress, NodeFacts, Ready, ReadyStatus};
use crate::reconcilers::object::Uid;

/// A Node: its facts, and what changes with every word of its kubelet.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
pub struct Node {
    /// What is kept.
    pub facts: NodeFacts,
    /// The last time its kubelet said whether it is ready, by that machine's clock.
    pub heartbeat: Option<Timestamp>,
    /// Name, UID and resourceVersion only.
    metadata: ObjectMeta,
}

impl Node {
    /// The state this is; empty in what is no answer of an API server.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

impl Resource for Node {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
    resource_version: Option<String>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Labels {
    #[serde(default, rename = "node-role.kubernetes.io/control-plane")]
    control_plane: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(default, rename = "stratum.ciq.com/uninstalled-at")]
    uninstalled: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    addresses: Option<Vec<Address>>,
    conditions: Option<Vec<Condition>>,
    node_info: Option<NodeInfo>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Timestamp>,
    last_heartbeat_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct NodeInfo {
    #[serde(default, rename = "machineID")]
    machine_id: String,
}

impl From<Wire> for Node {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, status } = wire;
        let Status {
            addresses,
            conditions,
            node_info,
        } = status.unwrap_or_default();
        let mut addresses: Vec<NodeAddress> = addresses.unwrap_or_default().into_iter().map(Into::into).collect();
        // Kept for as long as the Node is there.
        addresses.shrink_to_fit();
        let conditions = conditions.unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.kind == "Ready");
        Self {
            heartbeat: ready.as_ref().and_then(|ready| ready.last_heartbeat_time),
            facts: NodeFacts {
                name: Arc::from(metadata.name.as_str()),
                uid: Uid(metadata.uid.clone()),
                created: metadata.creation_timestamp,
                terminating: metadata.deletion_timestamp.is_some(),
                control_plane: metadata.labels.is_some_and(|labels| labels.control_plane.is_some()),
                uninstalled: metadata.annotations.and_then(|annotations| annotations.uninstalled),
                addresses,
                ready: ready.map(|ready| Ready {
                    status: match ready.status.as_str() {
                        "True" => ReadyStatus::True,
                        "False" => ReadyStatus::False,
                        _ => ReadyStatus::Unknown,
                    },
                    since: ready.last_transition_time,
                }),
                machine_id: node_info.map(|info| info.machine_id).filter(|id| !id.is_empty()),
            },
            metadata: ObjectMeta {
                name: Some(metadata.name),
                uid: Some(metadata.uid),
                resource_version: metadata.resource_version,
                ..ObjectMeta::default()
            },
        }
    }
}

impl From<Address> for NodeAddress {
    fn from(address: Address) -> Self {
        Self {
            kind: match address.kind.as_str() {
                "Hostname" => AddressKind::Hostname,
                "InternalIP" => AddressKind::InternalIp,
                "ExternalIP" => AddressKind::ExternalIp,
                "InternalDNS" => AddressKind::InternalDns,
                "ExternalDNS" => AddressKind::ExternalDns,
                _ => AddressKind::Other,
            },
            address: address.address,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::cluster::CONTROL_PLANE_LABEL;
    const MARK: &str = "stratum.ciq.com/uninstalled-at";

    fn read(value: &serde_json::Value) -> Node {
        // As an API server sends it: a text, of which strings may be borrowed or not.
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn time(text: &str) -> Option<Timestamp> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn what_is_asked_for_is_kept() {
        let node = read(&json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {
                "name": "w1", "uid": "u-1", "resourceVersion": "42", "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-03T00:00:00Z", "deletionGracePeriodSeconds": 0,
                "labels": {"a": "b", CONTROL_PLANE_LABEL: ""},
                "annotations": {"c": "d", MARK: "a mark"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "x", "effect": "NoSchedule"}]},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "w1"},
                    {"type": "ExternalIP", "address": "1.1.1.1"}, {"type": "InternalDNS", "address": "w1.in"},
                    {"type": "ExternalDNS", "address": "w1.out"}, {"type": "Pigeon", "address": "coo"},
                ],
                "conditions": [
                    {"type": "DiskPressure", "status": "False", "lastHeartbeatTime": "2026-01-09T00:00:00Z", "lastTransitionTime": null},
                    {"type": "Ready", "status": "False", "reason": "KubeletNotReady",
                     "lastHeartbeatTime": "2026-01-02T00:05:00Z", "lastTransitionTime": "2026-01-02T00:00:00Z"},
                ],
                "nodeInfo": {"machineID": "0123456789abcdef0123456789abcdef", "kubeletVersion": "v1.37.2"},
                "images": [{"names": ["x"], "sizeBytes": 1}],
            },
        }));
        let address = |kind, address: &str| NodeAddress {
            kind,
            address: address.to_owned(),
        };
        assert_eq!(
            node.facts,
            NodeFacts {
                name: "w1".into(),
                uid: Uid("u-1".to_owned()),
                created: time("2026-01-01T00:00:00Z"),
                terminating: true,
                control_plane: true,
                uninstalled: Some("a mark".to_owned()),
                addresses: vec![
                    address(AddressKind::InternalIp, "10.0.0.1"),
                    address(AddressKind::Hostname, "w1"),
                    address(AddressKind::ExternalIp, "1.1.1.1"),
                    address(AddressKind::InternalDns, "w1.in"),
                    address(AddressKind::ExternalDns, "w1.out"),
                    address(AddressKind::Other, "coo"),
                ],
                ready: Some(Ready {
                    status: ReadyStatus::False,
                    since: time("2026-01-02T00:00:00Z"),
                }),
                machine_id: Some("0123456789abcdef0123456789abcdef".to_owned()),
            }
        );
        assert_eq!(node.heartbeat, time("2026-01-02T00:05:00Z"));
        assert_eq!(
            (node.resource_version(), node.meta().name.as_deref()),
            ("42", Some("w1"))
        );
    }

    #[test]
    fn a_node_that_says_next_to_nothing_is_a_node() {
        let nothing = NodeFacts {
            name: "w1".into(),
            uid: Uid("u-1".to_owned()),
            created: None,
            terminating: false,
            control_plane: false,
            uninstalled: None,
            addresses: Vec::new(),
            ready: None,
            machine_id: None,
        };
        for rest in [
            json!({}),
            json!({"status": null}),
            json!({"status": {}}),
            json!({"status": {"addresses": null, "conditions": [], "nodeInfo": {"machineID": ""}}}),
        ] {
            for metadata in [
                json!({"name": "w1", "uid": "u-1"}),
                json!({"name": "w1", "uid": "u-1", "labels": {}, "annotations": {}}),
                json!({"name": "w1", "uid": "u-1", "labels": null, "annotations": null, "creationTimestamp": null}),
            ] {
                let mut object = rest.clone();
                object["metadata"] = metadata;
                let node = read(&object);
                assert_eq!(node.facts, nothing, "{object}");
                assert_eq!(node.resource_version(), "");
            }
        }
    }
}
