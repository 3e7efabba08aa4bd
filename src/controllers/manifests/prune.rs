//! Looks at what the record remembers and no file declares, and deletes what [`crate::reconcilers::manifests::prune`] says.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use jiff::SignedDuration;

use super::{Error, IN_FLIGHT, Manifests, Observed, record};
use crate::controllers::cluster::{self, CallErrorKind};
use crate::controllers::inventory::{local_record, store};
use crate::controllers::{cluster::CallError, hands};
use crate::reconcilers::inventory::migration::{ClusterState, PruneRecord, prune_record};
use crate::reconcilers::manifests::STACK_LABEL;
use crate::reconcilers::manifests::apply::{Record, Recorded};
use crate::reconcilers::manifests::memory::LiveObject;
use crate::reconcilers::manifests::prune::{self, Gate, Liveness, PlanDigest, Verdict};
use crate::reconcilers::manifests::report::{KeptReason, Outcome, Report, Suspension};
use crate::reconcilers::manifests::resources::{ResourceMap, Unresolved};
use crate::reconcilers::object::{GroupResource, ObjectId, StackName, Uid};

/// References that leave the record, and confirmations that were used up.
type Pruned = (BTreeSet<ObjectId>, Vec<(StackName, String)>);

impl Manifests {
    /// Prunes, or says in the report why not.
    pub(super) async fn prune(
        &self,
        observed: &mut Observed,
        settled: bool,
        report: &mut Report,
    ) -> Result<Pruned, Error> {
        let nothing = (BTreeSet::new(), Vec::new());
        let record = match self.prune_record(observed).await? {
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
        let gone = self.delete(observed, &record, &candidates, report).await?;
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
            (
                BTreeSet::new(),
                crate::reconcilers::inventory::migration::LocalRecord::Absent,
            )
        };
        let state = match stored.resource_version {
            None => ClusterState::NoConfigMap,
            Some(_) => ClusterState::Readable(inventory),
        };
        Ok(match prune_record(state, &nodes, &self.settings.node, &local) {
            PruneRecord::Cluster(references) => Ok(references
                .into_iter()
                .map(|(id, reference)| {
                    (
                        id,
                        Recorded {
                            uids: reference.uids,
                            stacks: reference.stacks,
                        },
                    )
                })
                .collect()),
            PruneRecord::Local(entry) => Ok(record::from_entry(&entry)),
            PruneRecord::Open { missing } => Err(Suspension::MigrationOpen { missing }),
            PruneRecord::Unreadable => Err(Suspension::InventoryUnreadable {
                problem: "the record of this node, .applied.json, is not readable".to_owned(),
            }),
        })
    }

    pub(super) fn gate(&self, observed: &Observed, settled: bool, complete: bool) -> Gate {
        let documents = observed
            .stored
            .as_ref()
            .map(|stored| stored.documents.clone())
            .unwrap_or_default();
        let holds_a_stack = observed.listing.files.iter().any(|file| file.stack.is_some());
        Gate {
            complete,
            settled,
            folder_trusted: holds_a_stack || observed.state.seen.is_same_folder(observed.listing.identity),
            desired_empty: documents.desired.is_some_and(|desired| desired.stacks.is_empty()),
            max_share: self.settings.max_share,
            confirmed: documents
                .confirmations
                .into_iter()
                .map(|known| (known.stack, PlanDigest(known.digest)))
                .collect(),
        }
    }

    /// Deletes wave by wave; the references that leave the record.
    async fn delete(
        &self,
        observed: &mut Observed,
        record: &Record,
        candidates: &Record,
        report: &mut Report,
    ) -> Result<BTreeSet<ObjectId>, Error> {
        // A kind that seems gone must be gone now, and not in an old answer.
        let served = self.discover(&mut observed.state).await?;
        let live = self.liveness(&served, candidates).await?;
        let inventory = ObjectId {
            resource: GroupResource::new("", "configmaps"),
            namespace: Some(self.settings.system_namespace.clone()),
            name: store::NAME.to_owned(),
        };
        let mut gone = BTreeSet::new();
        let mut deletes = Vec::new();
        for (id, recorded) in candidates {
            let liveness = live.get(id).unwrap_or(&Liveness::Absent);
            let foreign = match liveness {
                Liveness::Live(_) if prune::holds_others(id) => self.foreign(&served, id, record).await?,
                Liveness::Live(_) | Liveness::Absent | Liveness::KindGone | Liveness::Unavailable => None,
            };
            match prune::judge(id, recorded, liveness, foreign.as_deref(), &inventory) {
                Verdict::Forget => {
                    gone.insert(id.clone());
                }
                Verdict::Keep(reason) => report.kept.push(reason.describe(id)),
                Verdict::Delete { uid, resource_version } => deletes.push((id.clone(), (uid, resource_version))),
            }
        }
        for wave in prune::waves(deletes).into_values() {
            let results: Vec<_> = futures::stream::iter(wave)
                .map(|(id, (uid, version))| {
                    let served = &served;
                    async move {
                        let result = self.delete_one(served, &id, &uid, &version).await;
                        (id, result)
                    }
                })
                .buffer_unordered(IN_FLIGHT)
                .collect()
                .await;
            for (id, result) in results {
                match result {
                    Ok(()) => {
                        let stack = candidates.get(&id).and_then(|recorded| recorded.stacks.first());
                        report.count(stack, Outcome::Pruned);
                        gone.insert(id);
                    }
                    Err(error) if error.kind() == CallErrorKind::NotFound => {
                        gone.insert(id);
                    }
                    Err(error) => report.kept.push(KeptReason::Refused(error.reason()).describe(&id)),
                }
            }
        }
        Ok(gone)
    }

