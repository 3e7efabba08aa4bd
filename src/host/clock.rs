//! The only reader of clocks, and the one plain wait. Everything else takes `now` as an argument.
#![expect(clippy::disallowed_methods, reason = "this leaf file owns the clocks and the sleep")]

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The wall clock: for dates that other machines read. It can jump; never measure a duration with it.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The monotonic clock of this process: for deadlines and durations. It never jumps and means nothing elsewhere.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Waits for `duration`. For pacing and for re-checking a condition that cannot be subscribed to, never as a guess of
/// how long something takes.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
