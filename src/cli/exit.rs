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
        })
    }
}
