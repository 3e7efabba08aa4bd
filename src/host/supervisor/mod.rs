//! Services of a node that `stratum up` keeps running: containerd, the kubelet and the operator.
//!
//! A service that ends is started again, at once the first time and then after ever longer waits, until it has run for a
//! while. Stopping containerd leaves the containers alone: their shims are in process groups of their own, so a restart of
//! a service, of `stratum up` or of the unit (`KillMode=process`) is no restart of pods.

mod backoff;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::child::{self, Child, Exit, Output, Program, log_tail};
use super::clock;
use backoff::Backoff;

/// Which service.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::EnumIter,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ServiceName {
    /// containerd.
    Containerd,
    /// The kubelet.
    Kubelet,
    /// `stratum operator`, on controllers.
    Operator,
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Which.
    pub name: ServiceName,
    /// What is started.
    pub program: Program,
    /// The file its output is appended to.
    pub log: PathBuf,
    /// How long it may take to end when it is asked to.
    pub ends_within: Duration,
    /// What is done before each start.
    pub before_start: Option<BeforeStart>,
}

/// What is done right before every start of a service, whatever the reason for it, and after the process before has ended.
/// It has no say in the start: a service that is down is worse than what could go wrong here.
#[derive(Clone)]
pub struct BeforeStart(Arc<dyn Fn() + Send + Sync>);

impl BeforeStart {
    /// To be done each time. It should be short: the service is down meanwhile.
    pub fn new(work: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(work))
    }
}

impl fmt::Debug for BeforeStart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BeforeStart")
    }
}

/// How a service is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its process, while there is one.
    pub process: Option<u32>,
    /// Since when it is as it is.
    pub since: Timestamp,
    /// How often it was started again, whoever wanted it.
    pub restarts: u64,
    /// How it ended the last time, with the last line it wrote.
    pub last_exit: Option<String>,
}

/// Why a service does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be started or watched.
    #[error("{0}")]
    Child(ServiceName, #[source] child::Error),
    /// It is not looked after any more.
    #[error("{0} is being stopped")]
    Stopping(ServiceName),
}

enum Order {
    Restart(oneshot::Sender<Result<u32, Error>>),
    Stop,
}

/// A service that is looked after. Dropping it kills the service.
pub struct Supervised {
    name: ServiceName,
    orders: mpsc::Sender<Order>,
    status: watch::Receiver<Status>,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Starts a service, and looks after it from then on.
    ///
    /// # Errors
    /// When it cannot be started the first time: that is a fault of the installation, which waiting does not mend.
    pub fn start(service: Service) -> Result<Self, Error> {
        let name = service.name;
        let child = service.spawn()?;
        let (orders, incoming) = mpsc::channel(4);
        let (told, status) = watch::channel(Status {
            process: Some(child.id()),
            since: clock::now(),
            restarts: 0,
            last_exit: None,
        });
        tracing::info!(service = %name, pid = child.id(), log = %service.log.display(), "started");
        let keeper = Keeper {
            service,
            orders: incoming,
            told,
        };
        let task = tokio::spawn(keeper.keep(child));
        Ok(Self {
            name,
            orders,
            status,
            task,
        })
    }

    /// How it is now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Ends it and starts it again; its new process.
    ///
    /// # Errors
    /// When it cannot be started, or is being stopped.
    pub async fn restart(&self) -> Result<u32, Error> {
        let (answer, answered) = oneshot::channel();
        let stopping = || Error::Stopping(self.name);
        self.orders.send(Order::Restart(answer)).await.map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?
    }

    /// Ends it for good.
    pub async fn stop(mut self) {
        // A keeper that is gone has ended its child.
        let _ = self.orders.send(Order::Stop).await;
        if let Err(failed) = (&mut self.task).await {
            tracing::error!(service = %self.name, error = %failed, "its supervision has failed");
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service {
    fn spawn(&self) -> Result<Child, Error> {
        if let Some(BeforeStart(work)) = &self.before_start {
            work();
        }
        let started = self.program.start(&Output::Log(self.log.clone()));
        started.map_err(|source| Error::Child(self.name, source))
    }
}

struct Keeper {
    service: Service,
    orders: mpsc::Receiver<Order>,
    told: watch::Sender<Status>,
}

/// What comes next for a service.
enum Next {
    Ended(Result<Exit, child::Error>),
    Ordered(Option<Order>),
}

impl Keeper {
    async fn keep(mut self, mut child: Child) {
        let mut backoff = Backoff::default();
        loop {
            let began = clock::monotonic();
            let next = tokio::select! {
                exit = child.wait() => Next::Ended(exit),
                order = self.orders.recv() => Next::Ordered(order),
            };
            child = match next {
                Next::Ended(exit) => {
                    self.tell_exit(&exit);
                    match self.start_again(backoff.after(began.elapsed()), &mut backoff).await {
                        Some(child) => child,
                        None => return,
                    }
                }
                Next::Ordered(Some(Order::Restart(answer))) => {
                    self.end(&mut child).await;
                    match self.start_now(answer, &mut backoff).await {
                        Some(child) => child,
                        None => return,
                    }
                }
                Next::Ordered(Some(Order::Stop) | None) => return self.end(&mut child).await,
            };
        }
    }

    async fn start_now(&mut self, answer: oneshot::Sender<Result<u32, Error>>, backoff: &mut Backoff) -> Option<Child> {
        match self.service.spawn() {
            Ok(child) => {
                self.tell_start(&child);
                // Whoever asked may have gone.
                let _ = answer.send(Ok(child.id()));
                Some(child)
            }
            Err(error) => {
                let _ = answer.send(Err(error));
                let wait = backoff.after(Duration::ZERO);
                self.start_again(wait, backoff).await
            }
        }
    }

    /// Starts it after a wait, which an order cuts short; none when it is to stay down.
    async fn start_again(&mut self, mut wait: Duration, backoff: &mut Backoff) -> Option<Child> {
        loop {
            let answer = tokio::select! {
                () = clock::sleep(wait) => None,
                order = self.orders.recv() => match order {
                    Some(Order::Restart(answer)) => Some(answer),
                    Some(Order::Stop) | None => return None,
                },
            };
            match (self.service.spawn(), answer) {
                (Ok(child), answer) => {
                    self.tell_start(&child);
                    if let Some(answer) = answer {
                        let _ = answer.send(Ok(child.id()));
                    }
                    return Some(child);
                }
                (Err(error), answer) => {
                    wait = backoff.after(Duration::ZERO);
                    tracing::error!(service = %self.service.name, error = %error, "cannot be started; next try in {} s", wait.as_secs());
                    if let Some(answer) = answer {
                        let _ = answer.send(Err(error));
                    }
                }
            }
        }
    }

    async fn end(&self, child: &mut Child) {
        let exit = child.terminate(self.service.ends_within).await;
        self.tell_exit(&exit);
    }

    fn tell_start(&self, child: &Child) {
        self.told.send_modify(|status| {
            status.process = Some(child.id());
            status.since = clock::now();
            status.restarts += 1;
        });
        tracing::info!(service = %self.service.name, pid = child.id(), "started again");
    }

    fn tell_exit(&self, exit: &Result<Exit, child::Error>) {
        let last = log_tail(&self.service.log, 1);
        let how = match exit {
            Ok(exit) => format!("{exit}: {last}"),
            Err(error) => error.to_string(),
        };
        tracing::warn!(service = %self.service.name, log = %self.service.log.display(), "ended ({how})");
        self.told.send_modify(|status| {
            status.process = None;
            status.since = clock::now();
            status.last_exit = Some(how);
        });
    }
}
