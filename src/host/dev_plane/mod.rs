//! A control plane of two processes, etcd and kube-apiserver, on loopback: what `stratum dev` and the tests run on.
//!
//! Everything it keeps hangs under one folder, laid out like a node's. Started again over the same folder it has the same
//! objects, keys and, if they are free, ports. Both processes end with ours. No binding is made here: until somebody
//! with the [`DevPlane::bootstrap_credential`] makes them, no written credential may do anything.

mod arguments;
mod material;
mod ports;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::atomic_file::{self, Access};
use super::child::{self, Child, Exit, Output, Program, log_tail};
use super::kubeconfig::{self, Kubeconfig};
use super::layout::{Identity, Layout};
use super::lock::{Attempt, Holder, Lock};
use super::{clock, https, lock, ready};
use crate::pki::key::KeyKind;
use material::Material;
use ports::Ports;

pub use super::pki_folder::{Credential, Error as MaterialError};
pub use ports::Error as PortError;

/// Who has a kubeconfig: there are no other components.
const IDENTITIES: [Identity; 3] = [Identity::Admin, Identity::Operator, Identity::Deployer];

/// How to run one.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Everything it keeps goes below this folder. Created if missing.
    pub data: PathBuf,
    /// The etcd executable.
    pub etcd: PathBuf,
    /// The kube-apiserver executable.
    pub kube_apiserver: PathBuf,
    /// A `stratum` executable, with which the processes die with us.
    pub trampoline: PathBuf,
    /// Algorithm of the keys that are made.
    pub keys: KeyKind,
    /// An audit policy (YAML), if the API server shall keep an audit log.
    pub audit_policy: Option<String>,
    /// etcd does not flush its writes. Faster, and what it held is lost when the machine (not the process) dies.
    pub unsafe_no_fsync: bool,
    /// More arguments for etcd; a later flag wins over an earlier one.
    pub etcd_arguments: Vec<String>,
    /// More arguments for kube-apiserver; a later flag wins over an earlier one.
    pub api_server_arguments: Vec<String>,
    /// How long both may take to get ready.
    pub start_limit: Duration,
}

impl Settings {
    /// The usual settings: P-256 keys, durable writes, no audit log, a minute to start.
    pub fn new(data: impl Into<PathBuf>, [etcd, kube_apiserver]: [PathBuf; 2], trampoline: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            etcd,
            kube_apiserver,
            trampoline: trampoline.into(),
            keys: KeyKind::default(),
            audit_policy: None,
            unsafe_no_fsync: false,
            etcd_arguments: Vec::new(),
            api_server_arguments: Vec::new(),
            start_limit: Duration::from_secs(60),
        }
    }
}

