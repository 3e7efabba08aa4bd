//! One node: its namespaces, its files, and how programs are run on it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stratum::host::assets::Tool;
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::{Child, Output, Program};
use stratum::host::clock;

use super::network::becomes_pause;
use super::{Shared, cgroup, succeed};

/// What a node has of its own, above what the machine has: changes go to the node's folder.
const OWN: [&str; 3] = ["/etc", "/var", "/opt"];
/// What holds file systems of containers, or a database, and so cannot itself be on an overlay.
const PLAIN: [&str; 5] = [
    "/var/lib/stratum",
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/var/log/pods",
];

/// A machine of the rig that is switched on. Dropping it pulls the plug: everything on it dies, its files stay.
pub(crate) struct Node {
    name: String,
    index: u8,
    pid: u32,
    init: Option<Child>,
    pub(super) shared: Arc<Shared>,
}

/// A node that is switched off. Its files are still there.
#[derive(Clone, Debug)]
pub(crate) struct Off {
    pub(super) name: String,
    pub(super) index: u8,
}

impl Node {
    pub(super) async fn boot(shared: Arc<Shared>, name: &str, index: u8) -> Result<Self> {
        let logs = shared.logs().join(name);
        fs::create_dir_all(&logs)?;
        let group = group(&shared, name);
        cgroup::create(&shared.machine.cgroups, &group)?;
        let program = shared.command("unshare").arguments([
            "--net".as_ref(),
            "--mount".as_ref(),
            "--propagation=private".as_ref(),
            "--uts".as_ref(),
            "--ipc".as_ref(),
            "--pid".as_ref(),
            "--fork".as_ref(),
            "--kill-child".as_ref(),
            "--mount-proc".as_ref(),
            "--".as_ref(),
            shared.program(Tool::Pause)?.as_os_str(),
        ]);
        let init = program.start(&Output::Log(logs.join("init.log")))?;
        let pid = child_of(init.id()).await?;
        let node = Self {
            name: name.to_owned(),
            index,
            pid,
            init: Some(init),
            shared,
        };
        becomes_pause(pid).await?;
        node.mount_all().await?;
        node.be_somebody().await?;
        Ok(node)
    }

    /// Pulls the plug: every process on it gets SIGKILL. Returns when they are gone.
    pub(crate) fn switch_off(self) -> Off {
        Off {
            name: self.name.clone(),
            index: self.index,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.shared.slot.address(self.index)
    }

    /// A file of the node, as a path on this machine.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        Path::new("/proc")
            .join(self.pid.to_string())
            .join("root")
            .join(path.trim_start_matches('/'))
    }

