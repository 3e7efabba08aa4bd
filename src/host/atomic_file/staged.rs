//! Several files that change together: every byte is on the disk before the first of them does.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::super::parallel::at_once;
use super::{Access, Error, clean_up, fill_temporary, flush_folder, folder_of, sweep, take_over, temporary_name};

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
    /// The same, of the owner and group of the file that is there, and with what its group may do: a component may run as
    /// another user than we.
    Replacement(Zeroizing<Vec<u8>>, Access),
    /// A symbolic link to this path.
    Link(PathBuf),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes, access) | Self::Replacement(bytes, access) => {
                write!(formatter, "Bytes({} bytes, {access:?})", bytes.len())
            }
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
            Content::Bytes(bytes, access) | Content::Replacement(bytes, access) => {
                let file = fill_temporary(&temporary, *access, |file| file.write_all(bytes)).map_err(failed)?;
                if let Content::Replacement(..) = content {
                    take_over(&file, path, *access).map_err(failed)?;
                }
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
