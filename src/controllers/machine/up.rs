//! `stratum up`: prepares the node, then keeps containerd, the kubelet and, on controllers, the operator running, and
//! renews certificates before they end.
//!
//! Pods do not depend on it: when it ends, however it ends, they stay, and the next one finds them.

mod chores;
mod renewing;
mod services;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::chores::look_after;
use self::services::{CONTAINERD_WITHIN, Services};
use super::super::concern::chain;
use super::install;
use super::node::{self, Config, Node};
use crate::host::control_socket::{self, ControlSocket};
use crate::host::layout::Layout;
use crate::host::lock::{Attempt, Holder, Lock};
use crate::host::payload::{self, Needs, Progress, Verified};
use crate::host::{atomic_file, clock, lock, own_program, supervisor, teardown};

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
    // Beside everything else: nothing on this node waits for it.
    drop(tokio::task::spawn_blocking(move || keep_program(&layout)));
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

/// Jobs that do something on this node run it. Without it the node works all the same.
fn keep_program(layout: &Layout) {
    let path = layout.program();
    match own_program::keep(Path::new(own_program::RUNNING), &path) {
        Ok(true) => tracing::info!(
            "this program is at {} for the Jobs of its other commands",
            path.display()
        ),
        Ok(false) => {}
        Err(error) => tracing::warn!("commands of other nodes cannot ask this one: {}", chain(&error)),
    }
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
