//! What is decided, in words: for the log, for Events, and for whoever runs `certs renew` by hand.

use std::fmt::{Display, Formatter, Result};

use super::{Action, Because, Concern, ConcernKind, Waiting};

impl Display for Action {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Self::Attempt { because, .. } => {
                formatter.write_str("renewing: ")?;
                for (index, because) in because.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(formatter, "{separator}{because}")?;
                }
                Ok(())
            }
            Self::Wait {
                until: Some(until),
                why,
            } => write!(formatter, "nothing to do until {until:.0}: {why}"),
            Self::Wait { until: None, why } => write!(formatter, "nothing to do: {why}"),
        }
    }
}

impl Display for Because {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Self::Due { name, not_after } => write!(formatter, "{name} ends at {not_after:.0}"),
            Self::Expired { name, not_after } => write!(formatter, "{name} has ended at {not_after:.0}"),
            Self::Broken { name } => write!(formatter, "the key of {name} is not there, or is another one's"),
            Self::Incomplete => formatter.write_str("a rotation has not brought everything onto its certificates"),
            Self::Unsettled => formatter.write_str("the last renewal failed or was cut off"),
        }
    }
}

impl Display for Waiting {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Self::NotDue { name } => write!(formatter, "{name} is the first that is due"),
            Self::Paused { failures: 0 } => formatter.write_str("the last renewal was not long ago"),
            Self::Paused { failures: 1 } => formatter.write_str("the last renewal failed and is tried again then"),
            Self::Paused { failures } => {
                write!(formatter, "the last {failures} renewals failed; the next is tried then")
            }
            Self::NotWorth => formatter.write_str("what ends soon cannot be made to end later here"),
            Self::Nothing => formatter.write_str("this machine has no certificate that this program renews"),
        }
    }
}

impl Display for Concern {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let Self { name, not_after, kind } = self;
        write!(formatter, "{name} ends at {not_after:.0} and is not renewed: ")?;
        match kind {
            ConcernKind::SignerEnds(end) => write!(
                formatter,
                "its authority ends at {end:.0}, so that a new certificate would not end later; replace the authority"
            ),
            ConcernKind::NoSigner => {
                formatter.write_str("its authority or the authority's key is not on this machine; renew it where that is")
            }
            ConcernKind::KubeletOverdue => formatter.write_str(
                "the kubelet should have renewed it by now; look at its log, and whether its certificate requests are approved",
            ),
        }
    }
}
