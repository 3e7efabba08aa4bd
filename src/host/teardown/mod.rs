//! What a node is on its machine, and how it goes: the machine's half of `stratum uninstall`.
//!
//! Everything is found out anew at each step, and what is gone already is no failure, so that an uninstall that was
//! interrupted anywhere is finished by the next. The order is what makes it safe:
//!
//! 1. [`stop`]: `stratum up` ends, with the kubelet, and cannot start again while its lock is ours. Pods still run.
//! 2. The cluster is told, by others (`controllers::machine::uninstall`); [`let_go`] remembers that.
//! 3. [`clean`]: what runs in pods ends, then their shims; the network plugins undo what they did for them; mounts, network
//!    namespaces, links and control groups go, which nobody uses any more; then files, of which `node.yaml` is the last.
//!
//! Nothing is deleted through a mount or a link ([`remove`]), and every path that is deleted is built into this program
//! ([`places`]).

mod cgroups;
mod cni;
mod files;
mod mounts;
mod network;
mod places;
mod processes;
mod remove;
mod report;
mod services;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::atomic_file::{self, Access};
use super::layout::Layout;
use super::runtime::{self, LegacyHostConfig};
use processes::Kind;

pub use report::{Error, Left, Report};
pub use services::Stopped;
pub use tools::Tools;

/// How long what runs in pods may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// What to go by.
#[derive(Clone, Debug)]
pub struct Teardown {
    /// Where files are.
    pub layout: Layout,
    /// Programs of the machine.
    pub tools: Tools,
    /// Whether `/etc/stratum` stays.
    pub keep_configuration: bool,
}

/// What would go, as far as it is there now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The systemd unit that is stopped and disabled.
    pub unit: Option<PathBuf>,
    /// Who runs the node now, and is stopped.
    pub running: Option<String>,
    /// Processes in pods, and their shims, that are ended.
    pub processes: BTreeSet<u32>,
    /// What is unmounted, the innermost first.
    pub mounts: Vec<PathBuf>,
    /// Network namespaces of pods.
    pub network_namespaces: BTreeSet<String>,
    /// Links.
    pub links: BTreeSet<String>,
    /// Control groups of pods.
    pub control_groups: Vec<PathBuf>,
    /// Files and folders, in the order they go.
    pub files: Vec<PathBuf>,
    /// What stays.
    pub stays: Vec<Left>,
}

impl Plan {
    /// Whether nothing of a node is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self {
            unit,
            running,
            processes,
            mounts,
            network_namespaces,
            links: _,
            control_groups,
            files,
            stays: _,
        } = self;
        // A link may be another's, as long as nothing else of ours is here.
        unit.is_none()
            && running.is_none()
            && processes.is_empty()
            && mounts.is_empty()
            && network_namespaces.is_empty()
            && control_groups.is_empty()
            && files.is_empty()
    }
}

/// What [`Teardown::let_go`] remembered of a node whose uninstall did not come to its end.
#[must_use]
pub fn was_let_go(layout: &Layout) -> Option<String> {
    let text = std::fs::read_to_string(places::left_cluster(layout)).ok()?;
    Some(text.trim().to_owned())
}

/// Forgets that: this machine becomes another node.
///
/// # Errors
/// When the file cannot be removed.
pub fn forget_let_go(layout: &Layout) -> Result<(), atomic_file::Error> {
    atomic_file::remove(&places::left_cluster(layout)).map(drop)
}

