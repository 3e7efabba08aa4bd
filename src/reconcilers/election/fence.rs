//! The cluster fence: which one operation may change what all nodes share, such as the members of etcd.
//!
//! An operation takes Lease `kube-system/stratum-maintenance` before its first change and renews it until its last; whoever
//! else begins one is told who has it, and changes nothing. The Lease names the operation, its node and its run, so that the
//! steps of a run, which are other processes on other machines, can tell that they are its own.
//!
//! That a holder is gone is believed as everywhere here: once this process itself has seen no change of the Lease for all of
//! its duration. The dates in it decide only whether that is worth waiting for. A Lease that was renewed a moment ago is
//! refused at once; one whose dates are long over, or lie in the future, may be that of a machine that died or of one whose
//! clock is wrong, and is watched until it changes or runs out.
//!
//! One case is known at once: each operation also holds a lock of its own machine, which ends with its process. Whoever has
//! that lock knows that an operation of this machine that stands in the Lease was killed, and goes on where it was.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use super::{Action, Identity, Observed, TakeReason, Timing, believed_duration, holder};
use crate::pki::hexadecimal;

/// The name of the Lease, in the system namespace.
pub const NAME: &str = "stratum-maintenance";

/// A holder has stopped a minute and more before anybody can follow it: the step it is in may take that long. An outage of the
/// API servers of three minutes costs no operation its fence.
pub const TIMING: Timing = Timing {
    duration: Duration::from_secs(300),
    renew_deadline: Duration::from_secs(200),
    retry_period: Duration::from_secs(20),
    longest_believed: Duration::from_secs(300),
};

/// How far ahead of ours another machine's clock may be for its dates to mean anything.
const CLOCKS_AGREE: Duration = Duration::from_secs(5);

/// Names one run of an operation, whichever of its processes speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunId(String);

/// A text that is no run id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run id has 1 to 64 characters of a-z, 0-9 and -")]
pub struct NotARunId;

impl RunId {
    /// The id that these random bytes make.
    #[must_use]
    pub fn of(random: [u8; 8]) -> Self {
        Self(hexadecimal(&random))
    }
}

impl FromStr for RunId {
    type Err = NotARunId;

    fn from_str(text: &str) -> Result<Self, NotARunId> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotARunId)
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// An operation that wants the fence, in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it is called by whoever runs it, such as `stratum join`.
    pub name: &'static str,
    /// Where it runs.
    pub node: String,
    /// Its run.
    pub run: RunId,
    /// Different on each machine and after each boot, of characters as in [`RunId`]: node names are chosen, and two machines
    /// may be given one.
    pub machine: String,
    /// Different in each process, of characters as in [`RunId`]: two that go on with one run are not both its holder.
    pub process: String,
}

impl Operation {
    /// How it stands in the Lease.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let Self {
            name,
            node,
            run,
            machine,
            process,
        } = self;
        Identity(format!("{name} on {node} (run {run}.{machine}.{process})"))
    }
}

/// Whoever stands in the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// In words; of a holder that is no operation of ours, all that stands there.
    pub words: String,
    /// Its run; none when it is no operation of ours.
    pub run: Option<RunId>,
    /// The machine it runs on, as in [`Operation::machine`]; none when it is no operation of ours.
    pub machine: Option<String>,
}

impl Holder {
    /// Reads `holderIdentity`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let ours = || {
            let (words, rest) = text.strip_suffix(')')?.rsplit_once(" (run ")?;
            let (run, process) = rest.split_once('.')?;
            Some(Self {
                words: words.to_owned(),
                run: Some(run.parse().ok()?),
                machine: process.split_once('.').map(|(machine, _process)| machine.to_owned()),
            })
        };
        ours().unwrap_or_else(|| Self {
            words: text.to_owned(),
            run: None,
            machine: None,
        })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whatever somebody wrote there, on one line.
        write!(formatter, "{}", self.words.escape_debug())?;
        match &self.run {
            Some(run) => write!(formatter, " (run {run})"),
            None => Ok(()),
        }
    }
}

/// That another operation has the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Which.
    pub holder: Holder,
    /// Since when, as it says itself.
    pub since: Option<Timestamp>,
    /// When the fence is free at the latest, unless it is renewed until then.
    pub until: Timestamp,
}

impl fmt::Display for Busy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the cluster is being changed by {}", self.holder)?;
        if let Some(since) = self.since {
            write!(formatter, " since {since:.0}")?;
        }
        write!(
            formatter,
            ", which holds Lease {NAME} until {:.0} and renews it while it runs",
            self.until
        )
    }
}

