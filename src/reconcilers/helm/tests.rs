//! Wishes, refusals and decisions.

mod commands;
mod decisions;

use std::collections::BTreeMap;

use serde_json::json;

use super::digest::digest;
use super::refusal::Refusal;
use super::release::{ReleaseStatus, Revision, content};
use super::source::{Accepted, Policy, Source, accept};
use super::spec::{ChartSpec, ConfigSpec};
use super::values::{Data, Sources, documents, set_arguments};
use super::*;

fn spec(text: &str) -> ChartSpec {
    serde_saphyr::from_str(text).unwrap()
}

fn policy() -> Policy {
    Policy {
        namespaces: ["kube-system".to_owned()].into(),
        hosts: ["charts.example.org".to_owned()].into(),
    }
}

fn accepted(namespace: &str, text: &str) -> Result<Accepted, Refusal> {
    accept(&ChartId::new(namespace, "web"), &spec(text), &policy())
}

fn word(namespace: &str, text: &str) -> &'static str {
    accepted(namespace, text).map_or_else(|refusal| refusal.word(), |_| "accepted")
}

#[test]
fn what_names_no_chart_is_refused() {
    for (text, wanted) in [
        ("{}", "NoChart"),
        ("chart: ''", "NoChart"),
        (
            "{chart: web, repo: 'https://a.example.org', chartContent: H4sI}",
            "TwoCharts",
        ),
        ("chartContent: '%%'", "Content"),
        ("chartContent: aGVsbG8=", "Content"),
        ("chart: --post-renderer", "LikeAFlag"),
        ("{chart: web, repo: '-x'}", "LikeAFlag"),
        (
            "{chart: web, repo: 'https://a.example.org', version: '-1'}",
            "LikeAFlag",
        ),
        ("chart: web", "Address"),
        ("chart: 'file:///etc/passwd'", "Address"),
        ("chart: 'https://user@a.example.org/web.tgz'", "Address"),
        ("{chart: web, repo: 'ftp://a.example.org'}", "Address"),
        ("{chart: web, repo: 'oci://a.example.org'}", "Address"),
        ("{chart: ../web, repo: 'https://a.example.org'}", "NotAName"),
        ("chart: ../web.tgz", "Path"),
        ("chart: /etc/web.tgz", "Path"),
        ("chart: a//web.tgz", "Path"),
        ("{chart: a/web.tgz, targetNamespace: A}", "NotAName"),
        ("{chart: a/web.tgz, serviceAccountName: 'a b'}", "NotAName"),
        ("{chart: a/web.tgz, helmVersion: v2}", "HelmVersion"),
        ("{chart: a/web.tgz, driver: configmap}", "Driver"),
        ("{chart: a/web.tgz, dependsOn: [a/b/c]}", "Dependency"),
        ("{chart: a/web.tgz, timeout: soon}", "Timeout"),
        ("{chart: a/web.tgz, timeout: 0s}", "Timeout"),
        ("{chart: a/web.tgz, timeout: 25h}", "Timeout"),
        ("{chart: a/web.tgz, timeout: 5}", "Timeout"),
        ("{chart: a/web.tgz, timeout: 5s1m}", "Timeout"),
        ("{chart: a/web.tgz, timeout: 99999999999999999999h}", "Timeout"),
        (
            "{chart: a/web.tgz, helmVersion: v3, driver: secret, timeout: 1h30m}",
            "accepted",
        ),
    ] {
        assert_eq!(word("kube-system", text), wanted, "{text}");
    }
    let long = ChartId::new("kube-system", "a".repeat(54));
    let refusal = accept(&long, &spec("chart: a.tgz"), &policy()).unwrap_err();
    assert_eq!(refusal, Refusal::LongName { length: 54 });
}

#[test]
fn a_chart_comes_from_where_it_says() {
    let source = |text: &str| accepted("kube-system", text).unwrap().source;
    assert_eq!(source("chart: a/web.tgz"), Source::File("a/web.tgz".into()));
    assert_eq!(
        source("chartContent: |\n  H4sI\n  AAAA\n"),
        Source::Content(vec![0x1f, 0x8b, 8, 0, 0, 0])
    );
    for address in [
        "oci://charts.example.org/web",
        "https://charts.example.org:8443/web-1.tgz",
        "http://[::1]/w.tgz",
    ] {
        assert_eq!(source(&format!("chart: '{address}'")), Source::Address(address.into()));
    }
    let repository = source("{chart: web, repo: 'https://charts.example.org/stable'}");
    assert_eq!(
        repository,
        Source::Repository {
            repository: "https://charts.example.org/stable".into(),
            chart: "web".into()
        }
    );
    let accepted = accepted(
        "kube-system",
        "{chart: a.tgz, targetNamespace: web-system, timeout: 1h30m, dependsOn: [db, a/b]}",
    );
    let accepted = accepted.unwrap();
    assert_eq!(accepted.timeout.as_secs(), 5400);
    assert_eq!(accepted.release.to_string(), "web in namespace web-system");
    assert_eq!(
        accepted.depends_on,
        [ChartId::new("kube-system", "db"), ChartId::new("a", "b")]
    );
}

