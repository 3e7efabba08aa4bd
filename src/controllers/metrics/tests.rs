//! Both forms of the exposition against a strict reading of their rules.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::reconcilers::csr::Signer;

mod deploy;

/// Metrics with something in every family.
fn used() -> Metrics {
    let metrics = Metrics::new();
    let request = ByRequest {
        role: Word("deployer"),
        method: Word("PATCH"),
        status: Word("2xx"),
    };
    metrics.requests.requests.get_or_create(&request).inc();
    metrics.leader.leader.set(1);
    metrics.leader.transitions.inc();
    let concerns = &metrics.concerns;
    concerns.watch_ready(ConcernName::Manifests);
    concerns.watch_failed(ConcernName::Manifests);
    concerns.reconciled(ConcernName::Manifests, Duration::from_millis(7), None);
    concerns.reconciled(ConcernName::InventorySync, Duration::from_secs(7), Some("conflict"));
    let concern = ConcernName::Manifests.into();
    concerns.dropped_plans.get_or_create(&ByConcern { concern }).inc();
    let manifests = &metrics.manifests;
    manifests
        .objects
        .get_or_create(&ByState {
            state: Word("unchanged"),
        })
        .set(4);
    manifests
        .applies
        .get_or_create(&ByResult {
            result: Word("created"),
        })
        .inc();
    manifests
        .prunes
        .get_or_create(&ByResult {
            result: Word("deleted"),
        })
        .inc();
    manifests
        .prune_suspended
        .get_or_create(&ByReason {
            reason: Word("migration_open"),
        })
        .set(0);
    manifests.last_success.set(1.5);
    metrics.inventory.size.set(512);
    let state = Word("live");
    metrics.grants.grants.get_or_create(&ByState { state }).set(2);
    let reason = Word("revoked");
    metrics.grants.dropped.get_or_create(&ByReason { reason }).inc();
    let result = Word("deleted");
    metrics.departed.nodes.get_or_create(&ByResult { result }).inc();
    let reason = Word("ready");
    metrics.departed.kept.get_or_create(&ByReason { reason }).set(1);
    metrics.csr.approved(Signer::KubeletServing, Duration::from_secs(1));
    metrics.csr.pending(Signer::KubeletClient, 1);
    metrics
        .spread
        .evictions
        .get_or_create(&ByResult { result: Word("budget") })
        .inc();
    metrics
        .spread
        .decision
        .get_or_create(&ByReason { reason: Word("spread") })
        .set(1);
    metrics
}

/// A family as it was declared: kind, and the names its samples may have.
struct Declared {
    kind: String,
    samples: BTreeSet<String>,
}

/// Reads an exposition and fails on everything the format does not allow, and on what `promlint` complains of.
fn check(text: &str, open_metrics: bool) -> BTreeMap<String, Declared> {
    let mut families: BTreeMap<String, Declared> = BTreeMap::new();
    let mut current = String::new();
    let mut helped = BTreeSet::new();
    let mut series = BTreeSet::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.trim().is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name), "no help before {line}");
            assert_eq!(kind == "counter" && !open_metrics, name.ends_with("_total"), "{line}");
            let suffixes: &[&str] = match (kind, open_metrics) {
                ("counter", true) => &["_total"],
                ("histogram", _) => &["_bucket", "_sum", "_count"],
                (_, _) => &[""],
            };
            let samples = suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect();
            let kind = kind.to_owned();
            assert!(
                families.insert(name.to_owned(), Declared { kind, samples }).is_none(),
                "{line}"
            );
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').unwrap();
            assert!(open_metrics && name.ends_with(unit), "{line}");
        } else if line == "# EOF" {
            assert!(open_metrics && text.ends_with("# EOF\n"));
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
            let bare = name.split('{').next().unwrap();
            assert!(
                families[&current].samples.contains(bare),
                "{line} is not of family {current}"
            );
            assert!(series.insert(name.to_owned()), "twice: {line}");
            assert!(bare.starts_with("stratum_operator_"), "{line}");
            assert!(
                bare.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{line}"
            );
        }
    }
    assert_eq!(helped.len(), families.len());
    assert_eq!(open_metrics, text.ends_with("# EOF\n"));
    families
}

#[test]
fn both_forms_keep_the_rules_of_their_format() {
    let metrics = used();
    let plain = metrics.expose("text/plain").unwrap();
    let open = metrics
        .expose("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        .unwrap();
    assert_eq!((plain.content_type, open.content_type), (PLAIN, OPEN_METRICS));
    let families = check(&plain.text, false);
    assert_eq!(families.len(), check(&open.text, true).len());
    assert_eq!(
        families["stratum_operator_reconcile_duration_seconds"].kind,
        "histogram"
    );
    assert!(
        plain
            .text
            .contains("stratum_operator_manifest_applies_total{result=\"created\"} 1\n")
    );
    assert!(plain.text.contains(concat!(
        "stratum_operator_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"} 1\n"
    )));
}

#[test]
fn series_do_not_grow_with_passes() {
    let metrics = used();
    let lines = |metrics: &Metrics| metrics.expose("").unwrap().text.lines().count();
    let before = lines(&metrics);
    for _ in 0..1000 {
        metrics
            .concerns
            .reconciled(ConcernName::Manifests, Duration::from_secs(1), None);
    }
    assert_eq!(lines(&metrics), before);
}
