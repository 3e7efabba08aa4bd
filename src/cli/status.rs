//! `stratum status`: how this node is.

use super::exit::Exit;
use super::printer::{self, Output};
use super::report;
use crate::controllers::machine::node::{Config, Node};
use crate::controllers::machine::status::{self, NodeStatus, Part};
use crate::host::layout::Layout;

/// The flags of `stratum status`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The form of the answer
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
}

/// Runs the command: 0 when every part is well, 1 when one is not, 3 when this machine is no node.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let node = match Node::load(Layout::system(), Config::default()) {
        Ok(node) => node,
        Err(error) => {
            printer::error(error);
            return Ok(Exit::Refused);
        }
    };
    let status = status::observe(&node).await;
    let text = match arguments.output {
        Output::Table => table(&status),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&status)?),
    };
    printer::stdout(&text)?;
    Ok(if status.is_well() { Exit::Done } else { Exit::Failed })
}

fn table(status: &NodeStatus) -> String {
    let NodeStatus {
        node,
        role,
        profile,
        endpoint,
        parts,
    } = status;
    let head = format!("{node}: {role}, profile {profile}, cluster at {endpoint}\n\n");
    let mut rows = vec![["PART", "HEALTH", "PROCESS", "RESTARTS", "IMAGE", "NOTE"].map(str::to_owned)];
    rows.extend(parts.iter().map(row));
    head + &report::columns(&rows)
}

fn row(part: &Part) -> [String; 6] {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    [
        part.name.clone(),
        part.health.to_string(),
        number(part.process.map(u64::from)),
        number(part.restarts),
        word(&part.image),
        word(&part.note),
    ]
}
