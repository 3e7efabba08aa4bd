//! `stratum certs check --cluster`: every node says how its certificates are.

use std::path::PathBuf;
use std::time::Duration;

use super::super::super::exit::Exit;
use super::super::super::printer;
use super::super::super::report;
use super::{Output, colour, exit, paint};
use crate::controllers::certificates::cluster::{ClusterCheck, Question};
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::controllers::shutdown::Signals;
use crate::host::layout::{Identity, Layout};
use crate::host::{clock, entropy};
use crate::pki::hexadecimal;
use crate::reconcilers::certificates::cluster::{ClusterReport, NodeReport};

/// How long the Jobs may take to be removed when all is over.
const SWEEP: Duration = Duration::from_secs(10);

/// The flags that say whom to ask.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WholeCluster {
    /// Check every node of the cluster, as an administrator: on a controller, or anywhere with --kubeconfig
    #[arg(long, conflicts_with = "layout")]
    pub(super) cluster: bool,
    /// The kubeconfig of an administrator [default: this controller's admin.conf]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
    /// How long a node may take to answer
    #[arg(long, value_name = "SECONDS", requires = "cluster", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// An image that every node has, for the Jobs; its content does not matter [default: the sandbox image of each node]
    #[arg(long, value_name = "REFERENCE", requires = "cluster")]
    image: Option<String>,
}

/// Runs the command.
pub(super) async fn run(arguments: &super::Arguments) -> anyhow::Result<Exit> {
    let form = arguments.output;
    if form == Output::Summary {
        printer::error(anyhow::anyhow!("--output summary is the answer of one node"));
        return Ok(Exit::Usage);
    }
    let kubeconfig = match &arguments.all.kubeconfig {
        Some(path) => path.clone(),
        None => Layout::detect("/")?.kubeconfig(Identity::Admin),
    };
    let client = connection::client(&ClientSettings::new(kubeconfig, "check"), None).await?;
    let question = Question {
        run: hexadecimal(&entropy::bytes::<4>()),
        limit: Duration::from_secs(arguments.all.timeout),
        image: arguments.all.image.clone(),
        warn_days: arguments.warn_days,
    };
    let mut signals = Signals::take_over()?;
    let check = ClusterCheck::new(client, SYSTEM_NAMESPACE, question);
    let asked = tokio::select! {
        asked = check.ask(clock::now()) => Some(asked),
        _ = signals.next() => None,
    };
    // Also when all have answered: a Job whose making was not answered may be there all the same.
    tokio::select! {
        swept = tokio::time::timeout(SWEEP, check.sweep()) => match swept {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => printer::stderr(&format!("Jobs may be left, and end by themselves: {:#}\n", anyhow::Error::from(error))),
            Err(_) => printer::stderr("Jobs may be left, and end by themselves: the API server does not answer\n"),
        },
        _ = signals.next() => {}
    }
    let Some(asked) = asked else {
        printer::stderr("interrupted; nothing is told of nodes that have answered\n");
        return Ok(Exit::Failed);
    };
    let report = asked?;
    let text = match form {
        Output::Table | Output::Summary => table(&report),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        Output::Yaml => serde_saphyr::to_string(&report)?,
    };
    printer::stdout(&text)?;
    Ok(exit(report.verdict))
}

/// The report for people: the worst rows of each node, and below them what belongs to no certificate.
pub(super) fn table(report: &ClusterReport) -> String {
    let head = ["NODE", "VERDICT", "CERTIFICATE", "EXPIRES", "STATE"].map(str::to_owned);
    let mut rows = vec![head];
    let mut colours = vec![None];
    for node in &report.nodes {
        let lines = lines(node);
        colours.extend(lines.iter().map(|_| colour(node.verdict.weight())));
        rows.extend(lines);
    }
    let mut out = paint(&report::columns(&rows), colours);
    let notes = |node: &NodeReport| {
        let notes = node.notes.iter();
        notes.map(|note| format!("{}: {note}\n", node.node)).collect::<String>()
    };
    let notes: String = report.nodes.iter().map(notes).collect();
    if !notes.is_empty() {
        out.push('\n');
        out.push_str(&notes);
    }
    out
}

fn lines(node: &NodeReport) -> Vec<[String; 5]> {
    let none = || "-".to_owned();
    let line = |certificate: String, expires: String, state: String| {
        [node.node.clone(), node.verdict.to_string(), certificate, expires, state]
    };
    let mut lines: Vec<_> = node
        .certificates
        .iter()
        .map(|row| {
            let expires = row.not_after.map_or_else(none, |at| at.to_string());
            line(row.name.clone(), expires, row.state.clone())
        })
        .collect();
    if let Some(reason) = &node.reason {
        lines.push(line(none(), none(), reason.clone()));
    }
    if node.more > 0 {
        let state = format!("and {} more: `stratum certs check` on the node", node.more);
        lines.push(line(none(), none(), state));
    }
    if lines.is_empty() {
        lines.push(line(none(), none(), none()));
    }
    lines
}
