//! Which record a pass prunes by, and whether it may.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::{Error, Manifests, Observed, record};
use crate::controllers::cluster;
use crate::controllers::inventory::local_record;
use crate::reconcilers::inventory::migration::{ClusterState, LocalRecord, PruneRecord, prune_record};
use crate::reconcilers::manifests::apply::Record;
use crate::reconcilers::manifests::prune::{self, Gate, PlanDigest};
use crate::reconcilers::manifests::report::{Report, Suspension};
use crate::reconcilers::object::{ObjectId, StackName};

/// References that leave the record, and confirmations that were used up.
type Pruned = (BTreeSet<ObjectId>, Vec<(StackName, String)>);

impl Manifests {
    /// Prunes by a record that was chosen before this pass wrote anything, or says in the report why not.
    pub(super) async fn prune(
        &self,
        observed: &mut Observed,
        chosen: Result<Record, Suspension>,
        settled: bool,
        report: &mut Report,
    ) -> Result<Pruned, Error> {
        let nothing = (BTreeSet::new(), Vec::new());
        let record = match chosen {
            Ok(record) => record,
            Err(suspension) => {
                report.suspended = Some(suspension);
                return Ok(nothing);
            }
        };
        let candidates = prune::candidates(&record, &observed.resolution.keep);
        let gate = self.gate(observed, settled, report.is_complete());
        let used = match prune::gate(&candidates, &record, &gate) {
            Ok(used) => used,
            Err(suspension) => {
                report.suspended = Some(suspension);
                return Ok(nothing);
            }
        };
        if candidates.is_empty() {
            observed.state.kept = None;
            return Ok(nothing);
        }
        if let Some((kept, until, why)) = &observed.state.kept
            && *kept == candidates
            && observed.now < *until
        {
            report.kept.clone_from(why);
            return Ok(nothing);
        }
        let by_stack = prune::by_stack(&candidates);
        let used = used
            .into_iter()
            .filter_map(|stack| Some((stack.clone(), prune::plan_digest(by_stack.get(&stack)?).0)))
            .collect();
        let gone = self.delete(observed, &candidates, report).await?;
        let left: Record = candidates.into_iter().filter(|(id, _)| !gone.contains(id)).collect();
        let pause = SignedDuration::try_from(self.settings.resync).unwrap_or(SignedDuration::from_secs(300));
        observed.state.kept = (!left.is_empty()).then(|| (left, observed.now + pause, report.kept.clone()));
        Ok((gone, used))
    }

    /// What pruning may go by in this pass.
    pub(super) async fn prune_record(&self, observed: &Observed) -> Result<Result<Record, Suspension>, Error> {
        let stored = match &observed.stored {
            Ok(stored) => stored,
            Err(problem) => {
                return Ok(Err(Suspension::InventoryUnreadable {
                    problem: problem.clone(),
                }));
            }
        };
        let inventory = stored.documents.inventory.as_ref();
        let open = inventory.is_none_or(|inventory| inventory.closed_at.is_none());
        // The Nodes and the local record matter only while the migration is open.
        let (nodes, local) = if open {
            (
                cluster::control_plane_nodes(&self.operator)
                    .await
                    .map_err(Error::Cluster)?,
                local_record(&self.settings.folder),
            )
        } else {
            (BTreeSet::new(), LocalRecord::Absent)
        };
        let state = match stored.resource_version {
            None => ClusterState::NoConfigMap,
            Some(_) => ClusterState::Readable(inventory),
        };
        Ok(match prune_record(state, &nodes, &self.settings.node, &local) {
            PruneRecord::Cluster(references) => Ok(record::from_references(references)),
            PruneRecord::Local(entry) => Ok(record::from_entry(&entry)),
            PruneRecord::Open { missing } => match &observed.state.waiting {
                Some(record) => Ok(record.clone()),
                None => Err(Suspension::MigrationOpen { missing }),
            },
            PruneRecord::LocalUnreadable { problem } => Err(Suspension::LocalRecordUnreadable { problem }),
        })
    }

    pub(super) fn gate(&self, observed: &Observed, settled: bool, complete: bool) -> Gate {
        let documents = observed.stored.as_ref().ok().map(|stored| &stored.documents);
        let holds_a_stack = observed.listing.files.iter().any(|file| file.stack.is_some());
        Gate {
            complete,
            settled,
            folder_trusted: holds_a_stack || observed.state.seen.is_same_folder(observed.listing.identity),
            desired_empty: documents
                .and_then(|documents| documents.desired.as_ref())
                .is_some_and(|desired| desired.stacks.is_empty()),
            max_share: self.settings.max_share,
            confirmed: documents
                .into_iter()
                .flat_map(|documents| &documents.confirmations)
                .map(|known| (known.stack.clone(), PlanDigest(known.digest.clone())))
                .collect(),
        }
    }
}
