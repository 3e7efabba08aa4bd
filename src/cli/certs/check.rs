//! `stratum certs check`: says how this machine's certificates are, to people and to monitors.

use std::fmt::Write;

use jiff::SignedDuration;

use super::super::exit::Exit;
use super::super::printer;
use super::super::report;
use crate::controllers::certificates::check::{Limits, check};
use crate::host::certificates::Machine;
use crate::host::clock;
use crate::host::layout::{Form, Layout};
use crate::reconcilers::certificates::status::{CertStatus, Kind, Renewal, Report, StagedKey, Verdict};

/// The flags of `stratum certs check`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Ends with 0 when all is fine, 20 when something expires soon, 21 when something has expired or is not \
                        valid yet, 22 when something is unreadable, mismatched or wrongly signed, 23 when a rotation is open \
                        or incomplete; the worst of 22, 21, 23, 20."
)]
pub(in crate::cli) struct Arguments {
    /// The form of the answer
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    /// Warn of what ends within so many days [default: 90, or a third of the certificate's life if that is less]
    #[arg(long, value_name = "DAYS")]
    warn_days: Option<u32>,
    /// Whose files this machine has [default: as the files say]
    #[arg(long, value_enum)]
    layout: Option<Files>,
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
}

/// Whose files a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum Files {
    /// A node of this program
    Stratum,
    /// A node that kubeadm made
    Kubeadm,
}

impl Files {
    /// The layout of this machine: as told, or as its files say.
    ///
    /// # Errors
    /// When the files do not say.
    pub(in crate::cli) fn layout(told: Option<Self>) -> anyhow::Result<Layout> {
        Ok(match told {
            None => Layout::detect("/")?,
            Some(Self::Stratum) => Layout::system(),
            Some(Self::Kubeadm) => Layout::system().with_form(Form::Kubeadm),
        })
    }
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let machine = Machine::load(Files::layout(arguments.layout)?)?;
    let warn = arguments
        .warn_days
        .map(|days| SignedDuration::from_hours(i64::from(days) * 24));
    let report = check(&machine, clock::now(), warn, Limits::default()).await?;
    let text = match arguments.output {
        Output::Table => table(&report),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        Output::Yaml => serde_saphyr::to_string(&report)?,
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
    let columns = report::columns(&rows);
    let colours = std::iter::once(None).chain(report.certificates.iter().map(|row| colour(row.verdict())));
    let mut out = String::new();
    for (line, colour) in columns.lines().zip(colours) {
        // Writing to a String cannot fail.
        let _ = match colour {
            Some(code) => writeln!(out, "\x1b[{code}m{line}\x1b[0m"),
            None => writeln!(out, "{line}"),
        };
    }
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

fn row(row: &CertStatus) -> [String; 5] {
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    [
        row.name.clone(),
        text(row.not_after.map(|at| at.to_string())),
        text(row.days_left.map(|days| days.to_string())),
        text(row.signer.clone()),
        state(row),
    ]
}

/// Everything about a row in a few words.
fn state(row: &CertStatus) -> String {
    let of = |bad: bool| {
        let problems = row.problems.iter().map(|problem| problem.kind);
        problems
            .filter(move |kind| (kind.verdict() != Verdict::Fine) == bad)
            .map(Kind::words)
    };
    let mut words: Vec<&str> = of(true).collect();
    words.dedup();
    if row.renewal_overdue {
        words.push("renewal overdue");
    } else if row.expiring && row.days_left.is_some_and(|days| days >= 0) {
        words.push(if row.kubelet {
            "renewed by the kubelet"
        } else {
            "expiring"
        });
    }
    if words.is_empty() {
        words.push("fine");
    }
    words.extend(of(false));
    if row.is_ca && row.externally_managed {
        words.push("no key here");
    }
    words.join(", ")
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
