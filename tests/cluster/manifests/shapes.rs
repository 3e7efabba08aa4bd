//! The forms a file may have, and a namespace where none belongs: the objects in the cluster are those that `kubectl apply`
//! makes of the same file, and changing from one form to another changes no object.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stratum::host::layout::Identity;

use super::fixture::{Fixture, config_map, config_maps};
use crate::support::Cluster;

/// The ConfigMaps of a namespace by name, without what the API server, a stack's label or `kubectl apply` adds.
async fn objects(cluster: &Cluster, namespace: &str) -> BTreeMap<String, Value> {
    let found = cluster
        .kubectl(&["-n", namespace, "get", "configmaps", "-o", "json"])
        .await;
    let found: Value = serde_json::from_str(&found).unwrap();
    let mut objects = BTreeMap::new();
    for item in found["items"].as_array().unwrap() {
        let metadata = &item["metadata"];
        let name = metadata["name"].as_str().unwrap();
        if ["kube-root-ca.crt", "stratum-addon-inventory"].contains(&name) {
            continue;
        }
        let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
        labels.remove("stratum.ciq.com/stack");
        let object = json!({
            "labels": labels, "annotations": metadata["annotations"], "data": item["data"],
            "binaryData": item["binaryData"], "immutable": item["immutable"],
        });
        objects.insert(name.to_owned(), object);
    }
    objects
}

/// What `kubectl apply` makes of a text in a namespace of its own. It fails when there is no object at all.
async fn by_kubectl(cluster: &Cluster, text: &str) -> BTreeMap<String, Value> {
    let namespace = cluster.namespace("kubectl").await;
    let text = text.replace("NAMESPACE", &namespace);
    let arguments = ["apply", "--server-side", "-f", "-"];
    let finished = cluster.kubectl_as(Identity::Admin, &arguments, &text).await;
    let stderr = String::from_utf8_lossy(&finished.stderr);
    assert!(
        finished.exit.is_success() || stderr.contains("no objects passed to apply"),
        "{text}{stderr}"
    );
    objects(cluster, &namespace).await
}

/// Stored so by some exporters; kubectl cannot read it.
const NESTED: &str = "a list in a list";

/// The same three objects in every form.
fn forms() -> Vec<(&'static str, String)> {
    let [a, b, c] = ["a", "b", "c"].map(|name| config_map(name, "1"));
    let whole = config_maps(&["a", "b", "c"]);
    let item = |text: &str| format!("- {}\n", text.trim_end().replace('\n', "\n  "));
    let untyped = |text: &str| {
        let text = text.replace("apiVersion: v1\nkind: ConfigMap\n", "");
        format!("- {}\n", text.trim_end().replace('\n', "\n  "))
    };
    let list = |kind: &str, items: &[String]| format!("apiVersion: v1\nkind: {kind}\nitems:\n{}", items.concat());
    let all = [&a, &b, &c];
    let inner = list("ConfigMapList", &[untyped(&b), untyped(&c)]);
    let nested = list("List", &[item(&a), item(&inner)]);
    vec![
        ("documents", whole.clone()),
        ("a list", list("List", &all.map(|text| item(text)))),
        ("a typed list", list("ConfigMapList", &all.map(|text| item(text)))),
        (
            "a typed list of bare items",
            list("ConfigMapList", &all.map(|text| untyped(text))),
        ),
        (NESTED, nested),
        (
            "an empty list",
            format!("{whole}---\napiVersion: v1\nkind: List\nitems: []\n"),
        ),
        (
            "empty documents",
            format!("---\n---\n{a}---\n\n---\n{b}---\n---\n{c}---\n---\n"),
        ),
        (
            "comments",
            format!("# x\n---\n# y\n---\n{a}--- # z\n{b}# x\n---\n# x\n---\n{c}---\n# x\n"),
        ),
        ("CRLF", whole.replace('\n', "\r\n")),
        ("a byte order mark", format!("\u{feff}{whole}")),
        (
            "a mark, a boundary and CRLF",
            format!("\u{feff}---\n{whole}").replace('\n', "\r\n"),
        ),
        (
            "files with marks, one after the other",
            format!("\u{feff}{a}---\n\u{feff}{b}---\n\u{feff}{c}"),
        ),
    ]
}

