//! What the operator's identity may do: what its concerns need, and nothing else. That it may do what they need is shown by
//! all other tests of this tier, which run under it.

use std::collections::BTreeSet;

use stratum::host::layout::Identity;

use crate::support::Cluster;

/// Rights in the system namespace, `VERB RESOURCE [NAME]`.
const SYSTEM: &[&str] = &[
    "create configmaps",
    "get configmaps stratum-addon-inventory",
    "list configmaps stratum-addon-inventory",
    "watch configmaps stratum-addon-inventory",
    "update configmaps stratum-addon-inventory",
    "patch configmaps stratum-operator-status",
    "get secrets stratum-certs",
    "patch secrets stratum-certs",
    "list secrets",
    "watch secrets",
    "create leases.coordination.k8s.io",
    "get leases.coordination.k8s.io stratum-operator",
    "list leases.coordination.k8s.io stratum-operator",
    "watch leases.coordination.k8s.io stratum-operator",
    "update leases.coordination.k8s.io stratum-operator",
    "get deployments.apps coredns",
    "list deployments.apps coredns",
    "watch deployments.apps coredns",
    "watch pods",
    "create pods/eviction",
    "create events.events.k8s.io",
];

/// Rights in every namespace.
const CLUSTER: &[&str] = &[
    "get namespaces",
    "list namespaces",
    "watch namespaces",
    "get nodes",
    "list nodes",
    "watch nodes",
    "patch nodes",
    "delete nodes",
    "get certificatesigningrequests.certificates.k8s.io",
    "list certificatesigningrequests.certificates.k8s.io",
    "watch certificatesigningrequests.certificates.k8s.io",
    "update certificatesigningrequests/approval.certificates.k8s.io",
    "approve signers.certificates.k8s.io kubernetes.io/kubelet-serving",
    "approve signers.certificates.k8s.io kubernetes.io/kube-apiserver-client-kubelet",
    "list nodeidentities.stratum.ciq.com",
    "watch nodeidentities.stratum.ciq.com",
    "create nodeidentities.stratum.ciq.com",
    "update nodeidentities.stratum.ciq.com",
    "delete nodeidentities.stratum.ciq.com",
    "list servicecidrs.networking.k8s.io",
    "create subjectaccessreviews.authorization.k8s.io",
    "list pods",
];
/// Rights in `default`, in `kube-node-lease` and in `kube-public`, besides.
const DEFAULT: &[&str] = &["list endpointslices.discovery.k8s.io"];
const NODE_LEASES: &[&str] = &["get leases.coordination.k8s.io"];
const PUBLIC: &[&str] = &["get configmaps cluster-info"];

/// What the API server says that an identity may do in a namespace. What every authenticated user may ask about itself is
/// left out.
async fn rights(cluster: &Cluster, identity: Identity, namespace: &str) -> BTreeSet<String> {
    let review = format!(
        r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{{"namespace":"{namespace}"}}}}"#
    );
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let finished = cluster
        .kubectl_as(identity, &["create", "--raw", path, "-f", "-"], &review)
        .await;
    let answer: serde_json::Value = serde_json::from_slice(&finished.stdout).unwrap();
    assert_eq!(answer["status"]["incomplete"], false, "{answer}");
    let texts = |value: &serde_json::Value| -> Vec<String> {
        let items = value.as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in answer["status"]["resourceRules"].as_array().unwrap() {
        let names = texts(&rule["resourceNames"]);
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                if resource.starts_with("selfsubject") {
                    continue;
                }
                let dot = if group.is_empty() { "" } else { "." };
                for verb in texts(&rule["verbs"]) {
                    let right = format!("{verb} {resource}{dot}{group}");
                    all.extend(names.iter().map(|name| format!("{right} {name}")));
                    all.extend(names.is_empty().then_some(right));
                }
            }
        }
    }
    all
}

#[tokio::test]
async fn the_operator_may_do_what_its_concerns_need_and_nothing_else() {
    let cluster = Cluster::shared().await;
    let set = |lists: &[&[&str]]| -> BTreeSet<String> { lists.concat().into_iter().map(str::to_owned).collect() };
    let found = rights(cluster, Identity::Operator, "kube-system").await;
    assert_eq!(found, set(&[SYSTEM, CLUSTER]));
    let elsewhere = [
        ("default", DEFAULT),
        ("kube-node-lease", NODE_LEASES),
        ("kube-public", PUBLIC),
    ];
    for (namespace, own) in elsewhere {
        let found = rights(cluster, Identity::Operator, namespace).await;
        assert_eq!(found, set(&[CLUSTER, own]), "{namespace}");
    }

    for (verb, resource) in [
        ("get", "secrets"),
        ("get", "secrets/stratum-carotate"),
        ("delete", "secrets/stratum-certs"),
        ("create", "secrets"),
        ("delete", "configmaps/stratum-addon-inventory"),
        ("delete", "leases.coordination.k8s.io/stratum-operator"),
        ("update", "configmaps/extension-apiserver-authentication"),
        ("update", "nodes"),
        ("create", "nodes"),
        ("create", "pods"),
        ("impersonate", "users"),
        ("escalate", "clusterroles.rbac.authorization.k8s.io"),
    ] {
        let arguments = ["-n", "kube-system", "auth", "can-i", verb, resource];
        let finished = cluster.kubectl_as(Identity::Operator, &arguments, "").await;
        assert_eq!(String::from_utf8_lossy(&finished.stdout), "no\n", "{verb} {resource}");
    }
}
