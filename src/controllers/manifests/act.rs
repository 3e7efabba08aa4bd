//! Carries a pass out: the superset of the record first, then the stages, then pruning, then the narrowed record. Killed
//! in any gap it leaves references without objects, never objects without references.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Error, Manifests, Observed, State, record};
use crate::controllers::concern::{Wake, chain};
use crate::controllers::inventory::local_record;
use crate::controllers::inventory::store::{StoreError, Stored};
use crate::host::clock;
use crate::host::folder::Listing;
use crate::reconcilers::inventory::migration;
use crate::reconcilers::manifests::apply::{self, Plan};
use crate::reconcilers::manifests::report::{Counts, Outcome, Refusal, RefusalReason, Report, Suspension};
use crate::reconcilers::object::{ObjectId, StackName};

/// When files that lost something are read a second time.
const SETTLE: Duration = Duration::from_millis(1050);

impl Manifests {
    /// Carries out what was decided, and reports.
    pub(super) async fn carry_out(&self, mut observed: Observed, plan: Plan) -> Result<(Wake, Report), Error> {
        let folder = self.settings.folder.display().to_string();
        let mut report = Report::new(&self.settings.node, &folder, observed.now);
        report.notes.clone_from(&observed.resolution.notes);
        for refusal in observed
            .refusals
            .iter()
            .chain(&observed.resolution.refusals)
            .chain(&plan.waiting)
        {
            report.refuse(refusal.clone());
        }
        let settled = settle(&mut observed.state, &observed.listing, observed.now);
        // Chosen before anything is written: the superset itself makes an inventory where there was none.
        let chosen = self.prune_record(&observed).await?;
        let without_inventory = matches!(&observed.stored, Ok(stored) if stored.resource_version.is_none());
        let waiting = observed.state.waiting.take();
        let waiting = waiting.or_else(|| chosen.as_ref().ok().filter(|_| without_inventory).cloned());
        match self.record_superset(&mut observed, &plan).await {
            Ok(()) => self.apply_stages(&mut observed, &plan, &mut report).await?,
            Err(reason) => self.refuse_stacks(&mut observed, &plan, &reason, &mut report).await?,
        }
        for object in &plan.unchanged {
            report.count(object.stack.as_ref(), Outcome::Unchanged);
        }
        let (gone, used) = self.prune(&mut observed, chosen, settled, &mut report).await?;
        observed.state.waiting = waiting.filter(|_| report.suspended == Some(Suspension::Unsettled));
        self.keep_records(&mut observed, &gone, &used, &report).await?;
        let wanted: BTreeSet<&ObjectId> = observed.resolution.wanted.iter().map(|object| &object.id).collect();
        observed.state.memory.retain(|id| wanted.contains(id));
        report.at = clock::now();
        tell(&report);
        let wake = wake(&observed.state, &report, observed.now, self.settings.resync);
        self.reports.send_replace(Some(report.clone()));
        Ok((wake, report))
    }

    /// Keeps what a pass leaves behind, in the cluster and on this node: both flush at the same time.
    async fn keep_records(
        &self,
        observed: &mut Observed,
        gone: &BTreeSet<ObjectId>,
        used: &[(StackName, String)],
        report: &Report,
    ) -> Result<(), Error> {
        let whole = report.is_complete() && report.suspended.is_none();
        let seen = whole
            .then(|| observed.state.seen.complete(&observed.listing))
            .flatten()
            .map(|unwritten| tokio::task::spawn_blocking(|| unwritten.write()));
        let narrowed = self.record_narrowed(observed, gone, used).await;
        if let Some(seen) = seen {
            let written = seen.await.map_err(Error::Task);
            if let Err(error) = written.and_then(|written| written.map_err(Error::Seen)) {
                observed.state.seen.not_written();
                return Err(error);
            }
        }
        narrowed
    }

    /// Writes the record that must stand before anything is sent. The reason, when it cannot be written, is one for which
    /// no object of a stack may be applied: what cannot be recorded could never be pruned.
    async fn record_superset(&self, observed: &mut Observed, plan: &Plan) -> Result<(), Refused> {
        let known = match &observed.stored {
            Ok(_) if !plan.record_grows => return Ok(()),
            Ok(known) => known.clone(),
            Err(problem) => return Err(format!("the inventory cannot be read: {problem}").into()),
        };
        let (node, wanted) = (&self.settings.node, &observed.resolution.wanted);
        let local = local_record(&self.settings.folder);
        let committed = self
            .store
            .commit(Some(known), self.settings.term, |documents| {
                migration::contribute_first(&mut documents.inventory, node, &local)
                    .map_err(|error| StoreError::Refused(error.to_string()))?;
                let own = documents
                    .inventory
                    .get_or_insert_default()
                    .nodes
                    .entry(node.clone())
                    .or_default();
                let superset = record::to_entry(&apply::superset(wanted, &record::from_entry(own)));
                *own = superset;
                Ok(())
            })
            .await;
        match committed {
            Ok(stored) => {
                self.keep(observed, stored);
                Ok(())
            }
            Err(error) => {
                let reason = match error {
                    StoreError::TooLarge(_) => RefusalReason::InventoryTooLarge,
                    StoreError::Call(_)
                    | StoreError::Unreadable(_)
                    | StoreError::StaleTerm { .. }
                    | StoreError::Refused(_)
                    | StoreError::Contended => RefusalReason::Unanswered,
                };
                observed.state.stored = None;
                Err(Refused {
                    reason,
                    message: chain(&error),
                })
            }
        }
    }

