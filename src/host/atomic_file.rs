//! The one way this program writes a file: a reader sees the old bytes or the new ones, never a part, and what was
//! reported as written is still there after the power fails.
//!
//! A temporary file in the same directory (same file system, so that the rename is one step) gets its final mode before
//! it holds a byte, is flushed, renamed over the target, and then the directory is flushed, for the rename lives there.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use zeroize::Zeroizing;

use super::parallel::at_once;

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

/// What one of several files that belong together shall be.
#[derive(Debug)]
pub struct NewFile {
    /// Where it goes. The folder has to exist.
    pub path: PathBuf,
    /// What it shall be.
    pub content: Content,
}

/// The content of a file, or what a link leads to.
pub enum Content {
    /// A file of these bytes, which are cleared from memory afterwards.
    Bytes(Zeroizing<Vec<u8>>, Access),
    /// A symbolic link to this path.
    Link(PathBuf),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes, access) => write!(formatter, "Bytes({} bytes, {access:?})", bytes.len()),
            Self::Link(target) => write!(formatter, "Link({})", target.display()),
        }
    }
}

/// Replaces several files, in their order. Every byte is on the disk beside its place before the first file changes, so
/// that a full disk or a folder that cannot be written leaves all of them as they were.
///
/// # Errors
/// Names the path. After [`Error::Write`] no file has changed, unless the last step of all, a rename, failed.
pub fn write_all(files: &[NewFile]) -> Result<(), Error> {
    stage_all(files)?.put_in_place()
}

/// How many files are flushed at a time.
const MOST_FLUSHES: usize = 16;

/// Files whose bytes are on the disk, each beside its place, and none of which has changed yet. What is not put in place is
/// removed when this is dropped.
#[derive(Debug)]
pub struct Staged {
    /// Temporary file and place, in the order of the renames.
    waiting: Vec<(PathBuf, PathBuf)>,
}

/// The first half of [`write_all`], for a caller that has to do something between the last step that may fail for want of
/// room or rights and the first change.
///
/// # Errors
/// Names the path. No file has changed, and nothing is left beside them.
pub fn stage_all(files: &[NewFile]) -> Result<Staged, Error> {
    let mut staged = Staged { waiting: Vec::new() };
    let mut unflushed: Vec<(&Path, File)> = Vec::new();
    for NewFile { path, content } in files {
        let Some(name) = path.file_name() else {
            return Err(Error::NoFileName { path: path.clone() });
        };
        let name = name.to_string_lossy();
        sweep(folder_of(path), &name);
        let temporary = folder_of(path).join(temporary_name(&name));
        staged.waiting.push((temporary.clone(), path.clone()));
        let failed = |source| Error::Write {
            path: path.clone(),
            source,
        };
        match content {
            Content::Bytes(bytes, access) => {
                let file = fill_temporary(&temporary, *access, |file| file.write_all(bytes)).map_err(failed)?;
                unflushed.push((path, file));
            }
            Content::Link(target) => std::os::unix::fs::symlink(target, &temporary).map_err(failed)?,
        }
    }
    // A file system flushes many in the time of one when it is asked for all of them at once.
    let flushed = at_once(&unflushed, MOST_FLUSHES, |(path, file)| {
        file.sync_all().map_err(|source| Error::Write {
            path: (*path).to_owned(),
            source,
        })
    });
    flushed.into_iter().collect::<Result<(), Error>>()?;
    Ok(staged)
}

impl Staged {
    /// The second half: nothing but renames, one right after the other, and then their folders are flushed.
    ///
    /// # Errors
    /// Names the path. Those before it have changed.
    pub fn put_in_place(mut self) -> Result<(), Error> {
        let mut folders: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
        for (temporary, path) in &self.waiting {
            fs::rename(temporary, path).map_err(|source| Error::Write {
                path: path.clone(),
                source,
            })?;
            folders.insert(folder_of(path).to_owned(), path.clone());
        }
        self.waiting.clear();
        let folders: Vec<PathBuf> = folders.into_values().collect();
        let flushed = at_once(&folders, MOST_FLUSHES, |path| flush_folder(path));
        flushed.into_iter().collect()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        clean_up(&self.waiting);
    }
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

fn flush_folder(path: &Path) -> Result<(), Error> {
    let flushed = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    flushed.map_err(|source| Error::Flush {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
