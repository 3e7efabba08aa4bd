//! Leaves that are repaired beside a control plane that may run: somebody else finds out who has to be restarted for them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::super::layout::Layout;
use super::super::pki_folder::Repair;
use super::super::rotation_incomplete::{self, Error, Incomplete, Moment};

/// What the marker calls it.
const OPERATION: &str = "stratum up, preparing";

/// Writes the marker for the repaired leaves, before the first of them changes. None when nothing was repaired, or no pod can
/// run that would have to be restarted.
pub(super) fn mark(layout: &Layout, repaired: &[(&str, Repair)], now: Timestamp) -> Result<Option<Incomplete>, Error> {
    let of = |wanted: &[Repair]| -> BTreeSet<String> {
        let found = repaired.iter().filter(|(_, repair)| wanted.contains(repair));
        found.map(|(name, _)| (*name).to_owned()).collect()
    };
    let leaves = of(&[Repair::Made, Repair::Expired]);
    if leaves.is_empty() || !has_pods(layout) {
        return Ok(None);
    }
    let expired = !of(&[Repair::Expired]).is_empty();
    let marker = match rotation_incomplete::load(layout) {
        Ok(earlier) => Incomplete::new(OPERATION, expired, leaves, now).after(earlier.as_ref()),
        // What it said is lost, and is taken for everything.
        Err(_) => {
            let all = repaired.iter().map(|(name, _)| (*name).to_owned()).collect();
            Incomplete::new(OPERATION, true, all, now)
        }
    };
    marker.save(layout)?;
    Ok(Some(marker))
}

/// Adds when they were written.
pub(super) fn written(layout: &Layout, mut marker: Incomplete) -> Result<(), Error> {
    marker.written = Some(Moment::take());
    marker.save(layout)
}

/// Whether there is a manifest of a static pod, without which none runs for long.
fn has_pods(layout: &Layout) -> bool {
    let visible = |name: &std::ffi::OsStr| !name.to_string_lossy().starts_with('.');
    let entries = std::fs::read_dir(layout.static_pods()).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| visible(&name))
}
