//! helm: found, asked for its version, and run as a child that may do little.
//!
//! A chart is a program in all but name, and helm speaks with registries of strangers. So helm runs as a user of its own, in
//! a folder of its own, with an environment that has nothing of ours, limits of its own, and no plugins; and it dies with us.
//! What it may do to the cluster is decided by the kubeconfig it is given.

mod credentials;
mod redact;
mod workspace;

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use super::child::{self, Bounded, Confinement, Program};
use super::{atomic_file, clock};

pub use redact::redact;
pub use workspace::Workspace;

/// The generation of helm whose flags are known here.
const MAJOR: u64 = 4;
/// Whom helm runs as, where we are root. No account has to have this id; none that a distribution makes does.
const USER: (u32, u32) = (64738, 64738);
/// Of each output of helm that much is kept.
const KEPT: usize = 1024 * 1024;
/// How long helm may take to end when it is asked to: shorter than what is left of a term when it is over.
const GRACE: Duration = Duration::from_secs(2);
/// How long it may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// The working directory, by a name that helm's user may follow wherever it lies: no folder above it is passed through. Go
/// takes it for the directory's name when it stands in `PWD`.
const HERE: &str = "/proc/self/cwd";

/// helm, ready to run.
#[derive(Clone, Debug)]
pub struct Helm {
    path: PathBuf,
    version: semver::Version,
    trampoline: PathBuf,
    folder: PathBuf,
    user: Option<(u32, u32)>,
}