/// A control plane that does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process runs one over the same folder.
    #[error("{} is in use by {holder}: stop it, or choose another folder", data.display())]
    InUse {
        /// The folder.
        data: PathBuf,
        /// Who uses it.
        holder: Holder,
    },
    /// The lock of the folder cannot be taken.
    #[error("cannot lock the control plane's folder")]
    Lock(#[source] lock::Error),
    /// A file or folder cannot be written.
    #[error("cannot prepare the control plane's folder")]
    Folder(#[source] atomic_file::Error),
    /// A certificate or key cannot be made, read or written.
    #[error("cannot prepare the control plane's certificates")]
    Material(#[source] MaterialError),
    /// No ports.
    #[error("cannot choose ports for the control plane")]
    Ports(#[source] PortError),
    /// A kubeconfig cannot be written.
    #[error("cannot write a kubeconfig of the control plane")]
    Kubeconfig(#[source] kubeconfig::Error),
    /// A process cannot be started or watched.
    #[error("cannot run the control plane")]
    Child(#[source] child::Error),
    /// Its certificates make no client.
    #[error("cannot ask the control plane")]
    Client(#[source] https::Error),
    /// A process ended by itself.
    #[error("{program} ended ({exit}); the log is {}: {last}", log.display())]
    Ended {
        /// `etcd` or `kube-apiserver`.
        program: &'static str,
        /// How it ended.
        exit: Exit,
        /// Its log.
        log: PathBuf,
        /// The last lines of it, joined.
        last: String,
    },
    /// The API server did not get ready in time.
    #[error("kube-apiserver was not ready after {limit:?}; the log is {}: {last}", log.display())]
    NotReady {
        /// [`Settings::start_limit`].
        limit: Duration,
        /// Its log.
        log: PathBuf,
        /// The last lines of it, joined.
        last: String,
        /// What the last question was answered with.
        #[source]
        source: Box<ready::Error>,
    },
}

/// A running control plane. Dropping it kills both processes.
#[derive(Debug)]
pub struct DevPlane {
    layout: Layout,
    material: Material,
    ports: Ports,
    // Before etcd, so that it is dropped first: an API server without its store only fills its log.
    api_server: Child,
    etcd: Child,
    _lock: Lock,
}

/// How long the bootstrap credential lives.
const BOOTSTRAP_LIFETIME: SignedDuration = SignedDuration::from_mins(10);
/// How often readiness is asked for.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// A port that was free a moment ago may be taken when the process binds it.
const PORT_ATTEMPTS: u32 = 3;

impl DevPlane {
    /// Starts both processes and returns when the API server says it is ready.
    ///
    /// # Errors
    /// Says what to look at; nothing is left running.
    pub async fn start(settings: &Settings) -> Result<Self, Error> {
        let layout = Layout::under(absolute(&settings.data));
        let lock = take(&layout)?;
        let now = clock::now();
        let material = Material::prepare(&layout, settings.keys, now).map_err(Error::Material)?;
        if let Some(policy) = &settings.audit_policy {
            let path = arguments::audit_policy(&layout);
            atomic_file::write_if_changed(&path, policy.as_bytes(), Access::Public).map_err(Error::Folder)?;
        }
        let mut attempt = 1;
        let (ports, api_server, etcd) = loop {
            let ports = Ports::choose(&layout.state(), attempt > 1).map_err(Error::Ports)?;
            match launch(settings, &layout, ports).await {
                Ok((api_server, etcd)) => break (ports, api_server, etcd),
                Err(error) if attempt < PORT_ATTEMPTS && is_taken_port(&error) => attempt += 1,
                Err(error) => return Err(error),
            }
        };
        let plane = Self {
            layout,
            material,
            ports,
            api_server,
            etcd,
            _lock: lock,
        };
        plane.write_kubeconfigs()?;
        Ok(plane)
    }

    /// `https://127.0.0.1:PORT`
    #[must_use]
    pub fn server(&self) -> String {
        self.ports.api_server_url()
    }

    /// Where its files are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The CA that its server and clients are verified with, PEM.
    #[must_use]
    pub fn authority(&self) -> String {
        self.material.authority()
    }

    /// The API server's audit log; empty or missing without [`Settings::audit_policy`].
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        arguments::audit_log(&self.layout)
    }

    /// `https://127.0.0.1:PORT` of etcd, for clients with [`DevPlane::etcd_client`].
    #[must_use]
    pub fn etcd_server(&self) -> String {
        self.ports.etcd_url()
    }

    /// The PEM files an etcd client needs: CA, certificate, key.
    #[must_use]
    pub fn etcd_client(&self) -> [PathBuf; 3] {
        let pki = self.layout.pki();
        ["etcd/ca.crt", "apiserver-etcd-client.crt", "apiserver-etcd-client.key"].map(|name| pki.join(name))
    }

    /// The programs and their process ids.
    #[must_use]
    pub fn processes(&self) -> [(&'static str, u32); 2] {
        [(ETCD, self.etcd.id()), (API_SERVER, self.api_server.id())]
    }

    /// Makes a client certificate of group `system:masters` that lives for ten minutes and is written nowhere: for the
    /// bindings without which no other credential may do anything.
    ///
    /// # Errors
    /// When the CA cannot sign.
    pub fn bootstrap_credential(&self, now: Timestamp) -> Result<Credential, Error> {
        self.material
            .bootstrap(BOOTSTRAP_LIFETIME, now)
            .map_err(Error::Material)
    }

    /// Waits until one of the processes ends by itself, and says which and why.
    pub async fn failure(&mut self) -> Error {
        let exit = tokio::select! {
            exit = self.etcd.wait() => (ETCD, exit),
            exit = self.api_server.wait() => (API_SERVER, exit),
        };
        ended(&self.layout, exit)
    }

    /// Ends the API server, then etcd; each is killed when it takes longer than `limit`.
    ///
    /// # Errors
    /// When a process cannot be watched any more.
    pub async fn stop(mut self, limit: Duration) -> Result<(), Error> {
        self.api_server.terminate(limit).await.map_err(Error::Child)?;
        self.etcd.terminate(limit).await.map_err(Error::Child)?;
        Ok(())
    }

    fn write_kubeconfigs(&self) -> Result<(), Error> {
        let pki = self.layout.pki();
        for identity in IDENTITIES {
            let name = identity.name();
            let kubeconfig = Kubeconfig {
                server: self.server(),
                user: name.to_owned(),
                certificate_authority: pki.join("ca.crt"),
                client_certificate: pki.join(format!("{name}.crt")),
                client_key: pki.join(format!("{name}.key")),
            };
            kubeconfig
                .write(&self.layout.kubeconfig(identity))
                .map_err(Error::Kubeconfig)?;
        }
        Ok(())
    }
}

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";

fn absolute(path: &Path) -> PathBuf {
    // Fails only for an empty path or without a working directory; the folder's creation then says so.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn take(layout: &Layout) -> Result<Lock, Error> {
    let secret = [
        layout.state(),
        layout.pki(),
        layout.pki().join("etcd"),
        layout.etcd_data(),
        logs(layout),
    ];
    let kubeconfigs = layout.state().join("kubeconfig");
    for folder in secret.iter().chain([&kubeconfigs, &layout.run()]) {
        atomic_file::create_folder(folder, Access::Secret).map_err(Error::Folder)?;
    }
    match Lock::attempt(&layout.node_lock(), "control plane").map_err(Error::Lock)? {
        Attempt::Taken(lock) => Ok(lock),
        Attempt::Held(holder) => Err(Error::InUse {
            data: layout.root().to_owned(),
            holder,
        }),
    }
}

async fn launch(settings: &Settings, layout: &Layout, ports: Ports) -> Result<(Child, Child), Error> {
    let start = |name: &str, path: &Path, arguments: Vec<String>| {
        let log = log(layout, name);
        // A log of an earlier run would be quoted in the messages about this one.
        atomic_file::remove(&log).map_err(Error::Folder)?;
        let program = Program::new(path)
            .arguments(arguments)
            .dies_with_us(&settings.trampoline);
        program.start(&Output::Log(log)).map_err(Error::Child)
    };
    let mut etcd = start(ETCD, &settings.etcd, arguments::etcd(settings, layout, ports))?;
    let mut api_server = start(
        API_SERVER,
        &settings.kube_apiserver,
        arguments::api_server(settings, layout, ports),
    )?;
    tokio::select! {
        exit = etcd.wait() => return Err(ended(layout, (ETCD, exit))),
        exit = api_server.wait() => return Err(ended(layout, (API_SERVER, exit))),
        ready = until_ready(layout, ports, settings.start_limit) => ready?,
    }
    Ok((api_server, etcd))
}

async fn until_ready(layout: &Layout, ports: Ports, limit: Duration) -> Result<(), Error> {
    let started = clock::monotonic();
    let [authority, certificate, key] = ["ca.crt", "admin.crt", "admin.key"].map(|name| layout.pki().join(name));
    let client = https::Client::new(&authority, &certificate, &key).map_err(Error::Client)?;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.api_server));
    loop {
        let left = limit.saturating_sub(clock::monotonic().duration_since(started));
        match ready::readyz(&client, server, left.max(PROBE_INTERVAL)).await {
            Ok(()) => return Ok(()),
            Err(error) if left.is_zero() => {
                let source = Box::new(error);
                let log = log(layout, API_SERVER);
                return Err(Error::NotReady {
                    limit,
                    last: last_words(&log),
                    log,
                    source,
                });
            }
            Err(_) => clock::sleep(PROBE_INTERVAL).await,
        }
    }
}

fn ended(layout: &Layout, (program, exit): (&'static str, Result<Exit, child::Error>)) -> Error {
    let log = log(layout, program);
    match exit {
        Ok(exit) => Error::Ended {
            program,
            exit,
            last: last_words(&log),
            log,
        },
        Err(error) => Error::Child(error),
    }
}

fn is_taken_port(error: &Error) -> bool {
    matches!(error, Error::Ended { log, .. } if log_tail(log, 40).contains("address already in use"))
}

fn logs(layout: &Layout) -> PathBuf {
    layout.state().join("logs")
}

fn log(layout: &Layout, program: &str) -> PathBuf {
    logs(layout).join(format!("{program}.log"))
}

fn last_words(log: &Path) -> String {
    log_tail(log, 5).replace('\n', " | ")
}
