//! Events on objects: what `kubectl describe` shows of a decision, in words (`events.k8s.io/v1`).
//!
//! An Event is told, never relied on: a failure is logged and fails no reconcile. Of what is told again and again only the
//! first is sent, and once more each [`REPEAT`]: so a decision that is taken anew at each pass does not fill the cluster.
//! Only the right to create Events is needed, never to read or change one.
//!
//! kube's own Recorder is not used: it keeps the first note of a series for ever, so a reason that has changed meanwhile
//! would not be shown, and it writes past [`super::hands`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use tracing::warn;

use super::concern::chain;
use super::operator::{Context, SYSTEM_NAMESPACE};
use super::{cluster, hands};
use crate::host::clock;

/// Who reports, in the form of a label's key.
const CONTROLLER: &str = "stratum.ciq.com/operator";
/// After this time the same is told once more. The API server forgets an Event after an hour if nothing else is set.
const REPEAT: Duration = Duration::from_secs(30 * 60);
/// The longest note the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;
/// The longest name of an object is 253 bytes; the rest is for the time that makes an Event's name unique.
const LONGEST_NAME: usize = 253 - 33;
/// An Event may not hold a reconcile up for longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many Events are remembered, about 2 MiB.
const REMEMBERED: usize = 8192;

/// How an Event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// Somebody should look at it.
    Warning,
}

/// Where Events are told. Clones share what has been told.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: &'static str,
    instance: String,
    said: Arc<Mutex<Said>>,
}

impl Events {
    /// Events of the operator on node `instance`.
    #[must_use]
    pub fn new(client: Client, instance: impl Into<String>) -> Self {
        Self {
            client,
            controller: CONTROLLER,
            instance: instance.into(),
            said: Arc::default(),
        }
    }

    /// The same, of another part of this program than the operator; in the form of a label's key.
    #[must_use]
    pub fn reported_by(self, controller: &'static str) -> Self {
        Self { controller, ..self }
    }

    /// Tells of an object. `reason` is one word in upper camel case, `note` a sentence.
    ///
    /// The Event stands in the object's namespace, and of an object without one in `kube-system`.
    pub async fn publish(&self, regarding: ObjectReference, kind: EventKind, reason: &'static str, note: String) {
        let key = Key {
            kind,
            reason,
            object: regarding.uid.clone().or(regarding.name.clone()).unwrap_or_default(),
            note: cut(note, LONGEST_NOTE),
        };
        if !self.said().is_new(key.clone(), clock::since_boot()) {
            return;
        }
        let told = tokio::time::timeout(PATIENCE, self.send(&key, regarding)).await;
        let problem = match told {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        self.said().forget(&key);
        warn!(reason, note = key.note, problem, "an Event could not be told");
    }

    async fn send(&self, key: &Key, regarding: ObjectReference) -> Result<(), cluster::CallError> {
        let now = clock::now();
        let object = regarding.name.clone().unwrap_or_default();
        let name = format!("{}.{:x}", cut(object, LONGEST_NAME), now.as_nanosecond());
        let namespace = regarding
            .namespace
            .clone()
            .unwrap_or_else(|| SYSTEM_NAMESPACE.to_owned());
        let collection = cluster::collection_path("events.k8s.io", "v1", "events", Some(&namespace));
        let kind: &'static str = key.kind.into();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            // Both are required; the operator has no name for the action apart from the reason.
            action: Some(key.reason.to_owned()),
            reason: Some(key.reason.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(key.note.clone()),
            regarding: Some(regarding),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(cut(self.instance.clone(), 128)),
            type_: Some(kind.to_owned()),
            ..Event::default()
        };
        let body = serde_json::to_value(&event).unwrap_or_default();
        hands::store(&self.client, &collection, &name, false, &body).await?;
        Ok(())
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Context {
    /// Where a concern of this instance tells Events, under the identity it writes with.
    #[must_use]
    pub fn events(&self) -> Events {
        Events::new(self.client.clone(), &self.settings.node)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: EventKind,
    reason: &'static str,
    object: String,
    note: String,
}

/// What has been told, and when by a clock that only runs forward.
#[derive(Debug, Default)]
struct Said {
    at: HashMap<Key, Duration>,
}

impl Said {
    /// Whether this has not been told for [`REPEAT`]; if so, it counts as told now.
    fn is_new(&mut self, key: Key, now: Duration) -> bool {
        let told_recently = |at: &Duration| now.saturating_sub(*at) < REPEAT;
        if self.at.get(&key).is_some_and(told_recently) {
            return false;
        }
        if self.at.len() >= REMEMBERED {
            self.at.retain(|_, at| told_recently(at));
        }
        // Still full: to tell something twice is better than to grow.
        if self.at.len() >= REMEMBERED {
            self.at.clear();
        }
        self.at.insert(key, now);
        true
    }

    fn forget(&mut self, key: &Key) {
        self.at.remove(key);
    }
}

/// The longest beginning of `text` that has at most `limit` bytes.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(note: &str) -> Key {
        Key {
            kind: EventKind::Warning,
            reason: "Reason",
            object: "uid".to_owned(),
            note: note.to_owned(),
        }
    }

    #[test]
    fn the_same_is_told_once_and_again_after_a_while() {
        let mut said = Said::default();
        let start = Duration::from_secs(1000);
        let almost = start + REPEAT - Duration::from_secs(1);
        assert!(said.is_new(key("a"), start));
        assert!(!said.is_new(key("a"), almost));
        assert!(said.is_new(key("b"), almost), "another note");
        let other = Key {
            object: "other".to_owned(),
            ..key("a")
        };
        assert!(said.is_new(other, almost), "another object");
        assert!(said.is_new(key("a"), start + REPEAT));
        said.forget(&key("a"));
        assert!(said.is_new(key("a"), start + REPEAT), "it was not sent");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut said = Said::default();
        let start = Duration::from_secs(1000);
        for number in 0..3 * REMEMBERED {
            assert!(said.is_new(key(&number.to_string()), start));
            assert!(said.at.len() <= REMEMBERED);
        }
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        assert_eq!(cut("abc".to_owned(), 3), "abc");
        assert_eq!(cut("abcd".to_owned(), 3), "abc");
        assert_eq!(cut("aéé".to_owned(), 4), "aé");
    }
}
