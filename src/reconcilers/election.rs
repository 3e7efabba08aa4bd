//! Who holds a Lease: client-go's election, as a decision. It decides who leads, and, with other [`Timing`] and what [`fence`]
//! adds, which operation may change the cluster.
//!
//! - A holder is believed for the lease's duration counted from the moment *this* process last saw the Lease change, on
//!   its own monotonic clock. The times written in the Lease are for people; skewed clocks change nothing.
//! - Every write replaces the Lease at the resourceVersion that was read, so of two candidates one wins.
//! - The holder counts its own right from the *start* of its last successful write, and only [`Timing::renew_deadline`] of
//!   it: it has stopped that much before [`Timing::duration`] is over and anybody may follow it.
//! - The term's number is the Lease's `leaseTransitions`: it grows with each new holder, and a holder keeps it.
//!
//! No clock, no client: `now` is a reading of a clock that runs forward, `wall` a date for people to read.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

pub mod fence;

/// How long everything takes around one Lease. All who may hold it have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a Lease that does not change keeps others out.
    pub duration: Duration,
    /// How long after the start of its last successful renewal a holder may go on.
    pub renew_deadline: Duration,
    /// How often a holder renews, and a candidate retries.
    pub retry_period: Duration,
    /// A duration in a Lease longer than this is a slip of somebody's hand; it does not lock everyone out for years.
    pub longest_believed: Duration,
}

/// For the operator's Lease.
pub const LEADERSHIP: Timing = Timing {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
    longest_believed: Duration::from_secs(60),
};

/// The name under which one campaign of one process holds the Lease. Never used twice, so a Lease that names us was
/// written by us in this campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(String);

impl Identity {
    /// `NODE_RANDOM`, as kube-scheduler and its like name themselves.
    #[must_use]
    pub fn new(node: &str, random: &str) -> Self {
        Self(format!("{node}_{random}"))
    }

    /// The identity as it stands in `holderIdentity`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The Lease as it was last read, and since when it has looked so.
#[derive(Clone, Debug)]
pub struct Observed {
    timing: Timing,
    lease: Option<Lease>,
    changed: Duration,
    /// How many different states of it were read.
    states: u64,
    /// A deleted Lease forgets how many holders it had; we do not.
    transitions: i32,
    /// Whether there has been a term at all.
    terms_known: bool,
    /// The last Lease seen held, and when it changed last: deleting the object does not stop its holder.
    held_until: Option<Duration>,
}

impl Observed {
    /// Nothing was read yet.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            lease: None,
            changed: Duration::ZERO,
            states: 0,
            transitions: 0,
            terms_known: false,
            held_until: None,
        }
    }

    /// Takes in what was read at `now`; `None` when there is no such Lease. `now` must not be earlier than the read.
    pub fn note(&mut self, lease: Option<Lease>, now: Duration) {
        if version(lease.as_ref()) != version(self.lease.as_ref()) {
            self.changed = now;
            self.states += 1;
            if let Some(lease) = &lease {
                self.held_until = holder(lease).map(|_| now + believed_duration(lease, &self.timing));
            }
        }
        if let Some(lease) = &lease {
            self.remember(transitions(lease));
        }
        self.lease = lease;
    }

    /// Whether it was seen to change: somebody writes it, whatever the dates in it say.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.states > 1
    }

    /// Makes sure that no term begins at or below `number`: one that was recorded elsewhere, by a holder of a Lease that
    /// is gone since.
    pub fn remember(&mut self, number: i32) {
        self.transitions = self.transitions.max(number);
        self.terms_known = true;
    }

    /// The resourceVersion last read.
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.lease.as_ref()?.metadata.resource_version.as_deref()
    }

    /// Who holds the Lease, as far as this process knows.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        holder(self.lease.as_ref()?)
    }
}

/// A term this process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// `leaseTransitions` when it was taken.
    pub number: i32,
    /// The UID of the Lease; a Lease that was deleted and made anew is another one.
    pub uid: Option<String>,
    /// When this process must have stopped, as a reading of the monotonic clock.
    pub deadline: Duration,
}

impl Held {
    /// The term that `lease`, as the API server answered it to a write begun at `started`, gives us.
    #[must_use]
    pub fn of(lease: &Lease, started: Duration, timing: &Timing) -> Self {
        Self {
            number: transitions(lease),
            uid: lease.metadata.uid.clone(),
            deadline: started + timing.renew_deadline,
        }
    }
}

/// Why a candidate may take the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TakeReason {
    /// There is no Lease.
    Missing,
    /// Nobody holds it: it was released.
    Free,
    /// Its holder has not renewed it for its whole duration.
    Expired,
    /// Its holder is known to have ended, by other means than the Lease.
    Died,
    /// It names us: a write of ours arrived whose answer did not.
    Ours,
}

/// Why a leader's term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum LossReason {
    /// No renewal succeeded in time.
    #[strum(to_string = "it could not be renewed in time")]
    Deadline,
    /// Another holds it.
    #[strum(to_string = "another holds it")]
    Taken,
    /// Somebody emptied it.
    #[strum(to_string = "its holder was erased")]
    Erased,
    /// Somebody deleted it, whether or not it was made anew.
    #[strum(to_string = "it was deleted")]
    Deleted,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write this Lease: create it when it has no resourceVersion, else replace it. Success begins a term.
    Take {
        /// What to write.
        lease: Box<Lease>,
        /// Why we may.
        reason: TakeReason,
    },
    /// Replace the Lease by this one. Success extends the term.
    Renew(Box<Lease>),
    /// Nothing before `until`, unless the Lease changes.
    Wait {
        /// A reading of the monotonic clock.
        until: Duration,
    },
    /// Stop at once.
    Lost(LossReason),
}

