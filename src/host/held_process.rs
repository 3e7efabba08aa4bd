//! A process that is taken hold of before it is judged, so that no signal reaches another one that took over its id.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that cannot be mistaken for another any more.
pub(super) enum Held {
    Process(OwnedFd),
    /// On a kernel older than 5.3.
    Id(Pid),
    /// It has ended, which is what was wanted.
    Ended,
}

/// Takes hold of whoever has this id now.
pub(super) fn hold(id: u32) -> Held {
    let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else {
        return Held::Ended;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => Held::Process(process),
        Err(Errno::NOSYS) => Held::Id(pid),
        Err(_) => Held::Ended,
    }
}

impl Held {
    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) {
        // It may have ended a moment ago.
        let _ = match self {
            Self::Process(process) => pidfd_send_signal(process, signal),
            Self::Id(pid) => rustix::process::kill_process(*pid, signal),
            Self::Ended => Ok(()),
        };
    }
}
