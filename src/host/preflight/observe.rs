//! Reads the machine below a root that tests can move.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::super::atomic_file;
use super::super::layout::Layout;
use super::{Facts, Forwarding, Process};

/// What could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct Error {
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// What other ways of installing Kubernetes leave, and what this program would have left under a node state that is gone.
const TRACES: [&str; 5] = [
    "etc/kubernetes/manifests",
    "etc/kubernetes/kubelet.conf",
    "var/lib/rancher/k3s/server",
    "var/lib/rancher/rke2/server",
    "var/lib/k0s/pki",
];

/// Reads everything [`super::judge`] wants to know. `program` is this executable.
///
/// # Errors
/// When something that every Linux has cannot be read.
pub fn observe(layout: &Layout, program: Option<&Path>) -> Result<Facts, Error> {
    let root = layout.root();
    Ok(Facts {
        user: rustix::process::geteuid().as_raw(),
        listeners: listeners(root)?,
        swaps: swaps(root)?,
        forwarding: Forwarding {
            four: switch(root, "proc/sys/net/ipv4/ip_forward")?,
            six: switch(root, "proc/sys/net/ipv6/conf/all/forwarding")?,
        },
        overlay: text(&root.join("proc/filesystems"))?
            .unwrap_or_default()
            .lines()
            .any(|line| line.split_whitespace().last() == Some("overlay")),
        cgroups: cgroups(root)?,
        addresses: addresses(root)?,
        machine_id: text(&root.join("etc/machine-id"))?.map(|id| id.trim().to_owned()),
        disk: free_space(&layout.state())?,
        program_written: program.and_then(written),
        traces: traces(layout)?,
    })
}

/// A file's text; none when it is not there.
fn text(path: &Path) -> Result<Option<String>, Error> {
    atomic_file::if_there(std::fs::read_to_string(path)).map_err(|source| Error {
        path: path.to_owned(),
        source,
    })
}

fn switch(root: &Path, file: &str) -> Result<Option<bool>, Error> {
    Ok(text(&root.join(file))?.map(|text| text.trim() == "1"))
}

fn swaps(root: &Path) -> Result<Vec<String>, Error> {
    let table = text(&root.join("proc/swaps"))?.unwrap_or_default();
    let device = |line: &str| line.split_whitespace().next().map(str::to_owned);
    // The first line names the columns.
    Ok(table.lines().skip(1).filter_map(device).collect())
}

/// Both hierarchies say what they have: version 2 in one file, version 1 in a table of the kernel.
fn cgroups(root: &Path) -> Result<Vec<String>, Error> {
    if let Some(list) = text(&root.join("sys/fs/cgroup/cgroup.controllers"))? {
        return Ok(list.split_whitespace().map(str::to_owned).collect());
    }
    let table = text(&root.join("proc/cgroups"))?.unwrap_or_default();
    let enabled = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = fields.first().filter(|name| !name.starts_with('#'))?;
        (fields.get(3) == Some(&"1")).then(|| (*name).to_owned())
    };
    Ok(table.lines().filter_map(enabled).collect())
}

/// Local addresses, as the kernel's routing tables list them.
fn addresses(root: &Path) -> Result<Vec<IpAddr>, Error> {
    let mut found: Vec<IpAddr> = Vec::new();
    let trie = text(&root.join("proc/net/fib_trie"))?.unwrap_or_default();
    let mut last: Option<IpAddr> = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(last);
        }
    }
    let table = text(&root.join("proc/net/if_inet6"))?.unwrap_or_default();
    for line in table.lines() {
        let digits = line.split_whitespace().next().unwrap_or_default();
        if let Ok(bits) = u128::from_str_radix(digits, 16) {
            found.push(IpAddr::V6(bits.into()));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Ports with a listener, from the kernel's tables of TCP sockets.
fn listeners(root: &Path) -> Result<BTreeMap<u16, Option<Process>>, Error> {
    let mut sockets = BTreeMap::new();
    for table in ["proc/net/tcp", "proc/net/tcp6"] {
        let table = text(&root.join(table))?.unwrap_or_default();
        sockets.extend(table.lines().skip(1).filter_map(listening));
    }
    let owners = if sockets.is_empty() {
        BTreeMap::new()
    } else {
        owners(root)
    };
    Ok(sockets
        .into_iter()
        .map(|(port, inode)| (port, owners.get(&inode).cloned()))
        .collect())
}

/// Port and inode of a line whose socket listens (state 0A).
fn listening(line: &str) -> Option<(u16, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, port) = fields.get(1)?.split_once(':')?;
    let listens = fields.get(3) == Some(&"0A");
    let inode = fields.get(9)?.parse().ok()?;
    listens.then_some((u16::from_str_radix(port, 16).ok()?, inode))
}

/// Who has which socket. A process that ends meanwhile, or that may not be looked into, is left out: it is only named for
/// whoever reads the message.
fn owners(root: &Path) -> BTreeMap<u64, Process> {
    let mut owners = BTreeMap::new();
    let processes = std::fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    for process in processes {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let name = || {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            name.trim().to_owned()
        };
        for descriptor in std::fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
            let inode = target
                .to_str()
                .and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                owners.entry(inode).or_insert_with(|| Process { id, name: name() });
            }
        }
    }
    owners
}

/// Free bytes where a folder is, or would be.
fn free_space(folder: &Path) -> Result<(PathBuf, u64), Error> {
    let there = folder.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(folder);
    let found = rustix::fs::statvfs(there).map_err(|errno| Error {
        path: there.to_owned(),
        source: errno.into(),
    })?;
    Ok((folder.to_owned(), found.f_bavail.saturating_mul(found.f_frsize)))
}

fn written(program: &Path) -> Option<Timestamp> {
    Timestamp::try_from(std::fs::metadata(program).ok()?.modified().ok()?).ok()
}

fn traces(layout: &Layout) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut places: Vec<PathBuf> = TRACES.iter().map(|trace| layout.root().join(trace)).collect();
    // Of an installation that was interrupted they are, and the next one goes on with them.
    if !layout.node_state().exists() && !layout.joining().exists() {
        places.push(layout.etcd_data());
        places.push(layout.pki());
    }
    for place in places {
        let is_there = match std::fs::read_dir(&place) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(source) => return Err(Error { path: place, source }),
        };
        if is_there {
            found.push(place);
        }
    }
    Ok(found)
}