/// Whoever may create HelmCharts in a namespace gains nothing by it (k3s-io/helm-controller#148).
#[test]
fn a_namespace_that_is_not_allowed_gains_nothing() {
    for (text, wanted) in [
        ("chartContent: H4sI", "NoServiceAccount"),
        ("{chartContent: H4sI, serviceAccountName: web}", "accepted"),
        (
            "{chartContent: H4sI, serviceAccountName: web, targetNamespace: dev}",
            "accepted",
        ),
        (
            "{chartContent: H4sI, serviceAccountName: web, targetNamespace: kube-system}",
            "OtherNamespace",
        ),
        (
            "{chartContent: H4sI, serviceAccountName: web, createNamespace: true}",
            "OtherNamespace",
        ),
        ("{chart: web.tgz, serviceAccountName: web}", "NotAllowed"),
        (
            "{chart: web, repo: 'https://169.254.169.254/latest', serviceAccountName: web}",
            "NotAllowed",
        ),
        (
            "{chart: 'oci://evil.example.org/web', serviceAccountName: web}",
            "NotAllowed",
        ),
        (
            "{chart: 'https://charts.example.org.evil.example.org/web.tgz', serviceAccountName: web}",
            "NotAllowed",
        ),
        (
            "{chart: 'https://charts.example.org\\@evil.example.org/web.tgz', serviceAccountName: web}",
            "Address",
        ),
        (
            "{chart: 'oci://Charts.Example.org:5000/web', serviceAccountName: web}",
            "accepted",
        ),
    ] {
        assert_eq!(word("dev", text), wanted, "{text}");
    }
}

