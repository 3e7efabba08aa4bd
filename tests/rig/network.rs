//! The network of a rig: a bridge in a namespace of its own, a link to each node, and one to this machine.
//!
//! Nodes reach one another, one another's pods, and this machine; nothing else.

use std::time::Duration;

use anyhow::{Context, Result};
use stratum::host::assets::Tool;
use stratum::host::child::{Child, Output, Program};
use stratum::host::clock;

use super::node::Node;
use super::slot::Slot;
use super::{Shared, succeed};

/// Links and bridge. The kernel removes them with the process that holds the namespace.
pub(super) struct Network {
    switch: Child,
    /// Index and process 1 of the nodes that were attached.
    attached: Vec<(u8, u32)>,
    commands: Commands,
}

/// What runs `ip`, here or in the namespace of a process.
struct Commands {
    stratum: std::path::PathBuf,
}

impl Network {
    pub(super) async fn start(shared: &Shared) -> Result<Self> {
        let program = shared.command("unshare").arguments([
            "--net".as_ref(),
            "--".as_ref(),
            shared.program(Tool::Pause)?.as_os_str(),
        ]);
        let switch = program.start(&Output::Log(shared.logs().join("switch.log")))?;
        becomes_pause(switch.id()).await?;
        let commands = Commands {
            stratum: shared.stratum.clone(),
        };
        let network = Self {
            switch,
            attached: Vec::new(),
            commands,
        };
        network.connect(&shared.slot).await?;
        Ok(network)
    }

    async fn connect(&self, slot: &Slot) -> Result<()> {
        let (link, switch) = (slot.link(), self.switch.id());
        let bridge = format!(
            "link set lo up\nlink add bridge type bridge\naddress add {}/24 dev bridge\nlink set bridge up\n",
            slot.gateway()
        );
        self.commands.ip_in(switch, &bridge).await?;
        // That of a rig that was killed a moment ago may still be there. Usually there is none.
        let _ = self.commands.ip(&format!("link delete {link}\n")).await;
        let here = format!(
            "link add {link} type veth peer name machine netns {switch}\naddress add {}/24 dev {link}\nlink set {link} up\n",
            slot.host_address()
        );
        self.commands.ip(&here).await?;
        self.commands
            .ip_in(switch, "link set machine master bridge up\n")
            .await?;
        Ok(())
    }

    /// The process that holds the namespace of the bridge.
    pub(super) fn process(&self) -> u32 {
        self.switch.id()
    }

    /// The number of the next node: 1, 2...
    pub(super) fn next_index(&self) -> Result<u8> {
        let used = self.attached.iter().map(|(index, _)| *index).max().unwrap_or(0);
        used.checked_add(1)
            .filter(|index| *index < 200)
            .context("no room for more nodes in a rig")
    }

    /// Gives a node its link `eth0`, its address, and routes to the pods of the others, and them to its pods.
    pub(super) async fn attach(&mut self, node: &Node) -> Result<()> {
        let (index, switch) = (node.index(), self.switch.id());
        let cable = format!(
            "link add node{index} netns {switch} type veth peer name eth0 netns {}\n",
            node.pid()
        );
        self.commands.ip(&cable).await?;
        self.commands
            .ip_in(switch, &format!("link set node{index} master bridge up\n"))
            .await?;
        let mut inside = format!(
            "link set lo up\naddress add {}/24 dev eth0\nlink set eth0 up\nroute add default via {}\n",
            node.address(),
            node.gateway()
        );
        self.attached.retain(|(other, _)| *other != index);
        for (other, process) in &self.attached {
            inside.push_str(&node.route_to(*other));
            // Gone if that node is down; it gets its routes when it boots again.
            let _ = self.commands.ip_in(*process, &node.route_here()).await;
        }
        self.commands.ip_in(node.pid(), &inside).await?;
        self.attached.push((index, node.pid()));
        Ok(())
    }
}

impl Commands {
    /// Lines of `ip -batch`, on this machine.
    async fn ip(&self, lines: &str) -> Result<()> {
        let program = Program::new("ip")
            .arguments(["-batch", "-"])
            .dies_with_us(&self.stratum);
        succeed(&program, lines).await.map(drop)
    }

    /// The same, in the network namespace of a process.
    async fn ip_in(&self, process: u32, lines: &str) -> Result<()> {
        let namespace = format!("--net=/proc/{process}/ns/net");
        let program = Program::new("nsenter")
            .arguments([namespace.as_str(), "--", "ip", "-batch", "-"])
            .dies_with_us(&self.stratum);
        succeed(&program, lines).await.map(drop)
    }
}

/// A process starts as `stratum`, becomes `unshare` and, when its namespaces are there, the program that waits.
pub(super) async fn becomes_pause(process: u32) -> Result<()> {
    let file = format!("/proc/{process}/comm");
    for _ in 0..400 {
        let name =
            std::fs::read_to_string(&file).context("a process that holds namespaces ended at once: see its log")?;
        if name.trim() == Tool::Pause.name() {
            return Ok(());
        }
        clock::sleep(Duration::from_millis(25)).await;
    }
    anyhow::bail!("process {process} did not get its namespaces within 10 s")
}
