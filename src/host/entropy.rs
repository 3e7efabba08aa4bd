//! The only reader of randomness outside of `pki::key`. Everything else takes random values as arguments.

use std::time::Duration;

/// Random bytes fit for tokens and identifiers nobody may guess.
#[must_use]
pub fn bytes<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    rand::fill(&mut bytes[..]);
    bytes
}

/// A number of at least 0 and below 1, evenly spread.
#[must_use]
pub fn fraction() -> f64 {
    rand::random()
}

/// `duration` made longer by a random share of it between nothing and `share` (0.1 is at most a tenth longer), so that
/// many that started together do not go on together.
#[must_use]
pub fn jittered(duration: Duration, share: f64) -> Duration {
    duration + duration.mul_f64(share.max(0.0) * fraction())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_in_its_share() {
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            let longer = jittered(second, 0.2);
            assert!(longer >= second && longer <= second.mul_f64(1.2), "{longer:?}");
        }
    }

    #[test]
    fn bytes_differ() {
        assert_ne!(bytes::<16>(), bytes::<16>());
    }
}
