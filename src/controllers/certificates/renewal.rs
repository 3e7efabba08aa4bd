//! The renewal loop: looks at the leaves of this machine, and has them made new in time. The decisions are in
//! [`crate::reconcilers::certificates::renewal`].
//!
//! Who makes them new is handed in, as a function: [`attempt`]. This file sees to it that the attempt is recorded before it begins and
//! when it has ended, that people are told on the Node, and that a stop waits for the step in flight. Without a record no
//! attempt is made: one that was cut off would read as the success before it.

mod attempt;
mod observe;
mod telling;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use super::super::concern::chain;
use crate::host::certificates::Machine;
use crate::host::layout::Layout;
use crate::host::renewal_record::{RenewalRecord, load_renewal_record, save_renewal_record};
use crate::host::{clock, entropy};
use crate::reconcilers::certificates::renewal::{Action, Decision, LastAttempt, decide};

pub use attempt::attempt;
pub use telling::{RENEWAL_FAILED, RENEWED, STAYS, Teller, UNREADABLE};

/// The files are looked at again after this time whatever was decided: somebody may have replaced them, a clock may have
/// been set, and the machine may have slept.
pub const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// The shortest sleep. Every decision waits for longer, but for the part of a second that a clock is behind.
const SHORTEST: Duration = Duration::from_millis(100);

/// What an attempt is asked for: everything on `machine` that ends within `window`, with its keys kept. It ends at its next
/// step when `stop` is cancelled.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where.
    pub machine: Machine,
    /// How soon a leaf has to end to be made new.
    pub window: SignedDuration,
    /// For the end of this program.
    pub stop: CancellationToken,
}

/// Why an attempt did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The whole of it, with its causes.
    pub words: String,
    /// Nothing was changed: somebody else is at it, or something has to be put right first.
    pub refused: bool,
}

/// What became of an attempt: the names of the leaves it made new.
pub type Attempted = Result<Vec<String>, Failure>;

/// What one look led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// There was nothing to do.
    Nothing(Decision),
    /// An attempt succeeded.
    Renewed {
        /// What it made new; nothing when it found nothing due.
        names: Vec<String>,
    },
    /// An attempt did not succeed, or could not be begun.
    Failed(Failure),
    /// It cannot be told which certificates this machine has, for this reason.
    Unknown(String),
}

/// The loop, and what it remembers between two looks.
pub struct Renewal<A> {
    layout: Layout,
    attempt: A,
    teller: Teller,
    leaf_lifetime: Option<SignedDuration>,
    /// This machine's place among others; another one after each attempt.
    random: f64,
    /// The last attempt of this process, in case it could not be recorded.
    last: Option<LastAttempt>,
    /// What was logged last, so that the same is not logged at each look.
    said: Option<String>,
}