/// Decides for a candidate (`held` is `None`) or a leader.
#[must_use]
pub fn decide(observed: &Observed, held: Option<&Held>, me: &Identity, now: Duration, wall: Timestamp) -> Action {
    match held {
        Some(held) => keep(observed, held, me, now, wall),
        None => stand(observed, me, now, wall),
    }
}

/// The Lease to write when a term ends well, or `None` when it is not ours any more. Free at once for everybody else.
#[must_use]
pub fn release(observed: &Observed, me: &Identity, wall: Timestamp) -> Option<Lease> {
    let mut lease = observed.lease.clone()?;
    if holder(&lease) != Some(me.as_str()) {
        return None;
    }
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(wall));
    spec.acquire_time = Some(MicroTime(wall));
    Some(lease)
}

/// Takes the Lease of a holder that is known to have ended.
fn inherit_from_the_dead(observed: &Observed, me: &Identity, wall: Timestamp) -> Box<Lease> {
    Box::new(written(observed, me, next(observed), true, wall))
}

fn next(observed: &Observed) -> i32 {
    observed.transitions.saturating_add(1)
}

fn stand(observed: &Observed, me: &Identity, now: Duration, wall: Timestamp) -> Action {
    let take = |reason, number| Action::Take {
        lease: Box::new(written(observed, me, number, true, wall)),
        reason,
    };
    let next = next(observed);
    let Some(lease) = &observed.lease else {
        return match observed.held_until {
            Some(until) if now < until => Action::Wait { until },
            Some(_) | None => take(TakeReason::Missing, if observed.terms_known { next } else { 0 }),
        };
    };
    match holder(lease) {
        None => take(TakeReason::Free, next),
        Some(holder) if holder == me.as_str() => take(TakeReason::Ours, transitions(lease)),
        Some(_) => {
            let until = observed.changed + believed_duration(lease, &observed.timing);
            if now < until {
                Action::Wait { until }
            } else {
                take(TakeReason::Expired, next)
            }
        }
    }
}

fn keep(observed: &Observed, held: &Held, me: &Identity, now: Duration, wall: Timestamp) -> Action {
    if now >= held.deadline {
        return Action::Lost(LossReason::Deadline);
    }
    let Some(lease) = &observed.lease else {
        return Action::Lost(LossReason::Deleted);
    };
    match holder(lease) {
        None => Action::Lost(LossReason::Erased),
        Some(holder) if holder != me.as_str() => Action::Lost(LossReason::Taken),
        Some(_) if lease.metadata.uid != held.uid => Action::Lost(LossReason::Deleted),
        Some(_) => Action::Renew(Box::new(written(observed, me, held.number, false, wall))),
    }
}

/// The Lease with us as its holder. What we do not know of in it stays.
fn written(observed: &Observed, me: &Identity, number: i32, acquired: bool, wall: Timestamp) -> Lease {
    let mut lease = observed.lease.clone().unwrap_or_default();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(me.0.clone());
    spec.lease_duration_seconds = i32::try_from(observed.timing.duration.as_secs()).ok();
    spec.lease_transitions = Some(number);
    let renewed = MicroTime(different(spec.renew_time.as_ref(), wall));
    if acquired || spec.acquire_time.is_none() {
        spec.acquire_time = Some(renewed.clone());
    }
    spec.renew_time = Some(renewed);
    lease
}

/// `wall`, moved by a microsecond when it is what was written before: a write that changes nothing is dropped by the API
/// server, nobody would see that renewal, and a clock that stands still or was set back would hand the Lease over.
fn different(before: Option<&MicroTime>, wall: Timestamp) -> Timestamp {
    let as_written = |time: Timestamp| time.as_microsecond();
    match before {
        Some(before) if as_written(before.0) == as_written(wall) => wall
            .checked_add(Duration::from_micros(1))
            .unwrap_or(Timestamp::UNIX_EPOCH),
        Some(_) | None => wall,
    }
}

/// What counts as a change of the Lease: any write. The times in it would do as long as no clock is ever set back; a
/// write by somebody else, to a label, costs a dead leader's successor some seconds at worst.
fn version(lease: Option<&Lease>) -> Option<(Option<&str>, Option<&str>)> {
    let metadata = &lease?.metadata;
    Some((metadata.uid.as_deref(), metadata.resource_version.as_deref()))
}

/// The holder; empty counts as none, as client-go writes it on release.
fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

/// Never below zero, whatever was written.
fn transitions(lease: &Lease) -> i32 {
    let written = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    written.unwrap_or(0).max(0)
}

/// How long a held Lease is believed. At least our own duration, since a holder of our kind counts on it whatever
/// somebody edited.
fn believed_duration(lease: &Lease, timing: &Timing) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let written = seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    Duration::from_secs(written).clamp(timing.duration, timing.longest_believed)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
