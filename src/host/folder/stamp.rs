//! What the file system says of a file or folder without its content being read.

use std::io;
use std::os::fd::AsFd;

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, StatxFlags, StatxTimestamp, makedev, statx};
use rustix::path::Arg;

use super::FolderIdentity;

/// A file that changed this shortly before it was read may change again within one tick of its time stamps.
const SETTLED_NANOSECONDS: i128 = 2_000_000_000;

/// As long as a settled file keeps its stamp, it keeps its bytes: nobody but the kernel sets `changed`, and every write,
/// rename and change of rights moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) kind: FileType,
    /// Which file it is, whatever it is called.
    pub(super) identity: FolderIdentity,
    pub(super) size: u64,
    modified: i128,
    changed: i128,
}

impl Stamp {
    /// Of what a name leads to, links followed. A relative name begins at `folder`.
    pub(super) fn at(folder: impl AsFd, name: impl Arg) -> io::Result<Self> {
        Self::ask(folder, name, AtFlags::empty())
    }

    /// Of the name itself: a link is a link.
    pub(super) fn of_link(folder: impl AsFd, name: impl Arg) -> io::Result<Self> {
        Self::ask(folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Of what is open.
    pub(super) fn of(open: impl AsFd) -> io::Result<Self> {
        Self::ask(open, c"", AtFlags::EMPTY_PATH)
    }

    fn ask(folder: impl AsFd, name: impl Arg, flags: AtFlags) -> io::Result<Self> {
        let found = statx(folder, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        // Not every file system keeps the time of birth.
        let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        Ok(Self {
            kind: FileType::from_raw_mode(found.stx_mode.into()),
            identity: FolderIdentity {
                device: makedev(found.stx_dev_major, found.stx_dev_minor),
                inode: found.stx_ino,
                born: has_birth
                    .then(|| u64::try_from(nanoseconds(found.stx_btime)).ok())
                    .flatten(),
            },
            size: found.stx_size,
            modified: nanoseconds(found.stx_mtime),
            changed: nanoseconds(found.stx_ctime),
        })
    }

    /// Whether it had been so for long enough at `read_at` that no later change can bear the same stamp.
    pub(super) fn settled_before(&self, read_at: Timestamp) -> bool {
        self.changed + SETTLED_NANOSECONDS < read_at.as_nanosecond()
    }

    #[cfg(test)]
    pub(super) fn changed_at(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.changed).unwrap()
    }
}

fn nanoseconds(at: StatxTimestamp) -> i128 {
    i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::time::UNIX_EPOCH;

    use rustix::fs::CWD;

    use super::*;

    /// The standard library reads the same call in its own way.
    #[test]
    fn a_stamp_says_what_the_file_system_says() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file.as_file(), b"four").unwrap();
        file.as_file()
            .set_modified(UNIX_EPOCH + std::time::Duration::new(5, 6))
            .unwrap();
        let stamp = Stamp::at(CWD, file.path()).unwrap();
        assert_eq!(Stamp::of(&file).unwrap(), stamp);
        let meta = file.as_file().metadata().unwrap();
        let born = meta.created().ok().map(|at| at.duration_since(UNIX_EPOCH).unwrap());
        let identity = FolderIdentity {
            device: meta.dev(),
            inode: meta.ino(),
            born: born.map(|born| u64::try_from(born.as_nanos()).unwrap()),
        };
        assert_eq!(stamp.identity, identity);
        assert_eq!((stamp.kind, stamp.size), (FileType::RegularFile, 4));
        assert_eq!(stamp.modified, 5_000_000_006);
        let changed = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
        assert_eq!(stamp.changed, changed);
    }

    #[test]
    fn a_stamp_settles_after_two_seconds() {
        let stamp = Stamp {
            changed: 7_000_000_001,
            ..Stamp::at(CWD, ".").unwrap()
        };
        let at = |nanoseconds| Timestamp::from_nanosecond(nanoseconds).unwrap();
        assert!(!stamp.settled_before(at(9_000_000_001)));
        assert!(stamp.settled_before(at(9_000_000_002)));
        assert!(!stamp.settled_before(at(0)), "the clock was set back since");
    }
}
