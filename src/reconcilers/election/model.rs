//! Several candidates against a store that compares and swaps, with pauses, lost requests, lost answers, clocks that
//! disagree and a wall clock that stands still: at no moment may two of them be before the deadline of a term.

use proptest::prelude::*;

use super::*;

/// The API server: one object, replaced only at the version that was read.
#[derive(Default)]
struct Store {
    lease: Option<Lease>,
    version: u64,
}

impl Store {
    fn swap(&mut self, mut lease: Lease) -> Option<Lease> {
        let current = self
            .lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.clone());
        if lease.metadata.resource_version != current {
            return None;
        }
        if Some(&lease) != self.lease.as_ref() {
            self.version += 1;
        }
        lease.metadata.resource_version = Some(self.version.to_string());
        lease.metadata.uid.get_or_insert_with(|| "u".to_owned());
        self.lease = Some(lease.clone());
        Some(lease)
    }
}

/// A write on its way; `answer` is set once the store has seen it.
struct Flight {
    lease: Lease,
    started: Duration,
    answer: Option<Option<Lease>>,
}

struct Candidate {
    me: Identity,
    /// How far its clock is from the true one.
    skew: Duration,
    observed: Observed,
    held: Option<Held>,
    flight: Option<Flight>,
    lost: bool,
}

impl Candidate {
    fn new(index: usize, skew: u64) -> Self {
        Self {
            me: Identity::new("n", &index.to_string()),
            skew: Duration::from_millis(skew),
            observed: Observed::new(LEADERSHIP),
            held: None,
            flight: None,
            lost: false,
        }
    }

    /// A supervisor starts it anew, under a new name.
    fn restart(&mut self, round: usize) {
        let mut fresh = Self::new(round + 1000, 0);
        fresh.skew = self.skew;
        *self = fresh;
    }

    fn is_live(&self, now: Duration) -> bool {
        !self.lost && self.held.as_ref().is_some_and(|held| now + self.skew < held.deadline)
    }

    fn act(&mut self, store: &mut Store, step: &Step, now: Duration) {
        let local = now + self.skew;
        match step {
            Step::Read(_) => self.observed.note(store.lease.clone(), local),
            Step::Decide(_) if self.flight.is_none() && !self.lost => {
                match decide(
                    &self.observed,
                    self.held.as_ref(),
                    &self.me,
                    local,
                    Timestamp::UNIX_EPOCH,
                ) {
                    Action::Take { lease, .. } | Action::Renew(lease) => self.send(*lease, local),
                    Action::Wait { .. } => {}
                    Action::Lost(_) => self.lost = true,
                }
            }
            Step::Release(_) if self.is_live(now) && self.flight.is_none() => {
                self.lost = true;
                if let Some(lease) = release(&self.observed, &self.me, Timestamp::UNIX_EPOCH) {
                    store.swap(lease);
                }
            }
            Step::Arrive(_) => {
                if let Some(flight) = self.flight.as_mut().filter(|flight| flight.answer.is_none()) {
                    flight.answer = Some(store.swap(flight.lease.clone()));
                }
            }
            Step::Answer(_) => self.answer(local),
            Step::Lose(_) => self.flight = None,
            Step::Decide(_) | Step::Release(_) | Step::Pass(_) | Step::Restart(_) | Step::Whole(_) => {}
        }
    }

    fn send(&mut self, lease: Lease, started: Duration) {
        self.flight = Some(Flight {
            lease,
            started,
            answer: None,
        });
    }

    fn answer(&mut self, local: Duration) {
        let Some(flight) = self.flight.take_if(|flight| flight.answer.is_some()) else {
            return;
        };
        let Some(Some(lease)) = flight.answer else { return };
        let fresh = Held::of(&lease, flight.started, &LEADERSHIP);
        // A fence never opens again: an answer that comes after the deadline does not revive the term.
        match &mut self.held {
            Some(held) if local < held.deadline => *held = fresh,
            Some(_) => self.lost = true,
            None => self.held = Some(fresh),
        }
        self.observed.note(Some(lease), local);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes, in milliseconds; whoever does nothing meanwhile is paused.
    Pass(u64),
    /// Reads, decides, and writes without a hitch.
    Whole(usize),
    Read(usize),
    Decide(usize),
    Arrive(usize),
    Answer(usize),
    Lose(usize),
    Release(usize),
    Restart(usize),
}

const CANDIDATES: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..CANDIDATES;
    let step = prop_oneof![
        4 => (0_u64..6_000).prop_map(Step::Pass),
        6 => who.clone().prop_map(Step::Whole),
        4 => who.clone().prop_map(Step::Read),
        6 => who.clone().prop_map(Step::Decide),
        6 => who.clone().prop_map(Step::Arrive),
        6 => who.clone().prop_map(Step::Answer),
        1 => who.clone().prop_map(Step::Lose),
        1 => who.clone().prop_map(Step::Release),
        1 => who.prop_map(Step::Restart),
    ];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn never_two_live_terms(skews in proptest::collection::vec(0_u64..1_000_000, CANDIDATES), steps in steps()) {
        let mut store = Store::default();
        let mut now = Duration::from_secs(1);
        let mut candidates: Vec<_> = (0..).zip(&skews).map(|(index, skew)| Candidate::new(index, *skew)).collect();
        let mut highest = -1;
        for (round, step) in steps.iter().enumerate() {
            match step {
                Step::Pass(milliseconds) => now += Duration::from_millis(*milliseconds),
                Step::Restart(who) => candidates[*who].restart(round),
                Step::Whole(who) => {
                    for part in [Step::Read(*who), Step::Decide(*who), Step::Arrive(*who), Step::Answer(*who)] {
                        candidates[*who].act(&mut store, &part, now);
                    }
                }
                Step::Read(who) | Step::Decide(who) | Step::Arrive(who) | Step::Answer(who) | Step::Lose(who)
                | Step::Release(who) => candidates[*who].act(&mut store, step, now),
            }
            let live: Vec<_> = candidates.iter().filter(|candidate| candidate.is_live(now)).collect();
            prop_assert!(live.len() <= 1, "two live terms after {round} steps");
            if let Some(held) = live.first().and_then(|leader| leader.held.as_ref()) {
                prop_assert!(held.number >= highest, "term {} after {highest}", held.number);
                highest = held.number;
            }
        }
    }
}
