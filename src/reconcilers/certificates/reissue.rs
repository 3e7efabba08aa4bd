//! Which leaves of a node are made anew, and why: from what was found of each, without a look at any file.

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

/// What became of the keys of leaves that are made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A key that is good stays, so that no reader ever finds a pair that does not match.
    Keep,
    /// Each gets another.
    New,
}

/// Whose affair a leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This program's.
    Ours,
    /// The kubelet's own: it renews it long before its end, and somebody else only helps where it cannot any more.
    Kubelet,
}

/// What was found of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is what it should be. Dates are looked at here.
    Good,
    /// There is none.
    Missing,
    /// What is there cannot be read as one.
    Unreadable,
    /// Its key is missing or cannot be used.
    NoKey,
    /// The key beside it is that of another certificate: somebody was killed between two writes.
    OtherKey,
    /// It does not verify against the signer.
    OtherSigner,
    /// Its subject, names or usages are not those it should have.
    SaysElse,
}

/// One leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name in `certs check`.
    pub name: String,
    /// Whose it is.
    pub owner: Owner,
    /// What was found.
    pub state: State,
    /// When it ends, if it can be read.
    pub ends: Option<Timestamp>,
    /// When one that is made now would end; none when nobody here can sign it.
    pub would_end: Option<Timestamp>,
    /// Whether its key can go on.
    pub has_key: bool,
}

/// Why a leaf is made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// All are.
    #[strum(serialize = "asked for")]
    Asked,
    /// It ends within the window, or another one does: they go together, so that everybody is restarted once.
    #[strum(serialize = "due")]
    Due,
    /// Its end has passed.
    #[strum(serialize = "expired")]
    Expired,
    /// There is none.
    #[strum(serialize = "missing")]
    Missing,
    /// It cannot be read.
    #[strum(serialize = "unreadable")]
    Unreadable,
    /// It has no usable key.
    #[strum(serialize = "without a usable key")]
    NoKey,
    /// Certificate and key are of two pairs.
    #[strum(serialize = "of another key than the one beside it")]
    OtherKey,
    /// It is of another signer.
    #[strum(serialize = "of another signer")]
    OtherSigner,
    /// It says something else than it should.
    #[strum(serialize = "with other names than it should have")]
    SaysElse,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Only what ends within this time; none for everything.
    pub within: Option<SignedDuration>,
    /// What becomes of keys.
    pub keys: Keys,
}

/// A leaf that is made anew.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reissue {
    /// Which.
    pub name: String,
    /// Why.
    pub why: Why,
    /// Whether with another key.
    pub new_key: bool,
}

/// Why nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// This machine has no leaves of its own.
    NoLeaves,
    /// None ends so soon.
    NothingDue {
        /// The first end.
        first: Option<Timestamp>,
    },
    /// Those that end soon end with their signer, and new ones would end no later.
    WouldNotMove {
        /// When they and it end.
        ends: Timestamp,
    },
}

impl fmt::Display for Idle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeaves => formatter.write_str(
                "this node signs no certificates of its own: a worker's are its kubelet's, which renews them itself",
            ),
            Self::NothingDue { first: Some(first) } => {
                write!(formatter, "no certificate is due: the first one ends {first:.0}")
            }
            Self::NothingDue { first: None } => formatter.write_str("no certificate is due"),
            Self::WouldNotMove { ends } => write!(
                formatter,
                "what is due ends with its signer, {ends:.0}, and new certificates would end no later: rotate the signer ('stratum certs rotate-ca')"
            ),
        }
    }
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The leaves that are made anew, in the order in which they were given.
    pub reissue: Vec<Reissue>,
    /// Those that had expired, also the kubelet's.
    pub expired: BTreeSet<String>,
    /// Why there is none, when there is none.
    pub idle: Option<Idle>,
}

