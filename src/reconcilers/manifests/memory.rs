//! What one operator process remembers of the objects it applied. Losing it costs requests, never correctness.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::report::Refusal;
use super::resolve::Resolved;
use crate::reconcilers::object::{ObjectId, Uid};

/// The first wait after a failed apply of one object; it doubles with every further failure.
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// The longest wait between two tries of one object; the resync comes at this pace anyway.
const LAST_RETRY: Duration = Duration::from_secs(300);

/// The metadata of a live object, as a list gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveObject {
    /// Its UID.
    pub uid: Option<Uid>,
    /// Its resourceVersion: any change moves it.
    pub resource_version: String,
    /// Its generation, for kinds that have one: a change of the spec moves it, a change of the status does not.
    pub generation: Option<i64>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Whether another object owns it.
    pub owned: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// What the API server answered when an object was last applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The digest of what was sent.
    pub digest: [u8; 32],
    /// Its UID.
    pub uid: Uid,
    /// Its resourceVersion after the apply.
    pub resource_version: String,
    /// Its generation after the apply.
    pub generation: Option<i64>,
}

/// The last refusal of an object and when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The digest of what was sent.
    pub digest: [u8; 32],
    /// How often in a row.
    pub times: u32,
    /// Not before this time, unless the file changes.
    pub retry_at: Timestamp,
    /// What was said.
    pub refusal: Refusal,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    applied: BTreeMap<ObjectId, Applied>,
    failed: BTreeMap<ObjectId, Failed>,
}

/// How a live object differs from what was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// Not at all, as far as metadata can tell.
    None,
    /// It is gone.
    Gone,
    /// It was deleted and created again.
    Replaced,
    /// Somebody changed it.
    Changed,
}

impl Memory {
    /// What was applied under this identity.
    #[must_use]
    pub fn applied(&self, id: &ObjectId) -> Option<&Applied> {
        self.applied.get(id)
    }

    /// The last failure under this identity.
    #[must_use]
    pub fn failed(&self, id: &ObjectId) -> Option<&Failed> {
        self.failed.get(id)
    }

    /// Remembers a successful apply.
    pub fn succeed(&mut self, id: ObjectId, applied: Applied) {
        self.failed.remove(&id);
        self.applied.insert(id, applied);
    }

    /// Remembers a failed apply. A failure of new content starts the waits anew, and one that comes before its retry
    /// time (another event woke the pass) does not lengthen them.
    pub fn fail(&mut self, id: ObjectId, digest: [u8; 32], refusal: Refusal, now: Timestamp) {
        let times = match self.failed.get(&id) {
            Some(before) if before.digest == digest && now < before.retry_at => before.times,
            Some(before) if before.digest == digest => before.times.saturating_add(1),
            Some(_) | None => 1,
        };
        let wait = FIRST_RETRY
            .saturating_mul(1u32 << times.saturating_sub(1).min(16))
            .min(LAST_RETRY);
        let retry_at = now
            .checked_add(jiff::SignedDuration::try_from(wait).unwrap_or_default())
            .unwrap_or(now);
        self.failed.insert(
            id,
            Failed {
                digest,
                times,
                retry_at,
                refusal,
            },
        );
    }

    /// The live state differs from what was applied: the next plan sends the object again.
    pub fn forget(&mut self, id: &ObjectId) {
        self.applied.remove(id);
        self.failed.remove(id);
    }

    /// Keeps only the identities for which `keep` holds.
    pub fn retain(&mut self, keep: impl Fn(&ObjectId) -> bool) {
        self.applied.retain(|id, _| keep(id));
        self.failed.retain(|id, _| keep(id));
    }

    /// The earliest retry of a failed object.
    #[must_use]
    pub fn next_retry(&self) -> Option<Timestamp> {
        self.failed.values().map(|failed| failed.retry_at).min()
    }
}

/// Compares a live object's metadata with what was applied.
///
/// A kind with a generation is compared by it, since its status changes all the time; one without by its
/// resourceVersion. Labels and annotations move no generation, so the declared ones are compared themselves.
#[must_use]
pub fn drift(applied: &Applied, declared: &Resolved, live: Option<&LiveObject>) -> Drift {
    let Some(live) = live else {
        return Drift::Gone;
    };
    if live.uid.as_ref() != Some(&applied.uid) {
        return Drift::Replaced;
    }
    let moved = match (applied.generation, live.generation) {
        (Some(before), Some(now)) => before != now,
        (Some(_), None) | (None, Some(_) | None) => applied.resource_version != live.resource_version,
    };
    let holds = |live: &BTreeMap<String, String>, declared: &BTreeMap<String, String>| {
        declared.iter().all(|(key, value)| live.get(key) == Some(value))
    };
    if moved || !holds(&live.labels, &declared.labels) || !holds(&live.annotations, &declared.annotations) {
        Drift::Changed
    } else {
        Drift::None
    }
}

#[cfg(test)]
mod tests;
