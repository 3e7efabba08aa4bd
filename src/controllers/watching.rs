//! What concerns watch besides their roots, in the few forms they need.

use std::fmt::Debug;
use std::future::ready;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::concern::chain;

/// Only the object of this name.
pub(super) fn only(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// One Namespace, as the root of a concern that has no object of its own: it is always there.
pub(super) fn the_namespace(client: &Client, name: &str) -> (Api<Namespace>, watcher::Config) {
    (Api::all(client.clone()), only(name))
}

/// That something happened to one of these objects, and no more. `what` names them in the log when their watch fails,
/// which is restarted by its backoff.
pub(super) fn signals<K>(api: Api<K>, config: watcher::Config, what: &'static str) -> impl Stream<Item = ()> + Send
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher::watcher(api, config)
        .default_backoff()
        .filter_map(move |event| {
            let wakes = match event {
                Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => true,
                Ok(Event::Init | Event::InitApply(_)) => false,
                Err(error) => {
                    warn!(error = %chain(&error), "the watch of {what} failed and is being restarted");
                    false
                }
            };
            ready(wakes.then_some(()))
        })
}
