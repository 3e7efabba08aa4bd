//! The programs a run needs: those of the control plane, and the peers built from the Go module beside this file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use stratum::host::assets::{Source, Tool};
use stratum::host::child::Program;
use stratum::host::lock::Lock;

/// etcd, kube-apiserver and kubectl, built when they are not in the cache.
pub(crate) async fn control_plane(stratum: &Path) -> Result<[PathBuf; 3]> {
    let source = Source::choose(|name| std::env::var_os(name), Some(stratum.to_owned()))?;
    Ok(source.provide([Tool::Etcd, Tool::KubeApiserver, Tool::Kubectl]).await?)
}

/// kube-controller-manager, built when it is not in the cache.
pub(crate) async fn kube_controller_manager(stratum: &Path) -> Result<PathBuf> {
    let source = Source::choose(|name| std::env::var_os(name), Some(stratum.to_owned()))?;
    let [program] = source.provide([Tool::KubeControllerManager]).await?;
    Ok(program)
}

/// The folder with the peers. They are built when their sources have changed.
pub(crate) async fn peers() -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
    let folder = cache()?.join("peers").join(digest(&sources)?);
    if folder.is_dir() {
        return Ok(folder);
    }
    std::fs::create_dir_all(cache()?.join("peers"))?;
    let _lock = Lock::acquire(&cache()?.join("peers/.lock"), "building the peers", |_| {})?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let building = folder.with_extension("building");
    std::fs::create_dir_all(&building)?;
    let build = Program::new("go")
        .arguments([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-mod=readonly",
            "-ldflags",
            "-s -w",
        ])
        .arguments([std::ffi::OsStr::new("-o"), building.as_os_str()])
        .arguments(["./..."])
        .variable("CGO_ENABLED", "0")
        .folder(&sources);
    let finished = build
        .run(Vec::new())
        .await
        .context("Go is needed to build the peers: https://go.dev/dl/")?;
    if !finished.exit.is_success() {
        bail!("building the peers: {}", String::from_utf8_lossy(&finished.stderr));
    }
    std::fs::rename(&building, &folder)?;
    Ok(folder)
}

/// The `stratum` executable beside a program of the same build: `target/PROFILE/examples/x` or `target/PROFILE/deps/x`.
pub(crate) fn stratum_beside_us() -> Result<PathBuf> {
    let ours = std::env::current_exe()?;
    let folder = ours
        .parent()
        .and_then(Path::parent)
        .context("this program is in no folder")?;
    let stratum = folder.join("stratum");
    if !stratum.is_file() {
        bail!("{} is missing: build it first (cargo build)", stratum.display());
    }
    Ok(stratum)
}

/// Waits until `condition` has a value, asking every `pace`.
pub(crate) async fn eventually<T>(
    what: &str,
    limit: Duration,
    pace: Duration,
    mut condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = stratum::host::clock::monotonic();
    loop {
        if let Some(value) = condition().await? {
            return Ok(value);
        }
        if began.elapsed() > limit {
            bail!("{what}: not within {} s", limit.as_secs());
        }
        stratum::host::clock::sleep(pace).await;
    }
}

fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("stratum"))
}

/// Names a state of the sources.
fn digest(sources: &Path) -> Result<String> {
    let mut files = vec![sources.join("go.mod"), sources.join("go.sum")];
    for entry in std::fs::read_dir(sources)? {
        let path = entry?.path();
        if path.is_dir() {
            for file in std::fs::read_dir(path)? {
                files.push(file?.path());
            }
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.as_os_str().as_encoded_bytes());
        hash.update(std::fs::read(file)?);
    }
    Ok(hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
