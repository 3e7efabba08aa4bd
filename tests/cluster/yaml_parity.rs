//! What kubectl and the operator make of one file: the same objects, or a refusal by the operator. Never another value.

use serde_json::Value;
use stratum::host::layout::Identity;
use stratum::reconcilers::manifests::source::{SentinelValues, SourceError, parse};

use crate::support::Cluster;

/// Values of `x`, each as it stands behind `x:` in its file.
const SAME: [&str; 42] = [
    " 0644",
    " 00123",
    " 0o644",
    " 0x1F",
    " 0b101",
    " [yes, on, y, off, no, n, True, FALSE]",
    " 1_000",
    " 12:30:45",
    " 2001-12-14",
    " 12345678901234567890123",
    " 9223372036854775807",
    " 9223372036854775808",
    " -9223372036854775808",
    " 1.0",
    " 1e3",
    " 0.5",
    " -0",
    " 100m",
    " 1.2.3",
    " ~",
    "",
    " \"0644\"",
    " 'yes'",
    " !!str 0644",
    " !!binary aGVsbG8=",
    " [\"x\\u2028y\", 'it''s']",
    " {a: http://x/y, \"b\":1}",
    " http://x/?q=1",
    " 2# no comment",
    "\n  a: &a {p: 1, q: 2}\n  b: {<<: *a, p: 3}",
    "\n  a: &a {p: 1}\n  b: &b {p: 2, r: 3}\n  c: {<<: [*a, *b]}",
    "\n  a: &a [1, 2]\n  b: [*a, *a]",
    " |\n  a\n    b\n\n  c",
    " |+\n  a\n\n",
    " >-\n  a\n  b\n\n  c\n    d\n  e",
    " |2\n    a\n   b",
    " |\n  --- a\n  ...",
    " \"a\n  b\n\n  c\"",
    " |\r\n  a\r\n  b\r",
    "\n- a\n- - b\n  - c",
    "\n  8080: a\n  true: b",
    "\n  ? a\n  : b",
];

/// Values that kubectl reads, and reads unlike the operator's YAML parser: refused.
const REFUSED: [&str; 15] = [
    " .5_0",
    " 0b-1",
    " {a:}",
    " [a:]",
    " [?a]",
    " 'x\u{85} y'",
    " |\n  a\u{2028}  b",
    "\n  3.14159265358979: a",
    "\n  0644: a",
    "\n  on: a",
    "\n  a: 1\n  a: 2",
    "\n  y: &y {p: 1}\n  z: {p: 2, <<: *y}",
    " !foo a",
    " !!binary /w==",
    "\n  \"true\": a\n  true: b",
];

fn file(number: usize, x: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: row-{number}\nx:{x}\n")
}

/// The objects of `text` as the operator reads them.
fn ours(text: &str) -> Result<Vec<Value>, SourceError> {
    let objects = parse("f.yaml", text.as_bytes(), &SentinelValues::default())?;
    Ok(objects.into_iter().map(|object| object.body).collect())
}

/// The objects of `text` as kubectl reads them, without the namespace that it fills in. `Err` is its complaint.
async fn kubectls(cluster: &Cluster, text: &str) -> Result<Vec<Value>, String> {
    let arguments = [
        "create",
        "--dry-run=client",
        "--validate=false",
        "-o",
        "json",
        "-f",
        "-",
    ];
    let finished = cluster.kubectl_as(Identity::Admin, &arguments, text).await;
    if !finished.exit.is_success() {
        return Err(String::from_utf8_lossy(&finished.stderr).into_owned());
    }
    let objects = serde_json::Deserializer::from_slice(&finished.stdout).into_iter::<Value>();
    Ok(objects
        .map(|object| {
            let mut object = object.unwrap();
            object["metadata"].as_object_mut().unwrap().remove("namespace");
            object
        })
        .collect())
}

/// A number as kubectl prints it and as we hold it: integers exactly, floats by value.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), canonical(v))).collect(),
        Value::Number(number) if !number.is_i64() => {
            serde_json::json!({ "float": number.as_f64().unwrap().to_string() })
        }
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

#[tokio::test]
async fn values_are_the_same() {
    let cluster = Cluster::shared().await;
    let files: Vec<String> = SAME.iter().enumerate().map(|(number, x)| file(number, x)).collect();
    let all = kubectls(cluster, &files.join("---\n")).await.unwrap();
    assert_eq!(all.len(), SAME.len());
    for (text, kubectl) in files.iter().zip(all) {
        let ours = ours(text).unwrap_or_else(|error| panic!("{text}{error}"));
        assert_eq!(
            ours.iter().map(canonical).collect::<Vec<_>>(),
            [canonical(&kubectl)],
            "{text}"
        );
    }
}

#[tokio::test]
async fn what_would_differ_is_refused() {
    let cluster = Cluster::shared().await;
    let files: Vec<String> = REFUSED.iter().enumerate().map(|(number, x)| file(number, x)).collect();
    // One run: kubectl reads every one of them, which is why a refusal is needed.
    let all = kubectls(cluster, &files.join("---\n")).await.unwrap();
    assert!(all.len() >= REFUSED.len(), "{}", all.len());
    for text in files {
        let error = ours(&text).expect_err(&text);
        assert!(error.line.is_some(), "{error}");
    }
}

#[tokio::test]
async fn documents_are_the_same() {
    let cluster = Cluster::shared().await;
    let [a, b, c] = [1, 2, 3].map(|number| file(number, " y"));
    let json = |number: usize| {
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"j{number}\"}}}}\n")
    };
    for text in [
        format!("{a}--- # comment\n{b}---  \n{c}"),
        format!("---\n# only a comment\n---\n\n---\n{a}---\n---\n{b}---\n{c}---\n"),
        format!("\u{feff}{a}---\n{b}---\n{c}"),
        format!("{a}---\n{b}---\n{c}").replace('\n', "\r\n"),
        format!("{a}...\n---\n{b}...\n---\n{c}...\n"),
        format!("{a}---\n{}---\n{c}", json(2)),
        format!("{}{}{}", json(1), json(2), json(3)),
        format!(
            "apiVersion: v1\nkind: List\nitems:\n{}",
            [&a, &b, &c]
                .map(|t| format!("- {}\n", t.trim_end().replace('\n', "\n  ")))
                .concat()
        ),
    ] {
        let ours = ours(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        let kubectl = kubectls(cluster, &text)
            .await
            .unwrap_or_else(|error| panic!("{text}{error}"));
        assert_eq!(ours.len(), 3, "{text}");
        assert_eq!(ours, kubectl, "{text}");
    }
    // kubectl drops what follows `...` without a `---`, and says nothing. The operator has all three.
    let text = format!("{a}...\n{b}...\n{c}");
    assert_eq!(kubectls(cluster, &text).await.unwrap().len(), 1);
    assert_eq!(ours(&text).unwrap().len(), 3);
}
