//! Stop, start and restart, by files; and the waits.
//!
//! What the kubelet makes of them, from its source (`pkg/kubelet/pod_workers.go`, 1.37) and as measured: a changed
//! manifest is another pod of the same name, which may start once the old one is done; when it comes earlier it is looked
//! at again only after 10 to 15 s. And a manifest that comes back unchanged is the same pod, which waits for the kubelet's
//! housekeeping. So the fast way is: take the manifest away, wait until the old pod is done, write one that differs. The
//! last thing the kubelet's worker does for a pod is the removal of its cgroup, and that can be seen without an API server.
//! But every 2 s the housekeeping clears away what is left of pods, folder first and cgroup last, and may be faster than
//! the worker, which looks after the volumes three times a second only: seen to cost 14 s in one restart of a few. So a pod
//! whose folder went with its cgroup is given the time of two such looks, and a new pod that the kubelet does not take up
//! is made another one, which the kubelet turns to at once.
//!
//! Where the manifest need not change, as when only the files that it names did, none of this is waited for: the process is
//! ended, and the kubelet starts the container of the same pod again (`in_place`). It asks no API server for that, and so it
//! is the only way for etcd, without which none answers: a kubelet that finds another pod asks for the old one's mirror to
//! be deleted, seen to take 73 s; and one that has not heard of an API server since its own start deletes no pod at all.
//!
//! Every moment in between is safe to be killed in: a missing manifest is written again from the node's state by
//! [`StaticPods::start`] and [`StaticPods::write_all`].

mod in_place;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::net::TcpStream;

use super::super::atomic_file::{self, Access};
use super::super::clock;
use super::super::node_state;
use super::folder::names_in;
use super::processes::{PodCgroup, Process, is_static_uid};
use super::{Component, Error, StaticPods, manifest};

/// A moment, in the unit in which the kernel says when a process started. Taken before a manifest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Clock ticks since boot.
    ticks: u64,
}

impl Mark {
    /// The present moment.
    #[must_use]
    pub fn take() -> Self {
        let since_boot = clock::since_boot();
        let ticks = since_boot.as_millis() * u128::from(TICKS_PER_SECOND) / 1000;
        Self {
            ticks: u64::try_from(ticks).unwrap_or(u64::MAX),
        }
    }

    /// A moment known by its ticks since boot.
    #[must_use]
    pub const fn at(ticks: u64) -> Self {
        Self { ticks }
    }

    /// Its ticks since boot, to be written down.
    #[must_use]
    pub const fn ticks(self) -> u64 {
        self.ticks
    }
}

/// The kernel's `USER_HZ`, the same on every architecture Kubernetes is built for.
const TICKS_PER_SECOND: u64 = 100;

/// How often is looked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    /// Between two looks.
    pub(super) interval: Duration,
    /// How long nothing must be seen of a pod of which nothing was seen at all: its manifest may have been written a moment
    /// ago, and the kubelet be about to start it.
    pub(super) unseen: Duration,
    /// How long the kubelet's worker may still be busy with a pod that the housekeeping has cleared away.
    pub(super) cleared: Duration,
    /// How long the kubelet may take to take up a pod; see [`StaticPods::hasten`].
    pub(super) taken_up: Duration,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(50),
            unseen: Duration::from_secs(2),
            cleared: Duration::from_millis(600),
            taken_up: Duration::from_secs(1),
        }
    }
}

