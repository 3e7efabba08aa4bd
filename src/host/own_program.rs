//! This program at a path that others know: what is to be done on a node from afar is done by the node's own copy.
//!
//! Where the program was installed is for people to decide, and may change; a Job names one path for every node.

use std::fs::File;
use std::io;
use std::path::Path;

use super::atomic_file::{self, Access};
use super::digest::{self, Sum};

/// The running program itself, even when its file was replaced meanwhile.
pub const RUNNING: &str = "/proc/self/exe";

/// Makes `to` the same as `from`, whole and with its digest compared; one that is the same already is left alone. Says
/// whether it wrote. The folder is made.
///
/// # Errors
/// When `from` cannot be read, `to` cannot be written, or what was written reads back otherwise.
pub fn keep(from: &Path, to: &Path) -> Result<bool, atomic_file::Error> {
    let unusable = |source| atomic_file::Error::Write {
        path: to.to_owned(),
        source,
    };
    let wanted = digest(from).map_err(|source| atomic_file::Error::Compare {
        path: from.to_owned(),
        source,
    })?;
    let is_wanted = || Ok(atomic_file::if_there(digest(to))?.as_ref() == Some(&wanted));
    if is_wanted().map_err(unusable)? {
        return Ok(false);
    }
    if let Some(folder) = to.parent() {
        atomic_file::create_folder(folder, Access::Public)?;
    }
    atomic_file::write_from(to, Access::Executable, |file| {
        io::copy(&mut File::open(from)?, file).map(drop)
    })?;
    if !is_wanted().map_err(unusable)? {
        let other = io::Error::other("it does not read back as it was written");
        return Err(unusable(other));
    }
    Ok(true)
}

fn digest(path: &Path) -> io::Result<Sum> {
    digest::of_file(path, |_| {})
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_copy_is_made_once_and_again_when_the_program_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("installed"), folder.path().join("bin/stratum"));
        let put = |bytes: &[u8]| atomic_file::write(&from, bytes, Access::Executable).unwrap();
        assert!(keep(&from, &to).is_err() && !to.exists());
        put(b"one");
        assert!(keep(&from, &to).unwrap());
        let first = std::fs::metadata(&to).unwrap();
        assert_eq!(first.permissions().mode() & 0o777, 0o755);
        assert!(!keep(&from, &to).unwrap());
        assert_eq!(std::fs::metadata(&to).unwrap().ino(), first.ino(), "left alone");
        // As long as the first, so that only the content tells.
        put(b"two");
        assert!(keep(&from, &to).unwrap());
        assert_eq!(std::fs::read(&to).unwrap(), b"two");
        let names = std::fs::read_dir(folder.path().join("bin")).unwrap().count();
        assert_eq!(names, 1, "nothing beside it");
    }

    #[test]
    fn the_running_program_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("stratum");
        assert!(keep(Path::new(RUNNING), &to).unwrap());
        assert_eq!(digest(&to).unwrap(), digest(&std::env::current_exe().unwrap()).unwrap());
    }
}
