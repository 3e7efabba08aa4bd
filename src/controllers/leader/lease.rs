//! The Lease on the API server: each call with its own limit, each write at the version that was read.
#![expect(
    clippy::disallowed_methods,
    reason = "the Lease is written by the election alone, before there is a term that hands could act in"
)]

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use super::LEASE;
use crate::host::clock;
use crate::reconcilers::inventory::CONFIG_MAP;
use crate::reconcilers::inventory::records::TERM_ANNOTATION;

/// The longest a call may take. Two of them and a pause fit into the renew deadline.
const CALL_LIMIT: Duration = Duration::from_secs(4);

/// A call about the Lease that did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    #[error("{what} Lease {LEASE}: no answer within {} ms", limit.as_millis())]
    TimedOut { what: &'static str, limit: Duration },
    #[error("{what} Lease {LEASE}")]
    Call {
        what: &'static str,
        #[source]
        source: kube::Error,
    },
}

/// What became of a write.
pub(super) enum Written {
    /// Done; the Lease as stored.
    Stored(Box<Lease>),
    /// The Lease is not as it was read; it must be read again.
    Outdated,
}

/// The one Lease this process may hold.
pub(super) struct Leases {
    leases: Api<Lease>,
    config_maps: Api<ConfigMap>,
}

impl Leases {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            config_maps: Api::namespaced(client, namespace),
        }
    }

    /// Reads the Lease as it is now; `None` when there is none. Never answered from a cache.
    pub(super) async fn read(&self, limit: Duration) -> Result<Option<Lease>, LeaseError> {
        bounded("reading", limit, self.leases.get_opt(LEASE)).await
    }

    /// Creates or replaces the Lease. A Lease without a resourceVersion is to be created.
    pub(super) async fn write(&self, mut lease: Lease, limit: Duration) -> Result<Written, LeaseError> {
        lease.metadata.managed_fields = None;
        let parameters = PostParams::default();
        let result = if lease.metadata.resource_version.is_some() {
            bounded("replacing", limit, self.leases.replace(LEASE, &parameters, &lease)).await
        } else {
            lease.metadata.name = Some(LEASE.to_owned());
            lease.metadata.namespace = None;
            bounded("creating", limit, self.leases.create(&parameters, &lease)).await
        };
        match result {
            Ok(lease) => Ok(Written::Stored(Box::new(lease))),
            Err(LeaseError::Call {
                what: "replacing",
                source: kube::Error::Api(status),
            }) if status.is_not_found() => Ok(Written::Outdated),
            Err(LeaseError::Call {
                source: kube::Error::Api(status),
                ..
            }) if status.is_conflict() || status.is_already_exists() => Ok(Written::Outdated),
            Err(error) => Err(error),
        }
    }

    /// The number of the last term that wrote the inventory; it outlives a Lease that somebody deletes.
    pub(super) async fn recorded_term(&self) -> Result<Option<i32>, LeaseError> {
        let read = self.config_maps.get_metadata_opt(CONFIG_MAP);
        let found = bounded("reading the last term before the", CALL_LIMIT, read).await?;
        Ok(found
            .and_then(|found| found.metadata.annotations?.remove(TERM_ANNOTATION))
            .and_then(|text| text.parse().ok()))
    }

    /// Follows the Lease. Only hints: what they say is read again before it is believed, since events may be late.
    pub(super) fn follow(&self) -> LeaseWatch {
        let (sender, receiver) = watch::channel(Hint::default());
        let config = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
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

async fn bounded<T>(
    what: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, LeaseError> {
    tokio::time::timeout(limit, call)
        .await
        .map_err(|_| LeaseError::TimedOut { what, limit })?
        .map_err(|source| LeaseError::Call { what, source })
}
