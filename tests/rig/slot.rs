//! A number that is this rig's alone on this machine, and what is named after it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use stratum::host::lock::{Attempt, Lock};

use super::cgroup;
use super::machine::Machine;

/// Where the locks are: one place for the whole machine, gone after a boot like everything they stand for.
const LOCKS: &str = "/run/stratum-rig";

/// A slot. Dropping it gives it back.
pub(super) struct Slot {
    number: u8,
    _lock: Lock,
}

impl Slot {
    /// Takes the first free slot, and removes what killed rigs left in any.
    pub(super) fn take(machine: &Machine) -> Result<Self> {
        fs::create_dir_all(LOCKS).with_context(|| format!("cannot make {LOCKS}"))?;
        let mut taken = None;
        for number in 1..=250 {
            let path = Path::new(LOCKS).join(format!("{number}.lock"));
            if taken.is_some() && !path.exists() {
                // Never used, like those after it.
                break;
            }
            if let Attempt::Taken(lock) = Lock::attempt(&path, "rig")? {
                let slot = Self { number, _lock: lock };
                cgroup::remove(&machine.cgroups, &slot.cgroup())?;
                taken = taken.or(Some(slot));
            }
        }
        taken
            .with_context(|| format!("250 rigs are running on this machine: end some (the files in {LOCKS} name them)"))
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// The cgroup that all nodes' cgroups are in, without a slash.
    pub(super) fn cgroup(&self) -> String {
        format!("stratum-rig-{}", self.number)
    }

    /// This machine's link into the network of the rig.
    pub(super) fn link(&self) -> String {
        format!("stratum-rig-{}", self.number)
    }

    /// The address of node `index`.
    pub(super) fn address(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, index)
    }

    /// The default route of the nodes; it leads nowhere: nothing is ever downloaded.
    pub(super) fn gateway(&self) -> Ipv4Addr {
        self.address(254)
    }

    pub(super) fn host_address(&self) -> Ipv4Addr {
        self.address(253)
    }
}
