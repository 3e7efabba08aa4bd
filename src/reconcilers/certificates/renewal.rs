//! When this machine's leaves are renewed: now and why, later and when, or not at all because nothing would be gained.
//!
//! A leaf is due when less than [`RENEWAL_WINDOW`] or a third of its life is left, and up to a tenth of that later, so that
//! machines which were made together do not renew together. Everything but that window is a share of the leaf's life: one
//! that lives for a year and one that lives for ten minutes are looked after in the same way.
//!
//! What fails is tried again after a pause that doubles, up to [`LONGEST_PAUSE`], and that is never longer than a quarter of
//! what the leaf has left: close to its end it is tried more often. There is always a pause, also after a success and after a
//! restart of the program, for it is counted from the record of the last attempt. So nothing that this cannot foresee, such
//! as a renewal that succeeds and moves nothing, makes it renew without end.

#[cfg(test)]
mod tests;
mod words;

use jiff::{SignedDuration, Timestamp};

use crate::pki::BACKDATE;
use crate::pki::certificate::RENEWAL_WINDOW;

/// The longest pause between two attempts.
pub const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(6);
/// The longest one while a leaf has ended already.
const LONGEST_PAUSE_AFTER_THE_END: SignedDuration = SignedDuration::from_hours(1);
/// The pause after the first failure, of a leaf that lives for hours or longer.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// The shortest pause of all.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// The longest pause after a success.
const PAUSE_AFTER_SUCCESS: SignedDuration = SignedDuration::from_hours(24);
/// The largest share of the window by which a renewal is put off.
const SPREAD: f64 = 0.1;
/// The largest share by which a pause is made longer.
const PAUSE_SPREAD: f64 = 0.2;

/// What a decision needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Every leaf that is there and can be read.
    pub leaves: Vec<Leaf>,
    /// The last attempt, as far as one is known.
    pub last: Option<LastAttempt>,
    /// A rotation has made leaves new and has not brought everything onto them.
    pub incomplete: bool,
}

/// One leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its name.
    pub name: String,
    /// The beginning of its life.
    pub not_before: Timestamp,
    /// The end of its life.
    pub not_after: Timestamp,
    /// How long a new one would live, where that is known. If not: as long as this one.
    pub lifetime: Option<SignedDuration>,
    /// Who makes it new.
    pub renewed_by: RenewedBy,
    /// It is of no use whatever its dates say: its key is gone, or another pair's.
    pub broken: bool,
}

/// Who makes a leaf new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewedBy {
    /// This program, with a signer that ends then. Nothing it signs is of use for longer.
    Signer {
        /// The end of the signer's life.
        not_after: Timestamp,
    },
    /// Nobody on this machine: the signer or its key is not here.
    Nobody,
    /// The kubelet, by itself, when 70 to 90 % of the life are over.
    Kubelet,
}

/// The last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// When it began.
    pub at: Timestamp,
    /// Whether it came to its end and succeeded.
    pub succeeded: bool,
    /// How many in a row did not.
    pub failures: u32,
}

/// What is to be done, and what somebody should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is to be done.
    pub action: Action,
    /// Leaves that end soon and that nothing here makes new.
    pub concerns: Vec<Concern>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A renewal, now, of everything that ends within `window`.
    Attempt {
        /// Why: at least one.
        because: Vec<Because>,
        /// The largest window of the leaves that are due; zero when none is.
        window: SignedDuration,
    },
    /// Nothing.
    Wait {
        /// Until when, if time alone changes anything.
        until: Option<Timestamp>,
        /// Why.
        why: Waiting,
    },
}

/// Why a renewal is attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A leaf is in its window.
    Due {
        /// Which.
        name: String,
        /// When it ends.
        not_after: Timestamp,
    },
    /// A leaf has ended.
    Expired {
        /// Which.
        name: String,
        /// When it ended.
        not_after: Timestamp,
    },
    /// A leaf has lost its key, or stands beside another one.
    Broken {
        /// Which.
        name: String,
    },
    /// A rotation did not bring everything onto the leaves it made.
    Incomplete,
    /// The last attempt failed or was cut off, and nobody knows what it left.
    Unsettled,
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// No leaf is in its window; this one is the first.
    NotDue {
        /// Which.
        name: String,
    },
    /// There was an attempt not long ago.
    Paused {
        /// How many in a row did not succeed.
        failures: u32,
    },
    /// Leaves are in their windows, and a new one would not end later.
    NotWorth,
    /// Nothing here is renewed by this program.
    Nothing,
}

