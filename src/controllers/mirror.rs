//! What is known of all objects of a cluster-scoped kind: one watch for the whole process, keeping of each object only
//! what somebody asks for, and telling of an object only when that has changed.
//!
//! Lists are streamed, one object at a time: a page of whole objects would be megabytes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::concern::{ConcernName, Observer, chain};

/// Changes a subscriber may be behind before it is told to look at everything.
const BACKLOG: usize = 1024;

/// Of what the knowledge has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of the object with this name, which may be new or gone.
    Of(Arc<str>),
    /// Of any: all were listed anew, or the subscriber was too slow to be told of each.
    OfAny,
}

/// What is kept, by name.
pub(super) type Kept<V> = BTreeMap<Arc<str>, Arc<V>>;

/// Brings something that is derived from what is kept up to a change, before anybody is told of that.
type Index<V> = Box<dyn Fn(&Kept<V>, &Change) + Send + Sync>;

/// The objects of a kind, as the watch last had them. Clones share it.
pub struct Mirror<V>(Arc<Inner<V>>);

struct Inner<V> {
    index: Index<V>,
    kept: RwLock<Kept<V>>,
    changes: broadcast::Sender<Change>,
    listed: watch::Sender<bool>,
}

impl<V> Clone for Mirror<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Self::indexed(|_, _| {})
    }
}

impl<V> Mirror<V> {
    /// One that keeps an index of what it holds: who is told of a change finds it there already.
    pub(super) fn indexed(index: impl Fn(&Kept<V>, &Change) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            index: Box::new(index),
            kept: RwLock::default(),
            changes: broadcast::Sender::new(BACKLOG),
            listed: watch::Sender::new(false),
        }))
    }
}

impl<V: PartialEq + Send + Sync + 'static> Mirror<V> {
    /// What is known of an object; none when there is no such object, or before the first list.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<V>> {
        self.read(|kept| kept.get(name).cloned())
    }

    /// What is known of all, by name.
    #[must_use]
    pub fn all(&self) -> Vec<(Arc<str>, Arc<V>)> {
        let copy = |(name, value): (&Arc<str>, &Arc<V>)| (Arc::clone(name), Arc::clone(value));
        self.read(|kept| kept.iter().map(copy).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.read(BTreeMap::len)
    }

    /// Until all objects have been listed once. Before that, one that is missing here means nothing.
    pub async fn ready(&self) {
        // The sender lives as long as this value.
        let _ = self.0.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Whether all objects have been listed once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.0.listed.borrow()
    }

    /// The changes from now on; an object of which the same is kept as before is not among them.
    #[must_use]
    pub fn changes(&self) -> BoxStream<'static, Change> {
        let next = |mut receiver: broadcast::Receiver<Change>| async move {
            let change = match receiver.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => Change::OfAny,
                Err(RecvError::Closed) => return None,
            };
            Some((change, receiver))
        };
        stream::unfold(self.0.changes.subscribe(), next).boxed()
    }

    /// Takes in what this process itself has just written, so that it is seen before the watch tells of it.
    pub fn put(&self, name: &str, value: Option<V>) {
        let name: Arc<str> = name.into();
        let changed = match value {
            Some(value) if self.get(&name).is_some_and(|known| *known == value) => false,
            Some(value) => {
                self.write(|kept| kept.insert(Arc::clone(&name), Arc::new(value)));
                true
            }
            None => self.write(|kept| kept.remove(&name)).is_some(),
        };
        if changed {
            self.tell(Change::Of(name));
        }
    }

    /// Watches, and does not end. `keep` says what is kept of an object; `concern` is who is told to the observer.
    pub async fn follow<K>(
        self,
        api: Api<K>,
        config: watcher::Config,
        keep: impl Fn(K) -> V + Send,
        concern: ConcernName,
        observer: Arc<dyn Observer>,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let keep = |object: K| (object.meta().name.as_deref().unwrap_or_default().into(), keep(object));
        let mut events = pin!(watcher::watcher(api, config.streaming_lists()).default_backoff());
        let mut listing = Kept::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if self.take(&mut listing, map(event, keep)) {
                        observer.watch_ready(concern);
                    }
                }
                Err(error) => {
                    observer.watch_failed(concern);
                    let error = chain(&error);
                    tracing::warn!(watch = concern.as_str(), error, "a watch failed and is being restarted");
                }
            }
        }
    }

    fn read<T>(&self, ask: impl FnOnce(&Kept<V>) -> T) -> T {
        ask(&self.0.kept.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Kept<V>) -> T) -> T {
        change(&mut self.0.kept.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes an event in; `listing` collects a list until it is whole. Returns whether it is whole now.
    fn take(&self, listing: &mut Kept<V>, event: Event<(Arc<str>, V)>) -> bool {
        match event {
            Event::Init => listing.clear(),
            Event::InitApply((name, value)) => {
                // The same again is the same value: a new list must not cost the memory twice.
                let known = self.get(&name).filter(|known| **known == value);
                listing.insert(name, known.unwrap_or_else(|| Arc::new(value)));
            }
            Event::InitDone => {
                let listed = std::mem::take(listing);
                let before = self.write(|kept| std::mem::replace(kept, listed));
                if self.read(|kept| before != *kept) {
                    self.tell(Change::OfAny);
                }
                self.0.listed.send_replace(true);
                return true;
            }
            Event::Apply((name, value)) => self.put(&name, Some(value)),
            Event::Delete((name, _)) => self.put(&name, None),
        }
        false
    }

    fn tell(&self, change: Change) {
        self.read(|kept| (self.0.index)(kept, &change));
        // Nobody may be listening.
        let _ = self.0.changes.send(change);
    }
}

fn map<K, V>(event: Event<K>, keep: impl Fn(K) -> V) -> Event<V> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(keep(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(keep(object)),
        Event::Delete(object) => Event::Delete(keep(object)),
    }
}

#[cfg(test)]
mod tests;
