//! The one way this program writes a file: a reader sees the old bytes or the new ones, never a part, and what was
//! reported as written is still there after the power fails.
//!
//! A temporary file in the same directory (same file system, so that the rename is one step) gets its final mode before
//! it holds a byte, is flushed, renamed over the target, and then the directory is flushed, for the rename lives there.

mod staged;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub use staged::{Content, NewFile, Staged, stage_all, write_all};

/// Who may read a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The owner alone: files 0600, folders 0700. For keys, tokens and kubeconfigs.
    Secret,
    /// Everybody may read: files 0644, folders 0755.
    Public,
    /// Everybody may read and run it: 0755.
    Executable,
}

impl Access {
    const fn file_mode(self) -> u32 {
        match self {
            Self::Secret => 0o600,
            Self::Public => 0o644,
            Self::Executable => 0o755,
        }
    }

    const fn folder_mode(self) -> u32 {
        match self {
            Self::Secret => 0o700,
            Self::Public | Self::Executable => 0o755,
        }
    }
}

/// A file or folder that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path ends in no file name, so there is nothing to write.
    #[error("cannot write {}: it does not name a file", path.display())]
    NoFileName {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The bytes did not reach the disk; the old file, if there was one, is untouched.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is in place, but a crash now could still bring the old one back.
    #[error("wrote {} but cannot flush its folder", path.display())]
    Flush {
        /// The file that was written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file could not be read to compare it.
    #[error("cannot read {} to compare it", path.display())]
    Compare {
        /// The file that was to be compared.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A folder could not be made.
    #[error("cannot create the folder {}", path.display())]
    CreateFolder {
        /// The folder that was to be made.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file could not be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// The file that was to be removed.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The write has failed already; a temporary file that cannot be removed either changes nothing for the caller.
fn clean_up(staged: &[(PathBuf, PathBuf)]) {
    for (temporary, _) in staged {
        let _ = fs::remove_file(temporary);
    }
}

/// Replaces the file at `path` by `bytes`, atomically and durably. The folder has to exist.
///
/// # Errors
/// Names the path. After [`Error::Write`] the old content is still in place.
pub fn write(path: &Path, bytes: &[u8], access: Access) -> Result<(), Error> {
    write_from(path, access, |file| file.write_all(bytes))
}

/// Like [`write()`], for content that is too long to be held in memory: `fill` writes it.
///
/// # Errors
/// As [`write()`]; the source is what `fill` said, if it failed.
pub fn write_from(path: &Path, access: Access, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
    let Some(name) = path.file_name() else {
        return Err(Error::NoFileName { path: path.to_owned() });
    };
    let name = name.to_string_lossy();
    sweep(folder_of(path), &name);
    let temporary = folder_of(path).join(temporary_name(&name));
    let written = fill_temporary(&temporary, access, fill)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = written {
        clean_up(&[(temporary, path.to_owned())]);
        let path = path.to_owned();
        return Err(Error::Write { path, source });
    }
    flush_folder(path)
}

/// Like [`write()`], but does nothing when the file already holds exactly `bytes`. Says whether it wrote.
///
/// The mode of an equal file is left as it is.
///
/// # Errors
/// As [`write()`], and [`Error::Compare`] when a file is there that cannot be read.
pub fn write_if_changed(path: &Path, bytes: &[u8], access: Access) -> Result<bool, Error> {
    match fs::read(path) {
        Ok(present) if present == bytes => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            let path = path.to_owned();
            return Err(Error::Compare { path, source });
        }
    }
    write(path, bytes, access).map(|()| true)
}

/// What came of reading a file; none when it is not there.
///
/// # Errors
/// When it is there and cannot be read.
pub fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a small file that this program wrote, `limit` bytes at most. Whatever else is in its place is no file: a FIFO would
/// be waited for without end.
///
/// # Errors
/// When it is not there, is no file, is longer, or cannot be read.
pub fn read_record(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Before it is opened: opening a FIFO would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it is longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// Removes a file durably. A file that is not there is removed already; says whether one was.
///
/// # Errors
/// Names the path.
pub fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => flush_folder(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => {
            let path = path.to_owned();
            Err(Error::Remove { path, source })
        }
    }
}

/// Makes a folder and those above it. Folders that exist keep their mode.
///
/// # Errors
/// Names the folder.
pub fn create_folder(path: &Path, access: Access) -> Result<(), Error> {
    let created = DirBuilder::new()
        .recursive(true)
        .mode(access.folder_mode())
        .create(path);
    created.map_err(|source| Error::CreateFolder {
        path: path.to_owned(),
        source,
    })
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

/// Hidden, so that no reader of a folder of manifests or drop-ins takes it for one; unique in this process and among
/// processes, so that two writers never share one.
fn temporary_name(name: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(".{name}.{}-{count}.tmp", std::process::id())
}

/// Removes the temporary files for `name` of processes that were killed while they wrote it: one may hold a key, and nobody
/// else would ever look for it. What cannot be removed is in nobody's way.
fn sweep(folder: &Path, name: &str) {
    let prefix = format!(".{name}.");
    let writer = |file: &str| {
        let (process, count) = file.strip_prefix(&prefix)?.strip_suffix(".tmp")?.split_once('-')?;
        count.parse::<u64>().ok()?;
        process.parse::<u32>().ok()
    };
    // Without a table of processes nobody can be told to be dead.
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let process = entry.file_name().to_str().and_then(writer);
        if process.is_some_and(|process| !processes.join(process.to_string()).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The file is written, and not flushed yet.
fn fill_temporary(path: &Path, access: Access, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    // Left over only by a dead process that had our id: nobody else uses that name.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // Not by `open`: the umask would take bits away.
    file.set_permissions(Permissions::from_mode(access.file_mode()))?;
    fill(&mut file)?;
    Ok(file)
}

/// Gives a new file the owner and the group of the one it replaces, and what its group could do with it. What everybody else
/// could do with a secret is not taken over.
fn take_over(file: &File, path: &Path, access: Access) -> io::Result<()> {
    let Some(old) = if_there(fs::metadata(path))? else {
        return Ok(());
    };
    let new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    let group = old.permissions().mode() & 0o060;
    file.set_permissions(Permissions::from_mode(access.file_mode() | group))
}

fn flush_folder(path: &Path) -> Result<(), Error> {
    let flushed = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    flushed.map_err(|source| Error::Flush {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
