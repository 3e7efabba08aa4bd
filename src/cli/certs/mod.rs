//! `stratum certs`: the certificates of this machine.

mod check;
mod place;
mod renew;
mod rotate;

use super::exit::Exit;

/// The flags of `stratum certs`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show every certificate of this machine, when it ends, and what is wrong with it
    Check(check::Arguments),
    /// Make every certificate of this node anew, and restart only what does not take a new one up by itself
    Rotate(rotate::Arguments),
    /// Renew what is due, once or with --daemon for as long as it runs, and keep the keys
    Renew(renew::Arguments),
}

impl Arguments {
    /// Whether the command only looks and is over at once: threads would take longer to start than it to run.
    pub(super) fn is_brief(&self) -> bool {
        match &self.command {
            Command::Check(arguments) => !arguments.asks_others(),
            Command::Rotate(_) | Command::Renew(_) => false,
        }
    }
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Check(arguments) => check::run(arguments).await,
        Command::Rotate(arguments) => rotate::run(arguments).await,
        Command::Renew(arguments) => renew::run(arguments).await,
    }
}
