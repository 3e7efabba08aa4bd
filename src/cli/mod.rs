//! The command line: clap, one printer, exit codes. Thin: settings are resolved once, then a function of an inner
//! layer is called.

mod administrator;
mod certs;
mod child_of;
mod config;
mod controller;
mod dev;
pub mod exit;
mod kubeconfig;
mod logs;
mod machine;
mod manifests;
mod node;
mod on_host;
mod operator;
mod payload;
pub mod printer;
mod registry;
pub mod report;
mod status;
mod token;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use tokio::runtime::{Builder, Runtime};

use self::exit::Exit;

/// Parses the command line, runs the command, and maps its outcome to the exit code table of the README.
#[must_use]
pub fn main() -> ExitCode {
    let command = match CommandLine::parse().command {
        Command::ChildOf(arguments) => return child_of::run(&arguments),
        // Before any runtime: only a process of one thread can enter another mount namespace.
        Command::OnHost(arguments) => return on_host::run(&arguments),
        other => other,
    };
    let result = runtime(&command).map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(run(command));
        // What still runs was given its time; it does not get more by being waited for.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            printer::error(error);
            Exit::Failed.into()
        }
    }
}

/// What the command runs on: one thread for a command that is over at once.
fn runtime(command: &Command) -> std::io::Result<Runtime> {
    match command {
        Command::Certs(arguments) if arguments.is_brief() => Builder::new_current_thread().enable_all().build(),
        _ => Runtime::new(),
    }
}

async fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::ChildOf(_) | Command::OnHost(_) => Ok(Exit::Failed),
        Command::Dev(arguments) => dev::run(arguments).await,
        Command::Operator(arguments) => operator::run(*arguments).await,
        Command::Manifests(arguments) => manifests::run(arguments).await,
        Command::Node(arguments) => node::run(arguments).await,
        Command::Registry(arguments) => registry::run(arguments).await,
        Command::Payload(arguments) => payload::run(arguments).await,
        Command::Certs(arguments) => certs::run(arguments).await,
        Command::Token(arguments) => token::run(arguments).await,
        Command::Kubeconfig(arguments) => kubeconfig::run(arguments),
        Command::Server(arguments) => machine::server::run(*arguments).await,
        Command::Join(arguments) => machine::join::run(*arguments).await,
        Command::Up(arguments) => machine::up::run(arguments).await,
        Command::Uninstall(arguments) => machine::uninstall::run(arguments).await,
        Command::Status(arguments) => status::run(arguments).await,
        Command::Logs(arguments) => logs::run(arguments).await,
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "stratum", &mut text);
            printer::stdout(&String::from_utf8_lossy(&text))?;
            Ok(Exit::Done)
        }
    }
}

#[derive(Debug, Parser)]
#[command(name = "stratum", version, about)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make this machine the first controller of a new cluster
    Server(Box<machine::server::Arguments>),
    /// Make this machine a node of a cluster; `stratum token create` prints the whole command
    Join(Box<machine::join::Arguments>),
    /// Run this node: containerd, the kubelet and, on controllers, the operator
    Up(machine::up::Arguments),
    /// Make and check the folder of programs and images that nodes are made of
    Payload(payload::Arguments),
    /// Take this machine off the cluster, and everything of this program off the machine
    Uninstall(machine::uninstall::Arguments),
    /// Show how this node is: its services, its control plane, what they run
    Status(status::Arguments),
    /// Show what a component of this node wrote, without an API server
    Logs(logs::Arguments),
    /// Run a control plane on loopback with the operator in it, over a manifests folder to play with
    Dev(dev::Arguments),
    /// Run the cluster's own controllers; a supervisor starts it again whenever it ends
    Operator(Box<operator::Command>),
    /// See what the manifests folder would do and did, and confirm a prune
    Manifests(manifests::Arguments),
    /// Look after what the cluster remembers of nodes
    Node(node::Arguments),
    /// Look after the mirrors of container registries on this node
    Registry(registry::Arguments),
    /// Look after the certificates of this machine
    Certs(certs::Arguments),
    /// Make, show and delete the tokens that machines join with
    Token(token::Arguments),
    /// Give somebody a credential of his own
    Kubeconfig(kubeconfig::Arguments),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    #[command(hide = true)]
    ChildOf(child_of::Arguments),
    #[command(hide = true)]
    OnHost(on_host::Arguments),
}
