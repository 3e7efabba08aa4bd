//! A Lease on the API server: each call with its own limit, each write at the version that was read.
#![expect(
    clippy::disallowed_methods,
    reason = "a Lease is written by the election alone, before there is a term that hands could act in"
)]

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::host::clock;

/// The longest a call may take. Two of them and a pause fit into the renew deadline.
pub(in crate::controllers) const CALL_LIMIT: Duration = Duration::from_secs(4);

/// A call about a Lease that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// It has no answer.
    #[error("{what} Lease {name}: no answer within {} ms", limit.as_millis())]
    TimedOut {
        /// What was done.
        what: &'static str,
        /// The Lease.
        name: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The answer is no.
    #[error("{what} Lease {name}")]
    Call {
        /// What was done.
        what: &'static str,
        /// The Lease.
        name: &'static str,
        /// What the API server said.
        #[source]
        source: kube::Error,
    },
}

impl LeaseError {
    /// Whether somebody answered, and it is no use to ask again.
    pub(in crate::controllers) fn is_refusal(&self) -> bool {
        match self {
            Self::TimedOut { .. } => false,
            Self::Call { source, .. } => {
                matches!(source, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
            }
        }
    }
}

/// What became of a write.
pub(super) enum Written {
    /// Done; the Lease as stored.
    Stored(Box<Lease>),
    /// The Lease is not as it was read; it must be read again.
    Outdated,
}

/// One Lease, by its name.
pub(in crate::controllers) struct Leases {
    leases: Api<Lease>,
    name: &'static str,
}

impl Leases {
    pub(in crate::controllers) fn new(client: Client, namespace: &str, name: &'static str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Reads the Lease as it is now; `None` when there is none. Never answered from a cache.
    pub(super) async fn read(&self, limit: Duration) -> Result<Option<Lease>, LeaseError> {
        bounded("reading", self.name, limit, self.leases.get_opt(self.name)).await
    }

    /// Creates or replaces the Lease. A Lease without a resourceVersion is to be created.
    pub(super) async fn write(&self, mut lease: Lease, limit: Duration) -> Result<Written, LeaseError> {
        lease.metadata.managed_fields = None;
        let parameters = PostParams::default();
        let result = if lease.metadata.resource_version.is_some() {
            let replaced = self.leases.replace(self.name, &parameters, &lease);
            bounded("replacing", self.name, limit, replaced).await
        } else {
            lease.metadata.name = Some(self.name.to_owned());
            lease.metadata.namespace = None;
            bounded("creating", self.name, limit, self.leases.create(&parameters, &lease)).await
        };
        match result {
            Ok(lease) => Ok(Written::Stored(Box::new(lease))),
            Err(LeaseError::Call {
                what: "replacing",
                source: kube::Error::Api(status),
                ..
            }) if status.is_not_found() => Ok(Written::Outdated),
            Err(LeaseError::Call {
                source: kube::Error::Api(status),
                ..
            }) if status.is_conflict() || status.is_already_exists() => Ok(Written::Outdated),
            Err(error) => Err(error),
        }
    }

    /// Follows the Lease. Only hints: what they say is read again before it is believed, since events may be late.
    pub(super) fn follow(&self) -> LeaseWatch {
        let (sender, receiver) = watch::channel(Hint::default());
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(self.leases.clone(), config).default_backoff().boxed();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let hint = Hint::of(event);
                if sender.send(hint).is_err() {
                    return;
                }
            }
        });
        LeaseWatch {
            hint: receiver,
            _task: tokio_util::task::AbortOnDropHandle::new(task),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Hint {
    resource_version: Option<String>,
    healthy: bool,
}

impl Hint {
    fn of(event: Result<watcher::Event<Lease>, watcher::Error>) -> Self {
        let of_lease = |resource_version| Self {
            resource_version,
            healthy: true,
        };
        match event {
            Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
                of_lease(lease.metadata.resource_version)
            }
            Ok(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone) => of_lease(None),
            Err(error) => {
                tracing::debug!(%error, "the watch of the Lease failed; it is polled until the watch is back");
                Self::default()
            }
        }
    }
}

/// Tells when the Lease may have changed. Its watch ends when this is dropped.
pub(super) struct LeaseWatch {
    hint: watch::Receiver<Hint>,
    _task: tokio_util::task::AbortOnDropHandle<()>,
}

impl LeaseWatch {
    /// Returns when the Lease may differ from `known`, or after `pause`, or after `poll` while the watch is broken.
    pub(super) async fn wait(&mut self, known: Option<&str>, pause: Duration, poll: Duration) {
        let started = clock::since_boot();
        loop {
            // Not marked as seen: it may have come while the caller was reading.
            let limit = if self.hint.borrow().healthy {
                pause
            } else {
                poll.min(pause)
            };
            let left = limit.saturating_sub(clock::since_boot().saturating_sub(started));
            match tokio::time::timeout(left, self.hint.changed()).await {
                Err(_) => return,
                // The watch's task is gone: only the time is left.
                Ok(Err(_)) => return clock::sleep(left.min(poll)).await,
                Ok(Ok(())) => {
                    let hint = self.hint.borrow_and_update();
                    if hint.healthy && hint.resource_version.as_deref() != known {
                        return;
                    }
                }
            }
        }
    }
}

/// The limit of a call that must end before `deadline` of [`clock::since_boot`].
pub(super) fn call_limit(deadline: Option<Duration>) -> Duration {
    let left = deadline.map_or(CALL_LIMIT, |deadline| deadline.saturating_sub(clock::since_boot()));
    left.min(CALL_LIMIT)
}

/// A call with a limit. `what` is done to Lease `name`, for messages.
pub(in crate::controllers) async fn bounded<T>(
    what: &'static str,
    name: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, LeaseError> {
    tokio::time::timeout(limit, call)
        .await
        .map_err(|_| LeaseError::TimedOut { what, name, limit })?
        .map_err(|source| LeaseError::Call { what, name, source })
}
