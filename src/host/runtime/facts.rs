//! What is found on the machine and decides what is rendered. It is read once, below a root that tests provide; nothing
//! here fails: what cannot be read is taken for the plainer machine.

use std::path::Path;

use super::cgroup::{self, CgroupDriver, CgroupVersion};
use super::coredns::Resolvers;

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who makes control groups.
    pub driver: CgroupDriver,
    /// Their generation.
    pub cgroup: CgroupVersion,
    /// Whether a process's OOM score may be lowered; in most containers it may not.
    pub may_lower_oom_score: bool,
    /// Whether SELinux is on, enforcing or permissive.
    pub selinux: bool,
    /// Where the node asks for names.
    pub resolvers: Resolvers,
}

impl Facts {
    /// Looks at the machine below `root`, which is `/` on a node.
    #[must_use]
    pub fn detect(root: &Path) -> Self {
        Self {
            driver: cgroup::cgroup_driver(root),
            cgroup: cgroup::cgroup_version(root),
            may_lower_oom_score: cgroup::may_lower_oom_score(root),
            selinux: selinux(root),
            resolvers: Resolvers::detect(root),
        }
    }
}

/// SELinux is on when its file system is there and a policy is loaded; until one is, every process is labelled `kernel`.
/// Permissive counts: labels set now are right on the day it is made to enforce, and wrong ones are in the audit log.
fn selinux(root: &Path) -> bool {
    let mode = std::fs::read_to_string(root.join("sys/fs/selinux/enforce"));
    let label = std::fs::read_to_string(root.join("proc/self/attr/current")).unwrap_or_default();
    let label = label.trim_end_matches(['\0', '\n']);
    mode.is_ok() && !label.is_empty() && label != "kernel"
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn selinux_is_on_with_a_policy_only() {
        let label = "system_u:system_r:unconfined_service_t:s0\0";
        let on = |files: &[(&str, &str)]| Facts::detect(machine(files).path()).selinux;
        assert!(on(&[
            ("sys/fs/selinux/enforce", "1"),
            ("proc/self/attr/current", label)
        ]));
        assert!(on(&[
            ("sys/fs/selinux/enforce", "0"),
            ("proc/self/attr/current", label)
        ]));
        assert!(!on(&[
            ("sys/fs/selinux/enforce", "0"),
            ("proc/self/attr/current", "kernel\0")
        ]));
        assert!(!on(&[("sys/fs/selinux/enforce", "1")]));
        // AppArmor's label, without SELinux.
        assert!(!on(&[("proc/self/attr/current", "unconfined\n")]));
    }

    #[test]
    fn an_empty_machine_is_the_plain_one() {
        let facts = Facts::detect(machine(&[]).path());
        let Facts {
            driver,
            cgroup,
            may_lower_oom_score,
            selinux,
            resolvers,
        } = facts;
        assert_eq!(driver, CgroupDriver::Cgroupfs);
        assert_eq!(cgroup, CgroupVersion::One);
        assert!(!may_lower_oom_score && !selinux);
        assert_eq!(resolvers, Resolvers::LoopbackOnly);
    }
}
