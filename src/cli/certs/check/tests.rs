//! What people and programs read.

use clap::Parser;
use jiff::Timestamp;

use super::*;
use crate::host::layout::{Form, Layout};
use crate::reconcilers::certificates::cluster::ClusterReport;
use crate::reconcilers::certificates::status::{Problem, Rotation};

fn row(name: &str, days: i64) -> CertStatus {
    let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    CertStatus {
        name: name.to_owned(),
        not_after: at("2027-01-01T00:00:00Z"),
        days_left: Some(days),
        is_ca: false,
        expiring: days < 90,
        rotatable: true,
        kubelet: false,
        renewal_overdue: false,
        not_before: at("2025-12-31T23:55:00Z"),
        subject: Some("CN=kube-apiserver".to_owned()),
        signer: Some("ca".to_owned()),
        externally_managed: false,
        issuer_key_id: Some("0a0b".to_owned()),
        serial: Some("4c01".to_owned()),
        path: format!("/var/lib/stratum/pki/{name}.crt"),
        served_at: vec!["127.0.0.1:6443".to_owned()],
        problems: Vec::new(),
    }
}

fn report() -> Report {
    let problem = |kind, detail: &str| Problem {
        kind,
        detail: detail.to_owned(),
    };
    let expired = CertStatus {
        problems: vec![
            problem(Kind::Expired, "on 2027-01-01T00:00:00Z"),
            problem(Kind::MissingName, "new.example"),
        ],
        ..row("etcd/server", -1)
    };
    let unreadable = CertStatus {
        not_after: None,
        days_left: None,
        expiring: false,
        problems: vec![problem(
            Kind::Unreadable,
            "/var/lib/stratum/pki/admin.crt cannot be used: no certificate",
        )],
        ..row("admin", 0)
    };
    let kubelet = CertStatus {
        kubelet: true,
        rotatable: false,
        ..row("kubelet-client", 60)
    };
    let late = CertStatus {
        renewal_overdue: true,
        ..CertStatus {
            name: "kubelet-server".to_owned(),
            ..kubelet.clone()
        }
    };
    let denied = CertStatus {
        problems: vec![problem(Kind::KeyDenied, "")],
        ..row("apiserver-etcd-client", 300)
    };
    let authority = CertStatus {
        is_ca: true,
        rotatable: false,
        signer: None,
        externally_managed: true,
        ..row("ca", 3000)
    };
    Report {
        node: Some("alpha".to_owned()),
        layout: "stratum".to_owned(),
        at: "2026-06-01T00:00:00Z".parse().unwrap(),
        verdict: Verdict::Broken,
        certificates: vec![
            row("apiserver", 364),
            row("scheduler", 12),
            expired,
            unreadable,
            kubelet,
            late,
            denied,
            authority,
        ],
        renewal: Renewal::Failed {
            attempted_at: "2026-05-31T00:00:00Z".to_owned(),
            result: "ca.key is missing".to_owned(),
        },
        rotation: Rotation {
            phase: "trust-new".to_owned(),
            detail: vec!["forced: no way back".to_owned()],
            incomplete: true,
            incomplete_from_expired: true,
        },
        staged_key: StagedKey::Unknown,
        subject_drift: vec!["admin".to_owned()],
    }
}

#[test]
fn people_read_this() {
    insta::assert_snapshot!(table(&report()).replace('\x1b', "^"));
}

#[test]
fn programs_read_this() {
    let mut report = report();
    report.certificates.drain(3..);
    report.certificates.remove(1);
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    let yaml = serde_saphyr::to_string(&report).unwrap();
    let read: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read, serde_json::to_value(&report).unwrap(), "{yaml}");
}

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

#[test]
fn flags() {
    let read = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.arguments);
    let given = read("check -o yaml --warn-days 30 --layout kubeadm").unwrap();
    assert_eq!(
        (given.output, given.warn_days, given.place.layout),
        (Output::Yaml, Some(30), Some(Form::Kubeadm))
    );
    let none = read("check").unwrap();
    assert_eq!(
        (none.output, none.warn_days, none.place.layout),
        (Output::Table, None, None)
    );
    for bad in [
        "check -o xml",
        "check --warn-days -1",
        "check --warn-days x",
        "check --layout other",
        "check extra",
        // Each node says whose it is, and only who asks others needs to be told how.
        "check --cluster --layout kubeadm",
        "check --kubeconfig a.conf",
        "check --timeout 5",
        "check --image a",
        "check --cluster --timeout 0",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
    assert!(!read("check").unwrap().asks_others());
    let all = read("check --cluster --kubeconfig a.conf --timeout 5 --image a --warn-days 30 -o json").unwrap();
    assert!(all.asks_others());
    // What the Jobs of other nodes ask.
    let word = format!("check --output {SUMMARY}");
    assert_eq!(read(&word).unwrap().output, Output::Summary);
    assert_eq!(given.place.layout().unwrap(), Layout::kubeadm("/"));
}

#[test]
fn a_verdict_is_an_exit_code() {
    let codes = [
        (Verdict::Fine, Exit::Done),
        (Verdict::Expiring, Exit::Expiring),
        (Verdict::Expired, Exit::Expired),
        (Verdict::Broken, Exit::BadCertificate),
        (Verdict::RotationOpen, Exit::RotationOpen),
    ];
    for (verdict, code) in codes {
        assert_eq!(exit(verdict), code);
    }
}

fn whole_cluster() -> ClusterReport {
    let mut bad = Summary::of(&report());
    bad.more = 3;
    let mut fine = report();
    fine.certificates.truncate(1);
    fine.verdict = Verdict::Fine;
    fine.renewal = Renewal::None;
    fine.rotation.incomplete = false;
    let fine = Summary::of(&fine);
    let off = "the node is not Ready: Kubelet stopped posting node status.".to_owned();
    let answers = [
        ("worker-2".to_owned(), Err(off)),
        ("worker-1".to_owned(), Ok(fine)),
        ("controller-1".to_owned(), Ok(bad)),
    ];
    ClusterReport::of("2026-06-01T00:00:00Z".parse().unwrap(), answers)
}

#[test]
fn people_read_this_of_a_cluster() {
    insta::assert_snapshot!(cluster::table(&whole_cluster()).replace('\x1b', "^"));
}

#[test]
fn programs_read_this_of_a_cluster() {
    let report = whole_cluster();
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    let yaml = serde_saphyr::to_string(&report).unwrap();
    let read: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read, serde_json::to_value(&report).unwrap(), "{yaml}");
}
