//! The renewal of certificates while `stratum up` runs.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::controllers::certificates::renewal::{Renewal, Teller, attempt};
use crate::controllers::machine::node::Config;
use crate::host::clock;
use crate::host::layout::Layout;

/// How long it waits for the node to be ready. One whose control plane does not get ready needs it most of all.
const SETTLED_WITHIN: Duration = Duration::from_secs(300);
/// How long a stop waits for the step of a renewal, before it ends containerd and the kubelet.
const STEP: Duration = Duration::from_secs(30);

/// Renews certificates until `stop`. Not before the node is ready or should have been: a renewal that is gone on with
/// restarts the control plane, and takes one that has not started yet for one that is broken.
pub(super) async fn renew(layout: &Layout, config: &Config, is_ready: oneshot::Receiver<()>, stop: &CancellationToken) {
    let settled = async {
        tokio::select! {
            _ = is_ready => {}
            () = clock::sleep(SETTLED_WITHIN) => {}
        }
    };
    if stop.run_until_cancelled(settled).await.is_none() {
        return;
    }
    let renewing = Renewal::new(layout.clone(), Teller::default(), |wish| attempt(config, wish))
        .with_leaf_lifetime(config.leaf_lifetime)
        .run(stop.clone());
    let overdue = async {
        stop.cancelled().await;
        clock::sleep(STEP).await;
    };
    tokio::select! {
        () = renewing => {}
        () = overdue => tracing::error!(
            "the renewal of certificates is still in a step after {} s; the next start goes on with it",
            STEP.as_secs()
        ),
    }
}
