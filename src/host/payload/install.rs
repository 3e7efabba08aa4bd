//! Keeps a payload on this machine: a stick is gone tomorrow.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::atomic_file::{self, Access};
use super::lock::LOCK;
use super::verify::wrong_files;
use super::{Error, Progress, Verified};

/// Copies what was verified to `to`, file by file and the lock last, so that one that was cut short is no payload. One that
/// is there already, whole, is left alone.
///
/// # Errors
/// Names the file that cannot be read or written.
pub fn install(payload: &Verified, to: &Path) -> Result<(), Error> {
    let lock = to.join(LOCK);
    let text = fs::read(payload.folder().join(LOCK)).map_err(|source| Error::Read {
        path: payload.folder().join(LOCK),
        source,
    })?;
    let same = fs::read(&lock).ok().as_ref() == Some(&text);
    // The lock says what the files were when they were written, and not what has become of them.
    if same && wrong_files(to, payload.lock(), Progress::Quiet).is_empty() {
        return Ok(());
    }
    atomic_file::remove(&lock)?;
    for name in payload.lock().files.keys() {
        let (from, path) = (payload.folder().join(name), to.join(name));
        if let Some(folder) = path.parent() {
            atomic_file::create_folder(folder, Access::Public)?;
        }
        copy(&from, &path).map_err(|source| Error::Read { path: from, source })?;
    }
    Ok(atomic_file::write(&lock, &text, Access::Public)?)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let unfinished = to.with_extension("copying");
    fs::copy(from, &unfinished)?;
    let mode = fs::metadata(from)?.permissions().mode() & 0o755;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode))?;
    fs::File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, to)
}
