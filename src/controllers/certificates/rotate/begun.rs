//! What a run begins with: what it replaces, and what an earlier one has left.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::OPERATION;
use super::observe::Observed;
use crate::host::certificates::KUBELET_CLIENT;
use crate::host::rotation_incomplete::{Incomplete, Moment};
use crate::host::static_pods::Mark;
use crate::reconcilers::certificates::moves::Consumer;
use crate::reconcilers::certificates::reissue::Decision;

/// Where a run begins.
pub(super) struct Begun {
    pub(super) marker: Incomplete,
    /// Whoever was started later has moved already, as far as nothing is written.
    pub(super) mark: Mark,
    /// The leaves that had expired.
    pub(super) expired: BTreeSet<String>,
    /// Whom an earlier run has left.
    pub(super) waiting: Option<BTreeSet<Consumer>>,
}

impl Begun {
    pub(super) fn of(observed: &Observed, decision: &Decision, now: Timestamp) -> Self {
        let leaves: BTreeSet<String> = decision.reissue.iter().map(|one| one.name.clone()).collect();
        let everything = || -> BTreeSet<String> {
            let ours = observed.leaves.iter().map(|leaf| leaf.seen.name.clone());
            ours.filter(|name| name != KUBELET_CLIENT).collect()
        };
        let mut expired = decision.expired.clone();
        let (earlier, mark) = match &observed.marker {
            Ok(None) => (None, None),
            Ok(Some(earlier)) => (Some(earlier.clone()), earlier.written.as_ref().and_then(Moment::mark)),
            // What it said is lost: everybody counts as left, and nothing as written before now.
            Err(_) => (Some(Incomplete::new(OPERATION, true, everything(), now)), None),
        };
        if earlier.as_ref().is_some_and(|earlier| earlier.expired) {
            expired.extend(everything());
        }
        let waiting = earlier.as_ref().map(|earlier| match &earlier.waiting {
            Some(waiting) => waiting.iter().filter_map(|name| name.parse().ok()).collect(),
            None => BTreeSet::new(),
        });
        let mut marker = Incomplete::new(OPERATION, !expired.is_empty(), leaves, now).after(earlier.as_ref());
        marker.written = earlier.as_ref().and_then(|earlier| earlier.written.clone());
        Self {
            marker,
            mark: mark.unwrap_or_else(Mark::take),
            expired,
            waiting,
        }
    }
}
