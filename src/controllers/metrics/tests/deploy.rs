//! What `deploy/` has for Prometheus and Grafana against what this program exports: a name that is misspelt, or renamed
//! here alone, would be an alert that never fires and a panel that stays empty.

use serde_json::Value;

use super::*;
use crate::controllers::certificates;
use crate::host::certificates::fixtures::Openssl;
use crate::host::renewal_record::{RenewalRecord, save_renewal_record};

const RULES: &str = include_str!("../../../../deploy/prometheus-rules.yaml");
const DASHBOARD: &str = include_str!("../../../../deploy/grafana-dashboard.json");

/// Labels that Prometheus adds.
const FOREIGN: [&str; 2] = ["job", "instance"];

/// Every name of a sample, with the labels it has.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    let record = RenewalRecord::begun(crate::host::clock::now(), 0);
    save_renewal_record(&layout, &record).unwrap();
    let metrics = used().with_machine(certificates::metrics::registry(layout));
    let mut exported: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in metrics
        .expose("")
        .unwrap()
        .text
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels
            .split("\",")
            .filter_map(|label| label.split_once('='))
            .map(|(name, _)| name.to_owned());
        exported.entry(name.to_owned()).or_default().extend(labels);
    }
    exported
}

/// A metric that an expression names, and the labels it selects.
fn named(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut rest = expression;
    while let Some(start) = rest.find("stratum_") {
        rest = &rest[start..];
        let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        let mut labels = Vec::new();
        if let Some(selectors) = after.strip_prefix('{') {
            let (selectors, after) = selectors.split_once('}').unwrap();
            rest = after;
            // A value with a comma in it is of no use here.
            for selector in selectors.split(',') {
                let end = selector.find(['=', '!']).unwrap();
                labels.push(selector[..end].trim().to_owned());
            }
        }
        found.push((name.to_owned(), labels));
    }
    found
}

/// The labels that an expression groups and joins by.
fn grouped(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    for keyword in ["by (", "on ("] {
        for part in expression.split(keyword).skip(1) {
            let (labels, _) = part.split_once(')').unwrap();
            found.extend(labels.split(',').map(|label| label.trim().to_owned()));
        }
    }
    found
}

/// What is wrong with an expression, in which `shown` are labels that a text shows of its result.
fn faults(expression: &str, shown: &[String], exported: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    let named = named(expression);
    if named.is_empty() {
        faults.push(format!("nothing of ours in {expression}"));
    }
    let mut all: BTreeSet<&str> = FOREIGN.into();
    all.insert("le");
    for (name, labels) in &named {
        let Some(known) = exported.get(name) else {
            faults.push(format!("{name} is not exported"));
            continue;
        };
        all.extend(known.iter().map(String::as_str));
        let unknown = |label: &&String| !known.contains(*label) && !FOREIGN.contains(&label.as_str());
        faults.extend(
            labels
                .iter()
                .filter(unknown)
                .map(|label| format!("{name} has no label {label}")),
        );
    }
    let used = grouped(expression).into_iter().chain(shown.iter().cloned());
    let unknown = used.filter(|label| !all.contains(label.as_str()));
    faults.extend(unknown.map(|label| format!("{label} is no label in {expression}")));
    if expression.matches('(').count() != expression.matches(')').count() {
        faults.push(format!("unbalanced: {expression}"));
    }
    faults
}

/// `{{ $labels.NAME }}` of an alert and `{{NAME}}` of a legend.
fn shown(text: &str) -> Vec<String> {
    let inner = text.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    let label = inner
        .map(|(inner, _)| inner.trim())
        .filter(|inner| !inner.starts_with("$value"));
    label
        .map(|inner| inner.trim_start_matches("$labels.").to_owned())
        .collect()
}

#[test]
fn every_alert_stands_on_what_is_exported_and_says_what_to_do() {
    let rules: Value = serde_saphyr::from_str(RULES).unwrap();
    let exported = exported();
    let mut names = BTreeSet::new();
    for group in rules["groups"].as_array().unwrap() {
        assert!(group["name"].as_str().unwrap().starts_with("stratum-"));
        for rule in group["rules"].as_array().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(names.insert(name), "twice: {name}");
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
            let text = |field: &str| rule["annotations"][field].as_str().unwrap_or_default();
            let (summary, description) = (text("summary"), text("description"));
            assert!(!summary.is_empty() && !summary.ends_with('.'), "{name}");
            assert!(
                description.len() > 60 && description.ends_with('.'),
                "{name}: {description}"
            );
            let shown: Vec<String> = shown(summary).into_iter().chain(shown(description)).collect();
            let faults = faults(rule["expr"].as_str().unwrap(), &shown, &exported);
            assert!(faults.is_empty(), "{name}: {faults:?}");
        }
    }
    assert!(names.len() > 15, "{names:?}");
}

#[test]
fn every_panel_shows_what_is_exported() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let exported = exported();
    let (mut panels, mut identifiers) = (0, BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(identifiers.insert(panel["id"].as_u64().unwrap()), "{title}");
        let row = panel["type"] == "row";
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        assert_eq!(targets.is_empty(), row, "{title}");
        panels += usize::from(!row);
        for target in targets {
            let shown = shown(target["legendFormat"].as_str().unwrap());
            let faults = faults(target["expr"].as_str().unwrap(), &shown, &exported);
            assert!(faults.is_empty(), "{title}: {faults:?}");
        }
    }
    assert!(panels > 15, "{panels}");
}

/// The check itself, seen to find what is wrong.
#[test]
fn a_wrong_name_or_label_is_found() {
    let exported = exported();
    let wrong = [
        ("stratum_operator_leaders == 0", "is not exported"),
        (
            "stratum_certificate_not_after_timestamp_seconds{node=\"a\"}",
            "has no label node",
        ),
        ("sum by (stack) (stratum_operator_leader)", "stack is no label"),
        ("vector(1)", "nothing of ours"),
        ("sum(stratum_operator_leader", "unbalanced"),
    ];
    for (expression, fault) in wrong {
        let found = faults(expression, &[], &exported);
        assert!(
            found.iter().any(|found| found.contains(fault)),
            "{expression}: {found:?}"
        );
    }
    let found = faults(
        "stratum_operator_leader",
        &shown("{{ $labels.stack }} {{ $value }}"),
        &exported,
    );
    assert_eq!(found, ["stack is no label in stratum_operator_leader"]);
}
