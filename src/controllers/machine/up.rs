//! `stratum up`: prepares the node, then keeps containerd, the kubelet and, on controllers, the operator running.
//!
//! Pods do not depend on it: when it ends, however it ends, they stay, and the next one finds them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::control_plane;
use super::install;
use super::node::{self, Config, Node};
use crate::controllers::concern::chain;
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::departed::unmark;
use crate::host::assets::Tool;
use crate::host::child::Program;
use crate::host::control_socket::{self, Answer, ControlSocket, Question};
use crate::host::layout::{Identity, Layout};
use crate::host::lock::{Attempt, Holder, Lock};
use crate::host::payload::{self, Needs, Progress, Verified};
use crate::host::supervisor::{self, BeforeStart, Service, ServiceName, Supervised};
use crate::host::{atomic_file, clock, lock, runtime, teardown};

/// How long containerd may take until it answers.
const CONTAINERD_WITHIN: Duration = Duration::from_secs(60);
/// How often it is asked.
const PACE: Duration = Duration::from_millis(200);
/// How often the name servers of CoreDNS are brought up to the machine's, which change with its network.
const RESOLVERS_EVERY: Duration = Duration::from_secs(60);
/// How long a controller is left alone after it was refused something.
const AGAIN: Duration = Duration::from_secs(10);

