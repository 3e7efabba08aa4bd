//! What every test of this tier stands on: [`Cluster`], and [`wait_for`] to wait for a condition.
mod cluster;
pub(crate) mod impostor;
pub(crate) mod operator;
mod person;
pub(crate) mod requests;

use std::future::Future;
use std::time::{Duration, Instant};

pub(crate) use cluster::{Cluster, Options, kubectl, stratum};

/// Asks again and again until the answer is a value, which is returned. Panics with `what` after `limit`.
#[expect(
    clippy::disallowed_methods,
    reason = "a test waits on the world, which has no clock to give"
)]
pub(crate) async fn wait_for<T, F>(what: &str, limit: Duration, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} in vain for: {what}");
        stratum::host::clock::sleep(Duration::from_millis(50)).await;
    }
}
