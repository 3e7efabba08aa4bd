//! Everybody who uses a leaf is brought to the new one, one at a time, and it is shown of each that it is there.
//!
//! Who has to be restarted, and in which order, is decided in [`crate::reconcilers::certificates::moves`]. Whoever does not run
//! has nothing to move: it reads what is there when it starts. The marker says after each step who is left.

mod restart;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::restart::Restarted;
use super::error::Error;
use super::fencing::Fenced;
use crate::controllers::concern::chain;
use crate::controllers::progress::tell;
use crate::host::certificates::{Entry, KUBELET_CLIENT, Machine, Origin};
use crate::host::rotation_incomplete::Incomplete;
use crate::host::served::served;
use crate::host::static_pods::{Component, Mark, StaticPods, names_for};
use crate::host::{addresses, clock};
use crate::reconcilers::certificates::moves::{self, Consumer, Move, Proof, Reason, Situation};

/// One consumer, moved.
pub type Moved = Move;

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a listener that re-reads its files by itself. A restart follows.
    pub(super) reload: Duration,
    /// For the processes of a component to end.
    pub(super) stop: Duration,
    /// For a component to answer: what has crashed a few times is started again by a kubelet of kubeadm's only when five
    /// minutes have passed.
    pub(super) answer: Duration,
    /// For the kubelet to answer after its start.
    pub(super) kubelet: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            reload: Duration::from_secs(30),
            stop: Duration::from_secs(150),
            answer: Duration::from_secs(360),
            kubelet: Duration::from_secs(60),
        }
    }
}

/// Between two looks.
const PACE: Duration = Duration::from_millis(200);
/// For one handshake.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// Where every kubelet says that it is well, unless it is told otherwise, which nobody can on this program's nodes.
pub(super) const KUBELET_HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10248);

/// Brings consumers to the leaves that are on the disk.
pub(super) struct Mover<'a> {
    pub(super) machine: &'a Machine,
    pub(super) pods: StaticPods,
    pub(super) entries: Vec<Entry>,
    /// The moment after the last write; whoever is younger has moved.
    pub(super) mark: Mark,
    pub(super) marker: Incomplete,
    pub(super) fenced: &'a Fenced,
    pub(super) stop: &'a CancellationToken,
    pub(super) kube_vip_required: bool,
    pub(super) patience: Patience,
    /// Where the kubelet says that it is well.
    pub(super) kubelet_health: SocketAddr,
    /// Whether it did.
    pub(super) kubelet_runs: bool,
    /// What only a person can do.
    pub(super) by_hand: Vec<String>,
    /// What went wrong and is no failure.
    pub(super) warnings: Vec<String>,
}