impl Teardown {
    /// Looks at the machine, and changes nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn plan(&self) -> Result<Plan, Error> {
        let layout = &self.layout;
        let control_groups = cgroups::find(layout)?;
        let mounts = mounts::find(layout)?;
        let network = network::find(layout);
        let files = files::find(layout, self.keep_configuration);
        let mut stays = files.stays;
        let note = |what: String, why: &str| Left {
            what,
            why: why.to_owned(),
        };
        stays.extend(mounts.own.iter().map(|point| {
            note(
                point.display().to_string(),
                "a file system of its own: it is emptied, and stays mounted",
            )
        }));
        stays.extend(
            network
                .others
                .iter()
                .map(|link| note(format!("link {link}"), "a network plugin made it")),
        );
        let legacy = runtime::legacy_host_config(layout);
        let mut goes = files.goes;
        if legacy.present {
            // Outside of everything that is this program's, so it is told first.
            goes.insert(0, legacy.path);
        }
        let mut processes = self.pods(&control_groups);
        processes.extend(processes::find(layout, Kind::Shim));
        Ok(Plan {
            unit: services::unit(layout),
            running: services::running(layout)?,
            processes,
            mounts: mounts.detach,
            network_namespaces: network.namespaces,
            links: network.links,
            control_groups,
            files: goes,
            stays,
        })
    }

    /// Stops the services. Pods run on.
    ///
    /// # Errors
    /// When they do not stop; then nothing else was done.
    pub async fn stop(&self, report: &mut Report) -> Result<Stopped, Error> {
        services::stop(&self.layout, &self.tools, report).await
    }

    /// Starts the services again after [`Teardown::stop`], where a systemd unit does that; whether one does. The value that
    /// [`Teardown::stop`] gave, and the node's lock, have to be dropped before.
    ///
    /// # Errors
    /// When systemd refuses.
    pub async fn start(&self) -> Result<bool, Error> {
        services::start(&self.layout, &self.tools).await
    }

    /// Remembers that the cluster has let this node go, so that it is not asked again with credentials that may be gone.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn let_go(&self, words: &str) -> Result<(), atomic_file::Error> {
        let path = places::left_cluster(&self.layout);
        if !self.layout.state().is_dir() {
            return Ok(());
        }
        atomic_file::write(&path, format!("{words}\n").as_bytes(), Access::Secret)
    }

    /// What [`Teardown::let_go`] remembered.
    #[must_use]
    pub fn was_let_go(&self) -> Option<String> {
        was_let_go(&self.layout)
    }

    /// Takes away everything there is.
    ///
    /// # Errors
    /// When something cannot be taken away: processes, mounts and network before the first file is deleted.
    pub async fn clean(&self, _stopped: &Stopped, report: &mut Report) -> Result<(), Error> {
        let layout = &self.layout;
        // Whose namespaces they are is known only as long as the containers are.
        let network = network::find(layout);
        let attachments = cni::find(layout);
        let groups = cgroups::find(layout)?;
        processes::end("pods", GRACE, || self.pods(&groups), report).await?;
        processes::end("shims", Duration::ZERO, || processes::find(layout, Kind::Shim), report).await?;
        cni::detach(layout, &attachments, report).await;
        let own = mounts::detach(layout, report).await?;
        network::remove(layout, &self.tools, &network, report).await?;
        cgroups::remove(&groups, report).await;
        self.remove_legacy(report);
        let files = files::find(layout, self.keep_configuration);
        files::remove(layout, &files, &own, report)?;
        if files.goes.contains(&places::unit(layout))
            && let Some(systemctl) = &self.tools.systemctl
            && let Err(error) = tools::run("systemctl", systemctl, &["daemon-reload"]).await
        {
            report.left("systemd's memory of the unit", error.to_string());
        }
        Ok(())
    }

    /// A configuration of containerd that an older build left in the distribution's place.
    fn remove_legacy(&self, report: &mut Report) {
        let LegacyHostConfig { path, present } = runtime::legacy_host_config(&self.layout);
        if !present {
            return;
        }
        let mut told = Vec::new();
        runtime::remove_legacy_host_config(&self.layout, &mut told);
        let path = path.display().to_string();
        if runtime::legacy_host_config(&self.layout).present {
            report.left(path, String::from_utf8_lossy(&told).trim());
        } else {
            report.removed(path);
        }
    }

    /// What runs in pods: in their groups, or below a shim of ours.
    fn pods(&self, groups: &[PathBuf]) -> BTreeSet<u32> {
        let shims = processes::find(&self.layout, Kind::Shim);
        let mut pods = cgroups::processes(groups);
        pods.extend(processes::below(&self.layout, &shims));
        pods.retain(|id| !shims.contains(id));
        pods
    }
}
