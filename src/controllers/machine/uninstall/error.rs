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
    /// The Node is gone, the member is not.
    #[error(
        "the Node of this machine is deleted, and its member of etcd is not removed: run this again; the services are stopped, and no file was removed"
    )]
    Half(#[source] leave::Error),
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
            Self::Stop(_) | Self::Leave { .. } | Self::Half(_) | Self::Remember(_) | Self::Clean(_) => false,
        }
    }

    /// Whether it stopped because it lost the cluster fence.
    #[must_use]
    pub fn is_lost_fence(&self) -> bool {
        match self {
            Self::Leave { source, .. } | Self::Half(source) => matches!(source, leave::Error::Fence { .. }),
            Self::Look(_) | Self::Refused(_) | Self::Changed | Self::Stop(_) | Self::Remember(_) | Self::Clean(_) => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::cluster_fence::Lost;
    use crate::reconcilers::election::LossReason;

    #[test]
    fn a_lost_fence_is_told_from_other_ends() {
        let lost = |half| leave::Error::Fence {
            lost: Lost {
                reason: LossReason::Taken,
            },
            half,
        };
        assert!(!lost(false).is_half() && lost(true).is_half());
        let leave = |source| Error::Leave { running: true, source };
        for error in [leave(lost(false)), Error::Half(lost(true))] {
            assert!(error.is_lost_fence() && !error.is_refusal(), "{error}");
        }
        for error in [leave(leave::Error::Client(String::new())), Error::Changed] {
            assert!(!error.is_lost_fence(), "{error}");
        }
    }
}
