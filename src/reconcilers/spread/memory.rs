//! What the concern remembers of its evictions, so that one that does not help is not repeated.
//!
//! It lasts as long as the process, which is one term. A leader that comes after it is held back by the age of the pods:
//! what was placed a moment ago is not moved again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::Eviction;
use super::facts::{NodeFacts, PodFacts};
use crate::reconcilers::object::Uid;

/// How patient the concern is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How old the newest pod and the last eviction must be before another pod is moved.
    pub settle: SignedDuration,
    /// The least time between two evictions that were granted; it doubles with each.
    pub between: SignedDuration,
    /// The longest of those.
    pub between_at_most: SignedDuration,
    /// The wait after an eviction that was refused; it doubles with each.
    pub refused: SignedDuration,
    /// The longest of those.
    pub refused_at_most: SignedDuration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            settle: SignedDuration::from_mins(5),
            between: SignedDuration::from_mins(10),
            between_at_most: SignedDuration::from_hours(6),
            refused: SignedDuration::from_mins(1),
            refused_at_most: SignedDuration::from_mins(16),
        }
    }
}

/// Why an eviction was not granted. A metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Refusal {
    /// 429.
    #[error("a PodDisruptionBudget does not allow it now")]
    Budget,
    /// 500, as when more than one PodDisruptionBudget selects the pod.
    #[error("the API server failed, as it does when more than one PodDisruptionBudget selects the pod")]
    ServerError,
    /// 404.
    #[error("the pod was gone")]
    Gone,
    /// 409.
    #[error("the pod was not the same any more")]
    Changed,
    /// 401 or 403.
    #[error("the operator may not evict")]
    Forbidden,
    /// Any other refusal.
    #[error("the API server refused it")]
    Other,
    /// Perhaps it was granted.
    #[error("there was no answer")]
    Unanswered,
}

impl Refusal {
    /// What an answer with this HTTP code means; `names_budget`: it gives a PodDisruptionBudget as its cause. A 429 without
    /// one is a busy API server, and a 403 with one is a budget whose status is out of order.
    #[must_use]
    pub fn of(code: u16, names_budget: bool) -> Self {
        match code {
            _ if names_budget => Self::Budget,
            401 | 403 => Self::Forbidden,
            404 => Self::Gone,
            409 => Self::Changed,
            500 => Self::ServerError,
            501.. => Self::Unanswered,
            _ => Self::Other,
        }
    }

    /// Whether the pod may have been evicted nevertheless.
    fn leaves_doubt(self) -> bool {
        match self {
            Self::ServerError | Self::Unanswered => true,
            Self::Budget | Self::Gone | Self::Changed | Self::Forbidden | Self::Other => false,
        }
    }
}

/// What became of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pod is being moved.
    Granted,
    /// It is not.
    Refused {
        /// Why.
        refusal: Refusal,
        /// How long the API server asks to wait.
        retry_after: SignedDuration,
    },
}

/// A Node: a machine that joins again under its name is another one.
pub type NodeKey = (String, Uid);

/// The key of a Node.
#[must_use]
pub fn key_of(node: &NodeFacts) -> NodeKey {
    (node.name.clone(), node.uid.clone())
}

/// The last eviction from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The pod.
    pub pod: Uid,
    /// Why it was not granted; none: it was.
    pub refusal: Option<Refusal>,
    /// How often in a row it was refused.
    pub refused: u32,
    /// When the next one may be tried.
    pub until: Timestamp,
    /// The nodes a replacement could have gone to.
    eligible: BTreeSet<NodeKey>,
    /// Those of the attempts before, as far as these were granted.
    in_vain: BTreeSet<NodeKey>,
}

impl Attempt {
    /// The nodes to which a replacement could have gone and did not, given that all replicas are still on that one node.
    #[must_use]
    pub fn tried(&self, pods: &[PodFacts]) -> BTreeSet<NodeKey> {
        let is_gone = || !pods.iter().any(|pod| pod.uid == self.pod);
        let was_carried_out = self.refusal.is_none_or(|refusal| refusal.leaves_doubt() && is_gone());
        let last = self.eligible.iter().filter(|_| was_carried_out);
        self.in_vain.iter().chain(last).cloned().collect()
    }
}

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    deployment: Option<Uid>,
    granted: u32,
    /// When a pod was last evicted, or may have been.
    last: Option<Timestamp>,
    attempts: BTreeMap<String, Attempt>,
}

