//! How long a service that ended is left alone.

use std::time::Duration;

/// A service that ran that long was well.
const WELL: Duration = Duration::from_secs(60);
/// The wait after the second failure in a row; it doubles from there.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(30);

/// Failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait after a service ended that had run for `ran`.
    pub(super) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= WELL {
            self.failures = 0;
        }
        let doublings = self.failures.checked_sub(1);
        self.failures = self.failures.saturating_add(1);
        let Some(doublings) = doublings else {
            return Duration::ZERO;
        };
        FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_a_good_run_begins_anew() {
        let mut backoff = Backoff::default();
        let short = Duration::from_secs(3);
        let waits: Vec<u64> = (0..8).map(|_| backoff.after(short).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!([backoff.after(WELL).as_secs(), backoff.after(short).as_secs()], [0, 1]);
        let mut backoff = Backoff { failures: u32::MAX };
        assert_eq!(backoff.after(short), LONGEST);
    }
}
