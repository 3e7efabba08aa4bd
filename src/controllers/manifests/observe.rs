//! Reads the folder and the cluster into an [`Observed`].

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{Error, Manifests, Observed, State, bundled, sources};
use crate::controllers::cluster;
use crate::controllers::cluster_info;
use crate::controllers::concern::chain;
use crate::controllers::inventory::store::{StoreError, Stored};
use crate::host::clock;
use crate::host::folder::{Listing, SourceFile};
use crate::reconcilers::host_name::{DnsName, Host};
use crate::reconcilers::manifests::report::RefusalReason;
use crate::reconcilers::manifests::resolve::{Resolution, resolve};
use crate::reconcilers::manifests::resources::ResourceMap;
use crate::reconcilers::manifests::source::sentinels::Sentinel;
use crate::reconcilers::manifests::source::{Declared, SentinelValues, sentinels_in};
use crate::reconcilers::object::StackName;

/// How long the values of sentinels are believed.
const VALUES_LAST: SignedDuration = SignedDuration::from_secs(60);

/// Where workloads find the API server, as long as it is believed.
pub(super) struct Server {
    /// The digest of the folder that was searched for the question.
    folder: [u8; 32],
    /// Whether a file in it asks.
    asked_for: bool,
    /// Host and port; none when nobody asks or nothing answers.
    address: Option<(Host, u16)>,
    at: Timestamp,
}

fn asks(file: &SourceFile) -> bool {
    std::str::from_utf8(&file.bytes).is_ok_and(|text| {
        let used = sentinels_in(text);
        used.contains(&Sentinel::ApiserverHost) || used.contains(&Sentinel::ApiserverPort)
    })
}

impl Manifests {
    /// Observes everything one pass needs. Nothing that has not changed is asked for again.
    pub(super) async fn observe_folder(&self) -> Result<Observed, Error> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        let now = clock::now();
        let (listing, state_back) = tokio::task::spawn_blocking(move || {
            let listing = state.folder.read();
            (listing, state)
        })
        .await
        .map_err(Error::Task)?;
        state = state_back;
        let listing = listing.map_err(Error::Folder)?;
        let stored = self.stored(&mut state).await?;
        let mut refusals = Vec::new();
        let values = self.values(&mut state, &listing, stored.as_ref().ok(), now).await?;
        let pass = &mut *state;
        let record = stored
            .as_ref()
            .ok()
            .and_then(|stored| stored.documents.desired.as_ref());
        let skip = bundled::mismatched(&mut pass.verified, &listing, record, &mut refusals);
        let sources = sources::read(&mut pass.parsed, &mut pass.seen, &listing, &values, &skip);
        refusals.extend_from_slice(&sources.refusals);
        let key = (listing.digest, values, skip);
        let resolution = self.resolution(pass, key, &sources.declared).await?;
        let own = pass.own.of(stored.as_ref().ok(), &self.settings.node);
        let mut observed = Observed {
            state,
            listing,
            resolution,
            refusals,
            stored,
            own,
            live: BTreeMap::new(),
            now,
        };
        self.look_for_drift(&mut observed).await?;
        Ok(observed)
    }

    /// The inventory: what was read or written last, unless somebody else has written since.
    async fn stored(&self, state: &mut State) -> Result<Result<Stored, String>, Error> {
        if let Some(stored) = &state.stored {
            return Ok(Ok(stored.clone()));
        }
        match self.store.load().await {
            Ok(stored) => {
                state.stored = Some(stored.clone());
                Ok(Ok(stored))
            }
            Err(StoreError::Unreadable(problem)) => Ok(Err(chain(&problem))),
            Err(error) => Err(Error::Inventory(error)),
        }
    }

    /// The values of sentinels, from the cluster inputs and from cluster-info if a file asks for what stands there.
    async fn values(
        &self,
        state: &mut State,
        listing: &Listing,
        stored: Option<&Stored>,
        now: Timestamp,
    ) -> Result<SentinelValues, Error> {
        let inputs = stored.and_then(|stored| stored.documents.cluster_inputs.as_ref());
        let mut values = SentinelValues {
            cluster_dns: inputs.map(|inputs| inputs.cluster_dns),
            cluster_domain: inputs.and_then(|inputs| DnsName::new(&inputs.cluster_domain).ok()),
            dual_stack: inputs.map(|inputs| inputs.dual_stack),
            storage_default: inputs.map(|inputs| inputs.storage_default),
            ..SentinelValues::default()
        };
        let before = state.server.take().filter(|known| known.folder == listing.digest);
        let known = match before {
            Some(known) if !known.asked_for || now.duration_since(known.at) < VALUES_LAST => known,
            before => {
                // Scanning every file costs as much as reading it, so it is done only when the folder changed.
                let asked_for =
                    before.map_or_else(|| listing.files.iter().any(|file| asks(file)), |known| known.asked_for);
                Server {
                    folder: listing.digest,
                    asked_for,
                    address: if asked_for {
                        cluster_info::server(&self.client).await.map_err(Error::Cluster)?
                    } else {
                        None
                    },
                    at: now,
                }
            }
        };
        if let Some((host, port)) = &known.address {
            values.apiserver_host = Some(host.clone());
            values.apiserver_port = Some(*port);
        }
        state.server = Some(known);
        Ok(values)
    }

    /// Gives the declared objects their identities; discovery is asked again when a kind is unknown.
    async fn resolution(
        &self,
        state: &mut State,
        key: super::ResolutionKey,
        files: &[(Option<StackName>, Arc<Vec<Declared>>)],
    ) -> Result<Arc<Resolution>, Error> {
        if let Some((known, resolution)) = &state.resolution
            && *known == key
            && !lacks_discovery(resolution)
        {
            return Ok(Arc::clone(resolution));
        }
        let declared: Vec<(Option<StackName>, &Declared)> = files
            .iter()
            .flat_map(|(stack, all)| all.iter().map(move |one| (stack.clone(), one)))
            .collect();
        let tried = state.served.as_ref().map(|served| resolve(&declared, served));
        let resolution = match tried.filter(|tried| !lacks_discovery(tried)) {
            Some(resolution) => resolution,
            None => resolve(&declared, &*self.discover(state).await?),
        };
        let resolution = Arc::new(resolution);
        state.resolution = Some((key, Arc::clone(&resolution)));
        Ok(resolution)
    }

    /// Asks the API server what it serves, and keeps the answer.
    pub(super) async fn discover(&self, state: &mut State) -> Result<Arc<ResourceMap>, Error> {
        let served = Arc::new(cluster::discover(&self.client).await.map_err(Error::Cluster)?);
        state.served = Some(Arc::clone(&served));
        Ok(served)
    }
}

/// Whether something is refused that the API server may serve by now.
fn lacks_discovery(resolution: &Resolution) -> bool {
    resolution.refusals.iter().any(|refusal| {
        matches!(
            refusal.reason,
            RefusalReason::UnknownKind | RefusalReason::GroupUnavailable
        )
    })
}