/// A leaf that ends soon and that nothing here makes new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// Which.
    pub name: String,
    /// When it ends.
    pub not_after: Timestamp,
    /// Why it stays.
    pub kind: ConcernKind,
}

/// Why a leaf stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcernKind {
    /// Its signer ends then, so that a new one would not end later.
    SignerEnds(Timestamp),
    /// Its signer or the signer's key is not on this machine.
    NoSigner,
    /// The kubelet should have renewed it by now.
    KubeletOverdue,
}

/// How long before its end a leaf of this life is due: 90 days or a third of it, whatever is less.
#[must_use]
pub fn window(life: SignedDuration) -> SignedDuration {
    RENEWAL_WINDOW.min(life / 3)
}

impl Leaf {
    /// How long it lives from the moment it was made. Most signers date a leaf back; of a short life that would be most,
    /// and half of it would be in the window from the beginning.
    fn own_life(&self) -> SignedDuration {
        let whole = self.not_after.duration_since(self.not_before);
        let from_its_making = if whole > BACKDATE { whole - BACKDATE } else { whole };
        from_its_making.max(SHORTEST_PAUSE)
    }

    /// How long a new one would live.
    fn new_life(&self) -> SignedDuration {
        self.lifetime.unwrap_or_else(|| self.own_life()).max(SHORTEST_PAUSE)
    }

    /// What windows and pauses are shares of: the shorter life. With the longer one, a leaf that lives for days would be due
    /// from its first moment on, and a pause could be longer than all of its life.
    fn life(&self) -> SignedDuration {
        self.own_life().min(self.new_life())
    }

    fn due_at(&self, random: f64) -> Timestamp {
        if self.broken {
            return Timestamp::MIN;
        }
        let window = window(self.life());
        earlier(self.not_after, window - share(window, SPREAD * random))
    }

    /// The end of one that `signer` would make now.
    fn new_end(&self, signer: Timestamp, now: Timestamp) -> Timestamp {
        later(now, self.new_life()).min(signer)
    }

    fn is_ours(&self) -> bool {
        self.renewed_by != RenewedBy::Kubelet
    }

    /// Why it would stay if it were due.
    fn obstacle(&self, now: Timestamp) -> Option<ConcernKind> {
        match self.renewed_by {
            RenewedBy::Nobody => Some(ConcernKind::NoSigner),
            RenewedBy::Kubelet => Some(ConcernKind::KubeletOverdue),
            RenewedBy::Signer { not_after } => {
                let end = self.new_end(not_after, now);
                let gains = self.broken || end > self.not_after;
                (!gains || end <= now).then_some(ConcernKind::SignerEnds(not_after))
            }
        }
    }

    fn concern(&self, kind: ConcernKind) -> Concern {
        Concern {
            name: self.name.clone(),
            not_after: self.not_after,
            kind,
        }
    }
}

