//! Real nodes on one machine, for tests and by hand (`cargo run --example rig`).
//!
//! A node is a set of namespaces (mount, process, host name, IPC and network) held by a waiting process 1, with its own
//! `/etc`, `/var`, `/opt` and `/run`; everything else of the machine is shared. The network namespaces have no names
//! and the mounts are in no namespace but the node's, so the kernel takes them away with the last process, and every
//! process dies with the one that started the rig, however that one ends. Only cgroups and folders can be left over after a
//! SIGKILL. The next rig removes them: a rig owns a numbered slot by a file lock, and all names carry the number.

mod agents;
mod cgroup;
mod kubeadm;
mod machine;
mod network;
mod node;
mod ours;
mod slot;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use stratum::host::assets::{Source, Tool};
use stratum::host::child::Program;
use stratum::host::payload;

pub(crate) use agents::{Credential, Kubelet, STATIC_PODS};
pub(crate) use kubeadm::{Kubeadm, Member};
pub(crate) use node::{Node, Off};
pub(crate) use ours::{OurCluster, Ours, PAYLOAD_IMAGES, TALKER};

use tokio::sync::{Mutex, MutexGuard};

use machine::Machine;
use network::Network;
use slot::Slot;

/// What a node runs. The rest of a cluster comes in images.
const PROGRAMS: [Tool; 11] = [
    Tool::Pause,
    Tool::Containerd,
    Tool::ContainerdShimRuncV2,
    Tool::Ctr,
    Tool::Runc,
    Tool::Kubelet,
    Tool::Kubectl,
    Tool::CniBridge,
    Tool::CniHostLocal,
    Tool::CniLoopback,
    Tool::CniPortmap,
];
/// The image that holds a pod's namespaces. It prints its arguments, so it serves as a talking container as well.
pub(crate) const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10";
/// How many logs of rigs that ended badly are kept.
const KEPT: usize = 5;
/// How many rigs this process had.
static RIGS: AtomicU32 = AtomicU32::new(0);

/// Whose turn it is: a rig is a cluster's worth of processes, and two at a time would only wait for one another.
static TURN: Mutex<()> = Mutex::const_new(());

/// A network with room for nodes. Dropping it ends whatever is left of it, and removes its folder unless a test failed.
pub(crate) struct Rig {
    // Dropped in this order: the network's processes before the folder, the slot last.
    network: Network,
    shared: Arc<Shared>,
    _turn: MutexGuard<'static, ()>,
}

/// What nodes need of their rig.
struct Shared {
    machine: Machine,
    /// Below it: `bin`, `images`, `logs/NODE`, `nodes/NODE`.
    folder: PathBuf,
    /// Where programs come from.
    source: Source,
    /// A `stratum` executable, with which every process ends with ours.
    stratum: PathBuf,
    slot: Slot,
}

/// What of a rig can be seen on the machine it runs on, apart from processes of nodes.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Traces {
    /// The process that holds the network.
    pub(crate) switch: u32,
    /// The link into that network.
    pub(crate) link: String,
    /// The cgroups that all others are in.
    pub(crate) cgroups: Vec<PathBuf>,
    /// The folder with everything.
    pub(crate) folder: PathBuf,
}

