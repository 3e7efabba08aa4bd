//! `stratum registry`: mirrors of container registries on this node.

use std::error::Error;
use std::time::Duration;

use anyhow::Context;

use super::exit::Exit;
use super::printer::{self, Output};
use crate::host::atomic_file::{self, Access};
use crate::host::clock;
use crate::host::control_socket::{self, Answer, Question};
use crate::host::layout::Layout;
use crate::host::lock::{Attempt, Lock};
use crate::host::node_state;
use crate::host::runtime::{self, ApplyRegistryResult, Unfinished, apply_registry};
use crate::host::supervisor::ServiceName;

/// The flags of `stratum registry`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Bring the mirrors of /etc/stratum/registries.yaml to containerd on this node
    ///
    /// Mirrors are read at each pull; containerd is restarted only when the first one comes or the last one goes, and pods
    /// run on meanwhile. Exit codes: 0 done, also when there was nothing to do; 1 something could not be written, or
    /// containerd not be restarted; 3 refused before any change: registries.yaml cannot be used, this machine is no node,
    /// or another command is at work on it.
    Apply {
        /// The form of the answer
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Apply { output } => apply(&Layout::system(), output).await,
    }
}

async fn apply(layout: &Layout, output: Output) -> anyhow::Result<Exit> {
    if let Err(error) = node_state::load(&layout.node_state()) {
        return refuse(error);
    }
    atomic_file::create_folder(&layout.run(), Access::Public)?;
    let _lock = match Lock::attempt(&layout.node_lock(), "stratum registry apply")? {
        Attempt::Taken(lock) => lock,
        Attempt::Held(holder) => {
            let reason = format!("{holder} is at work on this node: try again when it is done");
            return refuse(anyhow::Error::msg(reason));
        }
    };
    match apply_registry(layout, async || restart_containerd(layout).await).await {
        Ok(result) => {
            printer::stdout(&answer(layout, &result, output)?)?;
            Ok(Exit::Done)
        }
        Err(Unfinished {
            changed: false,
            source: source @ runtime::Error::Registries(_),
        }) => refuse(source),
        Err(error) => Err(error).context("cannot apply registries.yaml"),
    }
}