fn data(pairs: &[(&str, &str)]) -> Data {
    pairs
        .iter()
        .map(|(key, text)| ((*key).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

fn texts(chart: &str, config: Option<&str>, sources: &Sources) -> Result<Vec<String>, Refusal> {
    use secrecy::ExposeSecret;
    let config: Option<ConfigSpec> = config.map(|text| serde_saphyr::from_str(text).unwrap());
    let found = documents("kube-system", &spec(chart), config.as_ref(), sources)?;
    Ok(found.iter().map(|one| one.text.expose_secret().to_owned()).collect())
}

#[test]
fn values_come_in_their_order() {
    let sources = Sources {
        secrets: [
            ("s".to_owned(), data(&[("b", "n: 5"), ("a", "n: 4")])),
            ("c".to_owned(), data(&[("k", "n: 8")])),
        ]
        .into(),
        config_maps: [("m".to_owned(), data(&[("k", "n: 3")]))].into(),
    };
    let chart = "{chart: a.tgz, valuesContent: 'n: 1', values: {n: 2}, valuesConfigMaps: [{name: m}], valuesSecrets: [{name: s}]}";
    let config = "{valuesContent: 'n: 6', values: {n: 7}, valuesSecrets: [{name: c, keys: [k]}]}";
    let all = texts(chart, Some(config), &sources).unwrap();
    assert_eq!(
        all,
        ["n: 1", "{\"n\":2}", "n: 3", "n: 4", "n: 5", "n: 6", "{\"n\":7}", "n: 8"]
    );
    let picked = "{chart: a.tgz, valuesSecrets: [{name: s, keys: [b]}]}";
    assert_eq!(texts(picked, None, &sources).unwrap(), ["n: 5"]);
}

#[test]
fn values_that_are_none_are_refused_and_not_quoted() {
    let sources = Sources {
        secrets: [(
            "s".to_owned(),
            data(&[
                ("list", "[hunter2]"),
                ("broken", "password: 'hunter2\n"),
                ("text", "hunter2"),
            ]),
        )]
        .into(),
        ..Sources::default()
    };
    let secret = |key: &str| format!("{{chart: a.tgz, valuesSecrets: [{{name: s, keys: [{key}]}}]}}");
    for (text, wanted) in [
        ("{chart: a.tgz, valuesContent: '- a'}".to_owned(), "NotAMap"),
        ("{chart: a.tgz, valuesContent: 'a: [1'}".to_owned(), "NotYaml"),
        ("{chart: a.tgz, values: [1]}".to_owned(), "NotAMap"),
        (secret("list"), "NotAMap"),
        (secret("text"), "NotAMap"),
        (secret("broken"), "NotYaml"),
        (secret("other"), "MissingKey"),
        ("{chart: a.tgz, valuesSecrets: [{name: gone}]}".to_owned(), "Missing"),
        ("{chart: a.tgz, valuesConfigMaps: [{name: s}]}".to_owned(), "Missing"),
    ] {
        let refusal = texts(&text, None, &sources).unwrap_err();
        assert_eq!(refusal.word(), wanted, "{text}");
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
    }
    for optional in [
        "{name: gone, ignoreUpdates: true}",
        "{name: s, keys: [other], ignoreUpdates: true}",
    ] {
        let text = format!("{{chart: a.tgz, valuesSecrets: [{optional}]}}");
        assert_eq!(texts(&text, None, &sources).unwrap(), [""; 0]);
    }
    assert_eq!(
        texts("{chart: a.tgz, valuesContent: ' '}", None, &sources).unwrap(),
        [""; 0]
    );
}

#[test]
fn single_values_are_typed_as_helm_does_and_escaped() {
    let set = json!({"a": 1, "b": "true", "c": "null", "d": "007", "e": "x,y={z}\\", "f": "8080", "g": "-5", "h": ""});
    let arguments = set_arguments(&serde_json::from_value(set).unwrap());
    let pairs: Vec<String> = arguments.chunks(2).map(|pair| pair.join(" ")).collect();
    assert_eq!(
        pairs,
        [
            "--set a=1",
            "--set b=true",
            "--set c=null",
            "--set-string d=007",
            "--set-string e=x\\,y=\\{z\\}\\\\",
            "--set f=8080",
            "--set g=-5",
            "--set-string h=",
        ]
    );
}

#[test]
fn another_wish_has_another_digest() {
    let sources = |text: &str| Sources {
        secrets: [("s".to_owned(), data(&[("k", text)]))].into(),
        ..Sources::default()
    };
    let of = |text: &str, secret: &str, file: Option<&str>| {
        let spec = spec(text);
        let documents = documents("kube-system", &spec, None, &sources(secret)).unwrap();
        digest(&spec, None, &documents, file)
    };
    let base = of("{chart: a.tgz, valuesSecrets: [{name: s}]}", "a: 1", None);
    assert_eq!((base.as_str().len(), base.label().len()), (64, 40));
    for (text, secret, file) in [
        ("{chart: b.tgz, valuesSecrets: [{name: s}]}", "a: 1", None),
        ("{chart: a.tgz, valuesSecrets: [{name: s}]}", "a: 2", None),
        ("{chart: a.tgz, valuesSecrets: [{name: s}]}", "a: 1", Some("00")),
        (
            "{chart: a.tgz, valuesSecrets: [{name: s}], set: {a: '1'}}",
            "a: 1",
            None,
        ),
        ("{chart: a.tgz, valuesSecrets: [{name: s}], values: {}}", "a: 1", None),
        (
            "{chart: a.tgz, valuesSecrets: [{name: s}], forceConflicts: true}",
            "a: 1",
            None,
        ),
    ] {
        assert_ne!(of(text, secret, file), base, "{text}");
    }
    for same in [
        "timeout: 1m",
        "failurePolicy: retry",
        "suspend: true",
        "dependsOn: [b]",
        "driftDetection: repair",
        "maxHistory: 9",
    ] {
        let text = format!("{{chart: a.tgz, valuesSecrets: [{{name: s}}], {same}}}");
        assert_eq!(of(&text, "a: 1", None), base, "{same}");
    }
    let ignored = "{chart: a.tgz, valuesSecrets: [{name: s, ignoreUpdates: true}]}";
    assert_eq!(of(ignored, "a: 1", None), of(ignored, "a: 2", None));
    let config = ConfigSpec {
        force_conflicts: Some(true),
        ..ConfigSpec::default()
    };
    assert_ne!(
        digest(&spec("chart: a.tgz"), Some(&config), &[], None),
        digest(&spec("chart: a.tgz"), None, &[], None)
    );
}

#[test]
fn a_release_is_read_from_its_labels_and_its_secret() {
    let labels = |status: &str| -> BTreeMap<String, String> {
        [
            ("owner", "helm"),
            ("name", "web"),
            ("version", "3"),
            ("status", status),
            (NAME_LABEL, "web"),
            (NAMESPACE_LABEL, "dev"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    };
    let revision = Revision::of("apps", &labels("pending-upgrade"), None).unwrap();
    assert_eq!((revision.number, revision.status), (3, ReleaseStatus::PendingUpgrade));
    assert_eq!(revision.owner, Some(ChartId::new("dev", "web")));
    assert_eq!(
        Revision::of("apps", &labels("surprise"), None).unwrap().status,
        ReleaseStatus::Unknown
    );
    let mut foreign = labels("deployed");
    foreign.insert("owner".into(), "somebody".into());
    assert_eq!(Revision::of("apps", &foreign, None), None);
    let mut odd = labels("deployed");
    odd.insert("version".into(), "last".into());
    assert_eq!(Revision::of("apps", &odd, None), None);

    let pack = |text: &str| {
        use base64::Engine;
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        base64::engine::general_purpose::STANDARD
            .encode(gzip.finish().unwrap())
            .into_bytes()
    };
    let read = content(&pack(
        r#"{"manifest": "a: 1", "chart": {"metadata": {"version": "1.2.3", "appVersion": "9"}}}"#,
    ))
    .unwrap();
    assert_eq!(
        (
            read.chart_version.as_deref(),
            read.app_version.as_deref(),
            read.manifest.as_str()
        ),
        (Some("1.2.3"), Some("9"), "a: 1")
    );
    for damaged in [&b"%"[..], b"aGVsbG8=", &pack("{"), b""] {
        content(damaged).unwrap_err();
    }
    let bomb = pack(&" ".repeat(70 * 1024 * 1024));
    assert!(matches!(content(&bomb), Err(super::release::Unreadable::TooLong)));
}
