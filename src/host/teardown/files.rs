//! The files of a node: which there are, in which order they go, and which stay.
//!
//! `node.yaml` goes last, when everything else has gone: until then the next uninstall knows what it has to finish.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::super::atomic_file;
use super::super::layout::Layout;
use super::remove::{self, Outcome};
use super::report::{Error, Left, Report};
use super::{cni, places, services};

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// Links that go; what they lead to is among the rest.
    pub(super) links: Vec<PathBuf>,
    /// What goes whole, in this order.
    pub(super) goes: Vec<PathBuf>,
    /// What stays.
    pub(super) stays: Vec<Left>,
}

/// Looks for what there is.
pub(super) fn find(layout: &Layout, keep_configuration: bool) -> Files {
    let mut files = Files::default();
    shared_logs(layout, &mut files);
    addresses(layout, &mut files);
    files.goes.push(layout.kubelet_root());
    files.goes.push(layout.logs());
    files.goes.push(layout.audit_logs());
    if keep_configuration {
        stays(&mut files, places::configuration(layout), "it was to be kept");
    } else {
        files.goes.push(places::configuration(layout));
    }
    unit(layout, &mut files);
    files.goes.push(layout.state());
    files.goes.push(layout.run());
    files.goes.retain(|path| path.symlink_metadata().is_ok());
    for folder in [places::cni_configuration(layout), places::cni_programs(layout)] {
        stays(&mut files, folder, "the network plugin's, which is yours");
    }
    files
}

