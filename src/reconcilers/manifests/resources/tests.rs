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
fn a_definition_of_the_pass_does_not_make_a_silent_group_answer() {
    let mut map = fixtures::map();
    let defined = map.insert_definition(&json!({"spec": {"group": "metrics.k8s.io", "scope": "Cluster",
        "names": {"kind": "NodeMetrics", "plural": "nodes"}, "versions": [{"name": "v1", "served": true}]}}));
    assert_eq!(defined, [], "and nobody waits for it to be served");
    assert_eq!(
        map.resolve("metrics.k8s.io/v1", "NodeMetrics"),
        Err(Unresolved::GroupUnavailable)
    );
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

#[test]
fn verbs_scope_and_the_first_version_are_as_discovery_says() {
    let resource = |plural: &str, kind: &str, scope: &str, verbs: &[&str]| {
        json!({"resource": plural, "scope": scope, "verbs": verbs,
            "responseKind": {"group": "example.com", "version": "v2", "kind": kind}})
    };
    let all = ["patch", "list", "delete"];
    let list: APIGroupDiscoveryList = serde_json::from_value(json!({"items": [
        {"metadata": {"name": "example.com"}, "versions": [
            {"version": "v2", "resources": [
                resource("widgets", "Widget", "Namespaced", &all),
                resource("reviews", "Review", "Namespaced", &["create"]),
                resource("views", "View", "Namespaced", &["patch", "list"]),
                resource("marks", "Mark", "Namespaced", &["patch", "delete"]),
                resource("planes", "Plane", "Cluster", &all)]},
            {"version": "v1", "resources": [resource("widgets", "Widget", "Namespaced", &all)]}]}
    ]}))
    .unwrap();
    let map = ResourceMap::from_discovery([&list]);
    let found = |kind: &str| {
        let served = map.resolve("example.com/v2", kind).unwrap();
        (served.patchable, served.prunable)
    };
    assert_eq!(found("Widget"), (true, true));
    assert_eq!(found("Review"), (false, false));
    assert_eq!(found("View"), (true, false), "it cannot be deleted");
    assert_eq!(found("Mark"), (true, false), "it cannot be listed");
    assert_eq!(map.resolve("example.com/v1", "Widget").unwrap().version, "v1");
    let widgets = GroupResource::new("example.com", "widgets");
    assert_eq!(map.preferred(&widgets).unwrap().version, "v2", "the first is preferred");
    let namespaced: Vec<&str> = map.namespaced().map(|served| served.kind.as_str()).collect();
    assert_eq!(namespaced, ["Widget"], "what can be in a namespace, and listed there");
}
