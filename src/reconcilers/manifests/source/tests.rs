use serde_json::json;

use super::*;

const CM: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

fn objects(text: &str) -> Vec<Declared> {
    parse("s/f.yaml", text.as_bytes(), &SentinelValues::default()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refused(text: &str, kind: SourceErrorKind, has: &str) -> SourceError {
    let error = parse("s/f.yaml", text.as_bytes(), &SentinelValues::default()).expect_err(text);
    assert_eq!(error.kind, kind, "{error}");
    let shown = error.to_string();
    assert!(
        shown.contains(has) && shown.starts_with("s/f.yaml") && !shown.contains('\n'),
        "{shown}"
    );
    error
}

fn names(text: &str) -> Vec<String> {
    objects(text)
        .into_iter()
        .map(|d| format!("{} {} {}", d.api_version, d.kind, d.name))
        .collect()
}

#[test]
fn nothing_declared_is_no_error() {
    for text in [
        "",
        "\n",
        "---\n",
        "# only\n---\n# comments\n",
        "---\n---\n...\n",
        "null\n",
        "\u{feff}\n",
    ] {
        assert_eq!(objects(text), [], "{text:?}");
    }
}

#[test]
fn three_documents_stay_three() {
    let text = format!(
        "\u{feff}---\n{CM}--- # c\n{}---  \r\n\u{feff}{}...\n",
        CM.replace("a}", "b}"),
        CM.replace("a}", "c}")
    );
    let all = objects(&text);
    assert_eq!(all.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(
        all.iter()
            .map(|d| (d.origin.document, d.origin.line))
            .collect::<Vec<_>>(),
        [(1, 2), (2, 6), (3, 10)]
    );
    assert_eq!(names(&text.replace("\r\n", "\n").replace('\n', "\r\n")).len(), 3);
    assert_eq!(
        objects(&format!("{CM}...\n{CM}")).len(),
        2,
        "kubectl would lose what follows ..."
    );
}

#[test]
fn lists_are_opened() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n\
                - apiVersion: v1\n  kind: List\n  items: [{apiVersion: v1, kind: Secret, metadata: {name: b}}]\n\
                - {apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: c}}]}\n";
    assert_eq!(names(text), ["v1 ConfigMap a", "v1 Secret b", "v1 ConfigMap c"]);
    assert_eq!(objects(text)[2].body["kind"], json!("ConfigMap"));
    assert_eq!(objects(text)[1].origin.line, 1);
    assert_eq!(names("apiVersion: v1\nkind: List\nitems: []\n").len(), 0);
    assert_eq!(
        names("apiVersion: x/v1\nkind: AllowList\nmetadata: {name: a}\n"),
        ["x/v1 AllowList a"]
    );
}

#[test]
fn json_is_read() {
    let one = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"j"}}"#;
    assert_eq!(names(&format!("{one}\n{one}\n---\n{one}\n")).len(), 3);
}

#[test]
fn half_written_files() {
    refused(CM.trim_end(), SourceErrorKind::HalfWritten, "line break");
    refused(
        "a: 1\n\0\0\n",
        SourceErrorKind::HalfWritten,
        "s/f.yaml:2: it holds a NUL",
    );
    let cut = parse("f", b"a: \xc3", &SentinelValues::default()).unwrap_err();
    assert_eq!(cut.kind, SourceErrorKind::HalfWritten);
    let latin = parse("f", b"a: 1\nb: \xe9x\n", &SentinelValues::default()).unwrap_err();
    assert_eq!((latin.kind, latin.line), (SourceErrorKind::Invalid, Some(2)));
    for wide in [&b"\xff\xfea\0:\0 \x001\0\n\0"[..], b"\xfe\xff\0a\0:\0 \x001\0\n"] {
        let wide = parse("f", wide, &SentinelValues::default()).unwrap_err();
        assert_eq!(wide.kind, SourceErrorKind::Invalid);
        assert!(wide.message.contains("UTF-16"), "{wide}");
    }
}

#[test]
fn objects_are_checked() {
    for (text, has) in [
        ("kind: A\nmetadata: {name: a}\n", "apiVersion is missing"),
        ("apiVersion: v1\nmetadata: {name: a}\n", "kind is missing"),
        ("apiVersion: 1\nkind: A\nmetadata: {name: a}\n", "apiVersion is 1"),
        ("apiVersion: a/b/c\nkind: A\nmetadata: {name: a}\n", "neither"),
        ("apiVersion: v1\nkind: A\n", "no metadata"),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: ''}\n",
            "metadata.name is empty",
        ),
        ("apiVersion: v1\nkind: A\nmetadata: {name: 123}\n", "quote it"),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: 1}\n",
            "metadata.namespace is 1",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {generateName: a-}\n",
            "generateName",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, uid: x}\n",
            "exported YAML, remove it",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, managedFields: []}\n",
            "managedFields",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, creationTimestamp: x}\n",
            "creationTimestamp",
        ),
        ("- a\n", "list"),
        ("hello\n", "single value"),
        (
            "apiVersion: v1\nkind: List\nitems: [{kind: A}]\n",
            "items[0] of this List: apiVersion",
        ),
    ] {
        refused(&format!("{CM}---\n{text}"), SourceErrorKind::Invalid, has);
        assert!(
            refused(&format!("{CM}---\n{text}"), SourceErrorKind::Invalid, "f.yaml:5: ")
                .line
                .is_some()
        );
    }
}

#[test]
fn status_and_null_timestamps_are_dropped() {
    let text = "apiVersion: v1\nkind: A\nmetadata: {name: a, creationTimestamp: null, namespace: ''}\nstatus: {x: 1}\n";
    let one = objects(text).remove(0);
    assert_eq!(
        one.body,
        json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}})
    );
    assert_eq!(one.namespace, None);
}

#[test]
fn sentinels_are_replaced_before_reading() {
    let text = format!("{CM}data: {{port: \"@stratum:apiserver-port@\"}}\nport: @stratum:apiserver-port@\n");
    let values = SentinelValues {
        apiserver_port: Some(6443),
        ..SentinelValues::default()
    };
    let one = parse("f", text.as_bytes(), &values).unwrap().remove(0);
    assert_eq!(
        (&one.body["data"]["port"], &one.body["port"]),
        (&json!("6443"), &json!(6443))
    );
    assert_eq!(
        refused(&text, SourceErrorKind::UnresolvedSentinel, "apiserver-port").line,
        Some(4)
    );
}

#[test]
fn duplicate_keys_and_marks_have_file_and_line() {
    let error = refused(
        "\u{feff}---\napiVersion: v1\nkind: A\napiVersion: v1\n",
        SourceErrorKind::Invalid,
        "uplicate",
    );
    assert_eq!(error.line, Some(4));
    refused("a: 1\n--- b\n", SourceErrorKind::Invalid, "f.yaml:2: text follows ---");
}
