//! What a child may not do that we may.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::str::FromStr;

use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{Gid, Uid};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};

/// Whom a child runs as, and how much it may take. It gets no privilege that it has not, and an environment with nothing of
/// ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// User and group id; none: ours, as only root can be somebody else.
    pub user: Option<(u32, u32)>,
    /// Files it may have open.
    pub open_files: u64,
    /// The longest file it may write, in bytes.
    pub file_size: u64,
    /// Processes and threads that the user may have.
    pub processes: u64,
}

/// As one argument of the trampoline: `USER:GROUP:FILES:BYTES:PROCESSES`, the first two `-` for our own.
impl fmt::Display for Confinement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            user,
            open_files,
            file_size,
            processes,
        } = self;
        match user {
            Some((user, group)) => write!(formatter, "{user}:{group}:")?,
            None => write!(formatter, "-:-:")?,
        }
        write!(formatter, "{open_files}:{file_size}:{processes}")
    }
}

/// A text that is no confinement.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not of the form USER:GROUP:FILES:BYTES:PROCESSES")]
pub struct NotAConfinement(String);

impl FromStr for Confinement {
    type Err = NotAConfinement;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let parts: Vec<&str> = text.split(':').collect();
            let [user, group, open_files, file_size, processes] = parts.as_slice() else {
                return None;
            };
            Some(Self {
                user: match (*user, *group) {
                    ("-", "-") => None,
                    (user, group) => Some((user.parse().ok()?, group.parse().ok()?)),
                },
                open_files: open_files.parse().ok()?,
                file_size: file_size.parse().ok()?,
                processes: processes.parse().ok()?,
            })
        };
        parse().ok_or_else(|| NotAConfinement(text.to_owned()))
    }
}

impl Confinement {
    /// Gives up what the confinement does not allow. The program is opened before and named by its descriptor after, since
    /// the user may not be let into the folder where it lies.
    pub(super) fn apply(&self, program: &OsStr) -> io::Result<OsString> {
        let file = File::open(program)?;
        rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        // It stays open until the program is executed, and in it.
        let _ = file.into_raw_fd();
        for (resource, most) in [
            (Resource::Nofile, self.open_files),
            (Resource::Fsize, self.file_size),
            (Resource::Nproc, self.processes),
            // Its memory has the credentials of a cluster in it.
            (Resource::Core, 0),
        ] {
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            setrlimit(resource, limit)?;
        }
        if let Some((user, group)) = self.user {
            // Of this thread alone, which is the only one, and the one that becomes the program.
            set_thread_groups(&[])?;
            set_thread_gid(Gid::from_raw(group))?;
            set_thread_uid(Uid::from_raw(user))?;
        }
        set_no_new_privs(true)?;
        Ok(name.into())
    }
}
