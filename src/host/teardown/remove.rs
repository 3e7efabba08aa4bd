//! Deletes a folder and everything in it, and nothing else.
//!
//! The kernel keeps the bounds, not a comparison of paths: each folder is opened from the one above it, never through a link,
//! and one that lies on another mount than its parent is not entered, whatever was mounted there a moment ago. A link is
//! deleted, and what it leads to is not looked at.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::report::Error;

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was not there.
    Absent,
    /// It is gone.
    Removed,
    /// It is empty but for what was to be kept.
    Emptied,
}

/// Folders this deep are moved up before they are entered: a container may have made a tree deeper than a process may have
/// files open.
const DEEPEST: usize = 64;

/// Deletes what is at `path`. What is in `keep` stays, with the folders it is in; a folder in it that is a file system of its
/// own is the only one that is entered.
pub(super) fn remove(path: &Path, keep: &BTreeSet<PathBuf>) -> Result<Outcome, Error> {
    let failed = |errno| refused(path, errno);
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(Errno::INVAL));
    };
    let parent = match open(CWD, above.as_os_str()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(Outcome::Absent),
        Err(errno) => return Err(failed(errno)),
    };
    let name = c_string(name).map_err(failed)?;
    let kind = match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => FileType::from_raw_mode(status.st_mode),
        Err(Errno::NOENT) => return Ok(Outcome::Absent),
        Err(errno) => return Err(failed(errno)),
    };
    match kind {
        FileType::Symlink => return Err(Error::Link { path: path.to_owned() }),
        FileType::Directory => {}
        _ if keep.contains(path) => return Ok(Outcome::Emptied),
        _ => {
            unlinkat(&parent, &name, AtFlags::empty()).map_err(failed)?;
            return Ok(Outcome::Removed);
        }
    }
    let folder = open_below(&parent, &name).map_err(failed)?;
    let is_mount = mount_of(&folder, path)? != mount_of(&parent, above)?;
    if is_mount && !keep.contains(path) {
        return Err(Error::Mounted { path: path.to_owned() });
    }
    let sweep = Sweep {
        mount: mount_of(&folder, path)?,
        top: &folder,
        keep,
    };
    let whole = sweep.all(path)?;
    if is_mount || !whole || keep.contains(path) {
        return Ok(Outcome::Emptied);
    }
    unlinkat(&parent, &name, AtFlags::REMOVEDIR).map_err(failed)?;
    Ok(Outcome::Removed)
}

/// Deleting inside of one folder.
struct Sweep<'a> {
    /// The mount all of it is on.
    mount: u64,
    top: &'a OwnedFd,
    keep: &'a BTreeSet<PathBuf>,
}

impl Sweep<'_> {
    /// Until nothing new was moved up. Whether the folder is empty.
    fn all(&self, path: &Path) -> Result<bool, Error> {
        let mut moved = 0;
        loop {
            let before = moved;
            let whole = self.folder(self.top, path, 0, &mut moved)?;
            if moved == before {
                return Ok(whole);
            }
        }
    }

    /// Empties a folder; whether nothing in it was kept.
    fn folder(&self, folder: &OwnedFd, path: &Path, depth: usize, moved: &mut usize) -> Result<bool, Error> {
        let mut whole = true;
        for (name, kind) in entries(folder, path)? {
            let below = path.join(OsStr::from_bytes(name.to_bytes()));
            whole &= self.entry(folder, &name, kind, &below, depth, moved)?;
        }
        Ok(whole)
    }

    /// Deletes an entry; whether it is gone.
    fn entry(
        &self,
        folder: &OwnedFd,
        name: &CString,
        kind: FileType,
        path: &Path,
        depth: usize,
        moved: &mut usize,
    ) -> Result<bool, Error> {
        let failed = |errno| refused(path, errno);
        // A file system of its own in it is emptied as a folder of its own, by whoever keeps it.
        if self.keep.contains(path) {
            return Ok(false);
        }
        if kind != FileType::Directory {
            return match unlinkat(folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(true),
                Err(Errno::BUSY) => Err(Error::Mounted { path: path.to_owned() }),
                Err(errno) => Err(failed(errno)),
            };
        }
        let below = open_below(folder, name).map_err(failed)?;
        if mount_of(&below, path)? != self.mount {
            return Err(Error::Mounted { path: path.to_owned() });
        }
        if depth >= DEEPEST {
            *moved += 1;
            let place = format!(".stratum-uninstall-{}-{moved}", std::process::id());
            renameat(folder, name, self.top, place).map_err(failed)?;
            return Ok(true);
        }
        if !self.folder(&below, path, depth + 1, moved)? {
            return Ok(false);
        }
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// What is in a folder, read whole before anything in it is deleted.
fn entries(folder: &OwnedFd, path: &Path) -> Result<Vec<(CString, FileType)>, Error> {
    let unreadable = |errno: Errno| Error::Read {
        path: path.to_owned(),
        source: errno.into(),
    };
    let mut found = Vec::new();
    for entry in Dir::read_from(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) => FileType::from_raw_mode(status.st_mode),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(unreadable(errno)),
            },
            known => known,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

fn open(base: impl std::os::fd::AsFd, path: &OsStr) -> Result<OwnedFd, Errno> {
    openat(
        base,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn open_below(folder: &OwnedFd, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

/// The mount a folder lies on, which also tells bind mounts of one file system apart.
fn mount_of(folder: &OwnedFd, path: &Path) -> Result<u64, Error> {
    let unreadable = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let facts = PathBuf::from(format!("/proc/self/fdinfo/{}", folder.as_raw_fd()));
    let text = std::fs::read_to_string(facts).map_err(unreadable)?;
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| unreadable(io::Error::other("the kernel does not say on which mount it lies")))
}

fn c_string(name: &OsStr) -> Result<CString, Errno> {
    CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}

fn refused(path: &Path, errno: Errno) -> Error {
    Error::Remove {
        path: path.to_owned(),
        source: errno.into(),
    }
}