impl StaticPods {
    /// Whether a component answers on its loopback port. One that has no listener never does.
    pub async fn active(&self, component: Component) -> bool {
        let Some(port) = self.port(component) else {
            return false;
        };
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let connection = TcpStream::connect((address, port));
            if let Ok(Ok(_)) = tokio::time::timeout(CONNECT_LIMIT, connection).await {
                return true;
            }
        }
        false
    }

    /// Whether a process of the component is there, also one that has closed its listener and has not ended yet.
    ///
    /// # Errors
    /// When the process table cannot be read, which says nothing about the component.
    pub fn running(&self, component: Component) -> Result<bool, Error> {
        Ok(!self.pids(component)?.is_empty())
    }

    /// The processes of the component's static pod, by id. A program of the same name anywhere else is none.
    ///
    /// # Errors
    /// As [`StaticPods::running`].
    pub fn pids(&self, component: Component) -> Result<Vec<u32>, Error> {
        let processes = self.kernel.static_pod_processes()?;
        Ok(pids_of(component, &processes))
    }

    /// When a process started, in clock ticks since boot; `None` when it is gone.
    ///
    /// # Errors
    /// As [`StaticPods::running`].
    pub fn start_ticks(&self, pid: u32) -> Result<Option<u64>, Error> {
        self.kernel.start_ticks(pid)
    }

    /// Takes the manifest away and waits until the component's processes are gone and the kubelet is done with their pod.
    /// From then on its data may be moved, and a start is not held up.
    ///
    /// # Errors
    /// [`Error::StillRunning`] or [`Error::PodRemains`] after `timeout`; the manifest stays away then. Nothing is changed when the process table
    /// cannot be read.
    pub async fn stop(&self, component: Component, timeout: Duration) -> Result<(), Error> {
        let deadline = clock::monotonic() + timeout;
        let mut watched = self.look(component, &BTreeSet::new())?;
        let removed = atomic_file::remove(&self.path(component))?;
        let mut seen = watched.uids();
        let mut done_at: Option<Instant> = None;
        loop {
            watched = self.look(component, &watched.pods)?;
            let now = clock::monotonic();
            if watched.is_there() {
                seen.extend(watched.uids());
                done_at = None;
            } else if now >= *done_at.get_or_insert_with(|| now + self.rest(&seen, removed)) {
                return Ok(());
            }
            if now >= deadline {
                return Err(watched.left(component, timeout));
            }
            clock::sleep(self.pacing.interval).await;
        }
    }

    /// How long nothing more must be seen of a component of which these pods were seen.
    fn rest(&self, seen: &BTreeSet<String>, removed: bool) -> Duration {
        let is_cleared = |uid: &String| !self.pod_folders().join(uid).exists();
        match (seen.is_empty(), removed) {
            (false, _) if seen.iter().any(is_cleared) => self.pacing.cleared,
            // The cgroup goes a moment before the kubelet's books are closed: one more look.
            (false, _) => self.pacing.interval,
            (true, true) => self.pacing.unseen,
            (true, false) => Duration::ZERO,
        }
    }

    /// Writes the component's manifest from the persisted node state. One that is there already keeps its restart
    /// annotation, so that an equal one is left alone; one that was away gets a new one, for the kubelet starts a pod it
    /// has not known before at once. Says whether it wrote.
    ///
    /// # Errors
    /// When the node state cannot be read or has no such component, or the manifest cannot be written.
    pub fn start(&self, component: Component) -> Result<bool, Error> {
        let restarted_at = if self.path(component).exists() {
            self.restarted_at(component)
        } else {
            Some(stamp())
        };
        let text = self.render_persisted(component, restarted_at)?;
        let written = self.put(component, text.as_bytes())?;
        atomic_file::remove(&self.pending(component))?;
        Ok(written)
    }

    /// Restarts the component as the persisted node state has it. Where the manifest says that already, only its processes
    /// are ended; else its pod is replaced by another one: stopped, started with a new restart annotation, and seen taken up
    /// by the kubelet. It is started even when it did not stop in time.
    ///
    /// # Errors
    /// As [`StaticPods::stop`] and [`StaticPods::start`], and [`Error::NotEnding`]; nothing is stopped when it could not be
    /// started.
    pub async fn restart(&self, component: Component, timeout: Duration) -> Result<(), Error> {
        let wanted = self.render_persisted(component, self.restarted_at(component))?;
        if self.read_text(component).is_ok_and(|present| present == wanted) {
            return self.end(component, &wanted, timeout).await;
        }
        let render = |stamp| self.render_persisted(component, Some(stamp));
        self.replace(component, render, timeout).await
    }

    /// Restarts the component from the manifest as it is on disk: for those of an older binary, in which rendering would put
    /// the images of this one. After an interrupted [`StaticPods::restart`] it goes on with the manifest that was to be put
    /// in place.
    ///
    /// # Errors
    /// [`Error::NoManifest`] for a component without one; otherwise as [`StaticPods::restart`].
    pub async fn restart_as_is(&self, component: Component, timeout: Duration) -> Result<(), Error> {
        match self.read_text(component) {
            Ok(present) => self.end(component, &present, timeout).await,
            Err(Error::NoManifest { path }) => {
                let pending = std::fs::read_to_string(self.pending(component));
                let text = pending.map_err(|_| Error::NoManifest { path })?;
                let bump =
                    |stamp: String| manifest::bump(&text, &stamp).map_err(|reason| self.malformed(component, reason));
                self.replace(component, bump, timeout).await
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the component answers.
    ///
    /// # Errors
    /// [`Error::NotActive`] after `timeout`, and at once [`Error::NoListener`] for one that never answers.
    pub async fn wait_active(&self, component: Component, timeout: Duration) -> Result<(), Error> {
        let port = self.port(component).ok_or(Error::NoListener { component })?;
        let deadline = clock::monotonic() + timeout;
        while !self.active(component).await {
            if clock::monotonic() >= deadline {
                let limit = timeout;
                return Err(Error::NotActive { component, port, limit });
            }
            clock::sleep(self.pacing.interval).await;
        }
        Ok(())
    }

    /// Waits until no process of the component is older than `mark`: until the kubelet has taken down whatever ran before a
    /// manifest that was written after it. Only then is an answer one of the new process. A process of the mark's own tick
    /// counts as older: no kubelet starts a pod that fast. Where none runs at all, there is none to wait for.
    ///
    /// # Errors
    /// [`Error::NotReplaced`] after `timeout`, and when the process table cannot be read.
    pub async fn wait_replaced(&self, component: Component, mark: Mark, timeout: Duration) -> Result<(), Error> {
        let deadline = clock::monotonic() + timeout;
        loop {
            let older: Vec<u32> = self.older(component, mark)?.into_keys().collect();
            if older.is_empty() {
                return Ok(());
            }
            if clock::monotonic() >= deadline {
                return Err(Error::NotReplaced {
                    component,
                    limit: timeout,
                    pids: older,
                });
            }
            clock::sleep(self.pacing.interval).await;
        }
    }

    /// Stops the component, and starts what `make` makes of a value of the restart annotation. The new manifest is on disk,
    /// hidden, before the old one goes, so that no interruption loses it.
    async fn replace(&self, component: Component, make: impl Make, timeout: Duration) -> Result<(), Error> {
        let text = make(stamp())?;
        atomic_file::create_folder(&self.folder(), Access::Secret)?;
        atomic_file::write(&self.pending(component), text.as_bytes(), Access::Secret)?;
        let stopped = self.stop(component, timeout).await;
        // What cannot be looked at is no reason to leave it without a manifest.
        let known = self.static_uids();
        self.put(component, text.as_bytes())?;
        atomic_file::remove(&self.pending(component))?;
        stopped?;
        self.hasten(component, make, &known?).await
    }

    /// Waits until the kubelet has taken up a pod other than those `known`. The first thing it does is to make the pod's
    /// folder. A pod that it found before it was done with the last one it looks at again only 10 to 15 s later, but not at
    /// one that it has not heard of: such a one is put in its place, a few times. A kubelet that takes none up, since it
    /// does not run, finds the last one.
    async fn hasten(&self, component: Component, make: impl Make, known: &BTreeSet<String>) -> Result<(), Error> {
        let mut patience = self.pacing.taken_up;
        for attempt in 1..=ATTEMPTS {
            let deadline = clock::monotonic() + patience;
            while clock::monotonic() < deadline {
                if self.static_uids()?.difference(known).next().is_some() {
                    return Ok(());
                }
                clock::sleep(self.pacing.interval).await;
            }
            if attempt < ATTEMPTS {
                self.put(component, make(stamp())?.as_bytes())?;
                patience *= 2;
            }
        }
        Ok(())
    }

    fn render_persisted(&self, component: Component, restarted_at: Option<String>) -> Result<String, Error> {
        let state = node_state::load(&self.layout.node_state()).map_err(Error::NodeState)?;
        self.render(component, &state, restarted_at)
    }

    fn port(&self, component: Component) -> Option<u16> {
        self.ports.get(&component).copied().or_else(|| component.listener())
    }

    /// The component's processes, and its pods as far as they show: those of its processes, those that have a container of
    /// its name in the kubelet's folder (a crashed one has no process, and its sandbox has), and those `known` before.
    fn look(&self, component: Component, known: &BTreeSet<PodCgroup>) -> Result<Watched, Error> {
        let processes = self.kernel.static_pod_processes()?;
        let pids = pids_of(component, &processes);
        let uids = self.uids(component)?;
        let mut pods = known.clone();
        let own = |process: &&Process| pids.contains(&process.pid) || uids.contains(&process.pod.uid);
        pods.extend(processes.iter().filter(own).map(|process| process.pod.clone()));
        pods.retain(PodCgroup::exists);
        Ok(Watched { pids, pods })
    }

    fn uids(&self, component: Component) -> Result<BTreeSet<String>, Error> {
        let folder = self.pod_folders();
        let has_container = |uid: &String| folder.join(uid).join("containers").join(component.name()).exists();
        Ok(self.static_uids()?.into_iter().filter(has_container).collect())
    }

    /// The static pods that have a folder.
    fn static_uids(&self) -> Result<BTreeSet<String>, Error> {
        let names = names_in(&self.pod_folders())?.into_iter();
        Ok(names.filter(|name| is_static_uid(name)).collect())
    }

    /// Where the kubelet keeps a folder for each pod.
    fn pod_folders(&self) -> PathBuf {
        self.layout.kubelet_root().join("pods")
    }
}

/// Makes a manifest with a value of the restart annotation.
trait Make: Fn(String) -> Result<String, Error> {}

impl<F: Fn(String) -> Result<String, Error>> Make for F {}

/// What is seen of a component.
struct Watched {
    pids: Vec<u32>,
    /// Cgroups that exist.
    pods: BTreeSet<PodCgroup>,
}

impl Watched {
    fn is_there(&self) -> bool {
        !self.pids.is_empty() || !self.pods.is_empty()
    }

    fn uids(&self) -> BTreeSet<String> {
        self.pods.iter().map(|pod| pod.uid.clone()).collect()
    }

    fn left(self, component: Component, limit: Duration) -> Error {
        let Self { pids, pods: _ } = self;
        if pids.is_empty() {
            Error::PodRemains { component, limit }
        } else {
            Error::StillRunning { component, limit, pids }
        }
    }
}

/// How many manifests are tried. The kubelet was seen to close its books within a second; 1 + 2 + 4 s are as many as it
/// would take by itself at least.
const ATTEMPTS: u32 = 3;

/// On loopback a connection is made or refused at once.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

fn pids_of(component: Component, processes: &[Process]) -> Vec<u32> {
    let own = processes.iter().filter(|process| process.program == component.name());
    own.map(|process| process.pid).collect()
}

/// A value of the restart annotation that was never used before.
fn stamp() -> String {
    let now: Timestamp = clock::now();
    now.to_string()
}
