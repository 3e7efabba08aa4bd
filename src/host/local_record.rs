//! The node-local prune record that earlier releases wrote: `<manifests folder>/.applied.json`.
//!
//! Its content is opaque here. It is only ever read and put aside, never deleted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Its name in the manifests folder.
const NAME: &str = ".applied.json";
/// The most that is read of it, in bytes; the inventory it goes into holds no more.
const LIMIT: u64 = 4 * 1024 * 1024;

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalRecord {
    /// Nothing, in a folder that exists.
    Absent,
    /// This text.
    Read(String),
    /// Something that cannot be read, with the reason. What it remembers is unknown, which is not nothing.
    Unreadable(String),
}

/// Reads the record of a manifests folder. Everything but a readable regular file and a proven absence is unreadable.
#[must_use]
pub fn read(folder: &Path) -> LocalRecord {
    let path = folder.join(NAME);
    let unreadable = |error: &dyn std::fmt::Display| LocalRecord::Unreadable(format!("{}: {error}", path.display()));
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::metadata(folder) {
            Ok(found) if found.is_dir() => LocalRecord::Absent,
            Ok(_) => unreadable(&"its folder is no folder"),
            Err(error) => unreadable(&error),
        },
        Err(error) => unreadable(&error),
        Ok(_) => match read_file(&path) {
            Ok(text) => LocalRecord::Read(text),
            Err(error) => unreadable(&error),
        },
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    // Opening a FIFO would otherwise wait for its writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file: File = fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LIMIT {
        return Err(io::Error::other(format!("not a regular file of at most {LIMIT} bytes")));
    }
    let mut text = String::new();
    file.take(LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

/// Puts the record aside as `.applied.json.retired`, or with a number behind it when that name is taken.
///
/// # Errors
/// When the file cannot be renamed. A record that is already gone is no error.
pub fn retire(folder: &Path) -> io::Result<()> {
    let path = folder.join(NAME);
    for number in 0..1000_u32 {
        let suffix = if number == 0 {
            String::new()
        } else {
            format!(".{number}")
        };
        let target: PathBuf = folder.join(format!("{NAME}.retired{suffix}"));
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(rustix::fs::CWD, &path, rustix::fs::CWD, &target, flags) {
            Ok(()) => return File::open(folder)?.sync_all(),
            Err(rustix::io::Errno::EXIST) => {}
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(
        "a thousand retired records are there already; move them away",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_not_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        assert_eq!(read(folder.path()), LocalRecord::Absent);
        assert!(matches!(read(&folder.path().join("none")), LocalRecord::Unreadable(_)));
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(matches!(read(folder.path()), LocalRecord::Unreadable(_)));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(read(folder.path()), LocalRecord::Unreadable(_)));
        fs::remove_dir(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(matches!(read(folder.path()), LocalRecord::Unreadable(_)));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(matches!(read(folder.path()), LocalRecord::Unreadable(_)));
    }

    #[test]
    fn a_record_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let file = File::create(&path).unwrap();
        file.set_len(LIMIT).unwrap();
        let whole = usize::try_from(LIMIT).unwrap();
        assert!(matches!(read(folder.path()), LocalRecord::Read(text) if text.len() == whole));
        file.set_len(LIMIT + 1).unwrap();
        assert!(matches!(read(folder.path()), LocalRecord::Unreadable(why) if why.contains("regular file of at most")));
        file.set_len(0).unwrap();
        io::Write::write_all(&mut &file, b"{\"\xff\": 1}").unwrap();
        assert!(matches!(read(folder.path()), LocalRecord::Unreadable(why) if why.contains(NAME)));
        // A folder that is none holds no proof of absence either.
        assert!(matches!(read(&path), LocalRecord::Unreadable(_)));
    }

    #[test]
    fn retiring_never_loses_a_record() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["one", "two"] {
            std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(folder.path().join(NAME))
                .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
                .unwrap();
            assert_eq!(read(folder.path()), LocalRecord::Read(text.to_owned()));
            retire(folder.path()).unwrap();
            assert_eq!(read(folder.path()), LocalRecord::Absent);
        }
        assert_eq!(
            fs::read_to_string(folder.path().join(".applied.json.retired")).unwrap(),
            "one"
        );
        assert_eq!(
            fs::read_to_string(folder.path().join(".applied.json.retired.1")).unwrap(),
            "two"
        );
        retire(folder.path()).unwrap();
        assert!(retire(&folder.path().join(".applied.json.retired")).is_err());
    }
}