impl Mover<'_> {
    /// Moves everybody. `waiting` are those an earlier run has left.
    ///
    /// # Errors
    /// At the first who does not move; the marker says who is left.
    pub(super) async fn run(
        &mut self,
        expired: &BTreeSet<String>,
        waiting: Option<BTreeSet<Consumer>>,
        progress: &mut (dyn Write + Send),
    ) -> Result<Vec<Moved>, Error> {
        let mut done = Vec::new();
        done.extend(self.kubelet(progress).await?);
        let own = |name: &&String| name.as_str() != KUBELET_CLIENT;
        let situation = Situation {
            leaves: self.marker.leaves.iter().filter(own).cloned().collect(),
            here: here(self.machine, &self.pods),
            down: self.down().await?,
            expired: expired.iter().filter(own).cloned().collect(),
            waiting,
        };
        let plan = moves::plan(&situation);
        self.marker.waiting = Some(plan.iter().map(|one| one.consumer.to_string()).collect());
        self.marker.save(&self.machine.layout)?;
        for one in plan {
            if self.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            self.fenced.check()?;
            let consumer = one.consumer;
            let moved = self.one(one, progress).await?;
            tell(progress, format_args!("{}", told(&moved)));
            done.push(moved);
            if let Some(waiting) = &mut self.marker.waiting {
                waiting.remove(&consumer.to_string());
            }
            self.marker.save(&self.machine.layout)?;
        }
        Ok(done)
    }

    async fn one(&mut self, one: Move, progress: &mut (dyn Write + Send)) -> Result<Moved, Error> {
        let Move {
            consumer,
            restart,
            proofs,
        } = one;
        let mut moved = Move {
            consumer,
            restart: None,
            proofs: BTreeMap::new(),
        };
        let mut runs = self.runs(consumer)?;
        if let Some(reason) = restart {
            tell(progress, format_args!("{consumer}: restarting, {reason}"));
            match self.restart(consumer, reason).await {
                Ok(Restarted::Yes) => moved.restart = Some(reason),
                Ok(Restarted::Younger) => {}
                Ok(Restarted::NotRunning) => runs = false,
                Err(error) if consumer == Consumer::KubeVip && !self.kube_vip_required => {
                    let warning = chain(&error);
                    tell(progress, format_args!("warning: {warning}"));
                    self.warnings.push(warning);
                    return Ok(moved);
                }
                Err(error) => return Err(error),
            }
        }
        for (leaf, proof) in proofs {
            let proof = match proof {
                _ if !runs => Proof::NotRunning,
                Proof::Serves => {
                    self.serves(&leaf, &mut moved, progress).await?;
                    Proof::Serves
                }
                other => other,
            };
            moved.proofs.insert(leaf, proof);
        }
        Ok(moved)
    }

    /// Each listener of a leaf shows what is in its file.
    async fn serves(&mut self, leaf: &str, moved: &mut Moved, progress: &mut (dyn Write + Send)) -> Result<(), Error> {
        let consumer = moved.consumer;
        if self.shown(consumer, leaf, self.patience.reload).await.is_ok() {
            return Ok(());
        }
        if moved.restart.is_none() {
            let reason = Reason::DidNotReload;
            tell(progress, format_args!("{consumer}: restarting, {reason}"));
            self.restart(consumer, reason).await?;
            moved.restart = Some(reason);
        }
        self.shown(consumer, leaf, self.patience.answer).await
    }

    async fn shown(&self, consumer: Consumer, leaf: &str, limit: Duration) -> Result<(), Error> {
        let Some(entry) = self.entries.iter().find(|entry| entry.name == leaf) else {
            return Ok(());
        };
        let still = |listener: &SocketAddr, reason: String| Error::StillOld {
            consumer,
            listener: listener.to_string(),
            leaf: leaf.to_owned(),
            reason,
        };
        let deadline = clock::monotonic() + limit;
        // Whoever answers at an address that this machine has no longer is somebody else.
        let own = entry
            .listeners
            .iter()
            .filter(|listener| addresses::is_own(listener.ip()));
        for listener in own {
            loop {
                let reason = match (entry.look(), served(*listener, None, HANDSHAKE).await) {
                    (Ok(Some(file)), Ok(shown)) => match shown.first() {
                        Some(shown) if shown.der() == file.certificate.der() => break,
                        Some(_) => "it shows another certificate".to_owned(),
                        None => "it shows none".to_owned(),
                    },
                    (Ok(None), _) => "its file is gone".to_owned(),
                    (Err(error), _) => chain(&error),
                    (_, Err(error)) => chain(&error),
                };
                if clock::monotonic() >= deadline {
                    return Err(still(listener, reason));
                }
                clock::sleep(PACE).await;
            }
        }
        Ok(())
    }
}

/// Who is on this node.
pub(super) fn here(machine: &Machine, pods: &StaticPods) -> BTreeSet<Consumer> {
    let named = |component: Component| component.name().parse().ok();
    match &machine.origin {
        Origin::Stratum(state) => {
            let components = names_for(state).into_iter().filter_map(named);
            let operator = state.is_controller().then_some(Consumer::Operator);
            components.chain(operator).chain([Consumer::Kubelet]).collect()
        }
        Origin::Kubeadm => {
            use strum::IntoEnumIterator;
            let components = Component::iter().filter(|component| pods.has_manifest(*component));
            components.filter_map(named).chain([Consumer::Kubelet]).collect()
        }
    }
}

fn component(consumer: Consumer) -> Option<Component> {
    let name: &str = consumer.into();
    name.parse().ok()
}

/// One line about a consumer.
pub(super) fn told(moved: &Moved) -> String {
    let mut parts = Vec::new();
    if let Some(reason) = moved.restart {
        parts.push(format!("restarted, {reason}"));
    }
    let mut by_proof: BTreeMap<Proof, Vec<&str>> = BTreeMap::new();
    for (leaf, proof) in &moved.proofs {
        by_proof.entry(*proof).or_default().push(leaf);
    }
    parts.extend(
        by_proof
            .into_iter()
            .map(|(proof, leaves)| format!("{}: {proof}", leaves.join(", "))),
    );
    format!("{}: {}", moved.consumer, parts.join("; "))
}
