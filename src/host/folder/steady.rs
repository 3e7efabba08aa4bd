//! Reads one file that may be written at the same time.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;

use jiff::Timestamp;
use rustix::fs::{FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use super::MAX_FILE_BYTES;
use super::stamp::Stamp;
use super::walk::{NOT_A_FILE, unreadable, unreadable_at};
use crate::host::clock;

/// How often a file is read that changes meanwhile.
const READINGS: usize = 3;

/// A file that did not change while it was read.
#[derive(Debug)]
pub(super) struct Steady {
    pub(super) stamp: Stamp,
    pub(super) read_at: Timestamp,
    pub(super) bytes: Vec<u8>,
}

/// Reads what a name in a folder leads to. The error says what is wrong and what to do.
pub(super) fn read(folder: BorrowedFd<'_>, name: &CStr) -> Result<Steady, String> {
    read_with(folder, name, |file| {
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

fn read_with(
    folder: BorrowedFd<'_>,
    name: &CStr,
    mut bytes_of: impl FnMut(&File) -> io::Result<Vec<u8>>,
) -> Result<Steady, String> {
    for _ in 0..READINGS {
        // By name each time: a file that was replaced is another one.
        let file = open(folder, name)?;
        let stamp = || Stamp::of(&file).map_err(|error| unreadable(&error, false));
        let before = stamp()?;
        if before.kind != FileType::RegularFile {
            return Err(NOT_A_FILE.to_owned());
        }
        let read_at = clock::now();
        let bytes = bytes_of(&file).map_err(|error| unreadable(&error, false))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let limit = MAX_FILE_BYTES / (1024 * 1024);
            return Err(format!("it is larger than {limit} MiB; split it"));
        }
        if stamp()? == before {
            return Ok(Steady {
                stamp: before,
                read_at,
                bytes,
            });
        }
    }
    Err(format!(
        "it changed each of the {READINGS} times it was read; it is read again at the next pass"
    ))
}

/// Opening a FIFO would wait for its writer; a device may do anything. What is open is looked at afterwards, so that
/// nothing can take the file's place in between.
fn open(folder: BorrowedFd<'_>, name: &CStr) -> Result<File, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(opened) => Ok(File::from(opened)),
        // A socket cannot be opened at all.
        Err(Errno::NXIO | Errno::NODEV) => Err(NOT_A_FILE.to_owned()),
        Err(error) => Err(unreadable_at(folder, name, &error.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    /// Reads `a.yaml`, which holds `1`, while `meddle` does something after each reading; how often it was read.
    fn read_while(mut meddle: impl FnMut(&std::path::Path, usize)) -> (Result<Steady, String>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        File::create(&path).unwrap().write_all(b"1").unwrap();
        let open = File::open(folder.path()).unwrap();
        let mut times = 0;
        let result = read_with(open.as_fd(), c"a.yaml", |mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            times += 1;
            meddle(&path, times);
            Ok(bytes)
        });
        (result, times)
    }

    fn append(path: &std::path::Path) {
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(b"+").unwrap();
    }

    #[test]
    fn a_file_that_changes_during_its_read_is_read_again() {
        let (steady, times) = read_while(|path, times| {
            if times < READINGS {
                append(path);
            }
        });
        let steady = steady.unwrap();
        assert_eq!((steady.bytes.as_slice(), times), (&b"1++"[..], 3));
        assert_eq!(steady.stamp.size, 3);
    }

    #[test]
    fn a_file_that_is_replaced_during_its_read_is_read_anew() {
        let (steady, times) = read_while(|path, times| {
            if times == 1 {
                let new = path.with_extension("new");
                File::create(&new).unwrap().write_all(b"2").unwrap();
                fs::rename(new, path).unwrap();
            }
        });
        assert_eq!((steady.unwrap().bytes.as_slice(), times), (&b"2"[..], 2));
    }

    #[test]
    fn a_file_that_never_rests_is_a_problem_and_the_reading_ends() {
        let (result, times) = read_while(|path, _| append(path));
        assert!(result.unwrap_err().contains("changed each of the 3 times"));
        assert_eq!(times, READINGS);
    }

    #[test]
    fn a_file_that_goes_between_two_readings_is_a_problem() {
        let (result, times) = read_while(|path, _| fs::remove_file(path).unwrap());
        assert!(result.unwrap_err().contains("vanished"));
        assert_eq!(times, 1);
    }

    #[test]
    fn what_takes_its_place_is_looked_at_again() {
        let (result, times) = read_while(|path, _| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/dev/null", path).unwrap();
        });
        assert_eq!(result.unwrap_err(), NOT_A_FILE);
        assert_eq!(times, 1);
    }
}
