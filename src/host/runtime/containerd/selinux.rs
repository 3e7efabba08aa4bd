//! Whether containerd confines containers by SELinux labels, and since when.
//!
//! A sandbox started before containerd confined anything runs without labels until its pod is made anew; the record says
//! which those are.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use toml::Value;

use super::super::super::atomic_file::{self, Access};
use super::super::super::layout::Layout;
use super::super::error::{Error, read};
use super::super::toml_text;
use super::{config_path, parsed, pass_through_path};

/// Where containerd looks for the switch. The key in another table, or in a comment, does nothing.
const TABLE: [&str; 2] = ["plugins", "io.containerd.cri.v1.runtime"];
const KEY: &str = "enable_selinux";

/// Whether the configuration this program wrote makes containerd label containers: `config.toml`, and the pass-through,
/// which is read after it. No configuration confines nobody.
///
/// # Errors
/// When a file cannot be read or parsed, or the key is no boolean: containerd would not start with it either.
pub fn confines_containers(layout: &Layout) -> Result<bool, Error> {
    let first = switch(&config_path(layout))?;
    let last = switch(&pass_through_path(layout))?;
    Ok(last.or(first).unwrap_or(false))
}

fn switch(path: &Path) -> Result<Option<bool>, Error> {
    let Some(table) = parsed(path)? else {
        return Ok(None);
    };
    let found = TABLE
        .iter()
        .try_fold(&table, |table, key| table.get(*key)?.as_table())
        .and_then(|table| table.get(KEY));
    match found {
        None => Ok(None),
        Some(Value::Boolean(on)) => Ok(Some(*on)),
        Some(other) => Err(Error::Malformed {
            path: path.to_owned(),
            reason: format!("{KEY} is a {}, and not true or false", other.type_str()),
        }),
    }
}

/// Turns labels off in the configuration this program wrote, and says whether that changed a file. containerd follows at
/// its next start.
///
/// For going back to a build whose control plane runs without its own SELinux type: labelled, it would not be let near
/// the node's PKI and etcd's data, and that build never turns labels off. The next [`write_config`](super::write_config)
/// of this build turns them on again.
///
/// # Errors
/// When a file cannot be read, parsed or written.
pub fn disable_selinux(layout: &Layout) -> Result<bool, Error> {
    let mut changed = false;
    for (path, access) in [
        (config_path(layout), Access::Public),
        (pass_through_path(layout), Access::Secret),
    ] {
        if switch(&path)? == Some(true) {
            turn_off(&path, access)?;
            changed = true;
        }
    }
    if changed {
        atomic_file::remove(&confined_since_path(layout))?;
    }
    Ok(changed)
}

fn turn_off(path: &Path, access: Access) -> Result<(), Error> {
    let mut table = parsed(path)?.unwrap_or_default();
    let inner = TABLE
        .iter()
        .try_fold(&mut table, |table, key| table.get_mut(*key)?.as_table_mut());
    if let Some(inner) = inner {
        inner.insert(KEY.to_owned(), Value::Boolean(false));
    }
    let hint = "SELinux labels were turned off in it for an older build";
    let text = toml_text::text("containerd's configuration", hint, &table)?;
    Ok(atomic_file::write(path, text.as_bytes(), access)?)
}

/// The record of when containerd began to confine containers.
#[must_use]
pub fn confined_since_path(layout: &Layout) -> PathBuf {
    layout.containerd().join("confined-since")
}

/// When containerd began to confine containers; nothing when it does not, or when the record is missing or unreadable.
#[must_use]
pub fn confined_since(layout: &Layout) -> Option<Timestamp> {
    match confines_containers(layout) {
        Ok(true) => recorded(layout),
        Ok(false) | Err(_) => None,
    }
}

fn recorded(layout: &Layout) -> Option<Timestamp> {
    let bytes = read(&confined_since_path(layout)).ok()??;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// To be called right before each start of containerd, with the time: records it when containerd will confine containers and
/// did not before. A record made when the configuration is written would be too early: containerd goes on as it was until
/// it is started again, and sandboxes of that time would pass for confined.
///
/// # Errors
/// When the configuration cannot be read or the record not be written.
pub fn record_confinement(layout: &Layout, now: Timestamp) -> Result<(), Error> {
    if confines_containers(layout)? && recorded(layout).is_none() {
        atomic_file::write(
            &confined_since_path(layout),
            format!("{now}\n").as_bytes(),
            Access::Public,
        )?;
    }
    Ok(())
}

/// Removes the record unless containers were and are confined, so that the next start of containerd makes a true one.
pub(super) fn forget_unless_still_confined(layout: &Layout, before: bool) -> Result<(), Error> {
    if !(before && confines_containers(layout)?) {
        atomic_file::remove(&confined_since_path(layout))?;
    }
    Ok(())
}
