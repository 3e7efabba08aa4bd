//! What this machine and this user have for a rig. Nothing is assumed: some have cgroup v1, some v2; some lack a capability.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) cgroups: Cgroups,
    /// Without the right to, runc fails on every pod unless containerd is told not to try.
    pub(super) may_lower_oom_score: bool,
}

/// The version of the cgroup file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cgroups {
    /// One tree for each controller (or a few). There may be one of version 2 without controllers beside them, in which
    /// runc makes its groups as well.
    V1 {
        /// Their roots.
        trees: Vec<PathBuf>,
    },
    /// One tree for all.
    V2 {
        /// Its root.
        tree: PathBuf,
    },
}

/// The programs a rig is made with, and the packages they are in.
const PROGRAMS: [(&str, &str); 4] = [
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
];

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;

impl Machine {
    pub(super) fn inspect() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let capabilities = Capabilities::parse(&status).context("/proc/self/status does not say the capabilities")?;
        for (number, name) in [(CAP_SYS_ADMIN, "CAP_SYS_ADMIN"), (CAP_NET_ADMIN, "CAP_NET_ADMIN")] {
            ensure!(
                capabilities.holds(number),
                "real nodes need their own namespaces, and this user lacks {name}: run the test as root, outside of a restricted container"
            );
        }
        for (program, package) in PROGRAMS {
            ensure!(
                is_in_path(program),
                "real nodes need the program `{program}`: install the package {package}"
            );
        }
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
        Ok(Self {
            cgroups: Cgroups::parse(&mounts)?,
            may_lower_oom_score: capabilities.holds(CAP_SYS_RESOURCE),
        })
    }
}

impl Cgroups {
    /// The folders of a group, one in each tree.
    pub(super) fn folders(&self, name: &str) -> Vec<PathBuf> {
        match self {
            Self::V1 { trees } => trees.iter().map(|tree| tree.join(name)).collect(),
            Self::V2 { tree } => vec![tree.join(name)],
        }
    }

    fn parse(mounts: &str) -> Result<Self> {
        let mounted = |kind: &str| -> Vec<PathBuf> {
            let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            fields
                .filter_map(|fields| match fields.as_slice() {
                    [_, path, found, ..] if *found == kind => Some(PathBuf::from(path)),
                    _ => None,
                })
                .collect()
        };
        if let Some(tree) = mounted("cgroup2")
            .into_iter()
            .find(|path| path == Path::new("/sys/fs/cgroup"))
        {
            return Ok(Self::V2 { tree });
        }
        let mut trees = mounted("cgroup");
        if trees.is_empty() {
            bail!("real nodes need cgroups, and no cgroup file system is mounted below /sys/fs/cgroup");
        }
        trees.extend(mounted("cgroup2"));
        Ok(Self::V1 { trees })
    }
}

struct Capabilities(u64);

impl Capabilities {
    fn parse(status: &str) -> Option<Self> {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok().map(Self)
    }

    fn holds(&self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_version_is_told_from_the_mounts() {
        let v2 = "sysfs /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(
            Cgroups::parse(v2).unwrap(),
            Cgroups::V2 {
                tree: "/sys/fs/cgroup".into()
            }
        );
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let trees = ["cpu", "memory", "unified"].map(|name| Path::new("/sys/fs/cgroup").join(name));
        let trees = trees.to_vec();
        assert_eq!(Cgroups::parse(hybrid).unwrap(), Cgroups::V1 { trees });
        assert!(Cgroups::parse("sysfs /sys sysfs rw 0 0\n").is_err());
    }

    #[test]
    fn capabilities_are_bits() {
        let capabilities = Capabilities::parse("Name:\tx\nCapEff:\t000001fffeffffff\n").unwrap();
        assert!(capabilities.holds(CAP_SYS_ADMIN) && capabilities.holds(CAP_NET_ADMIN));
        assert!(!capabilities.holds(CAP_SYS_RESOURCE));
        assert!(Capabilities::parse("CapEff:\tnone\n").is_none());
    }
}
