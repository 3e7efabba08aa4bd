//! What every benchmark works with: one control plane, the programs, a folder, and the meter.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use stratum::host::child::Program;
use stratum::host::clock;
use tempfile::TempDir;

use crate::Arguments;
use crate::harness::api::Api;
use crate::harness::control_plane::ControlPlane;
use crate::harness::{audit, binaries, objects, process};
use crate::measure::Sample;
use crate::table::progress;

/// The one control-plane node.
pub(crate) const NODE: &str = "bench";

/// The programs a run needs.
#[derive(Clone)]
struct Programs {
    etcd: PathBuf,
    kube_apiserver: PathBuf,
    kubectl: PathBuf,
    peers: PathBuf,
}

/// The bed.
pub(crate) struct Bed {
    pub(crate) arguments: Arguments,
    pub(crate) plane: ControlPlane,
    /// The executable that is measured.
    pub(crate) stratum: PathBuf,
    programs: Programs,
    folder: TempDir,
}

impl Bed {
    pub(crate) async fn start(arguments: Arguments) -> Result<Self> {
        let stratum = PathBuf::from(env!("CARGO_BIN_EXE_stratum"));
        let [etcd, kube_apiserver, kubectl] = binaries::control_plane(&stratum).await?;
        progress("building the peers, if they have changed");
        let programs = Programs {
            etcd,
            kube_apiserver,
            kubectl,
            peers: binaries::peers().await?,
        };
        let folder = tempfile::Builder::new().prefix("stratum-bench-").tempdir()?;
        Self::make(arguments, stratum, programs, folder).await
    }

    /// One with a control plane of its own, for what would disturb the others or needs an empty cluster. [`Bed::end`] it.
    pub(crate) async fn another(&self) -> Result<Self> {
        // Within ours: should this one not come to its end, ours removes it.
        let folder = tempfile::Builder::new().prefix("bed-").tempdir_in(self.folder.path())?;
        let (arguments, stratum) = (self.arguments.clone(), self.stratum.clone());
        Self::make(arguments, stratum, self.programs.clone(), folder).await
    }

    async fn make(arguments: Arguments, stratum: PathBuf, programs: Programs, folder: TempDir) -> Result<Self> {
        progress("starting etcd (with fsync) and kube-apiserver");
        let plane = [programs.etcd.clone(), programs.kube_apiserver.clone()];
        let plane = ControlPlane::start(plane, &stratum, folder.path(), &[NODE], Some(audit::POLICY)).await?;
        Ok(Self {
            arguments,
            plane,
            stratum,
            programs,
            folder,
        })
    }

    /// Ends what runs, and removes what lies about.
    pub(crate) async fn end(self) -> Result<()> {
        self.plane.end().await?;
        self.folder.close().context("the run's folder")
    }

    /// The bare client.
    pub(crate) fn api(&self) -> &Api {
        &self.plane.api
    }

    /// A new folder.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Makes a namespace with nothing of the mix in it.
    pub(crate) async fn empty_namespace(&self, name: &str) -> Result<()> {
        self.api().namespace(name).await?;
        self.api().all(objects::deletions(name)).await?;
        Ok(())
    }

    /// Does `work`, which says how many seconds count, and reads the meters around it.
    pub(crate) async fn metered(&self, work: impl AsyncFnOnce() -> Result<f64>) -> Result<Sample> {
        let requests = self.plane.requests().await?;
        let server = self.plane.cpu()?;
        let tool = process::own_cpu()? + process::children_cpu()?;
        let seconds = work().await?;
        let tool = process::own_cpu()? + process::children_cpu()? - tool;
        let server = self.plane.cpu()? - server;
        Ok(Sample {
            seconds,
            tool_cpu: tool.as_secs_f64(),
            server_cpu: server.as_secs_f64(),
            requests: self.plane.requests().await?.since(&requests),
        })
    }

    /// One of our Go peers.
    pub(crate) fn peer(&self, name: &str) -> Program {
        Program::new(self.programs.peers.join(name)).arguments([Path::new("--kubeconfig"), &self.plane.admin])
    }

    /// Runs one of our Go peers to its end; what it printed.
    pub(crate) async fn ask_peer(&self, name: &str, arguments: &[&str]) -> Result<Value> {
        let (_, output) = finish(&self.peer(name).arguments(arguments)).await?;
        serde_json::from_slice(&output).with_context(|| format!("{name} did not print JSON"))
    }

    /// `kubectl`, as the administrator, with its cache in the run's folder.
    pub(crate) fn kubectl(&self) -> Program {
        Program::new(&self.programs.kubectl)
            .variable("KUBECONFIG", &self.plane.admin)
            .variable("HOME", self.folder.path())
    }

    /// The flux harness on a folder; the seconds it reports, which leave out its start.
    pub(crate) async fn flux(&self, mode: &str, folder: &Path) -> Result<f64> {
        let folder = folder.to_string_lossy();
        let answer = self.ask_peer("fluxssa", &["--mode", mode, "--folder", &folder]).await?;
        answer
            .get("seconds")
            .and_then(Value::as_f64)
            .context("fluxssa printed no seconds")
    }
}

/// No peer needs a quarter of it, not even one that prunes five objects a second.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Runs a program that has to succeed; how long it took and what it printed.
pub(crate) async fn finish(program: &Program) -> Result<(Duration, Vec<u8>)> {
    let began = clock::monotonic();
    let finished = tokio::time::timeout(LONGEST, program.run(Vec::new())).await;
    let finished = finished.with_context(|| format!("{} did not end", program.path.display()))??;
    let took = began.elapsed();
    if !finished.exit.is_success() {
        bail!(
            "{} ended ({}): {}",
            program.path.display(),
            finished.exit,
            String::from_utf8_lossy(&finished.stderr)
        );
    }
    Ok((took, finished.stdout))
}
