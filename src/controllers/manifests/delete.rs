//! Deletes candidates, each by name with the UID and resourceVersion that were seen, and looks first at what else would go.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;

use super::{Error, IN_FLIGHT, Manifests, Observed};
use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::controllers::inventory::store;
use crate::controllers::leader::LEASE;
use crate::controllers::{hands, identities, status};
use crate::reconcilers::election::fence;
use crate::reconcilers::manifests::STACK_LABEL;
use crate::reconcilers::manifests::apply::Record;
use crate::reconcilers::manifests::memory::LiveObject;
use crate::reconcilers::manifests::prune::{self, Contents, Liveness, Reserved, Verdict};
use crate::reconcilers::manifests::report::{KeptReason, Outcome, Report};
use crate::reconcilers::manifests::resources::{ResourceMap, Served, Unresolved};
use crate::reconcilers::object::{GroupResource, ObjectId, Uid};

/// What is deleted, with the state it has to be in.
type Delete = (ObjectId, (Uid, String));

impl Manifests {
    /// Deletes wave by wave; the references that leave the record.
    ///
    /// Namespaces and CustomResourceDefinitions come last and are judged by what is in them then: what is still declared,
    /// protected, somebody else's, or could not be deleted, is a reason to keep them.
    pub(super) async fn delete(
        &self,
        observed: &mut Observed,
        candidates: &Record,
        report: &mut Report,
    ) -> Result<BTreeSet<ObjectId>, Error> {
        // A kind that seems gone must be gone now, and not in an old answer.
        let served = self.discover(&mut observed.state).await?;
        let live = self.liveness(&served, candidates).await?;
        let mut gone = BTreeSet::new();
        let reserved = self.reserved();
        for holders in [false, true] {
            let mut deletes = Vec::new();
            for (id, recorded) in candidates {
                if prune::holds_others(id) != holders {
                    continue;
                }
                let liveness = live.get(id).unwrap_or(&Liveness::Absent);
                let contents = match liveness {
                    Liveness::Live(_) if holders => self.contents(&served, id).await?,
                    Liveness::Live(_) | Liveness::Absent | Liveness::KindGone | Liveness::Unavailable => {
                        Contents::Empty
                    }
                };
                match prune::judge(id, recorded, liveness, &contents, &reserved) {
                    Verdict::Forget => {
                        gone.insert(id.clone());
                    }
                    Verdict::Keep(reason) => report.kept.push(reason.describe(id)),
                    Verdict::Delete { uid, resource_version } => deletes.push((id.clone(), (uid, resource_version))),
                }
            }
            for wave in prune::waves(deletes).into_values() {
                gone.extend(self.delete_wave(&served, wave, candidates, report).await);
            }
        }
        Ok(gone)
    }

    /// Deletes at once what does not depend on one another; what is gone then.
    async fn delete_wave(
        &self,
        served: &ResourceMap,
        wave: Vec<Delete>,
        candidates: &Record,
        report: &mut Report,
    ) -> Vec<ObjectId> {
        let results: Vec<_> = futures::stream::iter(wave)
            .map(|(id, (uid, version))| async move {
                let result = self.delete_one(served, &id, &uid, &version).await;
                (id, result)
            })
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await;
        let mut gone = Vec::new();
        for (id, result) in results {
            match result {
                Ok(()) => {
                    let stack = candidates.get(&id).and_then(|recorded| recorded.stacks.first());
                    report.count(stack, Outcome::Pruned);
                    gone.push(id);
                }
                Err(error) if error.kind() == CallErrorKind::NotFound => gone.push(id),
                Err(error) => report.kept.push(KeptReason::Refused(error.reason()).describe(&id)),
            }
        }
        gone
    }

    fn reserved(&self) -> Reserved {
        let object = |group: &str, resource: &str, name: &str| ObjectId {
            resource: GroupResource::new(group, resource),
            namespace: Some(self.settings.system_namespace.clone()),
            name: name.to_owned(),
        };
        Reserved {
            objects: BTreeSet::from([
                object("", "configmaps", store::NAME),
                object("", "configmaps", status::NAME),
                object("coordination.k8s.io", "leases", LEASE),
                object("coordination.k8s.io", "leases", fence::NAME),
            ]),
            resources: BTreeSet::from([GroupResource::new(identities::GROUP, identities::RESOURCE)]),
        }
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

    /// What a Namespace or CustomResourceDefinition still holds.
    async fn contents(&self, served: &ResourceMap, id: &ObjectId) -> Result<Contents, Error> {
        let (resources, namespace): (Vec<&Served>, _) = if id.resource.resource == "namespaces" {
            if let Some(group) = served.unavailable().next() {
                return Ok(Contents::Unknown {
                    group: group.to_owned(),
                });
            }
            (served.namespaced().collect(), Some(id.name.as_str()))
        } else {
            let (plural, group) = id.name.split_once('.').unwrap_or((id.name.as_str(), ""));
            match served.preferred(&GroupResource::new(group, plural)) {
                Ok(defined) => (vec![defined], None),
                Err(Unresolved::Unknown) => (Vec::new(), None),
                Err(Unresolved::GroupUnavailable) => {
                    return Ok(Contents::Unknown {
                        group: group.to_owned(),
                    });
                }
            }
        };
        for resource in resources {
            let found = match cluster::list(&self.client, resource, namespace, None).await {
                Ok(found) => found,
                Err(error) if error.kind() == CallErrorKind::NotFound => continue,
                Err(error) => return Err(Error::Cluster(error)),
            };
            if let Some((other, _)) = found.into_iter().find(|(other, live)| !is_incidental(other, live)) {
                return Ok(Contents::Holds(other));
            }
        }
        Ok(Contents::Empty)
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