/// What it needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where files are.
    pub layout: Layout,
    /// What config.yaml passes through.
    pub config: Config,
    /// This executable, which is also the operator.
    pub executable: PathBuf,
}

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another one runs.
    #[error("`stratum up` runs already, as {holder}")]
    Runs {
        /// Which.
        holder: Holder,
    },
    /// Something else changes this node.
    #[error("this node is being changed by {holder}: wait for it, then start `stratum up` again")]
    Locked {
        /// By whom.
        holder: Holder,
    },
    /// An uninstall did not come to its end. Its Node or its member of etcd is gone: it cannot be what it was, and a later
    /// uninstall would believe that there is nothing left to tell.
    #[error("this machine has left its cluster ({words}): `stratum uninstall --yes` removes the rest of it")]
    HasLeft {
        /// What was done.
        words: String,
    },
    /// A lock cannot be taken.
    #[error("cannot lock this node")]
    Lock(#[source] lock::Error),
    /// A folder cannot be made.
    #[error("cannot prepare the node's folders")]
    Folder(#[source] atomic_file::Error),
    /// The node cannot be rendered.
    #[error(transparent)]
    Node(#[from] node::Error),
    /// What a join left.
    #[error(transparent)]
    Install(#[from] install::Error),
    /// Programs and images.
    #[error("the payload cannot be used")]
    Payload(#[source] payload::Error),
    /// A service cannot be started at all.
    #[error("cannot run this node")]
    Service(#[source] supervisor::Error),
    /// containerd does not answer.
    #[error("containerd did not answer at {} within {} s; its log is {}", socket.display(), CONTAINERD_WITHIN.as_secs(), log.display())]
    Containerd {
        /// Where it should.
        socket: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// The control socket.
    #[error("cannot listen for commands")]
    Socket(#[source] control_socket::Error),
}

impl Error {
    /// Whether nothing was changed: somebody else is at it, or what this node is cannot be told.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Runs { .. } | Self::Locked { .. } | Self::HasLeft { .. } | Self::Node(node::Error::State(_)) => true,
            Self::Lock(_)
            | Self::Folder(_)
            | Self::Node(_)
            | Self::Install(_)
            | Self::Payload(_)
            | Self::Service(_)
            | Self::Containerd { .. }
            | Self::Socket(_) => false,
        }
    }
}

/// Runs the node until `stop`.
///
/// # Errors
/// When the node cannot be prepared or containerd and the kubelet cannot be started; later failures are made up for.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<(), Error> {
    let layout = settings.layout.clone();
    atomic_file::create_folder(&layout.run(), atomic_file::Access::Secret).map_err(Error::Folder)?;
    let _running = only_one(&layout.up_lock(), "stratum up").map_err(|refused| refused.into_error(true))?;
    let (node, payload) = prepare(&settings)?;
    let node = Arc::new(node);
    let services = Services::new(&settings, Arc::clone(&node), payload);
    let socket = ControlSocket::listen(&layout.control_socket()).map_err(Error::Socket)?;
    let answering = {
        let (services, stop) = (services.clone(), stop.clone());
        let serve = async move {
            socket
                .serve(move |question| {
                    let (services, stop) = (services.clone(), stop.clone());
                    async move { services.answer(question, &stop).await }
                })
                .await;
        };
        tokio::spawn(serve)
    };
    let ran = tokio::select! {
        started = services.start() => match started {
            Ok(()) => {
                look_after(&services, &stop).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
        () = stop.cancelled() => Ok(()),
    };
    answering.abort();
    services.stop().await;
    ran
}

/// Renders everything and checks the payload, under the node's lock.
fn prepare(settings: &Settings) -> Result<(Node, Verified), Error> {
    let layout = &settings.layout;
    let _changing =
        only_one(&layout.node_lock(), "stratum up, preparing").map_err(|refused| refused.into_error(false))?;
    if let Some(words) = teardown::was_let_go(layout) {
        return Err(Error::HasLeft { words });
    }
    let node = Node::load(layout.clone(), settings.config.clone())?;
    let needs = Needs::of(&node.state);
    let payload = payload::verify(&layout.payload(), &needs, Progress::Quiet).map_err(Error::Payload)?;
    let mut told = Vec::new();
    let prepared = node.prepare(clock::now(), &mut told);
    for line in String::from_utf8_lossy(&told).lines() {
        tracing::info!("{line}");
    }
    prepared?;
    install::finished(layout)?;
    Ok((node, payload))
}

/// A lock that was not to be had.
enum Refused {
    Held(Holder),
    Failed(lock::Error),
}

impl Refused {
    fn into_error(self, ours: bool) -> Error {
        match (self, ours) {
            (Self::Held(holder), true) => Error::Runs { holder },
            (Self::Held(holder), false) => Error::Locked { holder },
            (Self::Failed(error), _) => Error::Lock(error),
        }
    }
}

fn only_one(path: &Path, operation: &str) -> Result<Lock, Refused> {
    match Lock::attempt(path, operation) {
        Ok(Attempt::Taken(lock)) => Ok(lock),
        Ok(Attempt::Held(holder)) => Err(Refused::Held(holder)),
        Err(error) => Err(Refused::Failed(error)),
    }
}

/// The services, as far as they run.
#[derive(Clone)]
struct Services {
    settings: Arc<Settings>,
    node: Arc<Node>,
    payload: Arc<Verified>,
    running: Arc<Mutex<BTreeMap<ServiceName, Supervised>>>,
}

impl Services {
    fn new(settings: &Settings, node: Arc<Node>, payload: Verified) -> Self {
        Self {
            settings: Arc::new(settings.clone()),
            node,
            payload: Arc::new(payload),
            running: Arc::default(),
        }
    }

    /// Starts containerd, gives it the images, and starts the kubelet.
    async fn start(&self) -> Result<(), Error> {
        let layout = &self.settings.layout;
        atomic_file::create_folder(&layout.logs(), atomic_file::Access::Secret).map_err(Error::Folder)?;
        let containerd =
            Program::new(self.payload.program(Tool::Containerd)).arguments(runtime::containerd_arguments(layout));
        self.run(Service {
            before_start: Some(record_confinement(layout.clone())),
            ..self.service(ServiceName::Containerd, containerd, Duration::from_secs(10))
        })
        .await?;
        let began = clock::monotonic();
        while !runtime::active(layout) {
            if began.elapsed() > CONTAINERD_WITHIN {
                return Err(Error::Containerd {
                    socket: layout.containerd_socket(),
                    log: self.log(ServiceName::Containerd),
                });
            }
            clock::sleep(PACE).await;
        }
        let ctr = self.payload.program(Tool::Ctr);
        let imported = payload::import_images(&ctr, &layout.containerd_socket(), &self.payload, Progress::Quiet).await;
        for image in imported.map_err(Error::Payload)?.imported {
            tracing::info!(image, "imported");
        }
        let kubelet = Program::new(self.payload.program(Tool::Kubelet))
            .arguments(runtime::kubelet_arguments(layout, &self.node.state));
        self.run(self.service(ServiceName::Kubelet, kubelet, Duration::from_secs(20)))
            .await
    }

    fn service(&self, name: ServiceName, program: Program, ends_within: Duration) -> Service {
        Service {
            name,
            program: program
                .variable("PATH", self.path())
                .dies_with_us(&self.settings.executable),
            log: self.log(name),
            ends_within,
            before_start: None,
        }
    }

    async fn run(&self, service: Service) -> Result<(), Error> {
        let name = service.name;
        let supervised = Supervised::start(service).map_err(Error::Service)?;
        self.running.lock().await.insert(name, supervised);
        Ok(())
    }

    /// The payload's programs first: containerd looks for its shim, and the kubelet for nothing of ours.
    fn path(&self) -> OsString {
        let mut path = self.payload.folder().join("bin").into_os_string();
        if let Some(own) = std::env::var_os("PATH").filter(|own| !own.is_empty()) {
            path.push(":");
            path.push(own);
        }
        path
    }

    fn log(&self, name: ServiceName) -> PathBuf {
        self.settings.layout.logs().join(format!("{name}.log"))
    }

    async fn operator(&self) -> Result<(), Error> {
        let layout = &self.settings.layout;
        let operator = Program::new(&self.settings.executable)
            .arguments(["operator", "--node-name", &self.node.state.node_name])
            .arguments(["--kubeconfig".into(), layout.kubeconfig(Identity::Operator)])
            .arguments(["--deployer-kubeconfig".into(), layout.kubeconfig(Identity::Deployer)])
            .arguments(["--manifests-dir".into(), layout.manifests()])
            .arguments(["--state-dir".into(), layout.state()]);
        self.run(self.service(ServiceName::Operator, operator, Duration::from_secs(30)))
            .await
    }

    async fn answer(&self, question: Question, stop: &CancellationToken) -> Answer {
        match question {
            Question::Status => {
                let running = self.running.lock().await;
                Answer::Status(
                    running
                        .iter()
                        .map(|(name, service)| (*name, service.status()))
                        .collect(),
                )
            }
            Question::Restart(name) => match self.running.lock().await.get(&name) {
                None => Answer::Refused(format!("{name} does not run on this node")),
                Some(service) => match service.restart().await {
                    Ok(process) => Answer::Restarted(process),
                    Err(error) => Answer::Refused(chain(&error)),
                },
            },
            Question::Stop => {
                stop.cancel();
                Answer::Stopping
            }
        }
    }

    /// Ends them in the reverse order: what watches pods before what runs them.
    async fn stop(&self) {
        let running = std::mem::take(&mut *self.running.lock().await);
        for (_, service) in running.into_iter().rev() {
            service.stop().await;
        }
    }
}

/// containerd reads whether to label containers at each of its starts: when a command restarts it and when it has crashed,
/// as much as at the first.
fn record_confinement(layout: Layout) -> BeforeStart {
    BeforeStart::new(move || {
        // No reason to keep containerd down: without a record nothing passes for confined.
        if let Err(error) = runtime::record_confinement(&layout, clock::now()) {
            tracing::warn!("since when containers are confined is not recorded: {}", chain(&error));
        }
    })
}

/// What is left to do while the node runs.
async fn look_after(services: &Services, stop: &CancellationToken) {
    let work = async {
        tokio::join!(become_ready(services), follow_resolvers(services));
    };
    tokio::select! {
        () = work => stop.cancelled().await,
        () = stop.cancelled() => {}
    }
}

/// On a controller the operator is started once the cluster is ready for it. A worker that was uninstalled and is back
/// takes its mark off, which only it may.
async fn become_ready(services: &Services) {
    let node = &services.node;
    loop {
        let done = if node.state.is_controller() {
            match control_plane::make_ready(node).await {
                Ok(()) => services.operator().await.map_err(|error| chain(&error)),
                Err(error) => Err(chain(&error)),
            }
        } else {
            take_mark_off(node).await
        };
        match done {
            Ok(()) => return,
            Err(error) => tracing::error!("{error}; trying again in {} s", AGAIN.as_secs()),
        }
        clock::sleep(AGAIN).await;
    }
}

async fn take_mark_off(node: &Node) -> Result<(), String> {
    let settings = ClientSettings::new(node.layout.kubeconfig(Identity::Kubelet), "up");
    let client = connection::client(&settings, None)
        .await
        .map_err(|error| chain(&error))?;
    unmark(&client, &node.state.node_name)
        .await
        .map_err(|error| chain(&error))
}

async fn follow_resolvers(services: &Services) {
    loop {
        clock::sleep(RESOLVERS_EVERY).await;
        let mut told = Vec::new();
        if let Err(error) = services.node.follow_resolvers(&mut told) {
            tracing::warn!("{}", chain(&error));
        }
    }
}
