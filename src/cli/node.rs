//! `stratum node`: what the cluster remembers of a node's name.

use anyhow::Context;

use super::administrator::Administrator;
use super::exit::Exit;
use super::printer;
use crate::controllers::identities::Identities;
use crate::controllers::nodes;
use crate::text::is_node_name;

/// The flags of `stratum node`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Free the name of a Node that is gone: a machine may claim it and the addresses it had
    Forget {
        /// The node's name
        name: String,
        #[command(flatten)]
        administrator: Administrator,
    },
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Forget { name, administrator } => forget(&name, &administrator).await,
    }
}

async fn forget(name: &str, administrator: &Administrator) -> anyhow::Result<Exit> {
    if !is_node_name(name) {
        printer::stderr(&format!(
            "error: {name:?} is no node's name: lower-case letters, digits, '-' and '.'; see 'kubectl get nodeidentities'\n"
        ));
        return Ok(Exit::Usage);
    }
    let client = administrator.client("node").await?;
    let registered = nodes::look(&client, name).await;
    if registered
        .with_context(|| format!("cannot ask whether Node {name} is registered"))?
        .is_some()
    {
        printer::stderr(&format!(
            "error: Node {name} is registered, and whoever asks first would have its name and addresses; if its machine is gone, 'kubectl delete node {name}' first\n"
        ));
        return Ok(Exit::Refused);
    }
    let identities = Identities::new(client);
    let known = identities
        .read(name)
        .await
        .with_context(|| format!("cannot read what is remembered of node {name}"))?;
    let Some(known) = known else {
        printer::stdout(&format!("nothing is remembered of node {name}\n"))?;
        return Ok(Exit::Done);
    };
    identities
        .forget(name, &known)
        .await
        .with_context(|| format!("cannot free the name {name}"))?;
    let holder = known.identity.holder(name);
    printer::stdout(&format!("the name {name}, held by {holder}, is free\n"))?;
    Ok(Exit::Done)
}
