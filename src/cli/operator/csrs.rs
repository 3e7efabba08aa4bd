//! `stratum operator csrs`: the certificate requests of kubelets that wait, and why.

use std::fmt::Write;

use anyhow::Context;
use serde::Serialize;

use crate::cli::administrator::Administrator;
use crate::cli::exit::Exit;
use crate::cli::printer::{self, Output};
use crate::controllers::csr::explain::{Explained, explain};
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::host::clock;

/// The flags of `stratum operator csrs`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    administrator: Administrator,
    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// One line. The README names the keys.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    name: String,
    signer: &'static str,
    requester: String,
    age_seconds: u64,
    /// The metric's word; null when nothing keeps it.
    reason: Option<&'static str>,
    /// The same in words.
    message: Option<String>,
}

impl From<Explained> for Line {
    fn from(explained: Explained) -> Self {
        let Explained {
            name,
            signer,
            requester,
            age,
            reason,
        } = explained;
        Self {
            name,
            signer: signer.name(),
            requester,
            age_seconds: age.as_secs(),
            reason: reason.as_ref().map(|reason| reason.word()),
            message: reason.map(|reason| reason.to_string()),
        }
    }
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Arguments { administrator, output } = arguments;
    let client = administrator.client("csrs").await?;
    let explained = explain(&client, SYSTEM_NAMESPACE, clock::now())
        .await
        .with_context(|| {
            format!(
                "cannot ask the API server that {} names",
                administrator.kubeconfig().display()
            )
        })?;
    let lines: Vec<Line> = explained.into_iter().map(Line::from).collect();
    let text = match output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&lines)?),
        Output::Table => table(&lines),
    };
    printer::stdout(&text)?;
    Ok(Exit::Done)
}

fn table(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "no kubelet waits for a certificate\n".to_owned();
    }
    let mut out = String::new();
    for line in lines {
        let kind = line.signer.rsplit('/').next().unwrap_or_default();
        let why = line
            .message
            .as_deref()
            .unwrap_or("nothing keeps it; an operator approves it, or kube-controller-manager");
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{}  {kind}  {} s  from {}",
            line.name, line.age_seconds, line.requester
        );
        let _ = writeln!(out, "  {why}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reconcilers::csr::{Reason, Signer};

    #[test]
    fn a_request_is_one_line_and_its_reason_the_next() {
        let line = |reason| {
            Line::from(Explained {
                name: "csr-x".to_owned(),
                signer: Signer::KubeletServing,
                requester: "system:node:n1".to_owned(),
                age: Duration::from_secs(61),
                reason,
            })
        };
        let lines = [line(Some(Reason::NoNode("n1".to_owned()))), line(None)];
        assert_eq!(
            table(&lines),
            "csr-x  kubelet-serving  61 s  from system:node:n1\n  Node n1 is not registered yet\n\
             csr-x  kubelet-serving  61 s  from system:node:n1\n  nothing keeps it; an operator approves it, or kube-controller-manager\n"
        );
        assert_eq!(table(&[]), "no kubelet waits for a certificate\n");
        let json = serde_json::to_value(&lines).unwrap();
        assert_eq!(
            (&json[0]["reason"], &json[0]["ageSeconds"]),
            (&"no_node".into(), &61.into())
        );
        assert!(json[1]["reason"].is_null());
    }
}
