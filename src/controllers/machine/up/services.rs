//! containerd, the kubelet and the operator, kept running for a node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Error, Settings};
use crate::controllers::concern::chain;
use crate::controllers::machine::node::Node;
use crate::host::assets::Tool;
use crate::host::child::Program;
use crate::host::control_socket::{Answer, Question};
use crate::host::layout::{Identity, Layout};
use crate::host::payload::{self, Progress, Verified};
use crate::host::supervisor::{BeforeStart, Service, ServiceName, Supervised};
use crate::host::{atomic_file, clock, runtime};

/// How long containerd may take until it answers.
pub(super) const CONTAINERD_WITHIN: Duration = Duration::from_secs(60);
/// How often it is asked.
const PACE: Duration = Duration::from_millis(200);

/// The services, as far as they run.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) settings: Arc<Settings>,
    pub(super) node: Arc<Node>,
    payload: Arc<Verified>,
    running: Arc<Mutex<BTreeMap<ServiceName, Supervised>>>,
}

impl Services {
    pub(super) fn new(settings: &Settings, node: Arc<Node>, payload: Verified) -> Self {
        Self {
            settings: Arc::new(settings.clone()),
            node,
            payload: Arc::new(payload),
            running: Arc::default(),
        }
    }

    /// Starts containerd, gives it the images, and starts the kubelet.
    pub(super) async fn start(&self) -> Result<(), Error> {
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

    pub(super) fn log(&self, name: ServiceName) -> PathBuf {
        self.settings.layout.logs().join(format!("{name}.log"))
    }

    pub(super) async fn operator(&self) -> Result<(), Error> {
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

    pub(super) async fn answer(&self, question: Question, stop: &CancellationToken) -> Answer {
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
    pub(super) async fn stop(&self) {
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
