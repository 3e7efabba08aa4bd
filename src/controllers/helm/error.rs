//! What can go wrong while a HelmChart is looked at or carried out, and is nobody's decision.

use crate::controllers::cluster::CallError;
use crate::controllers::concern::Failure;
use crate::host::helm;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum HelmError {
    /// The HelmChart, what it names or its release cannot be read.
    #[error("cannot find out about {what}")]
    Look {
        /// What.
        what: &'static str,
        /// What was asked.
        #[source]
        source: CallError,
    },
    /// It cannot be written down what is done, so it is not done.
    #[error("cannot write down {what}")]
    Write {
        /// What.
        what: &'static str,
        /// What was asked.
        #[source]
        source: CallError,
    },
    /// helm cannot be run.
    #[error(transparent)]
    Helm(#[from] helm::Error),
}

impl Failure for HelmError {
    fn category(&self) -> &'static str {
        match self {
            Self::Look { .. } => "cluster",
            Self::Write { .. } => "write",
            Self::Helm(_) => "helm",
        }
    }
}
