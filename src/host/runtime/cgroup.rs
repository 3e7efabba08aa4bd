//! Which control groups the machine has, and who manages them. Everything is read below a root, so that tests can say
//! what is found.

use std::path::Path;

/// Who makes control groups: containerd and the kubelet have to agree, or pods end up in groups the other never looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum CgroupDriver {
    /// systemd is asked; with systemd as PID 1 nobody else may write into its tree.
    Systemd,
    /// The folders below `/sys/fs/cgroup` are written directly.
    Cgroupfs,
}

/// The generation of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One tree for each controller; also the mixed form, whose controllers are in the old trees.
    One,
    /// One tree.
    Two,
}

/// The driver for both: `systemd` when systemd is PID 1, else `cgroupfs`.
///
/// PID 1's name is what counts: `/run/systemd/system`, which others look for, is also seen from a PID namespace whose
/// first process is not systemd.
#[must_use]
pub fn cgroup_driver(root: &Path) -> CgroupDriver {
    match std::fs::read_to_string(root.join("proc/1/comm")) {
        Ok(name) if name.trim_end() == "systemd" => CgroupDriver::Systemd,
        Ok(_) | Err(_) => CgroupDriver::Cgroupfs,
    }
}

/// The generation: the file with the controllers' names is at the top of the one tree only.
pub(super) fn cgroup_version(root: &Path) -> CgroupVersion {
    if root.join("sys/fs/cgroup/cgroup.controllers").exists() {
        CgroupVersion::Two
    } else {
        CgroupVersion::One
    }
}

/// Whether this process, and so what it starts, may lower a process's OOM score (`CAP_SYS_RESOURCE`). What cannot be read
/// counts as no: a runtime that is more careful than it has to be works.
pub(super) fn may_lower_oom_score(root: &Path) -> bool {
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    capabilities.is_some_and(|bits| bits >> SYS_RESOURCE & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn systemd_only_as_the_first_process() {
        for (files, expected) in [
            (&[("proc/1/comm", "systemd\n")][..], CgroupDriver::Systemd),
            (&[("proc/1/comm", "bash\n")], CgroupDriver::Cgroupfs),
            // Seen from a PID namespace of its own.
            (
                &[("proc/1/comm", "stratum\n"), ("run/systemd/system/x", "")],
                CgroupDriver::Cgroupfs,
            ),
            (&[], CgroupDriver::Cgroupfs),
        ] {
            let root = machine(files);
            assert_eq!(cgroup_driver(root.path()), expected, "{files:?}");
        }
        assert_eq!(CgroupDriver::Systemd.to_string(), "systemd");
        assert_eq!(CgroupDriver::Cgroupfs.to_string(), "cgroupfs");
    }

    #[test]
    fn the_generation_of_control_groups() {
        let two = machine(&[("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")]);
        assert_eq!(cgroup_version(two.path()), CgroupVersion::Two);
        // The mixed form has its one tree a level lower, without the controllers that matter.
        let mixed = machine(&[
            ("sys/fs/cgroup/unified/cgroup.controllers", ""),
            ("sys/fs/cgroup/memory/x", ""),
        ]);
        assert_eq!(cgroup_version(mixed.path()), CgroupVersion::One);
    }

    #[test]
    fn a_missing_capability_is_seen() {
        let may = |capabilities: &str| {
            let status = format!("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\n");
            may_lower_oom_score(machine(&[("proc/self/status", &status)]).path())
        };
        assert!(may("000001ffffffffff"));
        assert!(may("0000000001000000"));
        assert!(!may("000001fffeffffff"));
        assert!(!may("garbage"));
        assert!(!may_lower_oom_score(machine(&[]).path()));
    }
}
