//! Checks a payload, whole, before any of it is used.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::super::assets::Tool;
use super::super::digest;
use super::super::parallel::on_every_processor;
use super::lock::{Entry, LOCK, PayloadLock, PinnedImage};
use super::{Error, Needs, PROGRAMS, Problem, Progress, program_file};

/// A payload whose every file is what its lock says, and which has what the node needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    folder: PathBuf,
    lock: PayloadLock,
    /// Files that are in the folder and not in the lock. Nothing uses them.
    pub strays: Vec<String>,
}

impl Verified {
    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is in it.
    #[must_use]
    pub fn lock(&self) -> &PayloadLock {
        &self.lock
    }

    /// The path of a program.
    #[must_use]
    pub fn program(&self, tool: Tool) -> PathBuf {
        self.folder.join(program_file(tool))
    }

    /// Every image: what it is, and its archive.
    pub fn images(&self) -> impl Iterator<Item = (&PinnedImage, PathBuf)> {
        self.lock.files.iter().filter_map(|(file, entry)| {
            let image = entry.image.as_ref()?;
            Some((image, self.folder.join(file)))
        })
    }
}

/// Checks every file of the payload in `folder` against its lock, and the lock against what this binary needs. Reads all of
/// it: 1 to 2 s for half a gigabyte.
///
/// # Errors
/// [`Error::Wrong`] names everything that is wrong, not only the first thing.
pub fn verify(folder: &Path, needs: &Needs, progress: Progress) -> Result<Verified, Error> {
    let lock = PayloadLock::load(&folder.join(LOCK))?;
    let mut problems = unmet(&lock, needs);
    problems.extend(wrong_files(folder, &lock, progress));
    if !problems.is_empty() {
        problems.sort();
        return Err(Error::Wrong {
            folder: folder.to_owned(),
            problems,
        });
    }
    let strays = strays(folder, &lock)?;
    Ok(Verified {
        folder: folder.to_owned(),
        lock,
        strays,
    })
}

/// What the lock lacks, or has in another version.
fn unmet(lock: &PayloadLock, needs: &Needs) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut need = |file: String, needed: &str, found: Option<&str>| match found {
        None => problems.push(Problem::NotInLock {
            file,
            needed: needed.to_owned(),
        }),
        Some(found) if found != needed => problems.push(Problem::Version {
            file,
            needed: needed.to_owned(),
            found: found.to_owned(),
        }),
        Some(_) => {}
    };
    for tool in PROGRAMS {
        let file = program_file(tool).display().to_string();
        let found = lock.files.get(&file).map(|entry| entry.version.as_str());
        need(file, tool.version(), found);
    }
    for image in needs.images() {
        let file = format!("images/{}.tar", image.name());
        let found = lock.files.get(&file).and_then(|entry| entry.image.as_ref());
        need(file, image.reference(), found.map(|image| image.reference.as_str()));
    }
    need(
        "payload".to_owned(),
        &super::build::platform(),
        Some(lock.platform.as_str()),
    );
    problems
}

/// Reads every file, on every processor.
pub(super) fn wrong_files(folder: &Path, lock: &PayloadLock, progress: Progress) -> Vec<Problem> {
    let files: Vec<(&String, &Entry)> = lock.files.iter().collect();
    let total = files.iter().map(|(_, entry)| entry.size).sum();
    let bar = progress.bytes("verifying the payload", total);
    let checked = on_every_processor(&files, |(file, entry)| {
        wrong_file(folder, file, entry, &|read| bar.advance(read))
    });
    bar.finish();
    checked.into_iter().flatten().collect()
}

fn wrong_file(folder: &Path, file: &str, entry: &Entry, read: &dyn Fn(u64)) -> Option<Problem> {
    let path = folder.join(file);
    let file = file.to_owned();
    let unreadable = |file, error: &io::Error| Problem::Unreadable {
        file,
        reason: error.to_string(),
    };
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Problem::Missing { file }),
        Err(error) => return Some(unreadable(file, &error)),
    };
    let found = match digest::of_file(&path, read) {
        Ok(sum) => sum,
        Err(error) => return Some(unreadable(file, &error)),
    };
    if (found.size, found.sha256.as_str()) != (entry.size, entry.sha256.as_str()) {
        let words = |size: u64, sha256: &str| format!("{size} bytes, sha256 {sha256}");
        return Some(Problem::Content {
            expected: words(entry.size, &entry.sha256),
            found: words(found.size, &found.sha256),
            file,
        });
    }
    let runs = metadata.permissions().mode() & 0o111 != 0;
    (file.starts_with("bin/") && !runs).then_some(Problem::NotExecutable { file })
}

/// What is in the folder and not in the lock.
pub(super) fn strays(folder: &Path, lock: &PayloadLock) -> Result<Vec<String>, Error> {
    let mut strays = BTreeSet::new();
    for below in ["", "bin", "images"] {
        let path = folder.join(below);
        let read = |source| Error::Read {
            path: path.clone(),
            source,
        };
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(read(source)),
        };
        for entry in entries {
            let name = entry.map_err(read)?.file_name().to_string_lossy().into_owned();
            let file = if below.is_empty() {
                name
            } else {
                format!("{below}/{name}")
            };
            let known = [LOCK, "bin", "images"].contains(&file.as_str()) || lock.files.contains_key(&file);
            if !known {
                strays.insert(file);
            }
        }
    }
    Ok(strays.into_iter().collect())
}
