//! What is made of rounds in which both sides took their turn.

use crate::harness::measure::median;
use crate::harness::table::{Entry, Figure, Target, seconds};

/// The middle, and how far the rounds were apart: `7.10 s (6.95 to 7.40)`.
pub(crate) fn spread(times: &[f64]) -> String {
    let Some(middle) = median(times.to_vec()) else {
        return "-".to_owned();
    };
    if times.len() == 1 {
        return seconds(middle);
    }
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    format!("{} ({least:.2} to {most:.2})", seconds(middle))
}

/// Adds the target that ours is at most as long as the peer's, by the ratios of the rounds.
pub(crate) fn gate(entry: &mut Entry, what: &str, ours: &[f64], peer: &[f64]) {
    let ratios: Vec<f64> = ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect();
    let met = ratios.iter().filter(|ratio| **ratio <= LIMIT).count();
    let noisy = met != 0 && met != ratios.len();
    entry.gate(what, median(ratios), Target::AtMost(LIMIT), Figure::Time { noisy });
}

/// As long as the peer, at most.
const LIMIT: f64 = 1.0;
