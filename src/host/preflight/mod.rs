//! What a machine must be like before it becomes a node. Everything is looked at before the first write, and everything
//! that is wrong is told at once: nobody wants to learn of swap after the port.
//!
//! [`observe`] reads the machine, [`judge`] is a pure function over what was read.

mod observe;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

pub use observe::{Error, observe};

use super::etcd;
use super::node_state::{API_SERVER_PORT, NodeState};
use crate::text::{MachineId, is_node_name};

/// Ports a controller's own components listen on, and which component it is.
const CONTROLLER_PORTS: [(u16, &str); 7] = [
    (API_SERVER_PORT, "kube-apiserver"),
    (etcd::CLIENT_PORT, "etcd"),
    (etcd::PEER_PORT, "etcd's peers"),
    (2381, "etcd's health"),
    (10257, "kube-controller-manager"),
    (10259, "kube-scheduler"),
    (9440, "stratum operator"),
];
/// Those of every node.
const NODE_PORTS: [(u16, &str); 2] = [(10250, "kubelet"), (10248, "kubelet's health")];
/// What images, etcd and logs need at the least.
const DISK_NEEDED: u64 = 2 * 1024 * 1024 * 1024;
/// A program that is newer than the clock by more than that says that the clock is wrong.
const CLOCK_BEHIND: SignedDuration = SignedDuration::from_hours(24);

/// What was read of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The effective user.
    pub user: u32,
    /// TCP ports somebody listens on, and who, as far as it can be told.
    pub listeners: BTreeMap<u16, Option<Process>>,
    /// Devices and files that are swapped to.
    pub swaps: Vec<String>,
    /// Whether packets are forwarded, by family; none where the family is not there.
    pub forwarding: Forwarding,
    /// Whether the kernel has the overlay filesystem.
    pub overlay: bool,
    /// Controllers of resources that the kernel offers.
    pub cgroups: Vec<String>,
    /// Addresses of this machine.
    pub addresses: Vec<IpAddr>,
    /// What `/etc/machine-id` says.
    pub machine_id: Option<String>,
    /// The folder the node will keep its state in, and what is free there, in bytes.
    pub disk: (PathBuf, u64),
    /// When this program was written to the disk.
    pub program_written: Option<Timestamp>,
    /// Traces of another installation.
    pub traces: Vec<PathBuf>,
}

/// Whether packets are forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// `net.ipv4.ip_forward`
    pub four: Option<bool>,
    /// `net.ipv6.conf.all.forwarding`
    pub six: Option<bool>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// Its program.
    pub name: String,
}

