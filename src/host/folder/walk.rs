//! The way through a folder: every entry becomes a file, a problem, or is one that nobody asked for.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use super::{Cached, FolderIdentity, FolderProblem, Listing, MAX_FILE_BYTES, SourceFile, Stamp};
use crate::host::clock;

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
    pub(super) listing: Listing,
}

impl<'a> Walk<'a> {
    pub(super) fn new(old: &'a BTreeMap<String, Cached>, listing: Listing) -> Self {
        Self {
            old,
            cache: BTreeMap::new(),
            entries: 0,
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

    /// Reads one folder; an error is about the folder itself. `above` are the folders on the way, itself last.
    pub(super) fn folder(
        &mut self,
        path: &Path,
        relative: &str,
        stack: Option<&str>,
        above: &[FolderIdentity],
    ) -> io::Result<()> {
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            let shown = name.to_string_lossy();
            if shown.starts_with('.') || shown.ends_with('~') {
                continue;
            }
            let below = if relative.is_empty() {
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
            if name.to_str().is_none() || shown.contains(char::is_control) {
                self.problem(&below, stack, "its name is not printable UTF-8; rename it");
                continue;
            }
            self.entry(&entry.path(), below, stack, above);
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, relative: String, stack: Option<&str>, above: &[FolderIdentity]) {
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) => {
                // Whatever it would be called or lead to: it may be a whole stack.
                let message = unreadable(&error, path.is_symlink());
                return self.problem(&relative, stack, message);
            }
        };
        let wanted = has_manifest_ending(&relative);
        match (meta.is_dir(), wanted) {
            (true, true) => self.problem(&relative, stack, "it is a folder with a file's ending; rename it"),
            (true, false) => self.subfolder(path, &relative, &meta, stack, above),
            (false, true) => {
                if let Err(message) = self.file(path, &relative, stack) {
                    self.problem(&relative, stack, message);
                }
            }
            (false, false) => {}
        }
    }

    fn subfolder(
        &mut self,
        path: &Path,
        relative: &str,
        meta: &Metadata,
        stack: Option<&str>,
        above: &[FolderIdentity],
    ) {
        if stack.is_none() {
            self.listing.stacks.push(relative.to_owned());
        }
        let stack = stack.or(Some(relative));
        let identity = FolderIdentity::from_metadata(meta);
        if above.contains(&identity) {
            return self.problem(relative, stack, "it links to a folder it is in; remove the link");
        }
        if above.len() > MAX_DEPTH {
            return self.problem(
                relative,
                stack,
                format!("it is more than {MAX_DEPTH} folders deep; move it up"),
            );
        }
        let mut way = above.to_vec();
        way.push(identity);
        if let Err(error) = self.folder(path, relative, stack, &way) {
            self.problem(relative, stack, unreadable(&error, false));
        }
    }

    fn file(&mut self, path: &Path, relative: &str, stack: Option<&str>) -> Result<(), String> {
        // Opening a FIFO would wait for its writer; a device may do anything. The check comes after the opening, on
        // what is open, so that nothing can take the file's place in between.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(opened) => File::from(opened),
            // A socket cannot be opened at all.
            Err(rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => return Err(NOT_A_FILE.to_owned()),
            Err(error) => return Err(unreadable(&error.into(), path.is_symlink())),
        };
        let stat = || opened.metadata().map_err(|error| unreadable(&error, false));
        let meta = stat()?;
        if !meta.is_file() {
            return Err(NOT_A_FILE.to_owned());
        }
        let stamp = Stamp::of(&meta);
        let known = self
            .old
            .get(relative)
            .filter(|c| c.stamp == stamp && stamp.settled_before(c.read_at));
        let cached = if let Some(known) = known {
            known.clone()
        } else {
            let read_at = clock::now();
            let mut bytes = Vec::new();
            (&opened)
                .take(MAX_FILE_BYTES + 1)
                .read_to_end(&mut bytes)
                .map_err(|error| unreadable(&error, false))?;
            if bytes.len() as u64 > MAX_FILE_BYTES {
                return Err(format!(
                    "it is larger than {} MiB; split it",
                    MAX_FILE_BYTES / (1024 * 1024)
                ));
            }
            if Stamp::of(&stat()?) != stamp {
                return Err("it changed while it was read; it is read again at the next pass".to_owned());
            }
            let digest = Sha256::digest(&bytes).into();
            Cached {
                stamp,
                read_at,
                bytes: bytes.into(),
                digest,
            }
        };
        self.listing.files.push(SourceFile {
            path: relative.to_owned(),
            stack: stack.map(str::to_owned),
            bytes: Arc::clone(&cached.bytes),
            digest: cached.digest,
        });
        self.cache.insert(relative.to_owned(), cached);
        Ok(())
    }
}

const NOT_A_FILE: &str = "it is a pipe, a socket or a device, not a file; remove it";

fn has_manifest_ending(path: &str) -> bool {
    let ending = path
        .rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .map(|(_, ending)| ending);
    matches!(ending, Some("yaml" | "yml" | "json"))
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
