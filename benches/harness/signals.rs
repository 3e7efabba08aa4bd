//! The wish of whoever waits to have it end.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// From now on, Ctrl-C and SIGTERM end what is returned, and not the process: so that nothing of a run stays.
pub(crate) fn interrupted() -> Result<impl Future<Output = ()>> {
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(async move {
        let [interrupt, terminate] = &mut signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