    /// Writes a file of the node and the folders above it.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.path(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(atomic_file::write(&path, text.as_bytes(), Access::Public)?)
    }

    /// A program on the node. It ends with this process, and with the node.
    pub(crate) fn program(&self, path: impl AsRef<std::ffi::OsStr>) -> Program {
        let bin = self.shared.folder.join("bin");
        let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let program = self.shared.command("nsenter");
        program
            .arguments([
                "--target",
                &self.pid.to_string(),
                "--mount",
                "--uts",
                "--ipc",
                "--net",
                "--pid",
                "--",
            ])
            .arguments([path.as_ref()])
            .variable("PATH", format!("{}:{system}", bin.display()))
            .variable("HOME", "/run")
            .folder("/")
    }

    /// Runs a program on the node that has to succeed, and returns what it printed.
    pub(crate) async fn run(&self, path: &str, arguments: &[&str]) -> Result<String> {
        let program = self.program(path).arguments(arguments.iter().copied());
        let answer = succeed(&program, "").await;
        answer.with_context(|| format!("on node {}", self.name))
    }

    /// Where the output of the node's program `name` goes.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.shared.logs().join(&self.name).join(format!("{name}.log"))
    }

    /// A folder of the rig that the node sees under the same path.
    pub(crate) fn rig_folder(&self, name: &str) -> PathBuf {
        self.shared.folder.join(name)
    }

    pub(super) fn may_lower_oom_score(&self) -> bool {
        self.shared.machine.may_lower_oom_score
    }

    /// The cgroup that the kubelet has to take for the root of all, with a leading slash.
    pub(crate) fn cgroup(&self) -> String {
        format!("/{}", group(&self.shared, &self.name))
    }

    pub(super) fn index(&self) -> u8 {
        self.index
    }

    /// Its process 1, as this machine numbers it.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn gateway(&self) -> Ipv4Addr {
        self.shared.slot.gateway()
    }

    /// The range of its pods.
    pub(super) fn pod_range(&self) -> String {
        pod_range(self.index)
    }

    /// A line for `ip -batch` on this node: the way to the pods of another.
    pub(super) fn route_to(&self, other: u8) -> String {
        format!(
            "route replace {} via {}\n",
            pod_range(other),
            self.shared.slot.address(other)
        )
    }

    /// The same on the others: the way to the pods of this node.
    pub(super) fn route_here(&self) -> String {
        format!("route replace {} via {}\n", self.pod_range(), self.address())
    }

    async fn mount_all(&self) -> Result<()> {
        let folder = self.rig_folder("nodes").join(&self.name);
        self.mount(&["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"]).await?;
        for own in OWN {
            let place = |kind: &str| folder.join(kind).join(own.trim_start_matches('/'));
            let (upper, work) = (place("changes"), place("work"));
            fs::create_dir_all(&upper)?;
            fs::create_dir_all(&work)?;
            let options = format!("lowerdir={own},upperdir={},workdir={}", upper.display(), work.display());
            self.mount(&["-t", "overlay", "-o", &options, "overlay", own]).await?;
        }
        for plain in PLAIN {
            let source = folder.join("plain").join(plain.trim_start_matches('/'));
            fs::create_dir_all(&source)?;
            fs::create_dir_all(self.path(plain))?;
            self.mount(&["--bind", &source.display().to_string(), plain]).await?;
            // Volumes and file systems of containers are mounted below, and containers have to see them.
            self.mount(&["--make-rshared", plain]).await?;
        }
        Ok(())
    }

    async fn mount(&self, arguments: &[&str]) -> Result<()> {
        self.run("mount", arguments).await.map(drop)
    }

    async fn be_somebody(&self) -> Result<()> {
        self.set("/proc/sys/kernel/hostname", &self.name).await?;
        // As `up` expects to find it on a machine that was prepared for Kubernetes.
        self.set("/proc/sys/net/ipv4/ip_forward", "1").await?;
        self.write("/etc/hostname", &format!("{}\n", self.name))?;
        let hosts = format!("127.0.0.1 localhost\n{} {}\n", self.address(), self.name);
        self.write("/etc/hosts", &hosts)?;
        self.write("/etc/resolv.conf", &format!("nameserver {}\n", self.gateway()))?;
        let (slot, process) = (self.shared.slot.number(), std::process::id());
        self.write(
            "/etc/machine-id",
            &format!("{process:016x}{slot:08x}{:08x}\n", self.index),
        )
    }

    /// Writes a variable of the kernel, as a process of the node: what it means depends on who writes.
    async fn set(&self, variable: &str, value: &str) -> Result<()> {
        let program = self.program("tee").arguments([variable]);
        succeed(&program, value).await.map(drop)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Kills process 1, and the kernel everything else on the node before that one is gone.
        drop(self.init.take());
        let process = Path::new("/proc").join(self.pid.to_string());
        for _ in 0..400 {
            if !process.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(25));
        }
        // What is still busy goes when the slot is taken again.
        let _ = cgroup::remove(&self.shared.machine.cgroups, &group(&self.shared, &self.name));
    }
}

/// A node hides some folders of the machine, and what the rig keeps must not be there.
pub(super) fn refuse_hidden(folder: &Path) -> Result<()> {
    for hidden in OWN.iter().chain(&["/run"]) {
        ensure!(
            !folder.starts_with(hidden),
            "a rig cannot keep its files in {}: nodes have a {hidden} of their own; choose another CARGO_TARGET_DIR",
            folder.display()
        );
    }
    Ok(())
}

fn group(shared: &Shared, name: &str) -> String {
    format!("{}/{name}", shared.slot.cgroup())
}

fn pod_range(index: u8) -> String {
    format!("10.244.{index}.0/24")
}

/// The one child of a process, once it has one.
async fn child_of(parent: u32) -> Result<u32> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    for _ in 0..400 {
        let children = fs::read_to_string(&file).context("`unshare` ended at once: see init.log")?;
        if let Some(child) = children.split_whitespace().next() {
            return child.parse().context("the kernel's list of children");
        }
        clock::sleep(Duration::from_millis(25)).await;
    }
    bail!("`unshare` started nothing within 10 s")
}
