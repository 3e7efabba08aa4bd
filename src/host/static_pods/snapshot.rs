//! The manifest set copied aside, and put back: the manifests of the components and the files derived for them, and
//! nothing else, for whatever joined a snapshot would come back as a pod.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::super::atomic_file::{self, Access};
use super::folder::{derived_names, names_in};
use super::{Component, Error, StaticPods, manifest_name};

/// One file of a snapshot, read.
struct Copy {
    bytes: Vec<u8>,
    mode: u32,
    /// Where it lives.
    target: PathBuf,
    /// The component, if it is a manifest.
    component: Option<Component>,
}

impl StaticPods {
    /// Copies the set into the folder `snapshot`, which is made: every component's manifest and every derived file, with
    /// their modes. It is there whole or not at all, so whoever finds one can restore it; and it is never taken over one
    /// that exists.
    ///
    /// # Errors
    /// [`Error::SnapshotExists`]; otherwise says what could not be read or written, and then no snapshot is there.
    pub fn snapshot(&self, snapshot: &Path) -> Result<(), Error> {
        let (Some(name), Some(parent)) = (snapshot.file_name(), snapshot.parent()) else {
            return Err(place(snapshot)(io::Error::other("it names no folder")));
        };
        if snapshot.symlink_metadata().is_ok() {
            let path = snapshot.to_owned();
            return Err(Error::SnapshotExists { path });
        }
        let staging = parent.join(format!(".{}.incomplete", name.to_string_lossy()));
        discard(&staging)?;
        let made = self.fill(&staging).and_then(|()| {
            // A folder that appeared meanwhile is not empty, and then this fails.
            fs::rename(&staging, snapshot).map_err(place(snapshot))?;
            let flushed = File::open(parent).and_then(|parent| parent.sync_all());
            flushed.map_err(place(snapshot))
        });
        if made.is_err() {
            // The copy has failed already, and the next one removes what is left of this.
            let _ = discard(&staging);
        }
        made
    }

    /// Puts the set of a snapshot back: first sweeps visible leftovers from the folder the kubelet reads, then writes the
    /// derived files to where they live, with the modes of the snapshot, and then the manifests in start order. Whatever
    /// else lies in the snapshot lands nowhere. Done again after an interruption, it completes.
    ///
    /// # Errors
    /// Everything is read before anything is written.
    pub fn restore_snapshot(&self, snapshot: &Path) -> Result<(), Error> {
        let copies = self.read_snapshot(snapshot)?;
        self.sweep()?;
        atomic_file::create_folder(&self.folder(), Access::Secret)?;
        atomic_file::create_folder(&self.layout.static_pod_files(), Access::Secret)?;
        let derived = copies.iter().filter(|copy| copy.component.is_none());
        let manifests = copies.iter().filter(|copy| copy.component.is_some());
        for copy in derived.chain(manifests) {
            put(copy)?;
        }
        Ok(())
    }

    fn fill(&self, staging: &Path) -> Result<(), Error> {
        atomic_file::create_folder(staging, Access::Secret)?;
        for (name, target, _) in self.set(&self.folder(), &self.layout.static_pod_files())? {
            let copy = read(&target, staging.join(name), None)?;
            put(&copy)?;
        }
        Ok(())
    }

    fn read_snapshot(&self, snapshot: &Path) -> Result<Vec<Copy>, Error> {
        // A folder that is not there has no names, and is no empty snapshot either.
        fs::read_dir(snapshot).map_err(|source| Error::Read {
            path: snapshot.to_owned(),
            source,
        })?;
        let mut copies = Vec::new();
        for (name, source, component) in self.set(snapshot, snapshot)? {
            let target = match component {
                Some(component) => self.path(component),
                None => self.layout.static_pod_files().join(name),
            };
            copies.push(read(&source, target, component)?);
        }
        if copies.iter().all(|copy| copy.component.is_none()) {
            let path = snapshot.to_owned();
            return Err(Error::EmptySnapshot { path });
        }
        copies.sort_by_key(|copy| copy.component);
        Ok(copies)
    }

    /// The files of the set: name, path and component.
    fn set(&self, manifests: &Path, derived: &Path) -> Result<Vec<(String, PathBuf, Option<Component>)>, Error> {
        let mut set = Vec::new();
        for name in names_in(manifests)? {
            if let Some(component) = manifest_name(&name) {
                set.push((name.clone(), manifests.join(name), Some(component)));
            }
        }
        let known = derived_names();
        for name in names_in(derived)? {
            if known.contains(name.as_str()) {
                set.push((name.clone(), derived.join(name), None));
            }
        }
        Ok(set)
    }
}

fn read(source: &Path, target: PathBuf, component: Option<Component>) -> Result<Copy, Error> {
    let unreadable = |error| Error::Read {
        path: source.to_owned(),
        source: error,
    };
    let bytes = fs::read(source).map_err(unreadable)?;
    let mode = fs::metadata(source).map_err(unreadable)?.permissions().mode() & 0o777;
    Ok(Copy {
        bytes,
        mode,
        target,
        component,
    })
}

/// Secret first: the mode of the copy opens it, never the other way round.
fn put(copy: &Copy) -> Result<(), Error> {
    let Copy {
        bytes,
        mode,
        target,
        component: _,
    } = copy;
    atomic_file::write_if_changed(target, bytes, Access::Secret)?;
    let present = fs::metadata(target).map(|metadata| metadata.permissions().mode() & 0o777);
    if present.is_ok_and(|present| present == *mode) {
        return Ok(());
    }
    fs::set_permissions(target, Permissions::from_mode(*mode)).map_err(place(target))
}

fn discard(staging: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(staging) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(place(staging)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn place(path: &Path) -> impl Fn(io::Error) -> Error + use<'_> {
    |source| Error::Place {
        path: path.to_owned(),
        source,
    }
}
