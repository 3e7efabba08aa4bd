//! What the rehearsals share: operators whose every process has users of its own, a folder that moves on from generation
//! to generation, and the question whether the cluster is what the folder says.

pub(crate) mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use stratum::host::child::{Child, Output, Program};
use tempfile::TempDir;

use crate::harness::control_plane::{ControlPlane, free_address};
use crate::harness::objects::{self, Object};
use crate::harness::{binaries, binaries::eventually};
use world::World;

/// Where the objects are.
pub(crate) const NAMESPACE: &str = "rehearsal";
/// The stack's name.
pub(crate) const STACK: &str = "rehearsal";
/// Documents in a file.
const PER_FILE: usize = 50;

/// Runs a rehearsal to the count of rules it found broken; none is success.
pub(crate) fn exit_of(rehearsal: impl Future<Output = Result<usize>>) -> ExitCode {
    let result = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(rehearsal));
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(violations) => {
            println!("{violations} VIOLATIONS");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the rehearsal broke off: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The stage.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    stratum: PathBuf,
    folder: TempDir,
    started: u32,
}

/// One process.
pub(crate) struct Instance {
    /// Counts all processes of a rehearsal.
    pub(crate) number: u32,
    pub(crate) node: String,
    pub(crate) child: Child,
}

impl Instance {
    /// Sends a signal to it, and to nothing else.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        rustix::process::kill_process(pid.context("a process id")?, signal)?;
        Ok(())
    }
}

/// What the folder declares at one time: a window of numbers that moves on by a quarter, and content that changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation {
    pub(crate) number: usize,
    /// How many objects.
    pub(crate) objects: usize,
}

impl Generation {
    /// How many objects come and how many go from one to the next: whole files, so that no object changes its file.
    pub(crate) fn step(self) -> usize {
        (self.objects / 4).next_multiple_of(PER_FILE)
    }

    pub(crate) fn next(self) -> Self {
        Self {
            number: self.number + 1,
            ..self
        }
    }

    /// How many writes it takes to get here from the one before: half of those that stay change, a quarter comes and a
    /// quarter goes.
    pub(crate) fn writes(self) -> usize {
        (self.objects - self.step()) / 2 + self.step() * 2
    }

    /// The objects by file. Every second one of those that stay changes.
    fn files(self) -> BTreeMap<usize, Vec<Object>> {
        let first = self.number * self.step();
        let mut files: BTreeMap<usize, Vec<Object>> = BTreeMap::new();
        for number in first..first + self.objects {
            let variant = if number % 2 == 0 { self.number } else { 0 };
            let object = objects::objects(NAMESPACE, [number], u64::try_from(variant).unwrap_or(0));
            files.entry(number / PER_FILE).or_default().extend(object);
        }
        files
    }

    /// The objects by their identity.
    pub(crate) fn declared(self) -> BTreeMap<String, Object> {
        let all = self.files().into_values().flatten();
        all.map(|object| (object.id(), object)).collect()
    }
}

impl Stage {
    /// Sets it up: a control plane, an empty manifests folder.
    pub(crate) async fn set(nodes: &[&str], audit_policy: Option<&str>) -> Result<Self> {
        let stratum = binaries::stratum_beside_us()?;
        let [etcd, kube_apiserver, _] = binaries::control_plane(&stratum).await?;
        let folder = TempDir::new()?;
        let plane = ControlPlane::start([etcd, kube_apiserver], &stratum, folder.path(), nodes, audit_policy).await?;
        plane.api.namespace(NAMESPACE).await?;
        let stage = Self {
            plane,
            stratum,
            folder,
            started: 0,
        };
        std::fs::create_dir_all(stage.stack())?;
        Ok(stage)
    }

    fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    fn stack(&self) -> PathBuf {
        self.manifests().join(STACK)
    }

    /// Starts an operator as a node. Its users are `operator-NUMBER` and `deployer-NUMBER`.
    pub(crate) fn start(&mut self, node: &str) -> Result<Instance> {
        self.started += 1;
        let number = self.started;
        let operator = self.plane.kubeconfig(&format!("operator-{number}"))?;
        let deployer = self.plane.kubeconfig(&format!("deployer-{number}"))?;
        let state = self.folder.path().join(format!("state-{node}"));
        std::fs::create_dir_all(&state)?;
        let log = self.plane.logs.join(format!("operator-{number}.log"));
        let child = Program::new(&self.stratum)
            .arguments([Path::new("operator"), Path::new("--kubeconfig"), &operator])
            .arguments([Path::new("--deployer-kubeconfig"), &deployer])
            .arguments([Path::new("--manifests-dir"), &self.manifests()])
            .arguments([Path::new("--state-dir"), &state])
            .arguments(["--node-name", node, "--listen", &free_address()?.to_string()])
            .arguments(["--log-format", "json"])
            .dies_with_us(&self.stratum)
            .start(&Output::Log(log))?;
        Ok(Instance {
            number,
            node: node.to_owned(),
            child,
        })
    }

    /// Makes the folder declare a generation, file by file.
    pub(crate) fn declare(&self, generation: Generation) -> Result<()> {
        let files = generation.files();
        let path = |block: &usize| self.stack().join(format!("objects-{block:05}.yaml"));
        for (block, objects) in &files {
            objects::write_file(&path(block), objects)?;
        }
        let wanted: Vec<PathBuf> = files.keys().map(path).collect();
        for entry in std::fs::read_dir(self.stack())? {
            let path = entry?.path();
            if !wanted.contains(&path) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Waits until cluster and inventory are exactly what a generation declares.
    pub(crate) async fn settled(&self, generation: Generation) -> Result<World> {
        let declared = generation.declared();
        let mut last = Vec::new();
        let look = async || {
            let world = World::read(&self.plane.api).await?;
            last = world.differences(&declared);
            Ok(last.is_empty().then_some(world))
        };
        let limit = Duration::from_secs(180);
        let settled = eventually(
            "the cluster is what the folder declares",
            limit,
            Duration::from_millis(500),
            look,
        )
        .await;
        settled.with_context(|| format!("still different: {}", last.join("; ")))
    }
}
