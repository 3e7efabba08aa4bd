//! Why the operator ends.

use tokio::task::JoinError;

use crate::controllers::admin::AdminError;
use crate::controllers::concern::ConcernName;
use crate::controllers::connection::ConnectionError;
use crate::controllers::leader::CampaignError;

/// Why the operator ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The admin server cannot listen.
    #[error("starting the admin server")]
    Admin(#[source] AdminError),
    /// A kubeconfig cannot be used.
    #[error("making a client")]
    Client(#[source] ConnectionError),
    /// The Lease was lost (exit code 4), or the leader's work broke off.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
    /// A concern ended although nobody stopped it: a bug.
    #[error("{} ended unasked", concern.as_str())]
    Ended {
        /// Which.
        concern: ConcernName,
    },
    /// A concern panicked: a bug.
    #[error("a concern broke off")]
    Broken(#[source] JoinError),
}

impl OperatorError {
    /// Whether the Lease was lost, which is exit code 4.
    #[must_use]
    pub fn is_leadership_lost(&self) -> bool {
        matches!(self, Self::Campaign(CampaignError::LeadershipLost { .. }))
    }
}
