//! `/etc/containerd/config.toml` as an older build wrote it. It is the distribution's place: its containerd, and Docker
//! with it, would not start with our file after a reboot.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::super::super::atomic_file;
use super::super::super::layout::Layout;
use super::super::error::Error;
use super::super::{tell, toml_text};

/// The legacy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyHostConfig {
    /// Where it would be.
    pub path: PathBuf,
    /// Whether one that this program wrote is there now, which [`remove_legacy_host_config`] would delete.
    pub present: bool,
}

/// Looks for the legacy file, so that a dry run can tell of it.
#[must_use]
pub fn legacy_host_config(layout: &Layout) -> LegacyHostConfig {
    let path = layout.root().join("etc/containerd/config.toml");
    // One that cannot be read cannot be shown to be ours.
    let present = is_ours(&path).unwrap_or(false);
    LegacyHostConfig { path, present }
}

/// Deletes the legacy file and tells `writer`: it is outside of everything that is this program's. A file that it did not
/// write is left, and no file is nothing to do.
pub fn remove_legacy_host_config(layout: &Layout, writer: &mut dyn Write) {
    let LegacyHostConfig { path, .. } = legacy_host_config(layout);
    let removed = match is_ours(&path) {
        Ok(true) => atomic_file::remove(&path).map_err(Error::from),
        Ok(false) => return,
        Err(source) => Err(Error::Read {
            path: path.clone(),
            source,
        }),
    };
    match removed {
        Ok(true) => tell(
            writer,
            format_args!(
                "removed {}, which an older build of stratum wrote: containerd's own package can use the place again",
                path.display()
            ),
        ),
        Ok(false) => {}
        Err(error) => {
            let cause = std::error::Error::source(&error)
                .map(ToString::to_string)
                .unwrap_or_default();
            tell(
                writer,
                format_args!(
                    "warning: {error} ({cause}); if an older build of stratum wrote it, delete it: containerd's own package and Docker do not start with it"
                ),
            );
        }
    }
}

/// Whether a plain file is there that begins as ours do. A link is somebody's own arrangement.
fn is_ours(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => Ok(toml_text::is_ours(&std::fs::read(path)?)),
        Ok(_) => Ok(false),
        // Also when /etc/containerd is no folder.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}
