//! The wait after a race for one object was lost: every writer of a compare-and-swap loop waits like this.

use std::time::Duration;

use crate::host::{clock, entropy};

/// The shortest and the longest time over which the waits are spread.
const SHORTEST_SPREAD: Duration = Duration::from_millis(20);
const LONGEST_SPREAD: Duration = Duration::from_millis(1300);

/// Waits before the next try, after so many lost ones, the last of which took `took`.
pub(crate) async fn wait(took: Duration, lost: u32) {
    clock::sleep(spread(took, lost).mul_f64(entropy::fraction())).await;
}

/// The time over which to spread the next try.
///
/// How long a try took tells how many others there are: an API server asked by fifty answers each of them late. So two
/// writers are done at once, and fifty do not meet again and again until a fixed first wait has doubled often enough.
fn spread(took: Duration, lost: u32) -> Duration {
    let first = took.saturating_mul(4).max(SHORTEST_SPREAD).as_secs_f64();
    let growth = 1.5_f64.powi(i32::try_from(lost.saturating_sub(1)).unwrap_or(i32::MAX));
    Duration::try_from_secs_f64(first * growth).map_or(LONGEST_SPREAD, |spread| spread.min(LONGEST_SPREAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_follow_how_slow_the_lost_try_was_and_grow_to_a_limit() {
        let milliseconds = |took, lost| spread(Duration::from_millis(took), lost).as_millis();
        assert_eq!(milliseconds(0, 1), 20, "never all at once");
        assert_eq!(milliseconds(10, 1), 40);
        assert_eq!(milliseconds(10, 2), 60);
        assert_eq!(milliseconds(10, 3), 90);
        assert_eq!(milliseconds(200, 1), 800);
        assert_eq!(milliseconds(200, 3), 1300);
        assert_eq!(milliseconds(60_000, 60), 1300);
        assert_eq!(spread(Duration::MAX / 8, u32::MAX), LONGEST_SPREAD);
    }
}