    /// Loose files need no record and are applied; every stack is refused.
    async fn refuse_stacks(
        &self,
        observed: &mut Observed,
        plan: &Plan,
        why: &Refused,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut loose = plan.clone();
        let mut stacks: BTreeSet<StackName> = BTreeSet::new();
        for objects in loose.stages.values_mut() {
            stacks.extend(objects.iter().filter_map(|object| object.stack.clone()));
            objects.retain(|object| object.stack.is_none());
        }
        for stack in stacks {
            report.refuse(Refusal {
                file: stack.to_string(),
                line: None,
                object: None,
                stack: Some(stack.to_string()),
                reason: why.reason,
                message: format!(
                    "not applied, since it could not be recorded for pruning: {}",
                    why.message
                ),
            });
        }
        self.apply_stages(observed, &loose, report).await
    }

    /// Writes what is declared and still there, with the UIDs of this pass; nothing if that is what the record says.
    async fn record_narrowed(
        &self,
        observed: &mut Observed,
        gone: &BTreeSet<ObjectId>,
        used: &[(StackName, String)],
    ) -> Result<(), Error> {
        let Ok(known) = &observed.stored else {
            return Ok(());
        };
        let node = &self.settings.node;
        let own = observed.state.own.of(Some(known), node);
        let (wanted, memory) = (&observed.resolution.wanted, &observed.state.memory);
        if gone.is_empty() && used.is_empty() && apply::is_narrow(wanted, &own, memory) {
            return Ok(());
        }
        let known = known.clone();
        let stored = self
            .store
            .commit(Some(known), self.settings.term, |documents| {
                if let Some(inventory) = &mut documents.inventory
                    && let Some(own) = inventory.nodes.get_mut(node)
                {
                    *own = record::to_entry(&apply::narrowed(wanted, &record::from_entry(own), gone, memory));
                    for id in gone {
                        inventory.remove_everywhere(id);
                    }
                }
                documents
                    .confirmations
                    .retain(|known| !used.contains(&(known.stack.clone(), known.digest.clone())));
                Ok(())
            })
            .await;
        match stored {
            Ok(stored) => {
                self.keep(observed, stored);
                Ok(())
            }
            Err(error) => {
                observed.state.stored = None;
                Err(Error::Inventory(error))
            }
        }
    }

    fn keep(&self, observed: &mut Observed, stored: Stored) {
        observed.state.stored = Some(stored.clone());
        observed.stored = Ok(stored);
    }
}

/// Why no stack can be applied.
pub(super) struct Refused {
    reason: RefusalReason,
    message: String,
}

impl From<String> for Refused {
    fn from(message: String) -> Self {
        Self {
            reason: RefusalReason::Unanswered,
            message,
        }
    }
}

/// Logs what a pass changed, and everything that is refused or kept. A pass that found nothing to do says nothing.
fn tell(report: &Report) {
    let Counts {
        created,
        configured,
        unchanged,
        pruned,
        refused,
    } = report.total();
    if created + configured + pruned + refused > 0 {
        tracing::info!(
            created,
            configured,
            unchanged,
            pruned,
            refused,
            "a pass over the manifests"
        );
    }
    for refusal in &report.refusals {
        tracing::warn!(reason = <&'static str>::from(refusal.reason), "refused: {refusal}");
    }
    for kept in &report.kept {
        tracing::warn!("not pruned: {kept}");
    }
    match &report.suspended {
        Some(Suspension::Unsettled) | None => {}
        Some(suspended) => tracing::warn!("pruning is suspended: {suspended}"),
    }
}

/// Whether the folder has been the same for a second; remembers when it first was.
fn settle(state: &mut State, listing: &Listing, now: Timestamp) -> bool {
    match state.settled {
        Some((digest, since)) if digest == listing.digest => now.duration_since(since) >= SignedDuration::from_secs(1),
        Some(_) | None => {
            state.settled = Some((listing.digest, now));
            false
        }
    }
}

/// When the next pass has something to do, if nothing changes before.
fn wake(state: &State, report: &Report, now: Timestamp, resync: Duration) -> Wake {
    if report.suspended == Some(Suspension::Unsettled) {
        return Wake::After(SETTLE);
    }
    let turns = state.resync.values().copied().chain(state.memory.next_retry()).min();
    let until = turns.map(|at| at.duration_since(now).max(SignedDuration::from_millis(50)));
    Wake::After(
        until
            .and_then(|until| Duration::try_from(until).ok())
            .unwrap_or(resync)
            .min(resync),
    )
}
