//! The exit codes, one table for the whole program.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0.
    Done,
    /// 1.
    Failed,
    /// 2: wrong usage; nothing was tried. clap ends with it by itself.
    Usage,
    /// 3: refused before any change.
    Refused,
    /// 4: a Lease was lost: leadership, or the cluster fence.
    LeadershipLost,
    /// 5: a `diff` found differences.
    Differences,
    /// 20: `certs check` found something that expires soon.
    Expiring,
    /// 21: it found something that has expired or is not valid yet.
    Expired,
    /// 22: it found something unreadable, mismatched or wrongly signed.
    BadCertificate,
    /// 23: it found a rotation open or incomplete.
    RotationOpen,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::LeadershipLost => 4,
            Exit::Differences => 5,
            Exit::Expiring => 20,
            Exit::Expired => 21,
            Exit::BadCertificate => 22,
            Exit::RotationOpen => 23,
        })
    }
}
