//! Small maps for the tests of this concern.

use super::*;

/// The resources the tests of this folder declare objects of.
pub(crate) fn map() -> ResourceMap {
    let mut map = ResourceMap::default();
    for (group, version, kind, resource, scope) in [
        ("", "v1", "ConfigMap", "configmaps", Scope::Namespaced),
        ("", "v1", "Secret", "secrets", Scope::Namespaced),
        ("", "v1", "Namespace", "namespaces", Scope::Cluster),
        ("apps", "v1", "Deployment", "deployments", Scope::Namespaced),
        (
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            Scope::Cluster,
        ),
        (
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            Scope::Cluster,
        ),
    ] {
        map.insert(Served {
            resource: GroupResource::new(group, resource),
            version: version.to_owned(),
            kind: kind.to_owned(),
            scope,
            patchable: true,
            prunable: true,
        });
    }
    map.insert(Served {
        resource: GroupResource::new("authentication.k8s.io", "tokenreviews"),
        version: "v1".to_owned(),
        kind: "TokenReview".to_owned(),
        scope: Scope::Cluster,
        patchable: false,
        prunable: false,
    });
    map.unavailable.insert("metrics.k8s.io".to_owned());
    map
}
