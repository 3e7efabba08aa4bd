//! `stratum manifests`: what the next pass would do, what the last one did, and the confirmation of a prune.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::bail;
use kube::Client;

use super::administrator::Administrator;
use super::exit::Exit;
use super::printer::{self, Output};
use super::report;
use crate::controllers::inventory::store::Store;
use crate::controllers::manifests::preview::{Change, Preview};
use crate::controllers::manifests::{Manifests, Settings};
use crate::controllers::operator::{RESYNC, SYSTEM_NAMESPACE};
use crate::controllers::status::{self, Told};
use crate::host::clock;
use crate::host::host_name::host_name;
use crate::host::layout::Layout;
use crate::reconcilers::inventory::confirmation::{Confirmation, confirm};
use crate::reconcilers::object::StackName;

/// The flags and sub-commands of `stratum manifests`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show what the next pass would create, change and prune; exit code 5 when there is anything
    Diff(Common),
    /// Show the last pass of every instance, the recorded stacks, and why pruning is suspended
    List(Common),
    /// Allow the one prune plan of a stack that the brake or an empty folder holds back
    Prune {
        #[command(flatten)]
        common: Common,
        /// The stack whose plan, as 'stratum manifests diff' shows it now, may be carried out once
        #[arg(long, value_name = "STACK")]
        confirm: StackName,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    administrator: Administrator,
    /// The manifests folder that is read [default: /etc/stratum/manifests]
    #[arg(long, value_name = "FOLDER", env = "STRATUM_MANIFESTS_DIR")]
    manifests_dir: Option<PathBuf>,
    /// Where this node keeps its state [default: /var/lib/stratum]
    #[arg(long, value_name = "FOLDER", env = "STRATUM_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// This node's name [default: the host name]
    #[arg(long, value_name = "NAME", env = "STRATUM_NODE_NAME")]
    node_name: Option<String>,
    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Diff(common) => diff(&common).await,
        Command::List(common) => list(&common).await,
        Command::Prune { common, confirm } => prune(&common, &confirm).await,
    }
}

impl Common {
    async fn client(&self) -> anyhow::Result<Client> {
        Ok(self.administrator.client("manifests").await?)
    }

    fn node(&self) -> anyhow::Result<String> {
        match &self.node_name {
            Some(name) => Ok(name.clone()),
            None => Ok(host_name()?.trim().to_ascii_lowercase()),
        }
    }

    async fn preview(&self, client: Client) -> anyhow::Result<Preview> {
        let layout = Layout::system();
        let settings = Settings {
            node: self.node()?,
            folder: self.manifests_dir.clone().unwrap_or_else(|| layout.manifests()),
            state: self.state_dir.clone().unwrap_or_else(|| layout.state()),
            system_namespace: SYSTEM_NAMESPACE.to_owned(),
            resync: RESYNC,
            max_share: None,
            term: None,
        };
        Ok(Manifests::new(settings, client.clone(), client).0.preview().await?)
    }
}

async fn diff(common: &Common) -> anyhow::Result<Exit> {
    let preview = common.preview(common.client().await?).await?;
    match common.output {
        Output::Json => printer::stdout(&format!("{}\n", serde_json::to_string_pretty(&preview)?))?,
        Output::Table => printer::stdout(&table(&preview))?,
    }
    Ok(if !preview.refusals.is_empty() {
        Exit::Failed
    } else if preview.lines.is_empty() {
        Exit::Done
    } else {
        Exit::Differences
    })
}

/// One line for each change, with the place that declares the object.
fn table(preview: &Preview) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# {} on node {}", preview.folder, preview.node);
    for line in &preview.lines {
        let (sign, place) = match line.change {
            Change::Create => ("create", line.declared.as_deref().unwrap_or_default()),
            Change::Change => ("change", line.declared.as_deref().unwrap_or_default()),
            Change::Prune => ("prune", "declared no more"),
        };
        let stack = line.stack.as_deref().unwrap_or("(loose file)");
        let _ = writeln!(out, "{sign}  {}  {stack}  {place}", line.object);
    }
    for refusal in &preview.refusals {
        let _ = writeln!(out, "refused: {refusal}");
    }
    if let Some(suspended) = &preview.suspended {
        let _ = writeln!(out, "not pruned: {suspended}");
    }
    if preview.lines.is_empty() && preview.refusals.is_empty() {
        let _ = writeln!(out, "nothing to do");
    }
    out
}

async fn list(common: &Common) -> anyhow::Result<Exit> {
    let client = common.client().await?;
    let Told { instances, unreadable } = status::read(&client, SYSTEM_NAMESPACE).await?;
    let stored = Store::new(client, SYSTEM_NAMESPACE).load().await?;
    if common.output == Output::Json {
        let inventory = stored.documents.inventory;
        let all = serde_json::json!({
            "instances": instances,
            "inventory": inventory,
            "unreadable": unreadable,
        });
        printer::stdout(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
        return Ok(Exit::Done);
    }
    let mut out = String::new();
    if let Some(inventory) = &stored.documents.inventory {
        let mut stacks = std::collections::BTreeMap::<String, usize>::new();
        for reference in inventory.references().values() {
            for stack in &reference.stacks {
                *stacks.entry(stack.to_string()).or_default() += 1;
            }
        }
        for (stack, objects) in stacks {
            let _ = writeln!(out, "{stack}: {objects} objects recorded");
        }
    }
    for (node, status) in &instances {
        let Some(last) = &status.manifests else { continue };
        let term = status.term.map(|term| format!(", term {term}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "\nlast pass on {node} at {}{term}, folder {}",
            last.at, last.folder
        );
        out.push_str(&report::table(last));
    }
    out.push_str(&report::unreadable(&unreadable));
    if instances.is_empty() && unreadable.is_empty() {
        out.push_str("no instance has told of a pass yet\n");
    }
    printer::stdout(&out)?;
    Ok(Exit::Done)
}

async fn prune(common: &Common, stack: &StackName) -> anyhow::Result<Exit> {
    let client = common.client().await?;
    let preview = common.preview(client.clone()).await?;
    let Some((_, digest, objects)) = preview.plans.iter().find(|(name, _, _)| name == stack) else {
        bail!("stack {stack} has nothing to prune; 'stratum manifests diff' shows what the next pass would do");
    };
    let confirmation = Confirmation {
        stack: stack.clone(),
        digest: digest.0.clone(),
        who: format!(
            "{} on {}",
            std::env::var("USER").unwrap_or_else(|_| "an administrator".to_owned()),
            common.node()?
        ),
        when: clock::now(),
    };
    Store::new(client, SYSTEM_NAMESPACE)
        .commit(None, None, |documents| {
            confirm(&mut documents.confirmations, confirmation.clone());
            Ok(())
        })
        .await?;
    printer::stdout(&format!(
        "the next pass of the leader may prune these {objects} objects of stack {stack}, once\n"
    ))?;
    Ok(Exit::Done)
}
