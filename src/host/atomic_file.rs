//! The one way this program writes a file: a reader sees the old bytes or the new ones, never a part, and what was
//! reported as written is still there after the power fails.
//!
//! A temporary file in the same directory (same file system, so that the rename is one step) gets its final mode before
//! it holds a byte, is flushed, renamed over the target, and then the directory is flushed, for the rename lives there.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Replaces the file at `path` by `bytes`, atomically and durably. The folder has to exist.
///
/// # Errors
/// Names the path. After [`Error::Write`] the old content is still in place.
pub fn write(path: &Path, bytes: &[u8], access: Access) -> Result<(), Error> {
    let Some(name) = path.file_name() else {
        return Err(Error::NoFileName { path: path.to_owned() });
    };
    let folder = folder_of(path);
    let temporary = folder.join(temporary_name(&name.to_string_lossy()));
    let written = write_temporary(&temporary, bytes, access).and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = written {
        // The write has failed already; a temporary file that cannot be removed either changes nothing for the caller.
        let _ = fs::remove_file(&temporary);
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

fn write_temporary(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    // Left over only by a dead process that had our id: nobody else uses that name.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // Not by `open`: the umask would take bits away.
    file.set_permissions(Permissions::from_mode(access.file_mode()))?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn flush_folder(path: &Path) -> Result<(), Error> {
    let flushed = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    flushed.map_err(|source| Error::Flush {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads while it is written finds one whole content or the other, and never nothing.
    #[test]
    fn a_reader_never_finds_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let content = |byte: u8| vec![byte; 100_000];
        write(&path, &content(b'a'), Access::Public).unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for byte in *b"bababababababababababababababa" {
                    write(&path, &content(byte), Access::Public).unwrap();
                }
                ended.store(true, Ordering::Relaxed);
            });
            while !ended.load(Ordering::Relaxed) {
                let read = fs::read(&path).unwrap();
                assert!(read == content(b'a') || read == content(b'b'), "{} bytes", read.len());
            }
        });
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn every_file_and_folder_gets_its_mode_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let modes = [
            (Access::Secret, 0o600, 0o700),
            (Access::Public, 0o644, 0o755),
            (Access::Executable, 0o755, 0o755),
        ];
        for (access, of_file, of_folder) in modes {
            let path = folder.path().join(format!("{access:?}/below/file"));
            let below = path.parent().unwrap();
            create_folder(below, access).unwrap();
            write(&path, b"x", access).unwrap();
            assert_eq!((mode(&path), mode(below)), (of_file, of_folder), "{access:?}");
            assert_eq!(mode(below.parent().unwrap()), of_folder, "{access:?}");
            create_folder(below, Access::Public).unwrap();
            assert_eq!(mode(below), of_folder, "a folder that exists keeps its mode");
        }
        let error = create_folder(&folder.path().join("Public/below/file/x"), Access::Public).unwrap_err();
        assert!(matches!(error, Error::CreateFolder { .. }), "{error}");
    }

    /// The temporary file is hidden from readers of the folder, and never one that somebody else has put there.
    #[test]
    fn a_temporary_file_is_hidden_and_made_anew() {
        let (one, two) = (temporary_name("a.yaml"), temporary_name("a.yaml"));
        assert!(one.starts_with('.') && one.contains(&std::process::id().to_string()) && one != two);
        let folder = tempfile::tempdir().unwrap();
        let (target, path) = (folder.path().join("target"), folder.path().join(one));
        write(&target, b"of another", Access::Public).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write_temporary(&path, b"ours", Access::Secret).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"of another");
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_bare_name_is_in_the_current_folder() {
        assert_eq!(folder_of(Path::new("file")), Path::new("."));
        assert_eq!(folder_of(Path::new("a/file")), Path::new("a"));
    }

    #[test]
    fn replaces_content_and_mode_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.key");
        write(&path, b"old", Access::Public).unwrap();
        let reader = File::open(&path).unwrap();
        write(&path, b"new", Access::Secret).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let read = io::read_to_string(reader).unwrap();
        assert_eq!(read, "old", "who has the old file open keeps all of it");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_equal_file_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(write_if_changed(&path, b"one", Access::Public).unwrap());
        let before = fs::metadata(&path).unwrap();
        assert!(!write_if_changed(&path, b"one", Access::Public).unwrap());
        use std::os::unix::fs::MetadataExt;
        assert_eq!(before.ino(), fs::metadata(&path).unwrap().ino());
        assert!(write_if_changed(&path, b"two", Access::Public).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        // What cannot be compared is not overwritten.
        let error = write_if_changed(folder.path(), b"one", Access::Public).unwrap_err();
        assert!(matches!(error, Error::Compare { .. }), "{error}");
    }

    #[test]
    fn a_failure_names_the_path_keeps_the_old_file_and_cleans_up() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("in-the-way");
        fs::create_dir_all(target.join("child")).unwrap();
        let error = write(&target, b"x", Access::Public).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write {}", target.display()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(matches!(
            write(Path::new("/"), b"x", Access::Public),
            Err(Error::NoFileName { .. })
        ));
    }

    #[test]
    fn removing_twice_is_fine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, b"x", Access::Public).unwrap();
        assert!(remove(&path).unwrap());
        assert!(!remove(&path).unwrap());
        assert!(matches!(remove(folder.path()), Err(Error::Remove { .. })));
    }
}
