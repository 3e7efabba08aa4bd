//! The comparison of what is applied with what is there, kind by kind, spread over the resync window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use super::{Error, Manifests, Observed, State};
use crate::controllers::cluster::{self, CallError};
use crate::reconcilers::manifests::STACK_LABEL;
use crate::reconcilers::manifests::memory::{Drift, LiveObject, drift};
use crate::reconcilers::manifests::resolve::Resolved;
use crate::reconcilers::manifests::resources::Served;
use crate::reconcilers::object::{GroupResource, ObjectId};

/// How soon to look again at a kind that could not be listed.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

impl Manifests {
    /// Lists the resources whose turn it is and forgets what no longer is as it was applied, so that it is sent again. In
    /// the first pass of a process the list tells changed objects from unchanged ones.
    ///
    /// One resource that cannot be listed (its group does not answer, or a role lacks it) is looked at again later and
    /// holds up no other.
    ///
    /// # Errors
    /// When the API server itself does not answer.
    pub(super) async fn look_for_drift(&self, observed: &mut Observed) -> Result<(), Error> {
        let Observed {
            state,
            resolution,
            live,
            now,
            own,
            ..
        } = observed;
        let resources: BTreeSet<&GroupResource> = resolution.wanted.iter().map(|object| &object.id.resource).collect();
        state.resync.retain(|resource, _| resources.contains(resource));
        let turns: BTreeSet<&GroupResource> = resources
            .iter()
            .copied()
            .filter(|resource| state.resync.get(resource).is_none_or(|at| at <= now))
            .collect();
        if turns.is_empty() {
            return Ok(());
        }
        let mut due: BTreeMap<GroupResource, Vec<Arc<Resolved>>> = BTreeMap::new();
        for object in &resolution.wanted {
            let resource = &object.id.resource;
            let known =
                state.memory.applied(&object.id).is_some() || own.contains_key(&object.id) || object.stack.is_none();
            if turns.contains(resource) && known {
                due.entry(resource.clone()).or_default().push(Arc::clone(object));
            }
        }
        let window = self.settings.resync;
        for (index, resource) in resources.iter().enumerate() {
            if turns.contains(resource) {
                let first = !state.resync.contains_key(*resource);
                state.resync.insert(
                    (*resource).clone(),
                    next_turn(*now, window, index, resources.len(), first),
                );
            }
        }
        for (resource, objects) in due {
            let Some(served) = state
                .served
                .as_ref()
                .and_then(|served| served.preferred(&resource).ok().cloned())
            else {
                continue;
            };
            match self.compare(state, &served, &objects).await {
                Ok(found) => live.extend(found),
                Err(error @ CallError::Refused { .. }) => {
                    warn!(%error, "this kind is not compared with its files now; it is tried again");
                    state
                        .resync
                        .insert(resource, now.checked_add(LOOK_AGAIN).unwrap_or(*now));
                }
                Err(error) => return Err(Error::Cluster(error)),
            }
        }
        Ok(())
    }

    /// Looks at declared objects of one resource, and forgets what drifted.
    async fn compare(
        &self,
        state: &mut State,
        served: &Served,
        objects: &[Arc<Resolved>],
    ) -> Result<BTreeMap<ObjectId, LiveObject>, CallError> {
        let mut found = BTreeMap::new();
        if objects.iter().any(|object| object.stack.is_some()) {
            found = cluster::list(&self.client, served, None, Some(STACK_LABEL)).await?;
        }
        let mut live = BTreeMap::new();
        for object in objects {
            if !found.contains_key(&object.id) && (object.stack.is_none() || state.memory.applied(&object.id).is_some())
            {
                let looked = cluster::look(&self.client, &object.id, &object.version).await?;
                found.extend(looked.map(|live| (object.id.clone(), live)));
            }
            forget_if_drifted(state, object, found.get(&object.id));
            live.extend(found.remove_entry(&object.id));
        }
        Ok(live)
    }
}

fn forget_if_drifted(state: &mut State, object: &Resolved, live: Option<&LiveObject>) {
    let id: &ObjectId = &object.id;
    if let Some(applied) = state.memory.applied(id) {
        match drift(applied, object, live) {
            Drift::None => {}
            Drift::Gone | Drift::Replaced | Drift::Changed => state.memory.forget(id),
        }
    }
}

/// When a resource is compared next: its own place in the window at first, a window later from then on.
fn next_turn(now: Timestamp, window: Duration, index: usize, of: usize, first: bool) -> Timestamp {
    let share = if first {
        #[expect(clippy::cast_precision_loss, reason = "a count of resources is far below 2^52")]
        let place = (index + 1) as f64 / of.max(1) as f64;
        window.mul_f64(place)
    } else {
        window
    };
    let share = SignedDuration::try_from(share).unwrap_or(SignedDuration::from_secs(300));
    now.checked_add(share).unwrap_or(now)
}