impl Memory {
    /// The last eviction from a node since the replicas of this Deployment were last seen spread.
    #[must_use]
    pub fn attempt(&self, deployment: &Uid, node: &str) -> Option<&Attempt> {
        let is_same = self.deployment.as_ref() == Some(deployment);
        self.attempts.get(node).filter(|_| is_same)
    }

    /// When the last eviction will have settled, and when the next one may be made.
    #[must_use]
    pub fn pause(&self, pace: &Pace) -> Option<(Timestamp, Timestamp)> {
        let last = self.last?;
        let between = doubled(pace.between, self.granted, pace.between_at_most);
        Some((later(last, pace.settle), later(last, between)))
    }

    /// Remembers an eviction, and what became of it.
    pub fn record(&mut self, eviction: &Eviction, answer: Answer, now: Timestamp, pace: &Pace) {
        if self.deployment.as_ref() != Some(&eviction.deployment) {
            self.attempts.clear();
            self.deployment = Some(eviction.deployment.clone());
        }
        let before = self.attempts.remove(&eviction.from);
        let mut attempt = Attempt {
            pod: eviction.uid.clone(),
            refusal: None,
            refused: 0,
            until: now,
            eligible: eviction.eligible.clone(),
            in_vain: BTreeSet::new(),
        };
        match answer {
            Answer::Granted => {
                self.granted = self.granted.saturating_add(1);
                self.last = Some(now);
            }
            Answer::Refused { refusal, retry_after } => {
                let times = before.as_ref().map_or(0, |before| before.refused).saturating_add(1);
                let wait = doubled(pace.refused, times, pace.refused_at_most);
                if refusal == Refusal::Unanswered {
                    self.last = Some(now);
                }
                attempt.refusal = Some(refusal);
                attempt.refused = times;
                attempt.until = later(now, wait.max(retry_after.min(pace.refused_at_most)));
            }
        }
        if let Some(before) = before {
            // Another pod is tried now: whatever became of that one without an answer, it is no longer there.
            let is_another = before.pod != attempt.pod;
            let was_carried_out = before
                .refusal
                .is_none_or(|refusal| refusal.leaves_doubt() && is_another);
            let last = before.eligible.into_iter().filter(|_| was_carried_out);
            attempt.in_vain.extend(before.in_vain.into_iter().chain(last));
        }
        self.attempts.insert(eviction.from.clone(), attempt);
    }

    /// The replicas were seen on more than one node: what was tried has helped, or is no longer needed.
    pub fn seen_spread(&mut self) {
        self.attempts.clear();
    }
}

/// `first`, doubled `times - 1` times, and at most `longest`.
fn doubled(first: SignedDuration, times: u32, longest: SignedDuration) -> SignedDuration {
    let factor = 1_i32 << times.saturating_sub(1).min(30);
    first.checked_mul(factor).map_or(longest, |wait| wait.min(longest))
}

