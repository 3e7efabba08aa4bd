//! The only reader of clocks, and the one plain wait. Everything else takes `now` as an argument.
#![expect(clippy::disallowed_methods, reason = "this leaf file owns the clocks and the sleep")]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

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

/// A clock that only runs forward, and also while the machine sleeps (`CLOCK_BOOTTIME`): a leader whose machine was
/// suspended must find its term over when it wakes. Only differences of two readings mean anything.
#[must_use]
pub fn since_boot() -> Duration {
    let reading = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(reading.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// Waits for `duration`. For pacing and for re-checking a condition that cannot be subscribed to, never as a guess of
/// how long something takes.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Which boot of the machine this is, as the kernel names it: ticks since boot mean nothing after another one. Empty where
/// the kernel does not tell.
#[must_use]
pub fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
