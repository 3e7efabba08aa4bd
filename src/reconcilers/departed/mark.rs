//! The mark a machine leaves on its Node when it is taken out of the cluster.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::text::MachineId;

/// The annotation that is the mark. Its value is a [`Mark`].
pub const MARK: &str = "stratum.ciq.com/uninstalled-at";

/// When which machine was uninstalled. Written `TIME MACHINE-ID`: the time in UTC (RFC 3339, with `Z` and as many digits of
/// the second as it has), one space, and the machine id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, by the clock of that machine.
    pub at: Timestamp,
    /// Which machine, so that the mark says nothing of another one that has taken over its name.
    pub machine: MachineId,
}

impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.at, self.machine)
    }
}

/// A text that is no mark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time in UTC and a machine id, such as \"2026-01-31T09:30:00Z 0123456789abcdef0123456789abcdef\""
)]
pub struct NotAMark(String);

impl FromStr for Mark {
    type Err = NotAMark;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (at, machine) = text.split_once(' ')?;
            let mark = Self {
                at: at.parse().ok()?,
                machine: machine.parse().ok()?,
            };
            // A time can be written in many ways, and only one of them is ours.
            (mark.to_string() == text).then_some(mark)
        };
        read().ok_or_else(|| NotAMark(text.chars().take(100).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_mark_reads_back_what_it_prints() {
        for at in [
            "2026-01-31T09:30:00Z",
            "2026-01-31T09:30:00.5Z",
            "2026-01-31T09:30:00.123456789Z",
        ] {
            let text = format!("{at} {MACHINE}");
            let mark: Mark = text.parse().unwrap();
            assert_eq!(mark.at, at.parse().unwrap());
            assert_eq!((mark.machine.as_str(), mark.to_string()), (MACHINE, text));
        }
    }

    #[test]
    fn anything_else_is_none() {
        let zeros = "0".repeat(32);
        let time = "2026-01-31T09:30:00Z";
        for wrong in [
            "",
            " ",
            "true",
            time,
            MACHINE,
            &format!("{time}{MACHINE}"),
            &format!("{time}  {MACHINE}"),
            &format!("{time} {MACHINE} "),
            &format!(" {time} {MACHINE}"),
            &format!("{time} {MACHINE}\n"),
            &format!("{time}\t{MACHINE}"),
            &format!("{MACHINE} {time}"),
            &format!("{time} {MACHINE} {MACHINE}"),
            &format!("{time} {zeros}"),
            &format!("{time} {}", &MACHINE[1..]),
            &format!("{time} {MACHINE}0"),
            &format!("{time} {}", MACHINE.to_uppercase()),
            &format!("{time} 01234567-89ab-cdef-0123-456789abcdef"),
            &format!("2026-01-31t09:30:00z {MACHINE}"),
            &format!("2026-01-31T10:30:00+01:00 {MACHINE}"),
            &format!("2026-01-31T09:30:00.500Z {MACHINE}"),
            &format!("2026-01-31T09:30Z {MACHINE}"),
            &format!("2026-01-31 {MACHINE}"),
            &format!("2026-02-31T09:30:00Z {MACHINE}"),
            &format!("1769851800 {MACHINE}"),
        ] {
            let error = wrong.parse::<Mark>().unwrap_err().to_string();
            assert!(error.contains("is not a time in UTC and a machine id"), "{error}");
        }
        let long = "x".repeat(200_000).parse::<Mark>().unwrap_err().to_string();
        assert!(long.len() < 300, "{}", long.len());
    }
}
