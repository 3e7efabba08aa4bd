//! What is left to do while a node runs: the cluster is brought to where the operator may start, and what changes on the
//! machine is followed.

use std::time::Duration;

use futures::FutureExt;
use strum::IntoEnumIterator;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::services::Services;
use super::{Settings, renewing};
use crate::controllers::concern::chain;
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::departed::unmark;
use crate::controllers::machine::control_plane;
use crate::controllers::machine::node::Node;
use crate::host::layout::Identity;
use crate::host::supervisor::ServiceName;
use crate::host::{clock, log_rotation};

/// How often the name servers of CoreDNS are brought up to the machine's, which change with its network.
const RESOLVERS_EVERY: Duration = Duration::from_secs(60);
/// How often the logs of services are looked at.
const LOGS_EVERY: Duration = Duration::from_secs(60);
/// How long a controller is left alone after it was refused something.
const AGAIN: Duration = Duration::from_secs(10);

/// What is left to do while the node runs.
pub(super) async fn look_after(services: &Services, stop: &CancellationToken) {
    let (ready, is_ready) = oneshot::channel();
    let ready = async { become_ready(services).map(|()| ready.send(())).await };
    let work = async { tokio::join!(ready, follow_resolvers(services), cut_logs(services)) };
    let Settings { layout, config, .. } = services.settings.as_ref();
    // A renewal that is in the middle of a step is not cut off with the rest.
    let renewing = renewing::renew(layout, config, is_ready, stop);
    tokio::join!(stop.run_until_cancelled(work), renewing);
}

/// On a controller the operator is started once the cluster is ready for it. A worker that was uninstalled and is back
/// takes its mark off, which only it may.
async fn become_ready(services: &Services) {
    let node = &services.node;
    loop {
        let done = if node.state.is_controller() {
            match control_plane::make_ready(node).await {
                Ok(()) => services.operator().await.map_err(|error| chain(&error)),
                Err(error) => Err(chain(&error)),
            }
        } else {
            take_mark_off(node).await
        };
        match done {
            Ok(()) => return,
            Err(error) => tracing::error!("{error}; trying again in {} s", AGAIN.as_secs()),
        }
        clock::sleep(AGAIN).await;
    }
}

async fn take_mark_off(node: &Node) -> Result<(), String> {
    let settings = ClientSettings::new(node.layout.kubeconfig(Identity::Kubelet), "up");
    let client = connection::client(&settings, None)
        .await
        .map_err(|error| chain(&error))?;
    unmark(&client, &node.state.node_name)
        .await
        .map_err(|error| chain(&error))
}

async fn cut_logs(services: &Services) {
    loop {
        for name in ServiceName::iter() {
            // A log of this size is copied in well under a second.
            if let Err(error) = log_rotation::rotate(&services.log(name), log_rotation::LARGEST) {
                tracing::warn!("{}", chain(&error));
            }
        }
        clock::sleep(LOGS_EVERY).await;
    }
}

async fn follow_resolvers(services: &Services) {
    loop {
        clock::sleep(RESOLVERS_EVERY).await;
        let mut told = Vec::new();
        if let Err(error) = services.node.follow_resolvers(&mut told) {
            tracing::warn!("{}", chain(&error));
        }
    }
}
