//! What wakes a HelmChart besides its own change: its config, what its values come from, its release, and those that it
//! depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tracing::warn;

use super::object::{HelmChart, HelmChartConfig};
use crate::controllers::concern::chain;
use crate::reconcilers::helm::release::SECRET_TYPE;
use crate::reconcilers::helm::{ChartId, NAME_LABEL, NAMESPACE_LABEL};

/// What a HelmChart names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Named {
    Secret,
    ConfigMap,
    HelmChart,
}

/// Who names what.
pub(super) struct Index {
    names: Mutex<BTreeMap<ChartId, BTreeSet<(Named, ChartId)>>>,
    /// HelmCharts that came to be what they should, or no longer are.
    turned: broadcast::Sender<ChartId>,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            names: Mutex::default(),
            // Whoever is too slow for so many is woken by the next look.
            turned: broadcast::channel(256).0,
        }
    }

    /// A HelmChart names these.
    pub(super) fn set(&self, chart: &ChartId, names: BTreeSet<(Named, ChartId)>) {
        let mut all = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(chart.clone(), names);
    }

    /// A HelmChart is gone.
    pub(super) fn remove(&self, name: &str) {
        // Its namespace is not told. Of another one of its name nothing is lost: what is looked at sets it again.
        let mut all = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|chart, _| chart.name != name);
    }

    /// A HelmChart turned ready, or no longer is.
    pub(super) fn turned(&self, chart: &ChartId) {
        // Nobody listens between two terms.
        let _ = self.turned.send(chart.clone());
    }

    fn who_names(&self, kind: Named, object: &ChartId) -> Vec<ChartId> {
        let all = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let naming = all.iter().filter(|(_, names)| names.contains(&(kind, object.clone())));
        naming.map(|(chart, _)| chart.clone()).collect()
    }
}

/// All of it, as a stream of those to look at.
pub(super) fn wakes(client: &Client, index: &std::sync::Arc<Index>) -> BoxStream<'static, ObjectRef<HelmChart>> {
    let not_releases = watcher::Config::default().fields(&format!("type!={SECRET_TYPE}"));
    let releases = watcher::Config::default()
        .fields(&format!("type={SECRET_TYPE}"))
        .labels(NAME_LABEL);
    let named = |kind: Named| {
        let index = std::sync::Arc::clone(index);
        move |object: ChartId| stream::iter(index.who_names(kind, &object))
    };
    let secrets = touched(
        Api::<PartialObjectMeta<Secret>>::all(client.clone()),
        not_releases,
        "Secrets",
    );
    let maps = touched(
        Api::<PartialObjectMeta<ConfigMap>>::all(client.clone()),
        watcher::Config::default(),
        "ConfigMaps",
    );
    let configs = touched(
        Api::<HelmChartConfig>::all(client.clone()),
        watcher::Config::default(),
        "HelmChartConfigs",
    );
    let stored = touched(
        Api::<PartialObjectMeta<Secret>>::all(client.clone()),
        releases,
        "releases",
    );
    let owners = stored.filter_map(|secret| {
        let label = |name| secret.labels().get(name).cloned();
        let owner = label(NAMESPACE_LABEL).zip(label(NAME_LABEL));
        std::future::ready(owner.map(|(namespace, name)| ChartId { namespace, name }))
    });
    let turned = stream::unfold(index.turned.subscribe(), async |mut turned| {
        loop {
            match turned.recv().await {
                Ok(chart) => return Some((chart, turned)),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    });
    let all = [
        secrets.map(|secret| id(&secret)).flat_map(named(Named::Secret)).boxed(),
        maps.map(|map| id(&map)).flat_map(named(Named::ConfigMap)).boxed(),
        turned.flat_map(named(Named::HelmChart)).boxed(),
        configs.map(|config| id(&config)).boxed(),
        owners.boxed(),
    ];
    stream::select_all(all)
        .map(|chart| ObjectRef::new(&chart.name).within(&chart.namespace))
        .boxed()
}

fn id(object: &impl ResourceExt) -> ChartId {
    ChartId::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// Objects that were made, changed or deleted.
fn touched<K>(api: Api<K>, config: watcher::Config, what: &'static str) -> impl Stream<Item = K> + Send
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    watcher::watcher(api, config)
        .default_backoff()
        .filter_map(move |event| {
            std::future::ready(match event {
                // At the start each HelmChart is looked at anyway; after a break of the watch each of these may have changed.
                Ok(Event::Apply(object) | Event::Delete(object) | Event::InitApply(object)) => Some(object),
                Ok(Event::Init | Event::InitDone) => None,
                Err(error) => {
                    warn!(error = %chain(&error), "the watch of {what} failed and is being restarted");
                    None
                }
            })
        })
}