/// What is to be done at `now`. `random`, from 0 to 1, is this machine's place among others; while it stays the same, what
/// was to be waited for comes at the time that was told.
#[must_use]
pub fn decide(observed: &Observed, now: Timestamp, random: f64) -> Decision {
    let random = if random.is_finite() {
        random.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let (ours, kubelets): (Vec<&Leaf>, Vec<&Leaf>) = observed.leaves.iter().partition(|leaf| leaf.is_ours());
    let (due, not_due): (Vec<&Leaf>, Vec<&Leaf>) = ours.iter().partition(|leaf| leaf.due_at(random) <= now);
    let mut concerns = Vec::new();
    let mut worth = Vec::new();
    for leaf in due {
        match leaf.obstacle(now) {
            Some(kind) => concerns.push(leaf.concern(kind)),
            None => worth.push(leaf),
        }
    }
    let overdue = |leaf: &&&Leaf| leaf.not_after.duration_since(now) < leaf.life() / 10;
    let overdue = kubelets.iter().filter(overdue);
    concerns.extend(overdue.map(|leaf| leaf.concern(ConcernKind::KubeletOverdue)));
    let because = because(observed, &worth, !ours.is_empty(), now);
    let action = if because.is_empty() {
        wait(&not_due, !concerns.is_empty() && !ours.is_empty(), random)
    } else {
        let until = observed.last.and_then(|last| pause(&last, &worth, &ours, now, random));
        match until {
            Some((until, failures)) if until > now => Action::Wait {
                until: Some(until),
                why: Waiting::Paused { failures },
            },
            Some(_) | None => Action::Attempt {
                because,
                window: worth.iter().map(|leaf| window(leaf.life())).max().unwrap_or_default(),
            },
        }
    };
    Decision { action, concerns }
}

fn because(observed: &Observed, worth: &[&Leaf], any: bool, now: Timestamp) -> Vec<Because> {
    let of = |leaf: &&Leaf| {
        let (name, not_after) = (leaf.name.clone(), leaf.not_after);
        if leaf.broken {
            Because::Broken { name }
        } else if not_after < now {
            Because::Expired { name, not_after }
        } else {
            Because::Due { name, not_after }
        }
    };
    let mut because: Vec<Because> = worth.iter().map(of).collect();
    if observed.incomplete {
        because.push(Because::Incomplete);
    } else if because.is_empty() && any && observed.last.is_some_and(|last| !last.succeeded) {
        because.push(Because::Unsettled);
    }
    because
}

fn wait(not_due: &[&Leaf], stuck: bool, random: f64) -> Action {
    let able = not_due.iter().filter(|leaf| leaf.renewed_by != RenewedBy::Nobody);
    let first = able.min_by_key(|leaf| leaf.due_at(random));
    let until = first.map(|leaf| leaf.due_at(random));
    let why = match first {
        _ if stuck => Waiting::NotWorth,
        Some(leaf) => Waiting::NotDue {
            name: leaf.name.clone(),
        },
        None => Waiting::Nothing,
    };
    Action::Wait { until, why }
}

/// Until when nothing is attempted after the last attempt. Depends on when that was, never on `now`: a pause does not grow
/// while it is waited for.
fn pause(last: &LastAttempt, worth: &[&Leaf], ours: &[&Leaf], now: Timestamp, random: f64) -> Option<(Timestamp, u32)> {
    // Recorded by a clock that was ahead: nobody knows how long ago that was.
    if last.at > now {
        return None;
    }
    let concerned = if worth.is_empty() { ours } else { worth };
    let life = concerned.iter().map(|leaf| leaf.life()).min();
    let life = life.unwrap_or(crate::pki::leaf::LIFETIME);
    let first = FIRST_PAUSE.min(life / 60).max(SHORTEST_PAUSE);
    let length = match (last.succeeded, last.failures) {
        // What is due now may have been put off by nobody's fault, but a success that moves nothing must not be repeated.
        (true, _) if !worth.is_empty() => PAUSE_AFTER_SUCCESS.min(window(life) / 4).max(first),
        (true, _) => first,
        // It was asked to stop.
        (false, 0) => return None,
        (false, failures) => {
            let end = worth.iter().map(|leaf| leaf.not_after).min();
            let grown = first * (1_i32 << failures.saturating_sub(1).min(20));
            grown
                .min(longest(end.map(|end| end.duration_since(last.at))))
                .max(first)
        }
    };
    let length = length + share(length, PAUSE_SPREAD * random);
    Some((later(last.at, length), last.failures))
}

/// The longest pause with so much left.
fn longest(left: Option<SignedDuration>) -> SignedDuration {
    match left {
        None => LONGEST_PAUSE,
        Some(left) if left.is_negative() => LONGEST_PAUSE_AFTER_THE_END.min(left.abs() / 4),
        Some(left) => LONGEST_PAUSE.min(left / 4),
    }
}

fn share(duration: SignedDuration, share: f64) -> SignedDuration {
    duration.mul_f64(share)
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
