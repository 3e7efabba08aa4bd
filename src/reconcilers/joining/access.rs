//! What whoever joins may do, and what the nodes of the cluster may do for themselves, as objects to apply.
//!
//! A token for workers may ask for the first certificate of a kubelet, and see whether its name is taken. A token for
//! controllers may read the one Secret with the sealed keys, and hold the cluster fence while its bearer becomes a member of
//! etcd; these rights are its own user's and go with the token. Neither may have its request approved without the operator's look at the name, so `nodeclient` is granted to nobody.

use serde_json::{Value, json};

use super::cluster_info;
use super::token::{CONTROLLERS, WORKERS};
use crate::reconcilers::bootstrap_token::TokenId;
use crate::reconcilers::object::{GroupResource, ObjectId, Uid};

/// The Role that a token for controllers is bound to.
pub const CONTROLLER_ROLE: &str = "stratum:joining-controller";

const RBAC: &str = "rbac.authorization.k8s.io";
const LEASES: &str = "coordination.k8s.io";
const VERSION: &str = "v1";

/// An object to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Which.
    pub id: ObjectId,
    /// The version of its API.
    pub version: &'static str,
    /// The whole object, JSON.
    pub body: Value,
}

/// What has to be there before anybody joins. `secret` is the Secret in `system_namespace` that holds the sealed grants,
/// `fence` the Lease there that one operation at a time holds.
#[must_use]
pub fn standing(system_namespace: &str, secret: &str, fence: &str) -> Vec<Declared> {
    let public = Some(cluster_info::NAMESPACE);
    let (cluster_info, workers, names, renewal) = (
        "stratum:cluster-info",
        "stratum:node-bootstrapper",
        "stratum:node-names",
        "stratum:node-renewal",
    );
    let only = |resource: &str, name: &str| json!([{"apiGroups": [""], "resources": [resource], "resourceNames": [name], "verbs": ["get"]}]);
    // Whoever joins is nobody yet; nodes read it again when the authorities change. It is no secret.
    let everybody = [
        user("system:anonymous"),
        group("system:unauthenticated"),
        group("system:authenticated"),
    ];
    vec![
        rights(cluster_info, public, &only("configmaps", cluster_info::NAME)),
        bound(cluster_info, public, (ROLE, cluster_info), &everybody),
        bound(
            workers,
            None,
            (CLUSTER_ROLE, "system:node-bootstrapper"),
            &[group(WORKERS)],
        ),
        rights(
            names,
            None,
            &json!([
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
                {"apiGroups": ["stratum.ciq.com"], "resources": ["nodeidentities"], "verbs": ["get"]},
            ]),
        ),
        bound(
            names,
            None,
            (CLUSTER_ROLE, names),
            &[group(WORKERS), group(CONTROLLERS)],
        ),
        // Renewals, which kube-controller-manager approves: the name is the requester's own.
        bound(
            renewal,
            None,
            (
                CLUSTER_ROLE,
                "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            ),
            &[group("system:nodes")],
        ),
        rights(
            CONTROLLER_ROLE,
            Some(system_namespace),
            &json!([
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]},
                // Creating cannot be limited to a name; everything after it is.
                {"apiGroups": [LEASES], "resources": ["leases"], "verbs": ["create"]},
                {"apiGroups": [LEASES], "resources": ["leases"], "resourceNames": [fence], "verbs": ["get", "update"]},
            ]),
        ),
    ]
}

/// Lets the one token `id`, whose Secret has this UID, read what [`CONTROLLER_ROLE`] names. Goes with that Secret.
#[must_use]
pub fn controller_binding(system_namespace: &str, id: &TokenId, uid: &Uid) -> Declared {
    let mut declared = bound(
        &controller_binding_name(id),
        Some(system_namespace),
        (ROLE, CONTROLLER_ROLE),
        &[user(&id.user())],
    );
    declared.body["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Secret", "name": id.secret_name(), "uid": uid.0}]);
    declared
}

/// Which object [`controller_binding`] makes.
#[must_use]
pub fn controller_binding_id(system_namespace: &str, id: &TokenId) -> ObjectId {
    object("rolebindings", Some(system_namespace), &controller_binding_name(id))
}

fn controller_binding_name(id: &TokenId) -> String {
    format!("{CONTROLLER_ROLE}:{id}")
}

const ROLE: &str = "Role";
const CLUSTER_ROLE: &str = "ClusterRole";

fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": name})
}

fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "Group", "name": name})
}

fn rights(name: &str, namespace: Option<&str>, rules: &Value) -> Declared {
    let (kind, resource) = match namespace {
        Some(_) => (ROLE, "roles"),
        None => (CLUSTER_ROLE, "clusterroles"),
    };
    declared((kind, resource), namespace, name, json!({"rules": rules}))
}

fn bound(name: &str, namespace: Option<&str>, (kind, role): (&str, &str), subjects: &[Value]) -> Declared {
    let content = json!({
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": subjects,
    });
    let (kind, resource) = match namespace {
        Some(_) => ("RoleBinding", "rolebindings"),
        None => ("ClusterRoleBinding", "clusterrolebindings"),
    };
    declared((kind, resource), namespace, name, content)
}

fn declared((kind, resource): (&str, &str), namespace: Option<&str>, name: &str, mut body: Value) -> Declared {
    body["apiVersion"] = format!("{RBAC}/{VERSION}").into();
    body["kind"] = kind.into();
    body["metadata"] = json!({"name": name});
    if let Some(namespace) = namespace {
        body["metadata"]["namespace"] = namespace.into();
    }
    Declared {
        id: object(resource, namespace, name),
        version: VERSION,
        body,
    }
}

fn object(resource: &str, namespace: Option<&str>, name: &str) -> ObjectId {
    ObjectId {
        resource: GroupResource::new(RBAC, resource),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_is_this_and_no_more() {
        let id = "abc123".parse().unwrap();
        let mut all = standing("kube-system", "stratum-certs", "stratum-maintenance");
        all.push(controller_binding("kube-system", &id, &Uid("u-1".to_owned())));
        let said = |declared: &Declared| {
            let body = &declared.body;
            let names = |list: &Value| {
                let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
                texts.collect::<Vec<_>>().join(",")
            };
            let rules = body["rules"].as_array().into_iter().flatten().map(|rule| {
                let only = names(&rule["resourceNames"]);
                format!(" {} {} {only}", names(&rule["verbs"]), names(&rule["resources"]))
            });
            let subjects = body["subjects"].as_array().into_iter().flatten();
            let subjects = subjects.map(|subject| format!(" <- {}", subject["name"].as_str().unwrap()));
            let role = body["roleRef"]["name"].as_str().map(|role| format!(" = {role}"));
            let rest: String = rules.chain(role).chain(subjects).collect();
            let id = &declared.id;
            assert_eq!(body["metadata"]["name"], *id.name);
            assert_eq!(body["metadata"]["namespace"].as_str(), id.namespace.as_deref());
            let namespace = id.namespace.as_deref().unwrap_or("-");
            format!("{} {namespace}/{}{rest}\n", body["kind"].as_str().unwrap(), id.name)
        };
        let said: String = all.iter().map(said).collect();
        insta::assert_snapshot!(said);
        assert!(!said.contains(":nodeclient"));
        let binding = all.last().unwrap();
        assert_eq!(binding.id, controller_binding_id("kube-system", &id));
        let owner = &binding.body["metadata"]["ownerReferences"][0];
        assert_eq!(
            (owner["name"].as_str(), owner["uid"].as_str()),
            (Some("bootstrap-token-abc123"), Some("u-1"))
        );
    }
}