/// Decides which leaves are made anew.
#[must_use]
pub fn decide(seen: &[Seen], wish: Wish, now: Timestamp) -> Decision {
    let is_due = |leaf: &&Seen| match (wish.within, leaf.owner) {
        (Some(within), Owner::Ours) => leaf.ends.is_some_and(|ends| ends.duration_since(now) <= within),
        (None, _) | (_, Owner::Kubelet) => false,
    };
    let due: Vec<&Seen> = seen.iter().filter(is_due).collect();
    let moving = due.iter().any(|leaf| moves(leaf));
    let reissue: Vec<Reissue> = seen
        .iter()
        .filter_map(|leaf| {
            let why = fault(leaf, now)
                .filter(|why| is_helped(leaf, *why))
                .or(match leaf.owner {
                    Owner::Kubelet => None,
                    Owner::Ours if wish.within.is_none() => Some(Why::Asked),
                    Owner::Ours => (moving && moves(leaf)).then_some(Why::Due),
                })?;
            Some(Reissue {
                name: leaf.name.clone(),
                why,
                new_key: wish.keys == Keys::New || !leaf.has_key,
            })
        })
        .collect();
    let expired = seen.iter().filter(|leaf| has_expired(leaf, now));
    let idle = reissue.is_empty().then(|| {
        let ends = || {
            seen.iter()
                .filter(|leaf| leaf.owner == Owner::Ours)
                .filter_map(|leaf| leaf.ends)
        };
        match due.iter().filter_map(|leaf| leaf.ends).min() {
            Some(ends) => Idle::WouldNotMove { ends },
            None if seen.iter().all(|leaf| leaf.owner == Owner::Kubelet) => Idle::NoLeaves,
            None => Idle::NothingDue { first: ends().min() },
        }
    });
    Decision {
        expired: expired.map(|leaf| leaf.name.clone()).collect(),
        reissue,
        idle,
    }
}

/// Whether a new one would end later.
fn moves(leaf: &Seen) -> bool {
    match (leaf.ends, leaf.would_end) {
        (Some(ends), Some(would_end)) => would_end > ends,
        (None, _) | (_, None) => true,
    }
}

fn has_expired(leaf: &Seen, now: Timestamp) -> bool {
    leaf.ends.is_some_and(|ends| ends < now)
}

fn fault(leaf: &Seen, now: Timestamp) -> Option<Why> {
    match leaf.state {
        State::Good => has_expired(leaf, now).then_some(Why::Expired),
        State::Missing => Some(Why::Missing),
        State::Unreadable => Some(Why::Unreadable),
        State::NoKey => Some(Why::NoKey),
        State::OtherKey => Some(Why::OtherKey),
        State::OtherSigner => Some(Why::OtherSigner),
        State::SaysElse => Some(Why::SaysElse),
    }
}

