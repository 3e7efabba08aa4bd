//! What fits into an answer, what is read out of one, and what all of them amount to.

use super::super::status::{Kind, Problem, Rotation, StagedKey};
use super::*;

fn row(name: &str, days: i64) -> CertStatus {
    CertStatus {
        name: name.to_owned(),
        not_after: "2027-01-01T00:00:00Z".parse::<Timestamp>().ok(),
        days_left: Some(days),
        is_ca: false,
        expiring: days < 90,
        rotatable: true,
        kubelet: false,
        renewal_overdue: false,
        not_before: None,
        subject: None,
        signer: None,
        externally_managed: false,
        issuer_key_id: None,
        serial: None,
        path: format!("/{name}"),
        served_at: Vec::new(),
        problems: Vec::new(),
    }
}

fn with(kind: Kind, row: CertStatus) -> CertStatus {
    let detail = "in a way that takes many words".to_owned();
    CertStatus {
        problems: vec![Problem { kind, detail }],
        ..row
    }
}

fn report(certificates: Vec<CertStatus>) -> Report {
    let verdict = certificates.iter().map(CertStatus::verdict).max().unwrap_or_default();
    Report {
        node: Some("alpha".to_owned()),
        layout: "stratum".to_owned(),
        at: Timestamp::UNIX_EPOCH,
        verdict,
        certificates,
        renewal: Renewal::None,
        rotation: Rotation {
            phase: "idle".to_owned(),
            detail: Vec::new(),
            incomplete: false,
            incomplete_from_expired: false,
        },
        staged_key: StagedKey::Absent,
        subject_drift: Vec::new(),
    }
}

fn names(summary: &Summary) -> Vec<&str> {
    summary.certificates.iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn the_worst_come_first_and_the_fine_ones_stay_at_home() {
    let summary = Summary::of(&report(vec![
        row("fine", 300),
        row("soon", 40),
        row("sooner", 4),
        with(Kind::Expired, row("over", -3)),
        with(Kind::WrongSigner, row("foreign", 200)),
    ]));
    assert_eq!(summary.verdict, Verdict::Broken);
    assert_eq!(names(&summary), ["foreign", "over", "sooner", "soon"]);
    assert_eq!(summary.certificates[0].state, "wrong signer");
    assert_eq!((summary.more, summary.notes.len()), (0, 0));
}

#[test]
fn of_fine_ones_the_first_to_end_is_told() {
    let at = |text: &str, row: CertStatus| CertStatus {
        not_after: text.parse().ok(),
        ..row
    };
    let authority = CertStatus {
        is_ca: true,
        ..at("2026-06-01T00:00:00Z", row("ca", 100))
    };
    let later = at("2028-01-01T00:00:00Z", row("later", 700));
    let summary = Summary::of(&report(vec![authority.clone(), later, row("first", 350)]));
    assert_eq!((summary.verdict, names(&summary)), (Verdict::Fine, vec!["first"]));
    assert_eq!(names(&Summary::of(&report(vec![authority]))), ["ca"]);
    assert!(Summary::of(&report(Vec::new())).certificates.is_empty());
}

#[test]
fn an_answer_fits_into_a_message_however_much_is_wrong() {
    let many = (0..200).map(|number| with(Kind::Expired, row(&format!("certificate-{number}"), -number)));
    let mut long = report(many.collect());
    long.renewal = Renewal::Failed {
        attempted_at: "yesterday".to_owned(),
        result: "ä".repeat(5000),
    };
    let summary = Summary::of(&long);
    let message = summary.message();
    assert!(message.len() <= 4096, "{}", message.len());
    assert!(message.len() > 3500, "{}", message.len());
    assert_eq!(summary.certificates.len() + summary.more, 200);
    assert_eq!(summary.certificates[0].name, "certificate-199");
    assert!(!message.contains('\n'));
    assert_eq!(Summary::read(21, &message), Ok(summary));
}

#[test]
fn what_belongs_to_no_certificate_is_noted() {
    let mut open = report(vec![row("fine", 300)]);
    open.verdict = Verdict::RotationOpen;
    open.rotation.phase = "trust-new".to_owned();
    open.rotation.incomplete = true;
    open.renewal = Renewal::Unreadable {
        reason: "no record".to_owned(),
    };
    let summary = Summary::of(&open);
    assert_eq!(
        summary.notes,
        [
            "rotation: trust-new, incomplete",
            "how the last renewal went is unknown: no record"
        ]
    );
    assert_eq!(Summary::read(23, &summary.message()), Ok(summary));
}

#[test]
fn an_answer_is_read_with_its_exit_code() {
    let summary = Summary::of(&report(vec![row("soon", 4)]));
    assert_eq!(
        summary.message(),
        r#"{"verdict":"expiring","certificates":[{"name":"soon","notAfter":"2027-01-01T00:00:00Z","daysLeft":4,"state":"expiring"}]}"#
    );
    assert_eq!(
        Summary::read(20, &format!("{}\n", summary.message())),
        Ok(summary.clone())
    );
    let fails = |code, message: &str| Summary::read(code, message).unwrap_err();
    assert_eq!(
        fails(1, "error: no certificate is there\n  at all\n"),
        "its check ended with 1: error: no certificate is there at all"
    );
    // What it printed before it failed is no answer.
    assert!(fails(1, &summary.message()).starts_with("its check ended with 1: {"));
    assert_eq!(fails(137, ""), "its check ended with 137 and said nothing");
    assert!(fails(2, "error: invalid value 'summary'").starts_with("another version"));
    assert!(fails(0, "").contains("not understood"));
    assert!(fails(0, r#"{"verdict":"splendid","certificates":[]}"#).contains("another version"));
    assert!(fails(1, &"x".repeat(5000)).len() < 300);
}

#[test]
fn the_worst_node_counts_and_one_that_says_nothing_is_worst() {
    let says = |node: &str, verdict| {
        let mut answer = Summary::of(&report(vec![row("a", 300)]));
        answer.verdict = verdict;
        (node.to_owned(), Ok(answer))
    };
    let of = |answers| ClusterReport::of(Timestamp::UNIX_EPOCH, answers);
    // In the order of 22, 21, 23, 20.
    let order = [
        Verdict::Fine,
        Verdict::Expiring,
        Verdict::RotationOpen,
        Verdict::Expired,
        Verdict::Broken,
    ];
    for pair in order.windows(2) {
        let report = of(vec![says("b", pair[1]), says("a", pair[0])]);
        assert_eq!(report.verdict, pair[1]);
        assert_eq!(report.nodes[0].node, "a", "by name");
    }
    let silent = ("b".to_owned(), Err("it is off".to_owned()));
    let report = of(vec![says("a", Verdict::Expired), silent]);
    assert_eq!(report.verdict, Verdict::Broken);
    assert_eq!(report.nodes[1].reason.as_deref(), Some("it is off"));
    let told = serde_json::to_value(&report).unwrap();
    assert_eq!(told["nodes"][0]["verdict"], "expired");
    assert_eq!(told["nodes"][1]["verdict"], "unreachable");
    assert_eq!(of(Vec::new()).verdict, Verdict::Fine);
}