impl Rig {
    /// Starts a network without nodes. Everything is kept below `parent`, and programs that are not in the cache yet are built.
    ///
    /// # Errors
    /// In one line, what this machine or this user lacks for it.
    pub(crate) async fn start(parent: &Path, stratum: &Path) -> Result<Self> {
        let turn = TURN.lock().await;
        let machine = Machine::inspect()?;
        let slot = Slot::take(&machine)?;
        sweep(parent);
        let number = RIGS.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{}-{number}", std::process::id()));
        for name in ["bin", "images", "logs", "nodes"] {
            fs::create_dir_all(folder.join(name)).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        node::refuse_hidden(&folder)?;
        let shared = Arc::new(Shared {
            machine,
            folder,
            source: Source::choose(|name| std::env::var_os(name), Some(stratum.to_owned()))?,
            stratum: stratum.to_owned(),
            slot,
        });
        for tool in PROGRAMS {
            shared.add_program(tool).await?;
        }
        let network = Network::start(&shared).await?;
        let rig = Self {
            network,
            shared,
            _turn: turn,
        };
        rig.add_image(PAUSE_IMAGE, Tool::Pause).await?;
        Ok(rig)
    }

    /// Boots a node: a machine with nothing running on it. Its name is its host name.
    ///
    /// # Errors
    /// Names the command that failed.
    pub(crate) async fn node(&mut self, name: &str) -> Result<Node> {
        let index = self.network.next_index()?;
        self.boot(name, index).await
    }

    /// Boots a node that was switched off: the same name, address and files, and nothing running.
    ///
    /// # Errors
    /// As [`Rig::node`].
    pub(crate) async fn boot_again(&mut self, off: &Off) -> Result<Node> {
        self.boot(&off.name, off.index).await
    }

    /// Removes the files of a node that was switched off for good.
    ///
    /// # Errors
    /// Names the folder.
    pub(crate) fn discard(&self, off: Off) -> Result<()> {
        let folder = self.shared.folder.join("nodes").join(off.name);
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }

    async fn boot(&mut self, name: &str, index: u8) -> Result<Node> {
        let node = Node::boot(Arc::clone(&self.shared), name, index).await?;
        self.network.attach(&node).await?;
        Ok(node)
    }

    /// The address under which nodes reach this machine, and so whatever a test runs outside of the nodes.
    pub(crate) fn host_address(&self) -> std::net::Ipv4Addr {
        self.shared.slot.host_address()
    }

    /// Makes an image of a program, for nodes whose containerd starts later; its archive, which nodes see as well.
    ///
    /// # Errors
    /// When the program cannot be built, or the image not be written.
    pub(crate) async fn add_image(&self, reference: &str, tool: Tool) -> Result<PathBuf> {
        let [program] = self.shared.source.provide([tool]).await?;
        let archive = self.shared.folder.join("images").join(format!("{tool}.tar"));
        payload::write_image(reference, &[program], &archive)?;
        Ok(archive)
    }

    /// Puts a program into the `PATH` of all nodes.
    ///
    /// # Errors
    /// When it cannot be built.
    pub(crate) async fn add_program(&self, tool: Tool) -> Result<()> {
        self.shared.add_program(tool).await
    }

    /// What of it can be seen on this machine.
    pub(crate) fn traces(&self) -> Traces {
        Traces {
            switch: self.network.process(),
            link: self.shared.slot.link(),
            cgroups: self.shared.machine.cgroups.folders(&self.shared.slot.cgroup()),
            folder: self.shared.folder.clone(),
        }
    }

    /// Where the logs of all nodes are, one folder each. Kept when a test fails.
    pub(crate) fn logs(&self) -> PathBuf {
        self.shared.logs()
    }
}

impl Shared {
    fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    async fn add_program(&self, tool: Tool) -> Result<()> {
        let [path] = self.source.provide([tool]).await?;
        let link = self.folder.join("bin").join(tool.name());
        symlink(path, &link).with_context(|| format!("cannot make {}", link.display()))
    }

    /// The file itself, not the link to it.
    fn program(&self, tool: Tool) -> Result<PathBuf> {
        let link = self.folder.join("bin").join(tool.name());
        fs::canonicalize(&link).with_context(|| format!("cannot find {}", link.display()))
    }

    /// A program that ends with us.
    fn command(&self, path: impl Into<PathBuf>) -> Program {
        Program::new(path).dies_with_us(&self.stratum)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next rig.
        let _ = cgroup::remove(&self.machine.cgroups, &self.slot.cgroup());
        let mut doomed = vec![
            self.folder.join("nodes"),
            self.folder.join("images"),
            self.folder.join("bin"),
        ];
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "the test harness shows it with the failure")]
            {
                eprintln!("the logs of the rig are kept in {}", self.logs().display());
            }
        } else {
            doomed = vec![self.folder.clone()];
        }
        for folder in doomed {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Removes what dead rigs left below `parent`, except for the last few logs.
fn sweep(parent: &Path) {
    let mut left: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.split('-').next().unwrap_or_default();
        let is_alive = Path::new("/proc").join(process).exists();
        if let (false, Ok(changed)) = (is_alive, entry.metadata().and_then(|metadata| metadata.modified())) {
            left.push((changed, entry.path()));
        }
    }
    left.sort();
    left.reverse();
    for (number, (_, folder)) in left.iter().enumerate() {
        if number >= KEPT {
            let _ = fs::remove_dir_all(folder);
        }
        for name in ["nodes", "images", "bin"] {
            let _ = fs::remove_dir_all(folder.join(name));
        }
    }
}

/// Runs a program that has to succeed, and returns what it printed.
async fn succeed(program: &Program, input: &str) -> Result<String> {
    let finished = program.run(input.as_bytes().to_vec()).await?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    if !finished.exit.is_success() {
        let arguments: Vec<String> = program
            .arguments
            .iter()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        bail!(
            "{} {} failed ({}): {} {}",
            program.path.display(),
            arguments.join(" "),
            finished.exit,
            text(finished.stderr),
            input.replace('\n', "; ")
        );
    }
    Ok(text(finished.stdout))
}
