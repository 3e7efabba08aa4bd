//! `stratum certs check`: says how this machine's certificates are, to people and to monitors.

mod cluster;

use std::fmt::Write;

use jiff::SignedDuration;

use super::super::exit::Exit;
use super::super::printer;
use super::super::report;
use super::place::Place;
use crate::controllers::certificates::check::{Limits, check};
use crate::controllers::certificates::cluster::SUMMARY;
use crate::host::certificates::Machine;
use crate::host::clock;
use crate::reconcilers::certificates::cluster::Summary;
use crate::reconcilers::certificates::status::{CertStatus, Kind, Renewal, Report, StagedKey, Verdict};

/// The flags of `stratum certs check`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Ends with 0 when all is fine, 20 when something expires soon, 21 when something has expired or is not \
                        valid yet, 22 when something is unreadable, mismatched or wrongly signed, 23 when a rotation is open \
                        or incomplete; the worst of 22, 21, 23, 20.\n\n\
                        With --cluster, the worst of all nodes; a node that could not be asked counts as 22, for nobody knows. \
                        Each node is asked by a Job in kube-system, which runs the node's own \
                        /var/lib/stratum/bin/stratum: `stratum up` puts it there, on nodes of kubeadm's you do."
)]
pub(in crate::cli) struct Arguments {
    /// The form of the answer
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    /// Warn of what ends within so many days [default: 90, or a third of the certificate's life if that is less]
    #[arg(long, value_name = "DAYS")]
    warn_days: Option<u32>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    all: cluster::WholeCluster,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For both
    Yaml,
    /// In so few bytes that a pod can leave it as its message
    #[value(hide = true, name = SUMMARY)]
    Summary,
}

impl Arguments {
    /// Whether more than this machine is looked at.
    pub(super) fn asks_others(&self) -> bool {
        self.all.cluster
    }
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    if arguments.all.cluster {
        return cluster::run(&arguments).await;
    }
    let machine = Machine::load(arguments.place.layout()?)?;
    let warn = arguments
        .warn_days
        .map(|days| SignedDuration::from_hours(i64::from(days) * 24));
    let report = check(&machine, clock::now(), warn, Limits::default()).await?;
    let text = match arguments.output {
        Output::Table => table(&report),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        Output::Yaml => serde_saphyr::to_string(&report)?,
        Output::Summary => Summary::of(&report).message(),
    };
    printer::stdout(&text)?;
    Ok(exit(report.verdict))
}

fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Fine => Exit::Done,
        Verdict::Expiring => Exit::Expiring,
        Verdict::Expired => Exit::Expired,
        Verdict::Broken => Exit::BadCertificate,
        Verdict::RotationOpen => Exit::RotationOpen,
    }
}

/// The report for people. Colours are taken out again where it does not go to a terminal.
fn table(report: &Report) -> String {
    let head = ["CERTIFICATE", "EXPIRES", "DAYS", "SIGNED BY", "STATE"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head)
        .chain(report.certificates.iter().map(row))
        .collect();
    let colours = report.certificates.iter().map(|row| colour(row.verdict()));
    let mut out = paint(&report::columns(&rows), std::iter::once(None).chain(colours));
    let mut problems = Vec::new();
    let mut unseen = Vec::new();
    for row in &report.certificates {
        for problem in &row.problems {
            match problem.kind {
                Kind::KeyDenied => unseen.push(row.name.as_str()),
                _ => problems.push(format!("{}: {problem}\n", row.name)),
            }
        }
    }
    if !unseen.is_empty() {
        problems.push(format!(
            "not compared, for this user may not read them: the keys of {}\n",
            unseen.join(", ")
        ));
    }
    if !problems.is_empty() {
        out.push('\n');
        out.extend(problems);
    }
    out.push('\n');
    out.push_str(&below(report));
    out
}

/// Lines in their colours.
fn paint(lines: &str, colours: impl IntoIterator<Item = Option<u8>>) -> String {
    let mut out = String::new();
    for (line, colour) in lines.lines().zip(colours) {
        // Writing to a String cannot fail.
        let _ = match colour {
            Some(code) => writeln!(out, "\x1b[{code}m{line}\x1b[0m"),
            None => writeln!(out, "{line}"),
        };
    }
    out
}

fn row(row: &CertStatus) -> [String; 5] {
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    [
        row.name.clone(),
        text(row.not_after.map(|at| at.to_string())),
        text(row.days_left.map(|days| days.to_string())),
        text(row.signer.clone()),
        row.state(),
    ]
}

fn colour(verdict: Verdict) -> Option<u8> {
    match verdict {
        Verdict::Fine => None,
        Verdict::Expiring | Verdict::RotationOpen => Some(33),
        Verdict::Expired | Verdict::Broken => Some(31),
    }
}

/// What stands below the rows.
fn below(report: &Report) -> String {
    let renewal = match &report.renewal {
        Renewal::None => "none is recorded".to_owned(),
        Renewal::InProgress { attempted_at } => format!("began {attempted_at}, runs or was cut off"),
        Renewal::Succeeded { attempted_at } => format!("succeeded, begun {attempted_at}"),
        Renewal::Failed { attempted_at, result } => format!("failed, begun {attempted_at}: {result}"),
        Renewal::Unreadable { reason } => format!("unknown: {reason}"),
    };
    let staged = match report.staged_key {
        StagedKey::Present => "present: a rotation of authorities runs, or left its key behind",
        StagedKey::Absent => "none",
        StagedKey::Unknown => "unknown: this node's API server was not asked or did not answer",
    };
    let drift = match report.subject_drift.as_slice() {
        [] => "none".to_owned(),
        drifted => drifted.join(", "),
    };
    let mut rows = vec![
        ["last renewal:".to_owned(), renewal],
        ["rotation:".to_owned(), report.rotation.phase.clone()],
    ];
    let more = report
        .rotation
        .detail
        .iter()
        .map(|detail| [String::new(), detail.clone()]);
    rows.extend(more);
    if report.rotation.incomplete {
        let from = if report.rotation.incomplete_from_expired {
            ", begun when some had expired"
        } else {
            ""
        };
        let text = format!(
            "incomplete{from}: leaves are new and not everything runs on them; run `stratum certs rotate` again"
        );
        rows.push([String::new(), text]);
    }
    rows.push(["staged key:".to_owned(), staged.to_owned()]);
    rows.push(["subject drift:".to_owned(), drift]);
    report::columns(&rows)
}

#[cfg(test)]
mod tests;