/// Why helm cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is nowhere.
    #[error("no helm: it is not at {}; name one with --helm, or put it there", places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "))]
    NotFound {
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// It does not say its version.
    #[error("{} does not say its version as helm does ({said}): is it helm {MAJOR}?", path.display())]
    NoVersion {
        /// The program.
        path: PathBuf,
        /// What it said instead.
        said: String,
    },
    /// Another generation has other flags.
    #[error("{} is helm {version}, and helm {MAJOR} is needed", path.display())]
    OtherVersion {
        /// The program.
        path: PathBuf,
        /// Its version.
        version: semver::Version,
    },
    /// It cannot be run.
    #[error("cannot run helm")]
    Run(#[source] child::Error),
    /// The folder it runs in cannot be made or filled.
    #[error("cannot prepare the folder helm runs in")]
    Workspace(#[source] atomic_file::Error),
    /// The folder cannot be given to helm's user.
    #[error("cannot give {} to the user helm runs as", path.display())]
    Owner {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig cannot be read, or what it names cannot.
    #[error("cannot read {} for helm: {reason}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited,
    /// Its time was over.
    DeadlinePassed,
    /// We were told to stop.
    Stopped,
}

/// A run of helm.
#[derive(Clone, Debug)]
pub struct Ran {
    /// How it came to its end.
    pub ended: Ended,
    /// What it left.
    pub output: Bounded,
}

impl Ran {
    /// Whether helm did what it was told.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.ended == Ended::Exited && self.output.exit.is_success()
    }

    /// What helm says went wrong, in a few lines, without what is secret.
    #[must_use]
    pub fn complaint(&self, secrets: &[SecretString]) -> String {
        let text = self.output.stderr.text();
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        let said = lines
            .iter()
            .rev()
            .take(COMPLAINT)
            .rev()
            .copied()
            .collect::<Vec<_>>()
            .join("; ");
        let said: String = redact(&said, secrets).chars().take(LONGEST_COMPLAINT).collect();
        match self.ended {
            Ended::DeadlinePassed => format!("helm did not end in time; its last words: {said}"),
            Ended::Stopped => "the operator stopped while helm ran".to_owned(),
            Ended::Exited if said.is_empty() => format!("helm ended with {} and said nothing", self.output.exit),
            Ended::Exited => said,
        }
    }
}

/// The last lines that helm writes are about what went wrong.
const COMPLAINT: usize = 5;
/// An Event holds 1,024 bytes of text.
const LONGEST_COMPLAINT: usize = 800;

impl Helm {
    /// helm at the first of these places where a file is; `trampoline` is a `stratum` executable, and `state` a folder of
    /// ours, in which helm's are.
    ///
    /// # Errors
    /// When there is none, or it is of another generation.
    pub async fn find(places: &[PathBuf], trampoline: &Path, state: &Path) -> Result<Self, Error> {
        let places_told = || places.to_vec();
        let path = places.iter().find(|place| place.is_file()).cloned();
        let path = path.ok_or_else(|| Error::NotFound { places: places_told() })?;
        let is_root = rustix::process::geteuid().is_root();
        let mut helm = Self {
            path,
            version: semver::Version::new(MAJOR, 0, 0),
            trampoline: trampoline.to_owned(),
            folder: state.join("helm"),
            user: is_root.then_some(USER),
        };
        workspace::sweep(&helm.folder);
        helm.version = helm.ask_version().await?;
        if helm.version.major != MAJOR {
            let Self { path, version, .. } = helm;
            return Err(Error::OtherVersion { path, version });
        }
        Ok(helm)
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &semver::Version {
        &self.version
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder for one task of helm's; it goes with the value.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn workspace(&self) -> Result<Workspace, Error> {
        Workspace::new(&self.folder, self.user)
    }

    /// Runs helm in a workspace, until it ends, `limit` is over or `stop` is cancelled.
    ///
    /// # Errors
    /// When it cannot be started. A helm that fails is no error here.
    pub async fn run(
        &self,
        workspace: &Workspace,
        arguments: &[String],
        input: Option<&SecretString>,
        limit: Duration,
        stop: &CancellationToken,
    ) -> Result<Ran, Error> {
        let input = input.map_or_else(Vec::new, |input| input.expose_secret().as_bytes().to_vec());
        let program = self.program(workspace).arguments(arguments);
        let is_stopped = std::sync::atomic::AtomicBool::new(false);
        let end = async {
            tokio::select! {
                () = stop.cancelled() => is_stopped.store(true, std::sync::atomic::Ordering::Relaxed),
                () = clock::sleep(limit) => {}
            }
        };
        let output = program.run_until(input, KEPT, end, GRACE).await.map_err(Error::Run)?;
        let ended = match (output.was_ended, is_stopped.into_inner()) {
            (false, _) => Ended::Exited,
            (true, true) => Ended::Stopped,
            (true, false) => Ended::DeadlinePassed,
        };
        Ok(Ran { ended, output })
    }

    fn program(&self, workspace: &Workspace) -> Program {
        let confinement = Confinement {
            user: self.user,
            open_files: 1024,
            file_size: 512 * 1024 * 1024,
            // All runs of helm at once, with their threads.
            processes: 2048,
        };
        let mut program = Program::new(&self.path)
            .confined(&self.trampoline, confinement)
            .folder(workspace.path());
        for (name, folder) in [
            ("PWD", ""),
            // Nothing is there: a registry's configuration could name a program that is to be asked for a password.
            ("PATH", "home/programs"),
            ("HOME", "home"),
            ("HELM_CACHE_HOME", "home/cache"),
            ("HELM_CONFIG_HOME", "home/config"),
            ("HELM_DATA_HOME", "home/data"),
            // It is not there, and so no plugin is.
            ("HELM_PLUGINS", "home/plugins"),
            ("TMPDIR", "home"),
            ("KUBECONFIG", workspace::KUBECONFIG),
        ] {
            let path = Path::new(HERE).join(folder);
            // Without the slash that an empty name leaves.
            program = program.variable(name, path.components().collect::<PathBuf>());
        }
        program = program.variable("HELM_DRIVER", "secret");
        for name in PROXIES {
            if let Some(value) = std::env::var_os(name) {
                program = program.variable(name, value);
            }
        }
        program
    }

    async fn ask_version(&self) -> Result<semver::Version, Error> {
        let workspace = self.workspace()?;
        let arguments = ["version", "--template", "{{.Version}}"].map(str::to_owned);
        let never = CancellationToken::new();
        let ran = self.run(&workspace, &arguments, None, VERSION_LIMIT, &never).await?;
        let said = ran.output.stdout.text();
        let parse = |text: &str| {
            let text = text.trim().strip_prefix('v')?;
            // A build that was not told its version says two numbers.
            let whole = semver::Version::parse(text).or_else(|_| semver::Version::parse(&format!("{text}.0")));
            whole.ok().filter(|_| ran.is_success())
        };
        parse(&said).ok_or_else(|| Error::NoVersion {
            path: self.path.clone(),
            said: match said.trim() {
                "" => ran.complaint(&[]),
                said => said.chars().take(100).collect(),
            },
        })
    }
}

/// How a machine behind a proxy reaches repositories. <https://pkg.go.dev/net/http#ProxyFromEnvironment>
const PROXIES: [&str; 6] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];
