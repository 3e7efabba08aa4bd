//! Why an uninstall did not come to its end.

use super::departure::Obstacle;
use super::leave;
use crate::host::teardown;

/// Why it did not come to its end, and how the machine is then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed.
    #[error("this machine cannot be looked at; nothing was changed")]
    Look(#[source] teardown::Error),
    /// Nothing was changed.
    #[error("{0}; nothing was changed")]
    Refused(Obstacle),
    /// Nothing was changed.
    #[error("what is to be done here changed while it was decided; nothing was done, run this again")]
    Changed,
    /// The node may still run.
    #[error("the services were not stopped; the cluster was not told, and nothing was removed")]
    Stop(#[source] teardown::Error),
    /// The services are stopped, or were started again.
    #[error("the cluster was not told, and nothing was removed; {}", if *.running { "the services were started again" } else { "the services are stopped: start them again (stratum up), or go on with --offline" })]
    Leave {
        /// Whether the services were started again.
        running: bool,
        /// Why.
        #[source]
        source: leave::Error,
    },
    /// The cluster was told a part of it.
    #[error("{}: run this again; the services are stopped, and no file was removed", if *.deleted { "the Node of this machine is deleted, and its member of etcd is not removed" } else { "it is not known whether this machine's member of etcd is removed" })]
    Half {
        /// Whether the Node was deleted.
        deleted: bool,
        /// Why.
        #[source]
        source: leave::Error,
    },
    /// It is not known any more that the cluster let it go.
    #[error("the cluster has let this node go, which cannot be written down; run this again")]
    Remember(#[source] crate::host::atomic_file::Error),
    /// The node has left, and the machine is not clean.
    #[error("the node has left its cluster and is stopped, but not everything of it is removed: run this again")]
    Clean(#[source] teardown::Error),
}

impl Error {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Look(_) | Self::Refused(_) | Self::Changed => true,
            Self::Stop(_) | Self::Leave { .. } | Self::Half { .. } | Self::Remember(_) | Self::Clean(_) => false,
        }
    }

    /// Whether it stopped because it lost the cluster fence.
    #[must_use]
    pub fn is_lost_fence(&self) -> bool {
        match self {
            Self::Leave { source, .. } | Self::Half { source, .. } => matches!(source, leave::Error::Fence(_)),
            Self::Look(_) | Self::Refused(_) | Self::Changed | Self::Stop(_) | Self::Remember(_) | Self::Clean(_) => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::leave::Unfinished;
    use super::*;
    use crate::controllers::cluster_fence::Lost;
    use crate::reconcilers::election::LossReason;

    #[test]
    fn a_lost_fence_is_told_from_other_ends() {
        let lost = || {
            leave::Error::Fence(Lost {
                reason: LossReason::Taken,
            })
        };
        let leave = |source| Error::Leave { running: true, source };
        let half = |source| Error::Half { deleted: true, source };
        for error in [leave(lost()), half(lost())] {
            assert!(error.is_lost_fence() && !error.is_refusal(), "{error}");
        }
        for error in [leave(leave::Error::Client(String::new())), Error::Changed] {
            assert!(!error.is_lost_fence(), "{error}");
        }
    }

    fn none_answers() -> crate::host::etcd::Error {
        crate::host::etcd::Error::NoneAnswers {
            servers: Vec::new(),
            source: None,
        }
    }

    /// Credentials that cannot be used, or a quorum that is gone, are found out after the Node was deleted as well.
    #[test]
    fn what_was_told_before_is_not_forgotten() {
        for (deleted, source, half) in [
            (false, leave::Error::Client(String::new()), false),
            (true, leave::Error::Client(String::new()), true),
            (false, leave::Error::NoQuorum { healthy: 0, needed: 1 }, false),
            (true, leave::Error::NoQuorum { healthy: 0, needed: 1 }, true),
            (false, leave::Error::Members(none_answers()), false),
            // The answer to the removal may have been lost.
            (false, leave::Error::Etcd(none_answers()), true),
        ] {
            let unfinished = Unfinished { deleted, source };
            assert_eq!(unfinished.is_half(), half, "{unfinished:?}");
            let Unfinished { source, .. } = unfinished;
            let told = Error::Half { deleted, source }.to_string();
            assert_eq!(told.contains("is deleted"), deleted, "{told}");
        }
    }
}