/// A time later than another.
pub(super) fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn minutes(minutes: i64) -> SignedDuration {
        SignedDuration::from_mins(minutes)
    }

    fn key(name: &str) -> NodeKey {
        (name.to_owned(), Uid(name.to_owned()))
    }

    struct Bed {
        memory: Memory,
        deployment: Uid,
    }

    impl Bed {
        fn new() -> Self {
            Self {
                memory: Memory::default(),
                deployment: Uid("d".to_owned()),
            }
        }

        fn record(&mut self, node: &str, eligible: &[&str], answer: Answer, now: Timestamp) -> &Attempt {
            let eviction = Eviction {
                deployment: self.deployment.clone(),
                pod: "p".to_owned(),
                uid: Uid("p".to_owned()),
                from: node.to_owned(),
                to: "b".to_owned(),
                eligible: eligible.iter().map(|name| key(name)).collect(),
            };
            self.memory.record(&eviction, answer, now, &Pace::default());
            self.memory.attempt(&self.deployment, node).unwrap()
        }
    }

    fn refused(refusal: Refusal) -> Answer {
        Answer::Refused {
            refusal,
            retry_after: SignedDuration::ZERO,
        }
    }

    #[test]
    fn answers_are_told_apart() {
        for (code, names_budget, refusal) in [
            (429, true, Refusal::Budget),
            (403, true, Refusal::Budget),
            (429, false, Refusal::Other),
            (403, false, Refusal::Forbidden),
            (401, false, Refusal::Forbidden),
            (404, false, Refusal::Gone),
            (409, false, Refusal::Changed),
            (422, false, Refusal::Other),
            (500, false, Refusal::ServerError),
            (503, false, Refusal::Unanswered),
            (504, false, Refusal::Unanswered),
        ] {
            assert_eq!(Refusal::of(code, names_budget), refusal, "{code}");
        }
    }

    #[test]
    fn refusals_in_a_row_wait_longer_and_longer() {
        let mut bed = Bed::new();
        let mut waits = Vec::new();
        for _ in 0..7 {
            let until = bed.record("a", &["b"], refused(Refusal::Budget), NOW).until;
            waits.push(until.duration_since(NOW).as_mins());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(bed.memory.pause(&Pace::default()), None, "none was granted");
        let other = bed.record("c", &["b"], refused(Refusal::Budget), NOW);
        assert_eq!(other.until, NOW + minutes(1), "another node");
        bed.record("a", &["b"], Answer::Granted, NOW);
        let again = bed.record("a", &["b"], refused(Refusal::Budget), NOW);
        assert_eq!(again.until, NOW + minutes(1), "not in a row");
    }

    #[test]
    fn the_api_server_may_ask_for_more_patience_within_bounds() {
        let mut bed = Bed::new();
        for (asked, waits) in [(10, 60), (300, 300), (1_000_000, 16 * 60)] {
            bed.memory.seen_spread();
            let answer = Answer::Refused {
                refusal: Refusal::Budget,
                retry_after: SignedDuration::from_secs(asked),
            };
            let until = bed.record("a", &["b"], answer, NOW).until;
            assert_eq!(until.duration_since(NOW).as_secs(), waits);
        }
    }

    #[test]
    fn granted_evictions_keep_a_distance_that_grows() {
        let mut bed = Bed::new();
        let mut distances = Vec::new();
        for _ in 0..40 {
            bed.record("a", &["b"], Answer::Granted, NOW);
            // Also when each of them helped.
            bed.memory.seen_spread();
            let (settled, next) = bed.memory.pause(&Pace::default()).unwrap();
            assert_eq!(settled, NOW + minutes(5));
            distances.push(next.duration_since(NOW).as_mins());
        }
        assert_eq!(distances[..7], [10, 20, 40, 80, 160, 320, 360]);
        assert_eq!(distances[39], 360);
    }

    #[test]
    fn only_what_was_carried_out_was_tried() {
        let mut bed = Bed::new();
        assert_eq!(
            bed.record("a", &["b"], Answer::Granted, NOW).tried(&[]),
            [key("b")].into()
        );
        let attempt = bed.record("a", &["b", "c"], refused(Refusal::Budget), NOW);
        assert_eq!(attempt.tried(&[]), [key("b")].into(), "refused: c is still to be tried");
        let attempt = bed.record("a", &["b", "d"], refused(Refusal::Unanswered), NOW);
        assert_eq!(attempt.tried(&[]), [key("b"), key("d")].into(), "its pod is gone");
        let mut pod = crate::reconcilers::spread::tests::pod("p", "a");
        pod.uid = Uid("p".to_owned());
        assert_eq!(attempt.tried(&[pod]), [key("b")].into(), "its pod is still there");
        let attempt = bed.record("a", &["e"], Answer::Granted, NOW);
        assert_eq!(
            attempt.tried(&[]),
            [key("b"), key("e")].into(),
            "the same pod was tried again"
        );
        bed.memory.seen_spread();
        assert_eq!(bed.memory.attempt(&bed.deployment, "a"), None);
    }

    #[test]
    fn another_deployment_of_that_name_begins_anew() {
        let mut bed = Bed::new();
        bed.record("a", &["b"], Answer::Granted, NOW);
        let old = std::mem::replace(&mut bed.deployment, Uid("e".to_owned()));
        assert_eq!(bed.memory.attempt(&bed.deployment, "a"), None);
        let attempt = bed.record("a", &["c"], Answer::Granted, NOW);
        assert_eq!(attempt.tried(&[]), [key("c")].into());
        assert_eq!(bed.memory.attempt(&old, "a"), None);
    }
}
