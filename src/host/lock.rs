//! A lock between processes on a file (`flock`), which names its holder.
//!
//! The kernel lets go of it when the holder ends, however it ends, so there is no stale lock to clean up. The text in
//! the file is for people; who holds the lock is decided by the kernel alone. It is not re-entrant.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A lock that could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lock file cannot be opened or created.
    #[error("cannot open the lock file {}", path.display())]
    Open {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system refused to lock the file.
    #[error("cannot lock {}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The lock is ours, but our name cannot be written into it.
    #[error("cannot write the holder into the lock file {}", path.display())]
    Name {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Who holds a lock, as its file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id, when the file names one.
    pub process: Option<u32>,
    /// What it is doing, in words; empty when the file does not say.
    pub operation: String,
}

impl Holder {
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let (process, operation) = line.split_once(' ').unwrap_or((line, ""));
        Self {
            process: process.parse().ok(),
            operation: operation.to_owned(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) if self.operation.is_empty() => write!(formatter, "process {process}"),
            Some(process) => write!(formatter, "process {process} ({})", self.operation),
            None => formatter.write_str("a process that has not named itself yet"),
        }
    }
}

/// The outcome of an attempt that does not wait.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is ours until the value is dropped.
    Taken(Lock),
    /// Somebody else has it.
    Held(Holder),
}

/// A lock that is ours; dropping it lets go.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock on `path` if it is free. `operation` is what the file tells others we do, one line.
    ///
    /// # Errors
    /// When the file cannot be opened, locked or written; a held lock is no error.
    pub fn attempt(path: &Path, operation: &str) -> Result<Attempt, Error> {
        let mut file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => named(file, path, operation).map(Attempt::Taken),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Attempt::Held(read_holder(&mut file))),
            Err(errno) => Err(refused(path, errno)),
        }
    }

    /// Takes the lock on `path`, waiting as long as it takes; `waiting` is told once for whom. Blocks the thread.
    ///
    /// # Errors
    /// As [`Lock::attempt`].
    pub fn acquire(path: &Path, operation: &str, waiting: impl FnOnce(&Holder)) -> Result<Self, Error> {
        match Self::attempt(path, operation)? {
            Attempt::Taken(lock) => return Ok(lock),
            Attempt::Held(holder) => waiting(&holder),
        }
        let file = open(path)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return named(file, path, operation),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(refused(path, errno)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // So that the next waiter is not told an old name. The lock goes with the descriptor, whether this works or not.
        let _ = self.file.set_len(0);
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(path);
    opened.map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })
}

/// Written in place: a renamed file would be another file, and so another lock.
fn named(mut file: File, path: &Path, operation: &str) -> Result<Lock, Error> {
    let line = format!("{} {}\n", std::process::id(), operation.replace('\n', " "));
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(line.as_bytes()));
    written.map_err(|source| Error::Name {
        path: path.to_owned(),
        source,
    })?;
    Ok(Lock { file })
}

fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    // Only words for a message: an unreadable name is an unknown holder.
    let _ = file.read_to_string(&mut text);
    Holder::parse(&text)
}

fn refused(path: &Path, errno: rustix::io::Errno) -> Error {
    let path = path.to_owned();
    Error::Lock {
        path,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_held_lock_names_its_holder_and_is_free_after_the_drop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.lock");
        let first = Lock::acquire(&path, "certs rotate", |_| panic!("nobody holds it")).unwrap();
        let Attempt::Held(holder) = Lock::attempt(&path, "up").unwrap() else {
            panic!("two holders");
        };
        assert_eq!(
            holder.to_string(),
            format!("process {} (certs rotate)", std::process::id())
        );
        drop(first);
        assert!(matches!(Lock::attempt(&path, "up").unwrap(), Attempt::Taken(_)));
    }

    #[test]
    fn the_file_names_the_holder_on_one_line_and_nobody_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let text = || std::fs::read_to_string(&path).unwrap();
        let attempt = |operation| match Lock::attempt(&path, operation).unwrap() {
            Attempt::Taken(lock) => lock,
            Attempt::Held(holder) => panic!("held by {holder}"),
        };
        let long = attempt("a long operation\nof two lines");
        assert_eq!(
            text(),
            format!("{} a long operation of two lines\n", std::process::id())
        );
        // As after a kill: the kernel lets go, and the name stays.
        let Lock { file } = &long;
        flock(file, FlockOperation::Unlock).unwrap();
        let short = attempt("up");
        assert_eq!(text(), format!("{} up\n", std::process::id()));
        drop(short);
        assert_eq!(text(), "");
    }

    #[test]
    fn a_holder_without_a_name_is_still_a_holder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = open(&path).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let Attempt::Held(holder) = Lock::attempt(&path, "up").unwrap() else {
            panic!("two holders");
        };
        assert_eq!(holder.to_string(), "a process that has not named itself yet");
        assert_eq!(Holder::parse("17").to_string(), "process 17");
        let error = Lock::attempt(&folder.path().join("none/lock"), "up").unwrap_err();
        assert!(matches!(error, Error::Open { .. }), "{error}");
    }

    #[test]
    fn a_waiter_gets_the_lock_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let other = open(&path).unwrap();
        flock(&other, FlockOperation::LockShared).unwrap();
        let (tell, hears) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let waits = tell.clone();
            let lock = Lock::acquire(&path, "up", move |_| waits.send("waits").unwrap());
            tell.send("has it").unwrap();
            lock.unwrap()
        });
        assert_eq!(hears.recv().unwrap(), "waits");
        // That it goes on waiting is the one thing that cannot be waited for.
        let early = hears.recv_timeout(std::time::Duration::from_millis(200));
        assert!(early.is_err(), "two holders");
        drop(other);
        assert_eq!(hears.recv().unwrap(), "has it");
        waiter.join().unwrap();
    }

    #[test]
    fn a_waiter_is_told_for_whom_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::acquire(&path, "build etcd", |_| {}).unwrap();
        let (told, hears) = mpsc::channel();
        let waits_for = path.clone();
        let waiter = std::thread::spawn(move || {
            Lock::acquire(&waits_for, "second", move |holder| {
                told.send(holder.operation.clone()).unwrap()
            })
            .unwrap()
        });
        assert_eq!(hears.recv().unwrap(), "build etcd");
        drop(first);
        let second = waiter.join().unwrap();
        let Attempt::Held(holder) = Lock::attempt(&path, "third").unwrap() else {
            panic!("two holders");
        };
        assert_eq!(holder.operation, "second");
        drop(second);
    }
}
