//! `stratum certs rotate`: every leaf of this node made anew, and everybody who uses one brought to it.
//!
//! In this order: what may not be is refused, keys are made, the cluster fence and the node's lock are taken, everything is
//! looked at again and checked, the new files are brought onto the disk beside the old ones, the marker is written, the files
//! are put in place, everybody moves, the marker goes. Before the marker nothing has changed. After it a run that was cut off
//! is finished by the next: what is broken is made anew, and whom the marker names is moved.

mod begun;
mod error;
mod fencing;
mod issue;
mod moving;
mod observe;
mod options;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use self::begun::Begun;
use self::fencing::Fenced;
use self::issue::Issued;
use self::moving::{KUBELET_HEALTH, Mover, Patience};
use self::observe::{Leaf, Observed, observe};
use crate::controllers::concern::chain;
use crate::controllers::grants::rekeying;
use crate::controllers::joining::material::read_material;
use crate::controllers::machine::node::{Config, Node};
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::controllers::progress::tell;
use crate::host::certificates::{Machine, Origin};
use crate::host::lock::{Attempt, Lock};
use crate::host::node_state::require_node_profile;
use crate::host::rotation_incomplete::{self, Moment};
use crate::host::static_pods::{Inputs, Mark, StaticPods};
use crate::host::{atomic_file, clock, entropy, node_pki, pki_folder};
use crate::pki::key::Key;
use crate::pki::seal::CertificateKey;
use crate::reconcilers::certificates::moves::{self, Situation};
use crate::reconcilers::certificates::reissue::{self, Decision, Why, Wish};

pub use self::error::Error;
pub use self::moving::Moved;
pub use self::options::{NodeLock, Options, Rotated};
pub use crate::reconcilers::certificates::reissue::{Keys, Reissue};

/// What it is called in Leases, locks and the marker.
pub const OPERATION: &str = "stratum certs rotate";

/// Reissues the leaves of a machine and moves everybody to them. `stop` ends it between two steps.
///
/// # Errors
/// [`Error::is_refusal`] tells whether nothing was changed. Otherwise the same call again goes on.
pub async fn rotate(
    machine: &Machine,
    config: &Config,
    options: &Options,
    stop: &CancellationToken,
    progress: &mut (dyn Write + Send),
) -> Result<Rotated, Error> {
    let machine = machine.clone().with_leaf_lifetime(config.leaf_lifetime);
    let run = Run {
        machine: &machine,
        pods: static_pods(&machine, config),
        options,
        stop,
        patience: Patience::default(),
        kubelet_health: KUBELET_HEALTH,
        ahead: SignedDuration::ZERO,
    };
    run.rotate(progress).await
}

fn static_pods(machine: &Machine, config: &Config) -> StaticPods {
    match &machine.origin {
        Origin::Stratum(state) => Node {
            layout: machine.layout.clone(),
            state: (**state).clone(),
            config: config.clone(),
        }
        .static_pods(),
        // Never rendered there.
        Origin::Kubeadm => StaticPods::new(machine.layout.clone(), Inputs::default()),
    }
}

/// One run, and what it stands on.
struct Run<'a> {
    machine: &'a Machine,
    pods: StaticPods,
    options: &'a Options,
    stop: &'a CancellationToken,
    patience: Patience,
    kubelet_health: SocketAddr,
    /// How far this run's clock is ahead of the machine's; only in tests it is.
    ahead: SignedDuration,
}

/// What was seen, and what follows.
struct Decided {
    observed: Observed,
    decision: Decision,
}

impl Decided {
    /// Whether there is anything to do to certificates.
    fn is_idle(&self) -> bool {
        self.decision.reissue.is_empty() && matches!(self.observed.marker, Ok(None))
    }

    /// Why this node's API server cannot be expected to answer before this is done: to wait for it would be to wait for
    /// ever.
    fn why_nobody_answers(&self) -> Option<String> {
        if !matches!(self.observed.marker, Ok(None)) {
            return Some("a rotation has to be finished that may have left this node's API server down".to_owned());
        }
        let broken = self.decision.reissue.iter().find(|one| {
            let merely_wanted = matches!(one.why, Why::Asked | Why::Due);
            !merely_wanted && moves::needed_by_the_api_server(&one.name)
        });
        broken.map(|one| format!("this node's API server needs {}, which is {}", one.name, one.why))
    }
}