impl<A, F> Renewal<A>
where
    A: Fn(Wish) -> F,
    F: Future<Output = Attempted>,
{
    /// Looks after the machine with this layout; `attempt` makes leaves new.
    pub fn new(layout: Layout, teller: Teller, attempt: A) -> Self {
        Self {
            layout,
            attempt,
            teller,
            leaf_lifetime: None,
            random: entropy::fraction(),
            last: None,
            said: None,
        }
    }

    /// The same, where new leaves live for so long; none: as long as their requests or, on kubeadm's, the old ones say.
    #[must_use]
    pub fn with_leaf_lifetime(self, leaf_lifetime: Option<SignedDuration>) -> Self {
        Self { leaf_lifetime, ..self }
    }

    /// Looks again and again until `stop`. An attempt that has begun is waited for.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let looked = self.look(&stop).await;
            let length = next(&looked, clock::now());
            stop.run_until_cancelled(clock::sleep(length)).await;
        }
        tracing::info!("the renewal of certificates has stopped");
    }

    /// Looks once, and does what is to be done.
    pub async fn look(&mut self, stop: &CancellationToken) -> Looked {
        let machine = match Machine::load(self.layout.clone()) {
            Ok(machine) => machine.with_leaf_lifetime(self.leaf_lifetime),
            Err(error) => {
                let words = chain(&error);
                tracing::error!("it cannot be told which certificates this machine has: {words}");
                return Looked::Unknown(words);
            }
        };
        let mut seen = observe::observe(&machine);
        let recorded = self.recorded();
        seen.observed.last = recorded.into_iter().chain(self.last).max_by_key(|last| last.at);
        let decision = decide(&seen.observed, clock::now(), self.random);
        self.log(&decision, &seen.unreadable);
        let looked = match decision.action {
            Action::Wait { .. } => Looked::Nothing(decision.clone()),
            Action::Attempt { window, .. } => {
                let failures = seen.observed.last.map_or(0, |last| last.failures);
                let wish = Wish {
                    machine: machine.clone(),
                    window,
                    stop: stop.clone(),
                };
                self.renew(wish, failures, &decision.action).await
            }
        };
        // After the attempt: without an API server each of these takes its time.
        let telling = self.teller.concerns(&machine, &decision.concerns, &seen.unreadable);
        stop.run_until_cancelled(telling).await;
        looked
    }

    async fn renew(&mut self, wish: Wish, failures: u32, action: &Action) -> Looked {
        let machine = wish.machine.clone();
        let stop = wish.stop.clone();
        let record = RenewalRecord::begun(clock::now(), failures);
        self.random = entropy::fraction();
        self.remember(&record);
        let attempted = match save_renewal_record(&self.layout, &record) {
            Ok(()) => (self.attempt)(wish).await,
            Err(error) => Err(Failure {
                words: format!("not attempted: {}", chain(&error)),
                refused: true,
            }),
        };
        let at = clock::now();
        let record = match &attempted {
            Ok(_) => record.succeeded(at),
            Err(failure) if stop.is_cancelled() => RenewalRecord {
                // That it was asked to stop is nobody's failure.
                failures,
                ..record.failed(at, format!("asked to stop: {}", failure.words))
            },
            Err(failure) => record.failed(at, failure.words.clone()),
        };
        self.remember(&record);
        if let Err(error) = save_renewal_record(&self.layout, &record) {
            // It goes on saying "in progress", which is no success.
            tracing::error!("how the renewal went is not recorded: {}", chain(&error));
        }
        match attempted {
            Ok(names) => {
                tracing::info!(renewed = names.join(", "), "the renewal succeeded");
                stop.run_until_cancelled(self.teller.renewed(&machine, &names)).await;
                Looked::Renewed { names }
            }
            Err(failure) => {
                tracing::error!(
                    refused = failure.refused,
                    failures = record.failures,
                    "the renewal failed: {}",
                    failure.words
                );
                // A refusal is most often that somebody else is at it; what is told at once helps nobody then.
                if !failure.refused || record.failures > 1 {
                    let telling = self.teller.failed(&machine, &failure.words, action);
                    stop.run_until_cancelled(telling).await;
                }
                Looked::Failed(failure)
            }
        }
    }

    /// The last attempt as it is recorded. A record that cannot be read holds nothing up; the next attempt replaces it.
    fn recorded(&self) -> Option<LastAttempt> {
        match load_renewal_record(&self.layout) {
            Ok(record) => record.as_ref().map(last_attempt),
            Err(error) => {
                tracing::warn!("when certificates were renewed last is not known: {}", chain(&error));
                None
            }
        }
    }

    fn remember(&mut self, record: &RenewalRecord) {
        self.last = Some(last_attempt(record));
    }

    /// The decision and its reason; at each look the same is no news.
    fn log(&mut self, decision: &Decision, unreadable: &[(String, String)]) {
        let action = decision.action.to_string();
        let concerns = decision.concerns.iter().map(ToString::to_string);
        let unreadable = unreadable
            .iter()
            .map(|(name, problem)| format!("{name} cannot be read: {problem}"));
        let words: Vec<String> = std::iter::once(action).chain(concerns).chain(unreadable).collect();
        let words = words.join("; ");
        if self.said.as_ref() == Some(&words) {
            tracing::debug!("{words}");
        } else {
            tracing::info!("{words}");
            self.said = Some(words);
        }
    }
}

fn last_attempt(record: &RenewalRecord) -> LastAttempt {
    LastAttempt {
        at: record.attempted_at,
        succeeded: record.is_success(),
        failures: record.failures,
    }
}

/// How long until the next look: the time that was decided, but never longer than [`LOOK_AGAIN`].
fn next(looked: &Looked, now: Timestamp) -> Duration {
    match looked {
        // What is to be done after an attempt, and when, the next look finds; there is always a pause.
        Looked::Renewed { .. } | Looked::Failed(_) => SHORTEST,
        Looked::Unknown(_) => LOOK_AGAIN,
        Looked::Nothing(decision) => match decision.action {
            Action::Wait { until: Some(until), .. } => {
                let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                left.clamp(SHORTEST, LOOK_AGAIN)
            }
            Action::Wait { until: None, .. } | Action::Attempt { .. } => LOOK_AGAIN,
        },
    }
}
