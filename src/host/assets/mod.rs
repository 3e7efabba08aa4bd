//! The programs a control plane and its nodes are made of, for `stratum dev`, `stratum payload build`, the tests and the
//! benchmarks.
//!
//! They come from the folder in `KUBEBUILDER_ASSETS`, or are built once from pinned sources with `go build` and kept in a
//! cache. The Go modules are part of this executable, so that it builds them outside of its source tree as well.
//! Nodes of a real cluster do not use this: their programs are in the payload.

mod build;
mod module;
mod progress;
#[cfg(test)]
mod tests;
mod tool;

use std::ffi::OsString;
use std::path::PathBuf;

use super::{atomic_file, child, lock};

pub use module::Module;
pub use tool::{ETCD_VERSION, KUBERNETES_VERSION, Tool};

/// A program that is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder the user named lacks it.
    #[error("no {tool} in {} (named by {BINARIES_VARIABLE}): put it there, or unset the variable to have it built", folder.display())]
    NotInFolder {
        /// The program.
        tool: Tool,
        /// The folder.
        folder: PathBuf,
    },
    /// No variable says where a cache could be.
    #[error("nowhere to keep built programs: set {CACHE_VARIABLE}, XDG_CACHE_HOME or HOME")]
    NoCache,
    /// There is no Go toolchain.
    #[error(
        "{tool} has to be built, and `go` cannot be run: install Go {needed} or newer (https://go.dev/dl), or set \
         {BINARIES_VARIABLE} to a folder with ready programs (etcd, kube-apiserver, kubectl...)"
    )]
    NoGo {
        /// The program.
        tool: Tool,
        /// The oldest Go that builds it.
        needed: String,
        /// Why `go` did not run.
        #[source]
        source: child::Error,
    },
    /// The Go toolchain is older than the sources need, or does not say its version.
    #[error("{tool} has to be built with Go {needed} or newer, but `go version` says: {found}")]
    OldGo {
        /// The program.
        tool: Tool,
        /// The oldest Go that builds it.
        needed: String,
        /// What `go version` printed.
        found: String,
    },
    /// The build failed; the compiler's last words are in the message.
    #[error("building {tool} failed ({exit}); the log is {}: {last}", log.display())]
    Build {
        /// The program.
        tool: Tool,
        /// How the build ended.
        exit: child::Exit,
        /// The whole output.
        log: PathBuf,
        /// The last lines of it, joined.
        last: String,
    },
    /// The build could not be run.
    #[error("cannot run the build of {tool}")]
    Run {
        /// The program.
        tool: Tool,
        /// What went wrong with the child process.
        #[source]
        source: child::Error,
    },
    /// The cache cannot be written.
    #[error("cannot prepare the cache to build {tool}")]
    Cache {
        /// The program.
        tool: Tool,
        /// The file and what happened.
        #[source]
        source: atomic_file::Error,
    },
    /// What was built cannot be put into its place.
    #[error("cannot put {tool} in place at {}", path.display())]
    Place {
        /// The program.
        tool: Tool,
        /// Its place.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The lock against two builders cannot be taken.
    #[error("cannot lock the build of {tool}")]
    Lock {
        /// The program.
        tool: Tool,
        /// The lock file and what happened.
        #[source]
        source: lock::Error,
    },
}

/// A folder with ready programs.
pub const BINARIES_VARIABLE: &str = "KUBEBUILDER_ASSETS";
/// Another place for what is built.
pub const CACHE_VARIABLE: &str = "STRATUM_ASSET_CACHE";

/// Where programs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder of ready programs; nothing is ever built.
    Folder(PathBuf),
    /// A cache, filled by building.
    Cache {
        /// Its folder.
        folder: PathBuf,
        /// A `stratum` executable, with which a build ends when we do.
        trampoline: Option<PathBuf>,
    },
}

impl Source {
    /// Chooses by the environment, given as a function so that tests can set it: `std::env::var_os` in earnest.
    ///
    /// # Errors
    /// When no variable says where a cache could be.
    pub fn choose(variable: impl Fn(&str) -> Option<OsString>, trampoline: Option<PathBuf>) -> Result<Self, Error> {
        let folder = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(binaries) = folder(BINARIES_VARIABLE) {
            return Ok(Self::Folder(binaries));
        }
        let user_cache = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let cache = folder(CACHE_VARIABLE).or_else(|| Some(user_cache()?.join("stratum/assets")));
        Ok(Self::Cache {
            folder: cache.ok_or(Error::NoCache)?,
            trampoline,
        })
    }

    /// The paths of some programs, in the order asked for. What is missing in the cache is built, which takes minutes
    /// the first time, with a progress bar on standard error.
    ///
    /// # Errors
    /// Names the program and what to do.
    pub async fn provide<const COUNT: usize>(&self, tools: [Tool; COUNT]) -> Result<[PathBuf; COUNT], Error> {
        let mut paths = tools.map(|_| PathBuf::new());
        for (path, tool) in paths.iter_mut().zip(tools) {
            *path = match self {
                Self::Folder(folder) => in_folder(folder.clone(), tool)?,
                Self::Cache { folder, trampoline } => build::cached(folder, trampoline.as_deref(), tool).await?,
            };
        }
        Ok(paths)
    }
}

fn in_folder(folder: PathBuf, tool: Tool) -> Result<PathBuf, Error> {
    let path = folder.join(tool.name());
    if path.is_file() {
        Ok(path)
    } else {
        Err(Error::NotInFolder { tool, folder })
    }
}