/// A reason not to make this machine a node.
#[derive(Clone, Debug, PartialEq, Eq, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(Check),
    derive(strum::IntoStaticStr, strum::EnumString, strum::EnumIter, Hash, PartialOrd, Ord)
)]
#[strum_discriminants(
    strum(serialize_all = "kebab-case"),
    doc = "What is checked; the name `--ignore-preflight` takes."
)]
pub enum Problem {
    /// Not root.
    User(u32),
    /// Somebody listens where a component has to.
    Port {
        /// The port.
        port: u16,
        /// Who needs it.
        component: &'static str,
        /// Who has it.
        holder: Option<Process>,
    },
    /// The machine swaps, and the kubelet is not told to bear it.
    Swap(Vec<String>),
    /// Pods could not reach anything beyond this machine.
    Forwarding(&'static str),
    /// No container could have a filesystem.
    Overlay,
    /// No pod could have limits.
    Cgroups(Vec<&'static str>),
    /// No Node object can have this name.
    NodeName(String),
    /// The address is not this machine's.
    Address(IpAddr),
    /// Nothing tells this machine from another.
    MachineId(Option<String>),
    /// Too little room.
    Disk {
        /// The folder.
        folder: PathBuf,
        /// Free bytes.
        free: u64,
    },
    /// The clock is behind the program.
    Clock {
        /// What the clock says.
        now: Timestamp,
        /// When the program was written.
        program: Timestamp,
    },
    /// Another installation was here.
    Traces(Vec<PathBuf>),
}

/// Everything that is wrong, in the order somebody would mend it. `tolerates_swap` is what the kubelet's configuration will
/// say.
#[must_use]
pub fn judge(facts: &Facts, state: &NodeState, tolerates_swap: bool, now: Timestamp) -> Vec<Problem> {
    let mut found = Vec::new();
    if facts.user != 0 {
        found.push(Problem::User(facts.user));
    }
    if !may_register(&state.node_name) {
        found.push(Problem::NodeName(state.node_name.clone()));
    }
    let foreign = |address: &&IpAddr| !facts.addresses.contains(address);
    found.extend(
        state
            .addresses
            .iter()
            .filter(foreign)
            .map(|address| Problem::Address(*address)),
    );
    if let Some(program) = facts.program_written
        && now < program - CLOCK_BEHIND
    {
        found.push(Problem::Clock { now, program });
    }
    let id = facts.machine_id.as_deref().map(str::parse::<MachineId>);
    if !matches!(id, Some(Ok(_))) {
        found.push(Problem::MachineId(facts.machine_id.clone()));
    }
    if !facts.traces.is_empty() {
        found.push(Problem::Traces(facts.traces.clone()));
    }
    found.extend(ports(facts, state));
    if !facts.swaps.is_empty() && !tolerates_swap {
        found.push(Problem::Swap(facts.swaps.clone()));
    }
    found.extend(forwarding(facts, state));
    if !facts.overlay {
        found.push(Problem::Overlay);
    }
    let missing: Vec<&'static str> = ["cpu", "cpuset", "memory", "pids"]
        .into_iter()
        .filter(|wanted| !facts.cgroups.iter().any(|found| found == wanted))
        .collect();
    if !missing.is_empty() {
        found.push(Problem::Cgroups(missing));
    }
    let (folder, free) = &facts.disk;
    if *free < DISK_NEEDED {
        found.push(Problem::Disk {
            folder: folder.clone(),
            free: *free,
        });
    }
    found
}

fn ports(facts: &Facts, state: &NodeState) -> Vec<Problem> {
    let controllers = if state.is_controller() {
        &CONTROLLER_PORTS[..]
    } else {
        &[]
    };
    let taken = |(port, component): &(u16, &'static str)| {
        let holder = facts.listeners.get(port)?.clone();
        Some(Problem::Port {
            port: *port,
            component,
            holder,
        })
    };
    controllers.iter().chain(&NODE_PORTS).filter_map(taken).collect()
}

fn forwarding(facts: &Facts, state: &NodeState) -> Vec<Problem> {
    let of = |family: fn(&IpAddr) -> bool| state.addresses.iter().any(family);
    let off = [
        (of(IpAddr::is_ipv4), facts.forwarding.four, "net.ipv4.ip_forward"),
        (
            of(IpAddr::is_ipv6),
            facts.forwarding.six,
            "net.ipv6.conf.all.forwarding",
        ),
    ];
    let wrong = off.into_iter().filter(|(used, on, _)| *used && *on != Some(true));
    wrong.map(|(_, _, key)| Problem::Forwarding(key)).collect()
}

/// Short enough for the label it becomes, too: `kubernetes.io/hostname` is a label value, and those have at most 63
/// characters.
fn may_register(name: &str) -> bool {
    name.len() <= 63 && is_node_name(name)
}

impl fmt::Display for Problem {
    /// What is wrong and what to do, on one line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(formatter, "this is user {user}: run it as root"),
            Self::Port {
                port,
                component,
                holder,
            } => {
                write!(formatter, "port {port}, which {component} needs, is in use")?;
                match holder {
                    Some(Process { id, name }) => write!(formatter, " by {name} (process {id}): stop it"),
                    None => write!(formatter, ": find out by whom (ss -tlnp) and stop it"),
                }
            }
            Self::Swap(devices) => write!(
                formatter,
                "the machine swaps to {}: swapoff -a, and remove it from /etc/fstab; or set kubelet.failSwapOn: false in \
                 /etc/stratum/config.yaml",
                devices.join(", ")
            ),
            Self::Forwarding(key) => write!(
                formatter,
                "{key} is not 1, so pods reach nothing beyond this machine: sysctl -w {key}=1, and put it into /etc/sysctl.d"
            ),
            Self::Overlay => write!(
                formatter,
                "the kernel has no overlay filesystem: modprobe overlay, and put it into /etc/modules-load.d"
            ),
            Self::Cgroups(missing) => write!(
                formatter,
                "the kernel offers no cgroup controller {}: enable it on the kernel's command line (cgroup_enable=...)",
                missing.join(", ")
            ),
            Self::NodeName(name) => write!(
                formatter,
                "{name:?} cannot be a node's name: lower-case letters, digits, '-' and '.', at most 63; choose one with --node-name"
            ),
            Self::Address(address) => write!(
                formatter,
                "no interface of this machine has {address}: choose one with --node-ip"
            ),
            Self::MachineId(None) => write!(
                formatter,
                "/etc/machine-id is missing: systemd-machine-id-setup makes one"
            ),
            Self::MachineId(Some(text)) => write!(
                formatter,
                "/etc/machine-id holds {text:?}, which is no machine id: remove it and run systemd-machine-id-setup"
            ),
            Self::Disk { folder, free } => write!(
                formatter,
                "{} has {} MiB free, and a node needs {} MiB at the least",
                folder.display(),
                free / (1024 * 1024),
                DISK_NEEDED / (1024 * 1024)
            ),
            Self::Clock { now, program } => write!(
                formatter,
                "the clock says {now}, but this program was written at {program}: certificates made now would be of no use; \
                 set the clock"
            ),
            Self::Traces(paths) => {
                let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                write!(
                    formatter,
                    "another installation has left {}: uninstall it first, or remove what is not needed",
                    paths.join(", ")
                )
            }
        }
    }
}