/// The kubelet is helped where it cannot go on by itself, by a machine that can sign. Another signer may be the one it moves to.
fn is_helped(leaf: &Seen, why: Why) -> bool {
    match (leaf.owner, why) {
        (Owner::Ours, _) => true,
        (Owner::Kubelet, Why::Expired | Why::Missing | Why::Unreadable | Why::NoKey | Why::OtherKey) => {
            leaf.would_end.is_some()
        }
        (Owner::Kubelet, Why::Asked | Why::Due | Why::OtherSigner | Why::SaysElse) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(days: i64) -> Timestamp {
        "2026-06-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(24 * days)
    }

    fn leaf(name: &str, ends: i64) -> Seen {
        Seen {
            name: name.to_owned(),
            owner: Owner::Ours,
            state: State::Good,
            ends: Some(days(ends)),
            would_end: Some(days(365)),
            has_key: true,
        }
    }

    fn kubelet(state: State, ends: i64) -> Seen {
        Seen {
            owner: Owner::Kubelet,
            state,
            ..leaf("kubelet-client", ends)
        }
    }

    fn within(days: i64) -> Wish {
        Wish {
            within: Some(SignedDuration::from_hours(24 * days)),
            keys: Keys::Keep,
        }
    }

    const ALL: Wish = Wish {
        within: None,
        keys: Keys::New,
    };

    fn told(seen: &[Seen], wish: Wish) -> Vec<String> {
        let decided = decide(seen, wish, days(0));
        assert_eq!(decided.idle.is_some(), decided.reissue.is_empty());
        decided
            .reissue
            .iter()
            .map(|one| format!("{} {}", one.name, one.why))
            .collect()
    }

    #[test]
    fn everything_is_made_anew_but_the_kubelets_own() {
        let seen = [leaf("apiserver", 300), kubelet(State::Good, 300)];
        assert_eq!(told(&seen, ALL), ["apiserver asked for"]);
        let decided = decide(&seen, ALL, days(0));
        assert!(decided.reissue[0].new_key && decided.expired.is_empty());
    }

    #[test]
    fn within_a_window_all_go_together_or_none() {
        let seen = [leaf("apiserver", 300), leaf("admin", 31)];
        assert_eq!(told(&seen, within(30)), [""; 0]);
        assert_eq!(told(&seen, within(31)), ["apiserver due", "admin due"]);
        let idle = decide(&seen, within(30), days(0)).idle.unwrap();
        assert_eq!(idle, Idle::NothingDue { first: Some(days(31)) });
        assert!(idle.to_string().ends_with("2026-07-02T12:00:00Z"), "{idle}");
    }

    #[test]
    fn what_would_not_end_later_is_left_alone() {
        let clamped = Seen {
            would_end: Some(days(10)),
            ..leaf("apiserver", 10)
        };
        assert_eq!(told(std::slice::from_ref(&clamped), within(30)), [""; 0]);
        let idle = decide(std::slice::from_ref(&clamped), within(30), days(0))
            .idle
            .unwrap();
        assert!(idle.to_string().contains("rotate-ca"), "{idle}");
        // Somebody else's signer lives on: only its leaves are made anew.
        assert_eq!(
            told(&[clamped.clone(), leaf("etcd/peer", 10)], within(30)),
            ["etcd/peer due"]
        );
        // Whoever asks for new keys gets them.
        assert_eq!(told(&[clamped], ALL), ["apiserver asked for"]);
    }

    #[test]
    fn what_is_broken_is_mended_also_when_nothing_is_due() {
        let broken = |state, has_key| Seen {
            state,
            has_key,
            ..leaf("admin", 300)
        };
        let cases = [
            (State::Missing, "missing"),
            (State::Unreadable, "unreadable"),
            (State::NoKey, "without a usable key"),
            (State::OtherKey, "of another key than the one beside it"),
            (State::OtherSigner, "of another signer"),
            (State::SaysElse, "with other names than it should have"),
        ];
        for (state, words) in cases {
            let seen = [leaf("apiserver", 300), broken(state, state != State::NoKey)];
            assert_eq!(told(&seen, within(30)), [format!("admin {words}")]);
            let decided = decide(&seen, within(30), days(0));
            assert_eq!(decided.reissue[0].new_key, state == State::NoKey);
        }
        let expired = decide(&[leaf("admin", -1), leaf("apiserver", 300)], within(30), days(0));
        assert_eq!(expired.expired, ["admin".to_owned()].into());
        assert_eq!(expired.reissue.len(), 2, "it is due as well, and all go together");
    }

    #[test]
    fn the_kubelet_is_helped_only_where_it_cannot_go_on() {
        for (state, ends, helped) in [
            (State::Good, 1, false),
            (State::Good, -1, true),
            (State::Missing, 1, true),
            (State::Unreadable, 1, true),
            (State::NoKey, 1, true),
            (State::OtherKey, 1, true),
            (State::OtherSigner, 1, false),
            (State::SaysElse, 1, false),
        ] {
            for wish in [ALL, within(30)] {
                let decided = decide(&[kubelet(state, ends)], wish, days(0));
                assert_eq!(!decided.reissue.is_empty(), helped, "{state:?} {ends}");
            }
        }
        let worker = Seen {
            would_end: None,
            ..kubelet(State::Good, -1)
        };
        let worker = decide(&[worker], ALL, days(0));
        assert_eq!(worker.idle, Some(Idle::NoLeaves));
        assert_eq!(decide(&[], ALL, days(0)).idle, Some(Idle::NoLeaves));
    }
}