    async fn delete_one(
        &self,
        served: &ResourceMap,
        id: &ObjectId,
        uid: &Uid,
        resource_version: &str,
    ) -> Result<(), CallError> {
        let Ok(found) = served.preferred(&id.resource) else {
            return Ok(());
        };
        hands::delete(&self.client, id, &found.version, uid, resource_version).await
    }

    /// What the cluster says of each candidate: one list for each resource, by the stack label; what it does not show is
    /// looked at by itself.
    async fn liveness(&self, served: &ResourceMap, candidates: &Record) -> Result<BTreeMap<ObjectId, Liveness>, Error> {
        let mut result = BTreeMap::new();
        let mut resources: BTreeMap<&GroupResource, Vec<&ObjectId>> = BTreeMap::new();
        for id in candidates.keys() {
            resources.entry(&id.resource).or_default().push(id);
        }
        for (resource, ids) in resources {
            let found = match served.preferred(resource) {
                Ok(found) => found,
                Err(why) => {
                    let liveness = match why {
                        Unresolved::Unknown => Liveness::KindGone,
                        Unresolved::GroupUnavailable => Liveness::Unavailable,
                    };
                    result.extend(ids.into_iter().map(|id| (id.clone(), liveness.clone())));
                    continue;
                }
            };
            let mut listed = cluster::list(&self.client, found, None, Some(STACK_LABEL))
                .await
                .map_err(Error::Cluster)?;
            for id in ids {
                let live = match listed.remove(id) {
                    Some(live) => Some(live),
                    None => cluster::look(&self.client, id, &found.version)
                        .await
                        .map_err(Error::Cluster)?,
                };
                result.insert(id.clone(), live.map_or(Liveness::Absent, Liveness::Live));
            }
        }
        Ok(result)
    }

    /// One object that a Namespace or CustomResourceDefinition holds and that is in no record.
    async fn foreign(&self, served: &ResourceMap, id: &ObjectId, record: &Record) -> Result<Option<String>, Error> {
        let (resources, namespace): (Vec<_>, _) = if id.resource.resource == "namespaces" {
            (served.namespaced().cloned().collect(), Some(id.name.as_str()))
        } else {
            let (plural, group) = id.name.split_once('.').unwrap_or((id.name.as_str(), ""));
            (
                served
                    .preferred(&GroupResource::new(group, plural))
                    .ok()
                    .cloned()
                    .into_iter()
                    .collect(),
                None,
            )
        };
        for resource in resources {
            let found = match cluster::list(&self.client, &resource, namespace, None).await {
                Ok(found) => found,
                Err(error) if error.kind() == CallErrorKind::NotFound => continue,
                Err(error) => return Err(Error::Cluster(error)),
            };
            let stranger = found
                .iter()
                .find(|(other, live)| !record.contains_key(other) && !is_incidental(other, live));
            if let Some((other, _)) = stranger {
                return Ok(Some(other.to_string()));
            }
        }
        Ok(None)
    }
}

/// What Kubernetes puts into every namespace by itself, or a controller made for another object.
fn is_incidental(id: &ObjectId, live: &LiveObject) -> bool {
    let generated = match (id.resource.group.as_str(), id.resource.resource.as_str()) {
        ("", "configmaps") => id.name == "kube-root-ca.crt",
        ("", "serviceaccounts") => id.name == "default",
        ("" | "events.k8s.io", "events") => true,
        ("", "endpoints") => true,
        _ => false,
    };
    generated || live.owned || live.terminating
}
