//! Keeps a payload on this machine: a stick is gone tomorrow.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::atomic_file::{self, Access};
use super::super::parallel::on_every_processor;
use super::lock::LOCK;
use super::verify::wrong_files;
use super::{Error, Progress, Verified};

/// Copies what was verified to `to`, the lock last, so that one that was cut short is no payload. One that is there
/// already, whole, is left alone.
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
    let names: Vec<&String> = payload.lock().files.keys().collect();
    for folder in names
        .iter()
        .filter_map(|name| to.join(name).parent().map(Path::to_owned))
    {
        atomic_file::create_folder(&folder, Access::Public)?;
    }
    let copied = on_every_processor(&names, |name| copy(&payload.folder().join(name), &to.join(name)));
    copied.into_iter().collect::<Result<(), Error>>()?;
    Ok(atomic_file::write(&lock, &text, Access::Public)?)
}

/// By way of a file whose name the next try takes again: what a copy that was cut off has left is no small thing.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let unreadable = |source| Error::Read {
        path: from.to_owned(),
        source,
    };
    let mut source = fs::File::open(from).map_err(unreadable)?;
    let mode = source.metadata().map_err(unreadable)?.permissions().mode() & 0o755;
    let unfinished = to.with_extension("copying");
    let written = write(&mut source, &unfinished, mode).and_then(|()| fs::rename(&unfinished, to));
    written.map_err(|source| {
        // On a full disk it is in everybody's way.
        let _ = fs::remove_file(&unfinished);
        let path = to.to_owned();
        atomic_file::Error::Write { path, source }.into()
    })
}

fn write(source: &mut fs::File, path: &Path, mode: u32) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    io::copy(source, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}