#[tokio::test]
async fn every_form_of_a_file_makes_the_objects_that_kubectl_makes() {
    let fixture = Fixture::new("forms").await;
    let mut first = None;
    for (form, text) in forms() {
        fixture.write("s/a.yaml", &text);
        let report = fixture.settled_pass().await;
        assert!(report.is_complete() && report.suspended.is_none(), "{form}: {report:?}");
        let ours = objects(fixture.cluster(), fixture.namespace()).await;
        assert_eq!(ours.len(), 3, "{form}: {text}");
        let read_by_kubectl = if form == NESTED {
            config_maps(&["a", "b", "c"])
        } else {
            text.clone()
        };
        assert_eq!(
            ours,
            by_kubectl(fixture.cluster(), &read_by_kubectl).await,
            "{form}: {text}"
        );
        let uids = fixture.uids().await;
        let first = first.get_or_insert_with(|| uids.clone());
        assert_eq!(*first, uids, "{form}");
        assert_eq!(report.total().unchanged, 3, "{form}: {report:?}");
    }
}

/// Values that a wrong reading of line ends would change.
#[tokio::test]
async fn line_ends_and_marks_in_values_are_as_kubectl_has_them() {
    let fixture = Fixture::new("values").await;
    let data = "data:\n  block: |\n    one\n    two\n  folded: >-\n    one\n    two\n  mark: \"\u{feff}x\"\nbinaryData:\n  \
                bytes: aGVsbG8=\n";
    let text = config_map("a", "1").replace("data:\n  key: \"1\"\n", data);
    for (file, text) in [
        ("s/a.yaml", text.clone()),
        ("s/b.yaml", text.replace("name: a", "name: b").replace('\n', "\r\n")),
    ] {
        fixture.write(file, &text);
        let report = fixture.pass().await;
        assert!(report.is_complete(), "{report:?}");
        let kubectl = by_kubectl(fixture.cluster(), &text).await;
        let ours = objects(fixture.cluster(), fixture.namespace()).await;
        for (name, object) in &kubectl {
            assert_eq!(ours[name], *object, "{text}");
            assert_eq!(object["data"]["block"], "one\ntwo\n");
        }
        assert_eq!(kubectl.len(), 1);
    }
}

/// Each of them is all that is left of a file: what it declared before is gone, by somebody's wish. It takes a second.
#[tokio::test]
async fn files_that_declare_nothing_are_complete() {
    for (purpose, text) in [
        ("zero", ""),
        ("boundary", "---\n"),
        ("comment", "# nothing\n"),
        ("nulls", "\u{feff}---\r\nnull\r\n---\r\n# x\r\n"),
        ("nolist", "apiVersion: v1\nkind: List\nitems: []\n"),
        (
            "nomaps",
            "apiVersion: v1\nkind: ConfigMapList\nmetadata: {resourceVersion: \"1\"}\nitems: []\n",
        ),
    ] {
        let fixture = Fixture::new(purpose).await;
        assert!(by_kubectl(fixture.cluster(), text).await.is_empty(), "{text:?}");
        fixture.write("s/a.yaml", &config_maps(&["a", "b"]));
        fixture.write("s/c.yaml", &config_maps(&["c"]));
        fixture.write("loose.yaml", text);
        let report = fixture.pass().await;
        assert!(report.is_complete(), "{text:?}: {report:?}");
        fixture.write("s/a.yaml", text);
        let report = fixture.glance().await;
        assert!(
            report.is_complete() && report.total().pruned == 0,
            "{text:?}: {report:?}"
        );
        assert_eq!(fixture.names().await, ["a", "b", "c"], "not at the first look");
        let report = fixture.settled_pass().await;
        assert_eq!(report.total().pruned, 2, "{text:?}: {report:?}");
        assert_eq!(fixture.names().await, ["c"]);
    }
}