/// Has `stratum up`, which owns containerd, restart it, and waits until it answers or [`PATIENCE`] ends.
async fn restart_containerd(layout: &Layout) -> Result<(), Box<dyn Error + Send + Sync>> {
    let question = Question::Restart(ServiceName::Containerd);
    match control_socket::ask(&layout.control_socket(), &question).await? {
        Answer::Restarted(_) => {}
        Answer::Refused(reason) => return Err(reason.into()),
        Answer::Status(_) | Answer::Stopping => return Err("`stratum up` answered something else".into()),
    }
    let deadline = clock::monotonic() + PATIENCE;
    // That it does not come back is for the caller to see: it asks again.
    while !runtime::active(layout) && clock::monotonic() < deadline {
        clock::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// containerd answers within a second or two; with thousands of containers it looks at each first.
const PATIENCE: Duration = Duration::from_secs(60);

fn refuse(error: impl Into<anyhow::Error>) -> anyhow::Result<Exit> {
    printer::error(error);
    Ok(Exit::Refused)
}

fn answer(layout: &Layout, result: &ApplyRegistryResult, output: Output) -> anyhow::Result<String> {
    let file = layout.registries();
    let file = file.display();
    Ok(match (output, result) {
        (Output::Json, result) => format!("{}\n", serde_json::to_string(result)?),
        (Output::Table, ApplyRegistryResult { restarted: true, .. }) => {
            format!("{file} is applied; containerd was restarted once to see it\n")
        }
        (
            Output::Table,
            ApplyRegistryResult {
                changed: true,
                restarted: false,
            },
        ) => format!("{file} is applied; containerd does not run, and sees it when it starts\n"),
        (
            Output::Table,
            ApplyRegistryResult {
                changed: false,
                restarted: false,
            },
        ) => format!("{file} is applied; containerd reads it at its next pull, and was not restarted\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(changed: bool, restarted: bool) -> ApplyRegistryResult {
        ApplyRegistryResult { changed, restarted }
    }

    fn put(path: &std::path::Path, text: &str) {
        atomic_file::create_folder(path.parent().unwrap(), Access::Public).unwrap();
        atomic_file::write(path, text.as_bytes(), Access::Public).unwrap();
    }

    const STATE: &str = "version: 1\nnodeName: a\nrole: worker\nprofile: default\naddresses: [10.0.0.1]\n\
                         networks: {domain: cluster.local}\nendpoint: {host: a.example.org, port: 6443}\n...\n";

    #[test]
    fn a_restart_is_claimed_only_when_there_was_one() {
        let layout = Layout::system();
        let text = |changed, restarted| answer(&layout, &result(changed, restarted), Output::Table).unwrap();
        assert!(text(true, true).contains("was restarted once"));
        assert!(text(false, true).contains("was restarted once"));
        assert!(text(true, false).contains("does not run"));
        assert!(text(false, false).contains("was not restarted"));
        let json = answer(&layout, &result(true, false), Output::Json).unwrap();
        assert_eq!(json, "{\"changed\":true,\"restarted\":false}\n");
    }

    #[tokio::test]
    async fn refused_before_any_change_or_done() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::under(root.path());
        let run = async || apply(&layout, Output::Json).await.unwrap();
        assert_eq!(run().await, Exit::Refused, "no node yet");
        assert!(!layout.run().exists());
        put(&layout.node_state(), STATE);
        assert_eq!(run().await, Exit::Done, "no registries.yaml is one without entries");
        put(
            &layout.registries(),
            "mirrors: {docker.io: {endpoint: ['https://a.example.org']}}\n",
        );
        let held = Lock::attempt(&layout.node_lock(), "something else").unwrap();
        assert_eq!(run().await, Exit::Refused, "somebody else is at work");
        assert!(!layout.containerd().join("certs.d").exists());
        drop(held);
        assert_eq!(run().await, Exit::Done);
        assert!(layout.containerd().join("certs.d/docker.io/hosts.toml").exists());
        put(&layout.registries(), "mirrors: {docker.io: {colour: red}}\n");
        assert_eq!(run().await, Exit::Refused, "the file cannot be used");
        // What cannot be written is no refusal.
        put(&layout.registries(), "mirrors: {quay.io: {}}\n");
        put(&layout.containerd().join("certs.d/quay.io"), "in the way");
        assert!(apply(&layout, Output::Json).await.is_err());
    }

    #[tokio::test]
    async fn the_supervisor_is_asked_for_the_restart() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::under(root.path());
        put(&layout.node_state(), STATE);
        put(
            &layout.registries(),
            "mirrors: {docker.io: {endpoint: ['https://a.example.org']}}\n",
        );
        put(&layout.containerd_socket(), "");
        std::fs::remove_file(layout.containerd_socket()).unwrap();
        let _containerd = std::os::unix::net::UnixListener::bind(layout.containerd_socket()).unwrap();
        let error = format!("{:#}", apply(&layout, Output::Json).await.unwrap_err());
        assert!(error.contains("`stratum up` does not run"), "{error}");
        let socket = control_socket::ControlSocket::listen(&layout.control_socket()).unwrap();
        let asked = async |answer: Answer| {
            let run = apply(&layout, Output::Json);
            tokio::select! {
                () = socket.serve(move |question| {
                    assert_eq!(question, Question::Restart(ServiceName::Containerd));
                    std::future::ready(answer.clone())
                }) => unreachable!("it serves for ever"),
                exit = run => exit,
            }
        };
        let error = format!("{:#}", asked(Answer::Refused("not now".to_owned())).await.unwrap_err());
        assert!(
            error.contains("could not be restarted") && error.contains("not now"),
            "{error}"
        );
        assert_eq!(asked(Answer::Restarted(7)).await.unwrap(), Exit::Done);
        // It is not asked again.
        assert_eq!(asked(Answer::Refused("not now".to_owned())).await.unwrap(), Exit::Done);
    }
}
