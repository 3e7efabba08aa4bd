//! The cluster fence of an uninstall: needed where the members of etcd change, so on controllers only.

use std::io::Write;
use std::net::SocketAddr;

use super::departure::Departure;
use super::{Settings, client, etcd, servers};
use crate::controllers::cluster_fence::{self, ClusterFence, FenceError, Lost};
use crate::controllers::concern::chain;
use crate::controllers::progress::tell;
use crate::host::etcd::members::Member;
use crate::host::layout::Layout;
use crate::host::node_state::{self, API_SERVER_PORT, NodeState};

/// How an uninstall stands to the cluster fence.
#[derive(Debug)]
pub enum Fenced {
    /// It needs none, or has given it back.
    Unneeded,
    /// It has it.
    Held(ClusterFence),
    /// There is no API server that could be asked for it.
    Skipped,
}

/// Why an uninstall does not begin. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum FencingError {
    /// Another operation has the fence.
    #[error(transparent)]
    Refused(FenceError),
    /// Nobody can be asked.
    #[error(
        "cannot take the cluster fence: no API server of this cluster answers ({reason}); mend that, or go on with --offline"
    )]
    Silent {
        /// Why, of the last one asked.
        reason: String,
    },
}

impl Fenced {
    /// Whether the next step may begin.
    ///
    /// # Errors
    /// When the fence was lost.
    pub(super) fn check(&self) -> Result<(), Lost> {
        match self {
            Self::Held(fence) => fence.check(),
            Self::Unneeded | Self::Skipped => Ok(()),
        }
    }

    /// Whether there is something to give back.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    /// Gives the fence back, if it is held.
    pub async fn release(&mut self) {
        if let Self::Held(fence) = std::mem::replace(self, Self::Unneeded) {
            fence.release().await;
        }
    }
}

/// Takes the cluster fence for a departure that needs it. With `--offline`, and for the last controller, it is skipped when no
/// API server answers, which `progress` is told.
///
/// # Errors
/// When another operation has it, or nobody answers.
pub async fn fence(
    settings: &Settings,
    departure: &Departure,
    progress: &mut (dyn Write + Send),
) -> Result<Fenced, FencingError> {
    let layout = &settings.teardown.layout;
    let state = match node_state::load(&layout.node_state()) {
        Ok(state) if departure.changes_members() => state,
        // Without it nothing is known of members.
        Ok(_) | Err(_) => return Ok(Fenced::Unneeded),
    };
    let operation = cluster_fence::operation("stratum uninstall", &state.node_name);
    let mut reason = String::new();
    for server in api_servers(layout, &state).await {
        let client = match client(layout, state.role, server).await {
            Ok(client) => client,
            Err(why) => {
                reason = why;
                continue;
            }
        };
        match ClusterFence::acquire(client, &cluster_fence::Settings::on(layout), &operation, progress).await {
            Ok(fence) => return Ok(Fenced::Held(fence)),
            Err(FenceError::Unanswered(error)) => reason = chain(&error),
            Err(error) => return Err(FencingError::Refused(error)),
        }
    }
    if settings.offline || matches!(departure, Departure::Last { .. }) {
        tell(
            progress,
            format_args!("the cluster fence is skipped: no API server answers ({reason})"),
        );
        return Ok(Fenced::Skipped);
    }
    Err(FencingError::Silent { reason })
}

/// API servers to ask, those of the other controllers first: this one's own can renew and release nothing once its member of
/// etcd is removed. None is the one that the kubeconfig names.
async fn api_servers(layout: &Layout, state: &NodeState) -> Vec<Option<SocketAddr>> {
    let members = match etcd(layout, servers(state)) {
        Ok(etcd) => etcd.members().await.unwrap_or_default(),
        Err(_) => Default::default(),
    };
    let others = members.0.iter().filter(|member| !member.is_learner);
    let others = others.flat_map(Member::addresses);
    let others = others.filter(|address| !state.addresses.contains(address));
    let others = others.map(|address| Some(SocketAddr::from((address, API_SERVER_PORT))));
    others.chain([None]).collect()
}
