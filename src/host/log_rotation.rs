//! Keeps the logs of services within bounds: nobody else does, and a full disk takes the whole node along.
//!
//! A service writes into the file it was started with, so a log is copied to `NAME.log.1` and then cut to nothing in place
//! (every writer appends). What is written in the instant between the last look and the cut is lost; nothing else is.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::atomic_file::{self, Access};

/// The size above which a log is cut, in bytes. Its copy is as large, so a service never has more than about twice that.
pub const LARGEST: u64 = 64 * 1024 * 1024;

/// A log that could not be cut. It goes on growing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refuses.
    #[error("cannot cut the log {}", path.display())]
    Cut {
        /// The log.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What stands in it cannot be kept.
    #[error("cannot keep what stands in a log, which is not cut then")]
    Copy(#[source] atomic_file::Error),
}

/// Cuts a log that is larger than `largest` bytes, and says whether it did. One that is not there is small.
///
/// # Errors
/// When it cannot be copied or cut: the log is as it was then, or its copy has all of it.
pub fn rotate(log: &Path, largest: u64) -> Result<bool, Error> {
    let failed = |source| Error::Cut {
        path: log.to_owned(),
        source,
    };
    let opened = OpenOptions::new().read(true).write(true).open(log);
    let Some(mut whole) = atomic_file::if_there(opened).map_err(failed)? else {
        return Ok(false);
    };
    if whole.metadata().map_err(failed)?.len() <= largest {
        return Ok(false);
    }
    // Until there is no more: what is written meanwhile as well.
    let copy = |to: &mut File| {
        while io::copy(&mut whole, to)? > 0 {}
        Ok(())
    };
    atomic_file::write_from(&kept(log), Access::Secret, copy).map_err(Error::Copy)?;
    whole.set_len(0).map_err(failed)?;
    Ok(true)
}

/// Where the lines before the last cut are: `NAME.log.1`.
#[must_use]
pub fn kept(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_large_log_is_kept_once_and_its_writer_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("kubelet.log");
        assert!(!rotate(&log, 10).unwrap(), "none is there");
        let mut writer = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        writer.write_all(b"0123456789").unwrap();
        assert!(!rotate(&log, 10).unwrap(), "not larger");
        writer.write_all(b"x").unwrap();
        assert!(rotate(&log, 10).unwrap());
        assert_eq!((read(&log).as_str(), read(&kept(&log)).as_str()), ("", "0123456789x"));
        let mode = std::fs::metadata(kept(&log)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        writer.write_all(b"after\n").unwrap();
        assert_eq!(read(&log), "after\n");
        writer.write_all(b"and more\n").unwrap();
        assert!(rotate(&log, 10).unwrap());
        assert_eq!(read(&kept(&log)), "after\nand more\n", "only the last one is kept");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_log_that_cannot_be_copied_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("kubelet.log");
        let mut writer = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        writer.write_all(b"0123456789x").unwrap();
        std::fs::create_dir(kept(&log)).unwrap();
        let error = rotate(&log, 10).unwrap_err();
        assert!(matches!(error, Error::Copy(_)), "{error}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "0123456789x");
    }
}