/// kubectl makes a cluster-scoped object whatever namespace its file names, and so does the operator: it is one object,
/// with the namespace and without.
#[tokio::test]
async fn a_namespace_on_a_cluster_scoped_object_is_no_part_of_it() {
    let fixture = Fixture::new("scope").await;
    let role = |name: &str, namespace: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\n{namespace}rules:\n- apiGroups: \
             [\"\"]\n  resources: [pods]\n  verbs: [get]\n"
        )
    };
    let name = format!("{}-ours", fixture.namespace());
    let (with, without) = (role(&name, "  namespace: NAMESPACE\n"), role(&name, ""));
    let live = |name: String| {
        let cluster = fixture.cluster();
        async move {
            let found = cluster.kubectl(&["get", "clusterrole", &name, "-o", "json"]).await;
            serde_json::from_str::<Value>(&found).unwrap()
        }
    };

    fixture.write("s/a.yaml", &format!("{with}---\n{}", config_maps(&["a"])));
    let report = fixture.pass().await;
    assert_eq!(report.total().created, 2, "{report:?}");
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.starts_with("s/a.yaml:1: ") && note.contains("ignored")),
        "{report:?}"
    );
    let ours = live(name.clone()).await;
    assert_eq!(ours["metadata"].get("namespace"), None);
    let kubectl = format!("{name}-kubectl");
    fixture
        .cluster()
        .apply(&fixture.text(&role(&kubectl, "  namespace: NAMESPACE\n")))
        .await;
    let theirs = live(kubectl.clone()).await;
    assert_eq!(theirs["metadata"].get("namespace"), None);
    assert_eq!(ours["rules"], theirs["rules"]);

    for (step, text) in [
        ("without", &without),
        ("with again", &with),
        ("of another", &with.replace("NAMESPACE", "default")),
    ] {
        fixture.write("s/a.yaml", &format!("{text}---\n{}", config_maps(&["a"])));
        let report = fixture.settled_pass().await;
        assert!(report.is_complete() && report.suspended.is_none(), "{step}: {report:?}");
        assert_eq!(report.total().unchanged, 2, "{step}: {report:?}");
        let now = live(name.clone()).await;
        assert_eq!(now["metadata"]["uid"], ours["metadata"]["uid"], "{step}");
        assert_eq!(
            now["metadata"]["resourceVersion"], ours["metadata"]["resourceVersion"],
            "{step}"
        );
        let report = fixture.restarted().pass().await;
        assert_eq!(report.total().pruned, 0, "{step}: {report:?}");
    }
    // The two forms are one object also when both stand in the folder: which is meant is for a person to say.
    fixture.write("t/b.yaml", &without);
    let report = fixture.pass().await;
    assert_eq!(report.refusals.len(), 2, "{report:?}");
    fixture.remove("t");
    fixture.write("s/a.yaml", &config_maps(&["a"]));
    let report = fixture.pass().await;
    assert_eq!(
        report.total().pruned,
        1,
        "recorded without a namespace, and pruned so: {report:?}"
    );
    fixture.cluster().kubectl(&["delete", "clusterrole", &kubectl]).await;
}

/// The other way round: a namespaced object without a namespace is in `default`, and naming that changes nothing.
#[tokio::test]
async fn a_namespaced_object_without_a_namespace_is_the_one_in_default() {
    let fixture = Fixture::new("implicit").await;
    let name = format!("{}-ours", fixture.namespace());
    let explicit = config_map(&name, "1").replace("NAMESPACE", "default");
    let implicit = config_map(&name, "1").replace("  namespace: NAMESPACE\n", "");
    let uid = || async {
        fixture
            .cluster()
            .kubectl(&[
                "-n",
                "default",
                "get",
                "configmap",
                &name,
                "-o",
                "jsonpath={.metadata.uid}",
            ])
            .await
    };
    fixture.write("s/a.yaml", &implicit);
    fixture.write("s/b.yaml", &config_maps(&["b"]));
    assert_eq!(fixture.pass().await.total().created, 2);
    let before = uid().await;
    for text in [&explicit, &implicit] {
        fixture.write("s/a.yaml", text);
        let report = fixture.settled_pass().await;
        assert_eq!((report.total().unchanged, report.total().pruned), (2, 0), "{report:?}");
        assert_eq!(uid().await, before);
    }
    fixture.remove("s/a.yaml");
    assert_eq!(fixture.pass().await.total().pruned, 1);
}