fn stays(files: &mut Files, path: PathBuf, why: &str) {
    if path.symlink_metadata().is_ok() {
        files.stays.push(Left {
            what: path.display().to_string(),
            why: why.to_owned(),
        });
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Logs of pods the kubelet knows, by their UIDs, and the links to them.
fn shared_logs(layout: &Layout, files: &mut Files) {
    let (pods, links) = (places::pod_logs(layout), places::container_logs(layout));
    let known = names(&layout.kubelet_root().join("pods"));
    let ours = |name: &String| name.rsplit_once('_').is_some_and(|(_, uid)| known.contains(uid));
    let folders = names(&pods);
    let (mine, others): (BTreeSet<String>, BTreeSet<String>) = folders.into_iter().partition(ours);
    let leads_to_ours = |name: &String| {
        let target = std::fs::read_link(links.join(name)).unwrap_or_default();
        let mut parts = target
            .components()
            .skip_while(|part| part.as_os_str() != "pods")
            .skip(1);
        parts
            .next()
            .is_some_and(|part| mine.iter().any(|name| part.as_os_str() == name.as_str()))
    };
    let (mine_linked, others_linked): (Vec<String>, Vec<String>) = names(&links).into_iter().partition(leads_to_ours);
    files.links.extend(mine_linked.iter().map(|name| links.join(name)));
    files.goes.extend(mine.iter().map(|name| pods.join(name)));
    let others = others.len() + others_linked.len();
    if others > 0 {
        let why = format!(
            "{others} entries in it and in {} are of pods that the kubelet does not know",
            links.display()
        );
        stays(files, pods, &why);
    }
}

/// Addresses that host-local has given to our containers, and results of their plugins.
fn addresses(layout: &Layout, files: &mut Files) {
    let state = places::cni_state(layout);
    let ours = cni::sandboxes(layout);
    let mut others = false;
    for network in names(&state.join("networks")) {
        let folder = state.join("networks").join(network);
        let mut whole = true;
        let mut mine = Vec::new();
        for name in names(&folder) {
            if name == "lock" || name.starts_with("last_reserved_ip") {
                continue;
            }
            let text = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            match text.lines().next().is_some_and(|id| ours.contains(id.trim())) {
                true => mine.push(folder.join(name)),
                false => whole = false,
            }
        }
        files.goes.extend(mine);
        match whole {
            true => files.goes.push(folder),
            false => others = true,
        }
    }
    for result in names(&state.join("results")) {
        match ours.iter().any(|id| result.contains(id.as_str())) {
            true => files.goes.push(state.join("results").join(result)),
            false => others = true,
        }
    }
    if others {
        stays(
            files,
            state,
            "it holds addresses of containers that are not this node's",
        );
    }
}

fn unit(layout: &Layout, files: &mut Files) {
    let unit = places::unit(layout);
    let wanted = places::unit_wanted(layout);
    // Without a running systemd nobody has disabled it. The unit that it leads to may have gone with an earlier try.
    if wanted.is_symlink() && (services::is_ours(&unit) || unit.symlink_metadata().is_err()) {
        files.links.push(wanted);
    }
    match services::is_ours(&unit) {
        true => files.goes.push(unit),
        false => stays(files, unit, "it is not as this program has it"),
    }
}

/// Deletes it all. `own` are folders that are file systems of their own: they are emptied. What cannot be deleted is told,
/// and the rest goes on; then `node.yaml` stays.
///
/// # Errors
/// The first thing that could not be deleted.
pub(super) fn remove(
    layout: &Layout,
    found: &Files,
    own: &BTreeSet<PathBuf>,
    report: &mut Report,
) -> Result<(), Error> {
    let Files { links, goes, stays } = found;
    let mut first = None;
    for link in links {
        let removed = atomic_file::remove(link).map_err(|error| Error::Remove {
            path: link.clone(),
            source: io::Error::other(error),
        });
        if let Err(error) = removed {
            first.get_or_insert(error);
        }
    }
    let last = [layout.node_state(), places::left_cluster(layout)];
    let mut kept = own.clone();
    kept.extend(last.iter().cloned());
    let (state, run) = (layout.state(), layout.run());
    for path in goes.iter().filter(|path| **path != run) {
        if let Err(error) = whole(path, &kept, own, report) {
            first.get_or_insert(error);
        }
    }
    // Folders that everybody shares go when nobody has anything in them.
    let cni = places::cni_state(layout);
    for folder in [
        cni.join("networks"),
        cni.join("results"),
        cni,
        places::container_logs(layout),
        places::pod_logs(layout),
        places::audit_parent(layout),
    ] {
        let _ = std::fs::remove_dir(folder);
    }
    report.left.extend(stays.iter().cloned());
    if let Some(error) = first {
        return Err(error);
    }
    for path in &last {
        let failed = |source: io::Error| Error::Remove {
            path: path.clone(),
            source,
        };
        atomic_file::remove(path).map_err(|error| failed(io::Error::other(error)))?;
    }
    whole(&state, own, own, report)?;
    whole(&run, own, own, report)
}

/// Deletes a path, and empties the file systems in it.
fn whole(path: &Path, keep: &BTreeSet<PathBuf>, own: &BTreeSet<PathBuf>, report: &mut Report) -> Result<(), Error> {
    let told = |error: Error, report: &mut Report| {
        report.left(path.display().to_string(), with_source(&error));
        error
    };
    // The innermost first: a name sorts after the names of what it is in.
    for inner in own
        .iter()
        .rev()
        .filter(|inner| inner.starts_with(path) && *inner != path)
    {
        remove::remove(inner, &inner_keep(keep, inner)).map_err(|error| told(error, report))?;
        report.left(
            inner.display().to_string(),
            "it is a file system of its own: it is empty now, and stays mounted",
        );
    }
    match remove::remove(path, keep).map_err(|error| told(error, report))? {
        Outcome::Absent => {}
        Outcome::Removed => report.removed(path.display().to_string()),
        Outcome::Emptied if own.contains(path) => {
            report.left(
                path.display().to_string(),
                "it is a file system of its own: it is empty now, and stays mounted",
            );
        }
        Outcome::Emptied => {}
    }
    Ok(())
}

fn inner_keep(keep: &BTreeSet<PathBuf>, inner: &Path) -> BTreeSet<PathBuf> {
    keep.iter().filter(|path| path.starts_with(inner)).cloned().collect()
}

fn with_source(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
