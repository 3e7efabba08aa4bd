//! Commands that hand out what only a controller has: the keys of the cluster, and what it was told.

use std::path::PathBuf;

use anyhow::Context;
use kube::Client;

use crate::controllers::connection::{self, ClientSettings};
use crate::host::layout::{Identity, Layout};
use crate::host::node_pki::ROOT_BUNDLE;
use crate::host::node_state::{self, NodeState};
use crate::pki::certificate::Certificate;

/// Where this controller keeps its files, and who asks its API server.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Controller {
    /// The kubeconfig of an administrator [default: /var/lib/stratum/kubeconfig/admin.conf]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    files: Files,
}

/// Where this node keeps its files.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Files {
    /// The folder that everything hangs under; another one than `/` only in tests
    #[arg(long, hide = true, value_name = "FOLDER", env = "STRATUM_ROOT", default_value = "/")]
    root: PathBuf,
}

impl Controller {
    /// A client for what `role` names in its user agent.
    pub(super) async fn client(&self, role: &'static str) -> anyhow::Result<Client> {
        let given = self.kubeconfig.clone();
        let kubeconfig = given.unwrap_or_else(|| self.files.layout().kubeconfig(Identity::Admin));
        Ok(connection::client(&ClientSettings::new(kubeconfig, role), None).await?)
    }

    /// Its files.
    pub(super) fn files(&self) -> &Files {
        &self.files
    }
}

/// Why a node cannot hand anything out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node} is a worker: it has no keys of the cluster to hand out; run this on a controller")]
pub(super) struct NotAController {
    node: String,
}

impl Files {
    /// The paths.
    pub(super) fn layout(&self) -> Layout {
        Layout::under(&self.root)
    }

    /// What this node was told, if it is a controller.
    pub(super) fn controller_state(&self) -> anyhow::Result<NodeState> {
        let state = node_state::load(&self.layout().node_state())?;
        if !state.is_controller() {
            return Err(NotAController { node: state.node_name }.into());
        }
        Ok(state)
    }

    /// The authorities that clients of this cluster trust; of a cluster without a bundle, its one authority.
    pub(super) fn trusted(&self) -> anyhow::Result<Vec<Certificate>> {
        let pki = self.layout().pki();
        let bundle = pki.join(ROOT_BUNDLE);
        let path = if bundle.exists() { bundle } else { pki.join("ca.crt") };
        let pem = self.read(&path)?;
        Certificate::bundle_from_pem(&pem).with_context(|| format!("{} cannot be used", path.display()))
    }

    /// The bytes of a file.
    pub(super) fn read(&self, path: &std::path::Path) -> anyhow::Result<zeroize::Zeroizing<Vec<u8>>> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(bytes.into())
    }
}
