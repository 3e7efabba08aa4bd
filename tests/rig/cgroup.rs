//! The cgroups of the nodes: one for each, in every tree there is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::machine::Cgroups;

/// How often a cgroup whose processes are just ending is tried again, every [`PAUSE`].
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(50);

/// Makes `name`, a path of one or more parts, in every tree.
pub(super) fn create(cgroups: &Cgroups, name: &str) -> Result<()> {
    match cgroups {
        Cgroups::V1 { trees } => trees.iter().try_for_each(|tree| create_v1(tree, Path::new(name))),
        Cgroups::V2 { tree } => create_v2(tree, Path::new(name)),
    }
}

/// A new group of the tree `cpuset` has neither processors nor memory, and takes no process.
fn create_v1(tree: &Path, name: &Path) -> Result<()> {
    let mut folder = tree.to_owned();
    for part in name {
        let parent = folder.clone();
        folder.push(part);
        make(&folder)?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = fs::read_to_string(parent.join(file)) {
                write(&folder.join(file), &value)?;
            }
        }
    }
    Ok(())
}

/// A group hands on only the controllers that are switched on for its children.
fn create_v2(tree: &Path, name: &Path) -> Result<()> {
    let mut folder = tree.to_owned();
    for part in name {
        let controllers = fs::read_to_string(folder.join("cgroup.controllers"))?;
        let wanted: Vec<String> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
        write(&folder.join("cgroup.subtree_control"), &wanted.join(" "))?;
        folder.push(part);
        make(&folder)?;
    }
    let controllers = fs::read_to_string(folder.join("cgroup.controllers"))?;
    let wanted: Vec<String> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
    write(&folder.join("cgroup.subtree_control"), &wanted.join(" "))
}

/// Removes `name` and everything below it from every tree. Its processes have been killed before.
pub(super) fn remove(cgroups: &Cgroups, name: &str) -> Result<()> {
    for folder in cgroups.folders(name) {
        remove_tree(&folder).with_context(|| format!("cannot remove the cgroup {}", folder.display()))?;
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    for child in folders(folder)? {
        remove_tree(&child)?;
    }
    let mut attempt = 0;
    loop {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if attempt < ATTEMPTS && error.kind() == io::ErrorKind::ResourceBusy => {
                attempt += 1;
                thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn make(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make the cgroup {}", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Into a file of the kernel's, which has to be written in place.
fn write(file: &Path, value: &str) -> Result<()> {
    let written = fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut open| io::Write::write_all(&mut open, value.as_bytes()));
    written.with_context(|| format!("cannot write {value:?} to {}", file.display()))
}
