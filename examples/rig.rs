//! Real nodes on this machine by hand, as root. `up` makes a cluster and holds it until `down` or Ctrl-C; then nothing is
//! left. `stratum` makes it, or the real kubeadm.
//!
//! ```console
//! # cargo build && cargo run --example rig -- up --workers 1
//! # cargo run --example rig -- exec controller-1 -- crictl ps
//! # cargo run --example rig -- down
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to who runs it")]

#[path = "../tests/rig/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the tests use more of it")]
mod rig;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use stratum::host::assets::Tool;
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::{Output, Program};
use stratum::host::clock;

use rig::{Kubeadm, Node, OurCluster, Rig};

/// Real nodes on this machine.
#[derive(Debug, Parser)]
enum Command {
    /// Makes a cluster and holds it
    Up {
        /// Nodes with a control plane
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3), conflicts_with = "kubeadm")]
        controllers: u8,
        /// Nodes without
        #[arg(long, default_value_t = 1)]
        workers: u8,
        /// By the real kubeadm, with one controller, instead of by `stratum`
        #[arg(long)]
        kubeadm: bool,
    },
    /// Runs a program on a node
    Exec {
        /// The node's name
        node: String,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Ends what `up` holds
    Down,
}

/// What is said of a cluster that is up, for the other commands.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    process: u32,
    /// Process 1 of each node.
    nodes: BTreeMap<String, u32>,
    /// Programs of the nodes.
    path: PathBuf,
    /// Where kubectl and crictl find what they ask, on the nodes.
    variables: BTreeMap<String, String>,
}

/// Whoever made it.
enum Cluster {
    Ours(OurCluster),
    Kubeadm(Kubeadm),
}

impl Cluster {
    fn nodes(&self) -> Box<dyn Iterator<Item = &Node> + '_> {
        match self {
            Self::Ours(cluster) => Box::new(cluster.members().map(|member| &member.node)),
            Self::Kubeadm(cluster) => Box::new(cluster.members.iter().map(|member| &member.node)),
        }
    }

    /// An administrator's, which works from this machine.
    async fn kubeconfig(&self, rig: &Rig) -> Result<PathBuf> {
        match self {
            Self::Kubeadm(cluster) => Ok(cluster.kubeconfig.clone()),
            Self::Ours(cluster) => {
                let path = rig.logs().join("admin.conf");
                let create = [
                    "kubeconfig",
                    "create",
                    "--user",
                    "rig",
                    "--group",
                    "stratum:cluster-admins",
                ];
                let text = cluster.first().node.stratum(&create, false).await?;
                atomic_file::write(&path, format!("{text}\n").as_bytes(), Access::Secret)?;
                Ok(path)
            }
        }
    }

    fn variables(&self) -> BTreeMap<String, String> {
        let (socket, kubeconfig) = match self {
            Self::Ours(_) => (
                "/run/stratum/containerd/containerd.sock",
                "/var/lib/stratum/kubeconfig/admin.conf",
            ),
            Self::Kubeadm(_) => ("/run/containerd/containerd.sock", "/etc/kubernetes/admin.conf"),
        };
        let named = [
            ("CONTAINER_RUNTIME_ENDPOINT", format!("unix://{socket}")),
            ("KUBECONFIG", kubeconfig.to_owned()),
        ];
        named.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

fn main() -> ExitCode {
    let command = Command::parse();
    let done = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(command)));
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    let ours = std::env::current_exe()?;
    let build = ours
        .ancestors()
        .nth(2)
        .context("an executable in target/PROFILE/examples")?;
    let parent = build.join("rigs");
    match command {
        Command::Up {
            controllers,
            workers,
            kubeadm,
        } => up(&parent, &build.join("stratum"), (controllers, workers), kubeadm).await,
        Command::Exec { node, command } => exec(&parent, &node, &command).await,
        Command::Down => down(&parent).await,
    }
}

async fn up(parent: &Path, stratum: &Path, (controllers, workers): (u8, u8), kubeadm: bool) -> Result<ExitCode> {
    ensure!(stratum.is_file(), "no {}: run `cargo build` first", stratum.display());
    let file = parent.join("up.json");
    let mut rig = Rig::start(parent, stratum).await?;
    rig.add_program(Tool::Crictl).await?;
    println!("the logs are in {}", rig.logs().display());
    let cluster = if kubeadm {
        Cluster::Kubeadm(rig.kubeadm(workers).await?)
    } else {
        Cluster::Ours(rig.stratum(controllers, workers).await?)
    };
    let kubeconfig = cluster.kubeconfig(&rig).await?;
    let state = State {
        process: std::process::id(),
        nodes: cluster
            .nodes()
            .map(|node| (node.name().to_owned(), node.pid()))
            .collect(),
        path: rig.traces().folder.join("bin"),
        variables: cluster.variables(),
    };
    atomic_file::write(&file, &serde_json::to_vec(&state)?, Access::Public)?;
    println!("export KUBECONFIG={}", kubeconfig.display());
    println!("`down` or Ctrl-C ends it");
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        asked = tokio::signal::ctrl_c() => asked?,
        _ = terminated.recv() => {}
    }
    drop((cluster, rig));
    atomic_file::remove(&file)?;
    Ok(ExitCode::SUCCESS)
}

async fn exec(parent: &Path, node: &str, command: &[OsString]) -> Result<ExitCode> {
    let state = read(parent)?;
    let Some(process) = state.nodes.get(node) else {
        let names: Vec<&str> = state.nodes.keys().map(String::as_str).collect();
        bail!("no node {node}: there are {}", names.join(", "));
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let program = Program::new("nsenter")
        .arguments([
            "--target",
            &process.to_string(),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--",
        ])
        .arguments(command.iter().cloned())
        .variable("PATH", format!("{}:{path}", state.path.display()))
        .folder("/");
    let variables = state.variables.iter();
    let program = variables.fold(program, |program, (name, value)| program.variable(name, value));
    let exit = program.start(&Output::Inherit)?.wait().await?;
    Ok(if exit.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn down(parent: &Path) -> Result<ExitCode> {
    let process = read(parent)?.process;
    let id = i32::try_from(process)
        .ok()
        .and_then(Pid::from_raw)
        .context("no process id")?;
    rustix::process::kill_process(id, Signal::TERM).context("it has ended already")?;
    let process = PathBuf::from(format!("/proc/{process}"));
    for _ in 0..600 {
        if !process.exists() {
            return Ok(ExitCode::SUCCESS);
        }
        clock::sleep(Duration::from_millis(100)).await;
    }
    bail!("it has not ended within a minute")
}

fn read(parent: &Path) -> Result<State> {
    let file = parent.join("up.json");
    let text = fs::read(&file).with_context(|| format!("nothing is up: no {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("cannot understand {}", file.display()))
}
