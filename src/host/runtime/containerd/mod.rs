//! containerd's configuration: `config.toml`, and the drop-ins beside it that it imports.
//!
//! `conf.d/10-registry.toml` says where mirrors are, `conf.d/20-config.toml` is the section `containerd` of config.yaml.
//! Other files there are the user's own, and are left alone. containerd reads all of them at its start only.

pub(super) mod legacy;
mod render;
pub(super) use render::VERSION;
pub(super) mod selinux;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::super::atomic_file::{self, Access};
use super::super::images::Image;
use super::super::layout::Layout;
use super::error::{Error, Unfinished, read};
use super::{Inputs, registry, tell};
use crate::text::one_line;

/// The image every pod's sandbox is started from: the one the payload has. containerd's own default is another version,
/// which a machine without a way out could not fetch.
pub const SANDBOX_IMAGE: &str = Image::Pause.reference();

/// `config.toml`.
#[must_use]
pub fn config_path(layout: &Layout) -> PathBuf {
    layout.containerd().join("config.toml")
}

/// The folder of drop-ins.
pub(super) fn drop_ins(layout: &Layout) -> PathBuf {
    layout.containerd().join("conf.d")
}

/// The section `containerd` of config.yaml as a drop-in.
fn pass_through_path(layout: &Layout) -> PathBuf {
    drop_ins(layout).join("20-config.toml")
}

/// The arguments containerd is started with.
#[must_use]
pub fn containerd_arguments(layout: &Layout) -> Vec<OsString> {
    vec!["--config".into(), config_path(layout).into_os_string()]
}

/// Whether containerd runs: something answers at its socket. The socket's file alone means nothing, it stays behind.
#[must_use]
pub fn active(layout: &Layout) -> bool {
    UnixStream::connect(layout.containerd_socket()).is_ok()
}

/// [`write_config`], and then removes a legacy configuration. For a node on which nothing runs yet.
///
/// # Errors
/// As [`write_config`]; the legacy file is then left.
pub fn ensure_config(inputs: Inputs<'_>, writer: &mut dyn Write) -> Result<bool, Unfinished> {
    let changed = write_config_with_writer(inputs, writer)?;
    legacy::remove_legacy_host_config(inputs.layout, writer);
    Ok(changed)
}

/// Writes containerd's configuration and the mirrors. `true` when containerd has something new to read at its next start.
///
/// # Errors
/// Bad input is found before anything is written. After that the error says whether containerd's files had been changed.
pub fn write_config(inputs: Inputs<'_>) -> Result<bool, Unfinished> {
    write_config_with_writer(inputs, &mut std::io::sink())
}

/// [`write_config`], telling `writer` a line for each file of containerd's that was written.
///
/// # Errors
/// As [`write_config`]. A writer that fails is no error.
pub fn write_config_with_writer(inputs: Inputs<'_>, writer: &mut dyn Write) -> Result<bool, Unfinished> {
    let rendered = Rendered::new(inputs).map_err(Unfinished::before_any_change)?;
    let mut changed = false;
    let written = rendered.write(inputs.layout, writer, &mut changed);
    written.map_err(|source| Unfinished { changed, source })?;
    Ok(changed)
}

/// Everything that is to be on the disk.
struct Rendered {
    config: String,
    pass_through: Option<String>,
    registry: registry::Rendered,
}

impl Rendered {
    fn new(inputs: Inputs<'_>) -> Result<Self, Error> {
        Ok(Self {
            config: render::config(inputs.layout, inputs.facts)?,
            pass_through: render::pass_through(inputs.settings)?,
            registry: registry::Rendered::load(inputs.layout)?,
        })
    }

    fn write(&self, layout: &Layout, writer: &mut dyn Write, changed: &mut bool) -> Result<(), Error> {
        let Self {
            config,
            pass_through,
            registry,
        } = self;
        // What cannot be read any more confined nobody that can be told; it is written anew below.
        let confined = selinux::confines_containers(layout).unwrap_or(false);
        atomic_file::create_folder(&drop_ins(layout), Access::Public)?;
        *changed |= put(&config_path(layout), Some(config), Access::Public, writer)?;
        // Secret: an entry may hold a password.
        *changed |= put(
            &pass_through_path(layout),
            pass_through.as_deref(),
            Access::Secret,
            writer,
        )?;
        selinux::forget_unless_still_confined(layout, confined)?;
        registry.write(layout, writer, changed)
    }
}

/// Brings a file to `text`, or away. Says whether that changed anything.
pub(super) fn put(
    path: &Path,
    text: Option<&str>,
    access: Access,
    writer: &mut dyn Write,
) -> Result<bool, atomic_file::Error> {
    let (changed, done) = match text {
        Some(text) => (atomic_file::write_if_changed(path, text.as_bytes(), access)?, "wrote"),
        None => (atomic_file::remove(path)?, "removed"),
    };
    if changed {
        tell(writer, format_args!("{done} {}", path.display()));
    }
    Ok(changed)
}

/// A file of containerd's that this program wrote, parsed.
fn parsed(path: &Path) -> Result<Option<toml::Table>, Error> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    let malformed = |reason: String| Error::Malformed {
        path: path.to_owned(),
        reason,
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed("it is not UTF-8".to_owned()))?;
    let table = text.parse::<toml::Table>().map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        malformed(format!("line {line}: {}", one_line(error.message())))
    })?;
    Ok(Some(table))
}

#[cfg(test)]
pub(super) fn rendered_for_tests(layout: &Layout, facts: &super::Facts) -> String {
    render::config(layout, facts).unwrap()
}