impl Run<'_> {
    fn now(&self) -> Timestamp {
        clock::now() + self.ahead
    }

    async fn rotate(&self, progress: &mut (dyn Write + Send)) -> Result<Rotated, Error> {
        let (layout, now) = (&self.machine.layout, self.now());
        require_node_profile(&layout.node_state(), OPERATION)?;
        let decided = self.decide(now)?;
        let rekey = self.options.rekey_shared;
        self.may_rekey()?;
        if decided.is_idle() && !rekey {
            return Ok(idle(&decided));
        }
        decided.observed.check_clock(now)?;
        for one in &decided.decision.reissue {
            decided
                .observed
                .leaf(&one.name)
                .map_or(Ok(()), |leaf| decided.observed.signer(&leaf.signer, now).map(|_| ()))?;
        }
        if self.options.dry_run {
            self.plan(&decided, progress);
            return Ok(idle(&decided));
        }
        // An RSA key takes a tenth of a second to a second, in which nobody else should have to wait.
        let keys = self.keys(&decided)?;
        let fenced = self.fence(&decided, now, progress).await?;
        let locked = self.lock();
        let done = match locked {
            Ok(_lock) => self.under_lock(keys, &fenced, progress).await,
            Err(error) => Err(error),
        };
        fenced.release().await;
        done
    }

    fn decide(&self, now: Timestamp) -> Result<Decided, Error> {
        let observed = observe(self.machine, now)?;
        if !observed.phase.is_idle() {
            return Err(Error::RotationOpen {
                phase: observed.phase.to_string(),
            });
        }
        let wish = Wish {
            within: self.options.if_expiring,
            keys: self.options.keys,
        };
        let decision = reissue::decide(&observed.seen(), wish, now);
        Ok(Decided { observed, decision })
    }

    fn may_rekey(&self) -> Result<(), Error> {
        if !self.options.rekey_shared {
            return Ok(());
        }
        let without = match &self.machine.origin {
            _ if self.options.offline => "with --offline",
            Origin::Kubeadm => "on a node of kubeadm's",
            Origin::Stratum(state) if !state.is_controller() => "on a worker",
            Origin::Stratum(_) => return Ok(()),
        };
        Err(Error::NoRekey { without })
    }

    fn keys(&self, decided: &Decided) -> Result<Vec<Key>, Error> {
        let kinds = issue::kinds(self.machine, &decided.observed, &decided.decision.reissue);
        pki_folder::new_keys(&kinds).map_err(|source| Error::Key {
            name: "the new certificates".to_owned(),
            source,
        })
    }

    async fn fence(
        &self,
        decided: &Decided,
        now: Timestamp,
        progress: &mut (dyn Write + Send),
    ) -> Result<Fenced, Error> {
        if self.options.offline {
            return Ok(fencing::skip("--offline", progress));
        }
        if decided.observed.own_credential_expired(now) && !self.options.rekey_shared {
            return Ok(fencing::skip(
                "this node's own credential has expired, and nobody would answer it",
                progress,
            ));
        }
        match fencing::fence(self.machine, OPERATION, progress).await {
            Err(Error::Silent { reason }) if !self.options.rekey_shared => match decided.why_nobody_answers() {
                Some(why) => Ok(fencing::skip(
                    &format!("{why}, and it does not answer ({reason})"),
                    progress,
                )),
                None => Err(Error::Silent { reason }),
            },
            taken_or_not => taken_or_not,
        }
    }

    fn lock(&self) -> Result<Option<Lock>, Error> {
        if self.options.lock == NodeLock::Held {
            return Ok(None);
        }
        let layout = &self.machine.layout;
        atomic_file::create_folder(&layout.run(), atomic_file::Access::Secret).map_err(Error::LockFolder)?;
        match Lock::attempt(&layout.node_lock(), OPERATION).map_err(Error::Lock)? {
            Attempt::Taken(lock) => Ok(Some(lock)),
            Attempt::Held(holder) => Err(Error::Locked { holder }),
        }
    }

    /// Looks again, for somebody may have been at it meanwhile, and does it.
    async fn under_lock(
        &self,
        mut keys: Vec<Key>,
        fenced: &Fenced,
        progress: &mut (dyn Write + Send),
    ) -> Result<Rotated, Error> {
        let now = self.now();
        let mut decided = self.decide(now)?;
        decided.observed.check_clock(now)?;
        let wanted = issue::kinds(self.machine, &decided.observed, &decided.decision.reissue);
        if wanted.len() != keys.len() || wanted.iter().zip(&keys).any(|(kind, key)| *kind != key.kind()) {
            keys = self.keys(&decided)?;
        }
        let material = match &self.machine.origin {
            Origin::Stratum(state) if self.options.rekey_shared => {
                Some(read_material(&self.machine.layout, state, now).map_err(Error::Material)?)
            }
            Origin::Stratum(_) | Origin::Kubeadm => None,
        };
        let names = fencing::kubeadm_names(self.machine, fenced).await;
        let mut rotated = idle(&decided);
        if !decided.is_idle() {
            let reissue = &decided.decision.reissue;
            let mut issued = issue::issue(self.machine, &decided.observed, reissue, keys, &names, now)?;
            let made = |one: &Reissue| issued.certificates.contains_key(&one.name);
            decided.decision.reissue.retain(made);
            let mut skipped = std::mem::take(&mut issued.skipped);
            if decided.is_idle()
                && let Some(first) = skipped.pop()
            {
                return Err(first);
            }
            rotated.skipped = skipped.iter().map(|error| chain(error)).collect();
            if self.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            self.replace(decided, issued, fenced, &mut rotated, now, progress)
                .await?;
        }
        if let (Some(material), Some(client)) = (material, fenced.client()) {
            if self.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            fenced.check()?;
            let key = CertificateKey::new(entropy::bytes());
            let dropped = rekeying::rekey(client, SYSTEM_NAMESPACE, &key, &material).await;
            rotated.dropped_grants = dropped.map_err(Error::Rekey)?;
            rotated.certificate_key = Some(key);
        }
        Ok(rotated)
    }

    async fn replace(
        &self,
        decided: Decided,
        issued: Issued,
        fenced: &Fenced,
        rotated: &mut Rotated,
        now: Timestamp,
        progress: &mut (dyn Write + Send),
    ) -> Result<(), Error> {
        let layout = &self.machine.layout;
        let Decided { observed, decision } = decided;
        let begun = Begun::of(&observed, &decision, now);
        let mut marker = begun.marker;
        let mut mark = begun.mark;
        if !issued.files.is_empty() {
            // Of what is written now, nobody started after the files of an earlier run knows anything.
            marker.written = None;
        }
        for folder in issued.files.iter().filter_map(|file| file.path.parent()) {
            atomic_file::create_folder(folder, atomic_file::Access::Secret).map_err(Error::Stage)?;
        }
        if issued.files.is_empty() {
            marker.save(layout).map_err(Error::Begin)?;
        } else {
            let staged = atomic_file::stage_all(&issued.files).map_err(Error::Stage)?;
            marker.save(layout).map_err(Error::Begin)?;
            staged.put_in_place().map_err(Error::Write)?;
            mark = Mark::take();
            marker.written = Some(Moment::take());
            marker.save(layout)?;
        }
        if let Origin::Stratum(state) = &self.machine.origin {
            node_pki::write_kubeconfigs(layout, state).map_err(Error::Kubeconfigs)?;
        }
        for one in &decision.reissue {
            tell(progress, format_args!("{}: made anew, {}", one.name, one.why));
        }
        rotated.reissued = decision.reissue.iter().map(|one| one.name.clone()).collect();
        let mut mover = Mover {
            machine: self.machine,
            pods: self.pods.clone(),
            entries: self.machine.entries(),
            mark,
            marker,
            fenced,
            stop: self.stop,
            kube_vip_required: self.options.kube_vip_required,
            patience: self.patience,
            kubelet_health: self.kubelet_health,
            kubelet_runs: false,
            by_hand: Vec::new(),
            warnings: Vec::new(),
        };
        rotated.moves = mover.run(&begun.expired, begun.waiting, progress).await?;
        rotated.by_hand = mover.by_hand;
        rotated.warnings = mover.warnings;
        rotation_incomplete::remove(layout)?;
        let end = |leaf: &Leaf| match issued.certificates.get(&leaf.seen.name) {
            Some(new) => Some(new.details().not_after),
            None => leaf.seen.ends,
        };
        rotated.first_end = observed.leaves.iter().filter_map(end).min();
        Ok(())
    }

    /// Tells what would be done.
    fn plan(&self, decided: &Decided, progress: &mut (dyn Write + Send)) {
        let Decided { observed, decision } = decided;
        for one in &decision.reissue {
            let key = if one.new_key { "a new key" } else { "its key kept" };
            tell(
                progress,
                format_args!("{}: would be made anew ({}), {key}", one.name, one.why),
            );
        }
        let begun = Begun::of(observed, decision, self.now());
        let situation = Situation {
            leaves: begun.marker.leaves,
            here: moving::here(self.machine, &self.pods),
            down: BTreeSet::new(),
            expired: begun.expired,
            waiting: begun.waiting,
        };
        for one in moves::plan(&situation) {
            match one.restart {
                Some(reason) => tell(progress, format_args!("{}: would be restarted: {reason}", one.consumer)),
                None => tell(progress, format_args!("{}: would not be restarted", one.consumer)),
            }
        }
        if self.options.rekey_shared {
            tell(
                progress,
                format_args!("the shared certificate key would be made anew, and every grant dropped"),
            );
        }
    }
}

fn idle(decided: &Decided) -> Rotated {
    Rotated {
        idle: decided.decision.idle.as_ref().map(ToString::to_string),
        first_end: decided.observed.leaves.iter().filter_map(|leaf| leaf.seen.ends).min(),
        ..Rotated::default()
    }
}
