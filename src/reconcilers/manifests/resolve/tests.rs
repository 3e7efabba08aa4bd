use super::super::resources::fixtures::map;
use super::fixtures::{declared, stack};
use super::*;
use serde_json::json;

fn config_map(file: &str, metadata: Value) -> Declared {
    declared(
        file,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
    )
}

#[test]
fn identity_is_normalised() {
    let implicit = config_map("s/a.yaml", json!({"name": "a"}));
    let explicit = config_map("s/b.yaml", json!({"name": "a", "namespace": "default"}));
    let resolution = resolve(&[(Some(stack("s")), &implicit)], &map());
    let other = resolve(&[(None, &explicit)], &map());
    assert_eq!(resolution.wanted[0].id, other.wanted[0].id);
    assert_eq!(resolution.wanted[0].id.to_string(), "core/configmaps default/a");
    let body: Value = serde_json::from_slice(&resolution.wanted[0].body).unwrap();
    assert_eq!(
        body["metadata"],
        json!({"name": "a", "namespace": "default", "labels": {STACK_LABEL: "s"}})
    );
    let loose: Value = serde_json::from_slice(&other.wanted[0].body).unwrap();
    assert_eq!(
        loose["metadata"].get("labels"),
        None,
        "a loose object belongs to no stack"
    );

    let namespace = declared(
        "s/n.yaml",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": "x"}}),
    );
    let resolution = resolve(&[(Some(stack("s")), &namespace)], &map());
    assert_eq!(resolution.wanted[0].id.namespace, None);
    let body: Value = serde_json::from_slice(&resolution.wanted[0].body).unwrap();
    assert_eq!(body["metadata"].get("namespace"), None, "and not sent");
    assert_eq!(resolution.notes.len(), 1);
    let plain = declared(
        "s/n.yaml",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
    );
    let without = resolve(&[(Some(stack("s")), &plain)], &map());
    assert_eq!(without.wanted, resolution.wanted, "it is the same object");
    assert_eq!(without.notes.len(), 0, "nothing to say");
}

#[test]
fn another_version_is_the_same_object_and_is_sent_again() {
    let mut served = map();
    served.insert_definition(&json!({"spec": {"group": "example.com", "scope": "Cluster",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": true}]}}));
    let [one, two] = ["example.com/v1", "example.com/v2"].map(|version| {
        let body = json!({"apiVersion": version, "kind": "Widget", "metadata": {"name": "w"}});
        let mut declared = declared("s/a.yaml", body);
        // Whatever the body says: the version goes into the request's path as well.
        declared.body["apiVersion"] = "example.com/v1".into();
        let resolution = resolve(&[(None, &declared)], &served);
        Arc::clone(&resolution.wanted[0])
    });
    assert_eq!(one.id, two.id);
    assert_ne!(one.digest, two.digest);
}

#[test]
fn an_object_declared_twice_is_applied_by_neither_and_kept() {
    let first = config_map("s/a.yaml", json!({"name": "a"}));
    let second = config_map("t/b.yaml", json!({"name": "a", "namespace": "default"}));
    let resolution = resolve(&[(Some(stack("s")), &first), (Some(stack("t")), &second)], &map());
    assert!(resolution.wanted.is_empty());
    assert_eq!(resolution.keep.len(), 1);
    let messages: Vec<String> = resolution.refusals.iter().map(ToString::to_string).collect();
    assert!(
        messages[0].starts_with("s/a.yaml:1") && messages[0].contains("t/b.yaml:1"),
        "{messages:?}"
    );
    assert!(
        messages[1].starts_with("t/b.yaml:1") && messages[1].contains("s/a.yaml:1"),
        "{messages:?}"
    );
    for (message, own) in messages.iter().zip(["s/a.yaml", "t/b.yaml"]) {
        assert!(message.contains(": core/configmaps default/a: "), "{message}");
        assert_eq!(
            message.matches(own).count(),
            1,
            "its own place is no other one: {message}"
        );
    }
}

#[test]
fn a_label_of_another_stack_gives_way() {
    let object = config_map(
        "s/a.yaml",
        json!({"name": "a", "labels": {STACK_LABEL: "other", "x": "y"}}),
    );
    let resolution = resolve(&[(Some(stack("s")), &object)], &map());
    assert_eq!(
        resolution.wanted[0].labels,
        [
            (STACK_LABEL.to_owned(), "s".to_owned()),
            ("x".to_owned(), "y".to_owned())
        ]
        .into()
    );
}

#[test]
fn what_cannot_be_applied_is_refused_with_its_reason() {
    for (body, reason) in [
        (
            json!({"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "a"}}),
            RefusalReason::UnknownKind,
        ),
        (
            json!({"apiVersion": "metrics.k8s.io/v1", "kind": "NodeMetrics", "metadata": {"name": "a"}}),
            RefusalReason::GroupUnavailable,
        ),
        (
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {"name": "a"}}),
            RefusalReason::NotAppliable,
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": 1}}}),
            RefusalReason::Invalid,
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": ["a"]}}),
            RefusalReason::Invalid,
        ),
    ] {
        let kind = body["kind"].as_str().unwrap().to_owned();
        let resolution = resolve(&[(Some(stack("s")), &declared("a.yaml", body))], &map());
        assert!(resolution.wanted.is_empty(), "{kind}");
        let refusal = &resolution.refusals[0];
        assert_eq!(
            (refusal.reason, refusal.line, refusal.stack.as_deref()),
            (reason, Some(1), Some("s")),
            "{refusal}"
        );
        assert!(
            refusal.to_string().starts_with(&format!("a.yaml:1: {kind} a: ")),
            "{refusal}"
        );
    }
}

#[test]
fn a_custom_resource_may_stand_before_its_definition() {
    let custom = declared(
        "s/a.yaml",
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}),
    );
    let definition = declared(
        "s/a.yaml",
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Widget", "plural": "widgets"},
                     "versions": [{"name": "v1", "served": true}]}}),
    );
    let resolution = resolve(&[(Some(stack("s")), &custom), (Some(stack("s")), &definition)], &map());
    assert_eq!(resolution.wanted[0].id.to_string(), "example.com/widgets w");
    assert!(
        resolution
            .defined
            .contains(&("example.com/v1".to_owned(), "Widget".to_owned()))
    );
}

#[test]
fn empty_labels_and_annotations_are_none() {
    let object = config_map("s/a.yaml", json!({"name": "a", "labels": null, "annotations": null}));
    for stack in [Some(stack("s")), None] {
        let resolution = resolve(&[(stack.clone(), &object)], &map());
        assert_eq!(resolution.refusals, []);
        assert_eq!(resolution.wanted[0].labels.len(), usize::from(stack.is_some()));
        assert!(resolution.wanted[0].annotations.is_empty());
    }
}

/// Another group's kind, or a version this code does not know, is no definition whatever it looks like.
#[test]
fn only_a_definition_defines() {
    let spec = json!({"group": "example.com", "scope": "Cluster", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true}]});
    for (version, kind) in [
        ("apiextensions.k8s.io/v1", "ConfigMap"),
        ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"),
    ] {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        let resolution = resolve(&[(None, &declared("a.yaml", body))], &map());
        assert!(resolution.defined.is_empty(), "{version} {kind}");
    }
}

#[test]
fn only_the_word_protects() {
    let annotated = |value: &str| is_protected(&[(PRUNE_ANNOTATION.to_owned(), value.to_owned())].into());
    assert!(annotated(PRUNE_DISABLED));
    assert!(!annotated("enabled") && !annotated("") && !is_protected(&BTreeMap::new()));
}
