use super::*;
use serde_json::json;

#[test]
fn a_definition_of_the_pass_gives_its_resources_an_identity() {
    let mut map = fixtures::map();
    assert_eq!(map.resolve("example.com/v1", "Widget"), Err(Unresolved::Unknown));
    map.insert_definition(&json!({"spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true}, {"name": "v1alpha1", "served": false}]}}));
    let served = map.resolve("example.com/v1", "Widget").unwrap();
    assert_eq!(served.resource.to_string(), "example.com/widgets");
    assert_eq!(map.resolve("example.com/v1alpha1", "Widget"), Err(Unresolved::Unknown));
}

#[test]
fn a_stale_group_is_unavailable_and_not_gone() {
    let list: APIGroupDiscoveryList = serde_json::from_value(json!({"items": [
        {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1", "freshness": "Stale", "resources": []}]},
        {"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "freshness": "Current", "resources": [{"resource": "deployments", "scope": "Namespaced",
              "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "verbs": ["patch", "list", "delete"]}]}]}
    ]}))
    .unwrap();
    let map = ResourceMap::from_discovery([&list]);
    assert_eq!(
        map.resolve("metrics.k8s.io/v1", "NodeMetrics"),
        Err(Unresolved::GroupUnavailable)
    );
    assert_eq!(map.resolve("apps/v2", "Deployment"), Err(Unresolved::Unknown));
    assert_eq!(map.resolve("apps/v1", "Deployment").unwrap().scope, Scope::Namespaced);
}
