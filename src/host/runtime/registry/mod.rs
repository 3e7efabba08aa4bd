//! Mirrors of container registries: registries.yaml, in the form k3s and RKE2 have it, becomes the files containerd reads
//! at each pull (`certs.d/HOST/hosts.toml`) and a drop-in that tells it where they are.
//!
//! The drop-in exists while there is any such file, and its coming or going is the only change containerd has to be
//! restarted for.

mod endpoint;
mod file;
mod hosts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use file::{Problem, RegistriesError};

use super::super::atomic_file::{self, Access};
use super::super::layout::Layout;
use super::containerd::{active, drop_ins, put};
use super::error::{Error, Unfinished, read, text};
use super::toml_text;

/// What [`apply_registry`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ApplyRegistryResult {
    /// The drop-in changed: containerd has to be started again to see it. Not said of `hosts.toml`, which is read live.
    pub changed: bool,
    /// This call restarted containerd, and it answers again. Without a running containerd there is nothing to restart.
    pub restarted: bool,
}

/// Brings the mirrors of registries.yaml to a node, and has containerd restarted by `restart` when it runs and has to read
/// the drop-in. `restart` returns when containerd is up again.
///
/// A restart that fell through is made up for by the next call, whose `changed` is then false.
///
/// # Errors
/// Bad input is found before anything is written. After that the error says whether the drop-in had been changed.
pub async fn apply_registry<R>(layout: &Layout, restart: R) -> Result<ApplyRegistryResult, Unfinished>
where
    R: AsyncFnOnce() -> Result<(), Box<dyn std::error::Error + Send + Sync>>,
{
    let rendered = Rendered::load(layout).map_err(Unfinished::before_any_change)?;
    let mut changed = false;
    let written = rendered.write(layout, &mut io::sink(), &mut changed);
    let unfinished = |source| Unfinished { changed, source };
    written.map_err(unfinished)?;
    let owed = restart_owed(layout);
    if !active(layout) {
        atomic_file::remove(&owed).map_err(|error| unfinished(error.into()))?;
        return Ok(ApplyRegistryResult {
            changed,
            restarted: false,
        });
    }
    if !changed && !owed.exists() {
        return Ok(ApplyRegistryResult {
            changed,
            restarted: false,
        });
    }
    restart().await.map_err(|error| unfinished(Error::Restart(error)))?;
    if !active(layout) {
        let socket = layout.containerd_socket();
        return Err(unfinished(Error::NotBack { socket }));
    }
    atomic_file::remove(&owed).map_err(|error| unfinished(error.into()))?;
    Ok(ApplyRegistryResult {
        changed,
        restarted: true,
    })
}

/// There while the drop-in on the disk may be newer than the containerd that runs. A boot removes it, and with it the
/// containerd it is about.
fn restart_owed(layout: &Layout) -> PathBuf {
    layout.run().join("containerd-restart-owed")
}

/// The drop-in.
fn drop_in_path(layout: &Layout) -> PathBuf {
    drop_ins(layout).join("10-registry.toml")
}

/// The folder containerd looks for registries in.
fn registries_folder(layout: &Layout) -> PathBuf {
    layout.containerd().join("certs.d")
}

/// Everything that is to be on the disk.
#[derive(Debug)]
pub(super) struct Rendered {
    drop_in: Option<String>,
    /// By the name of the folder.
    hosts: BTreeMap<String, hosts::HostsFile>,
}

impl Rendered {
    /// Reads registries.yaml, and the files it names. No file is one without entries.
    pub(super) fn load(layout: &Layout) -> Result<Self, Error> {
        let path = layout.registries();
        let hosts = match read(&path)? {
            Some(bytes) => {
                let registries = file::parse(&path, &bytes)?;
                registries.check_files(&path)?;
                hosts::render(&registries)?
            }
            None => BTreeMap::new(),
        };
        let folder = registries_folder(layout);
        let drop_in = (!hosts.is_empty()).then(|| drop_in(&folder)).transpose()?;
        Ok(Self { drop_in, hosts })
    }

    /// Writes it and removes what earlier calls left. `changed` becomes true once the drop-in changed.
    pub(super) fn write(&self, layout: &Layout, writer: &mut dyn Write, changed: &mut bool) -> Result<(), Error> {
        let folder = registries_folder(layout);
        // containerd must not be sent to a folder that is not filled yet, and not be left there when it is emptied.
        if self.drop_in.is_none() {
            *changed |= self.write_drop_in(layout, writer)?;
        }
        for (name, file) in &self.hosts {
            let host = folder.join(name);
            atomic_file::create_folder(&host, Access::Public)?;
            put(&host.join("hosts.toml"), Some(&file.text), file.access, writer)?;
        }
        self.remove_others(&folder, writer)?;
        if self.drop_in.is_some() {
            *changed |= self.write_drop_in(layout, writer)?;
        }
        Ok(())
    }

    fn write_drop_in(&self, layout: &Layout, writer: &mut dyn Write) -> Result<bool, Error> {
        let path = drop_in_path(layout);
        atomic_file::create_folder(&drop_ins(layout), Access::Public)?;
        let same = read(&path)?.as_deref() == self.drop_in.as_ref().map(String::as_bytes);
        if !same && active(layout) {
            // Before the change: whatever ends this process now, the restart is not forgotten.
            atomic_file::create_folder(&layout.run(), Access::Public)?;
            atomic_file::write(&restart_owed(layout), b"", Access::Public)?;
        }
        Ok(put(&path, self.drop_in.as_deref(), Access::Public, writer)?)
    }

    /// Removes the files of registries that are not named any more. Files that this program did not write stay.
    fn remove_others(&self, folder: &Path, writer: &mut dyn Write) -> Result<(), Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Read { path, source }
        };
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed(folder))?;
            let wanted = entry
                .file_name()
                .to_str()
                .is_some_and(|name| self.hosts.contains_key(name));
            let is_folder = entry.file_type().map_err(failed(&entry.path()))?.is_dir();
            if is_folder && !wanted {
                remove_host(&entry.path(), writer)?;
            }
        }
        Ok(())
    }
}

fn remove_host(folder: &Path, writer: &mut dyn Write) -> Result<(), Error> {
    let file = folder.join("hosts.toml");
    match read(&file)? {
        Some(bytes) if toml_text::is_ours(&bytes) => {
            put(&file, None, Access::Public, writer)?;
        }
        Some(_) => return Ok(()),
        None => {}
    }
    match std::fs::remove_dir(folder) {
        Ok(()) => Ok(()),
        // Somebody keeps more in it.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(source) => Err(Error::RemoveFolder {
            path: folder.to_owned(),
            source,
        }),
    }
}

fn drop_in(folder: &Path) -> Result<String, Error> {
    #[derive(Serialize)]
    struct DropIn<'a> {
        version: u8,
        plugins: Plugins<'a>,
    }
    #[derive(Serialize)]
    struct Plugins<'a> {
        #[serde(rename = "io.containerd.cri.v1.images")]
        images: Images<'a>,
    }
    #[derive(Serialize)]
    struct Images<'a> {
        registry: Registry<'a>,
    }
    #[derive(Serialize)]
    struct Registry<'a> {
        config_path: &'a str,
    }
    let drop_in = DropIn {
        version: super::containerd::VERSION,
        plugins: Plugins {
            images: Images {
                registry: Registry {
                    config_path: text(folder)?,
                },
            },
        },
    };
    toml_text::text(
        "containerd's registries",
        "it comes and goes with the entries of registries.yaml",
        &drop_in,
    )
}