/// What to do about the fence.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Write this Lease; success is the fence.
    Take {
        /// What to write.
        lease: Box<Lease>,
        /// Why we may.
        reason: TakeReason,
    },
    /// Give up: somebody has it.
    Refuse(Busy),
    /// Its holder may be gone. Look again until it changes, or until `until`, a reading of the monotonic clock.
    Watch {
        /// When it has run out, if nothing changes.
        until: Duration,
        /// Who held it last; none when the Lease itself was deleted meanwhile.
        holder: Option<Holder>,
    },
}

/// Decides for an operation that wants the fence. `alone_on` is its own machine, when it is known that no other process
/// there holds the fence.
#[must_use]
pub fn acquire(observed: &Observed, me: &Identity, alone_on: Option<&str>, now: Duration, wall: Timestamp) -> Decision {
    let machine = observed.holder().and_then(|holder| Holder::parse(holder).machine);
    if machine.is_some() && machine.as_deref() == alone_on && observed.holder() != Some(me.as_str()) {
        return Decision::Take {
            lease: super::inherit_from_the_dead(observed, me, wall),
            reason: TakeReason::Died,
        };
    }
    let until = match super::stand(observed, me, now, wall) {
        Action::Take { lease, reason } => return Decision::Take { lease, reason },
        Action::Wait { until } => until,
        // Not of somebody who does not hold it.
        Action::Renew(_) | Action::Lost(_) => now,
    };
    let Some((lease, text)) = observed.lease.as_ref().and_then(|lease| Some((lease, holder(lease)?))) else {
        return Decision::Watch { until, holder: None };
    };
    let holder = Holder::parse(text);
    let by_its_dates = age(lease, wall).and_then(|age| believed_duration(lease, &observed.timing).checked_sub(age));
    if by_its_dates.is_none() && !observed.has_changed() {
        let holder = Some(holder);
        return Decision::Watch { until, holder };
    }
    let by_our_clock = until.saturating_sub(now);
    let left = by_its_dates.unwrap_or(by_our_clock).min(by_our_clock);
    Decision::Refuse(Busy {
        holder,
        since: lease.spec.as_ref().and_then(|spec| Some(spec.acquire_time.as_ref()?.0)),
        until: wall.checked_add(left).unwrap_or(Timestamp::MAX),
    })
}

/// Where a step of a run stands, which is another process than the one that holds the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its run has the fence: it may go on.
    Inherited,
    /// The Lease names its run, and it cannot be told yet whether it is renewed. Look again until `until`, a reading of the
    /// monotonic clock.
    Watch {
        /// When it has run out, if nothing changes.
        until: Duration,
    },
    /// It may not.
    Not(NotInherited),
}

/// Why a step may not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInherited {
    /// Nobody has the fence.
    #[error("nobody holds Lease {NAME}: the run this step belongs to has ended or was given up")]
    Free,
    /// Another operation has it.
    #[error("Lease {NAME} is held by {0}, and not by the run this step belongs to")]
    Other(Holder),
    /// Its run does not renew it any more.
    #[error("Lease {NAME} was not renewed in time: the run this step belongs to has died or is cut off")]
    Expired,
}

/// Decides for a step of `run`. A step ends where its run would: at the renew deadline, not when the Lease has run out.
#[must_use]
pub fn inherit(observed: &Observed, run: &RunId, now: Duration, wall: Timestamp) -> Standing {
    let Some((lease, text)) = observed.lease.as_ref().and_then(|lease| Some((lease, holder(lease)?))) else {
        return Standing::Not(NotInherited::Free);
    };
    let holder = Holder::parse(text);
    if holder.run.as_ref() != Some(run) {
        return Standing::Not(NotInherited::Other(holder));
    }
    let Timing { renew_deadline, .. } = observed.timing;
    let until = observed.changed + renew_deadline;
    if now >= until {
        return Standing::Not(NotInherited::Expired);
    }
    let is_fresh = age(lease, wall).is_some_and(|age| age < renew_deadline);
    if observed.has_changed() || is_fresh {
        Standing::Inherited
    } else {
        Standing::Watch { until }
    }
}

/// How long ago the Lease was renewed, by the dates of another machine's clock; none when they cannot be right.
fn age(lease: &Lease, wall: Timestamp) -> Option<Duration> {
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let age = wall.duration_since(renewed);
    if age.is_negative() {
        return (age.unsigned_abs() <= CLOCKS_AGREE).then_some(Duration::ZERO);
    }
    Some(age.unsigned_abs())
}

#[cfg(test)]
mod tests;
