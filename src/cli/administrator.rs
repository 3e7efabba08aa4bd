//! Commands that ask the cluster as an administrator.

use std::path::PathBuf;

use kube::Client;

use crate::controllers::connection::{self, ClientSettings, ConnectionError};
use crate::host::layout::{Identity, Layout};

/// Who asks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Administrator {
    /// The kubeconfig of an administrator [default: /var/lib/stratum/kubeconfig/admin.conf]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Administrator {
    /// The kubeconfig file.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        let given = self.kubeconfig.clone();
        given.unwrap_or_else(|| Layout::system().kubeconfig(Identity::Admin))
    }

    /// A client for what `role` names in its user agent.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub(super) async fn client(&self, role: &'static str) -> Result<Client, ConnectionError> {
        connection::client(&ClientSettings::new(self.kubeconfig(), role), None).await
    }
}
