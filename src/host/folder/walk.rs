//! The way through a folder: every entry becomes a file, a problem, or is one that nobody asked for.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, Mode, openat};
use sha2::{Digest, Sha256};

use super::stamp::Stamp;
use super::{Cached, FOLDER, FolderIdentity, FolderProblem, Listing, SourceFile, steady};

/// Levels of folders below a stack.
const MAX_DEPTH: usize = 32;
/// Entries of one reading: folders that link to each other can multiply without ever being a loop.
const MAX_ENTRIES: usize = 100_000;

/// One reading under way.
pub(super) struct Walk<'a> {
    /// The files of the reading before.
    old: &'a BTreeMap<String, Cached>,
    /// The files of this one.
    pub(super) cache: BTreeMap<String, Cached>,
    entries: usize,
    /// How many files were opened.
    pub(super) opened: usize,
    pub(super) listing: Listing,
}

/// One entry of an open folder.
#[derive(Clone, Copy)]
struct Entry<'a> {
    folder: BorrowedFd<'a>,
    name: &'a CStr,
    /// Relative to the manifests folder.
    path: &'a str,
    stack: Option<&'a str>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(old: &'a BTreeMap<String, Cached>, listing: Listing) -> Self {
        Self {
            old,
            cache: BTreeMap::new(),
            entries: 0,
            opened: 0,
            listing,
        }
    }

    fn problem(&mut self, path: &str, stack: Option<&str>, message: impl Into<String>) {
        self.listing.problems.push(FolderProblem {
            path: path.to_owned(),
            stack: stack.map(str::to_owned),
            message: message.into(),
        });
    }

    /// Reads one open folder; an error is about the folder itself. `above` are the folders on the way, itself last.
    pub(super) fn folder(
        &mut self,
        folder: OwnedFd,
        relative: &str,
        stack: Option<&str>,
        above: &[FolderIdentity],
    ) -> io::Result<()> {
        let mut entries = Dir::new(folder)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            let shown = name.to_string_lossy();
            if shown.starts_with('.') || shown.ends_with('~') {
                continue;
            }
            let path = if relative.is_empty() {
                shown.to_string()
            } else {
                format!("{relative}/{shown}")
            };
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                self.problem(
                    relative,
                    stack,
                    format!("more than {MAX_ENTRIES} files are reached; remove links"),
                );
                return Ok(());
            }
            if name.to_str().is_err() || shown.contains(char::is_control) {
                self.problem(&path, stack, "its name is not printable UTF-8; rename it");
                continue;
            }
            let entry = Entry {
                folder: entries.fd()?,
                name,
                path: &path,
                stack,
            };
            self.entry(entry, above);
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry<'_>, above: &[FolderIdentity]) {
        let Entry {
            folder,
            name,
            path,
            stack,
        } = entry;
        let stamp = match Stamp::at(folder, name) {
            Ok(stamp) => stamp,
            // Whatever it would be called or lead to: it may be a whole stack.
            Err(error) => return self.problem(path, stack, unreadable_at(folder, name, &error)),
        };
        let is_folder = stamp.kind == FileType::Directory;
        match (is_folder, has_manifest_ending(path)) {
            (true, true) => self.problem(path, stack, "it is a folder with a file's ending; rename it"),
            (true, false) => self.subfolder(entry, above),
            (false, true) => {
                if let Err(message) = self.file(entry, stamp) {
                    self.problem(path, stack, message);
                }
            }
            (false, false) => {}
        }
    }

    fn subfolder(&mut self, entry: Entry<'_>, above: &[FolderIdentity]) {
        if entry.stack.is_none() {
            self.listing.stacks.push(entry.path.to_owned());
        }
        let stack = entry.stack.or(Some(entry.path));
        if let Err(error) = self.below(Entry { stack, ..entry }, above) {
            self.problem(entry.path, stack, unreadable_at(entry.folder, entry.name, &error));
        }
    }

    /// Opens a folder and reads it, unless that would never end.
    fn below(&mut self, entry: Entry<'_>, above: &[FolderIdentity]) -> io::Result<()> {
        let Entry {
            folder,
            name,
            path,
            stack,
        } = entry;
        // What is open is what is read, and so what must not be on the way already.
        let open = openat(folder, name, FOLDER, Mode::empty())?;
        let identity = Stamp::of(&open)?.identity;
        if above.contains(&identity) {
            self.problem(path, stack, "it links to a folder it is in; remove the link");
            return Ok(());
        }
        if above.len() > MAX_DEPTH {
            let message = format!("it is more than {MAX_DEPTH} folders deep; move it up");
            self.problem(path, stack, message);
            return Ok(());
        }
        let mut way = above.to_vec();
        way.push(identity);
        self.folder(open, path, stack, &way)
    }

    /// A file is opened only if its stamp is another one than that of the reading before.
    fn file(&mut self, entry: Entry<'_>, stamp: Stamp) -> Result<(), String> {
        let old = self.old.get(entry.path);
        let cached = match old {
            Some(old) if old.stamp == stamp && stamp.settled_before(old.read_at) => old.clone(),
            Some(_) | None => {
                self.opened += 1;
                let steady = steady::read(entry.folder, entry.name)?;
                // Whoever holds the old file sees at once that nothing changed.
                let file = match old {
                    Some(old) if *old.file.bytes == *steady.bytes => Arc::clone(&old.file),
                    Some(_) | None => Arc::new(SourceFile {
                        path: entry.path.to_owned(),
                        stack: entry.stack.map(str::to_owned),
                        digest: Sha256::digest(&steady.bytes).into(),
                        bytes: steady.bytes.into(),
                    }),
                };
                Cached {
                    stamp: steady.stamp,
                    read_at: steady.read_at,
                    file,
                }
            }
        };
        self.listing.files.push(Arc::clone(&cached.file));
        self.cache.insert(entry.path.to_owned(), cached);
        Ok(())
    }
}

/// What is said of something that has a file's ending and is none.
pub(super) const NOT_A_FILE: &str = "it is a pipe, a socket or a device, not a file; remove it";

fn has_manifest_ending(path: &str) -> bool {
    let ending = path
        .rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .map(|(_, ending)| ending);
    matches!(ending, Some("yaml" | "yml" | "json"))
}

/// What to tell of an error about an entry.
pub(super) fn unreadable_at(folder: BorrowedFd<'_>, name: &CStr, error: &io::Error) -> String {
    let is_link = Stamp::of_link(folder, name).is_ok_and(|stamp| stamp.kind == FileType::Symlink);
    unreadable(error, is_link)
}

/// What to tell of an error, and what to do.
pub(super) fn unreadable(error: &io::Error, is_link: bool) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if is_link => "it links to nothing; repair or remove the link".to_owned(),
        io::ErrorKind::NotFound => "it vanished while the folder was read; the next pass looks again".to_owned(),
        io::ErrorKind::PermissionDenied => "it may not be read; give this process the right to".to_owned(),
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            "its links lead in a circle; remove the link".to_owned()
        }
        _ => format!("it cannot be read ({error}); check the disk and the mount"),
    }
}
