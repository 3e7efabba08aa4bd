//! The requests that wait, as this instance sees them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::reconcilers::csr::{Reason, ReasonWord};

/// So many Events at once are told of the requests of one user, and one more each [`REFILL`]: thousands of requests of a
/// hostile node must not become thousands of writes. The metrics count all of them.
const AT_ONCE: u32 = 20;
const REFILL: Duration = Duration::from_secs(10);

/// The waiting requests, by name and by the node they are about.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    requests: BTreeMap<String, (Vec<String>, ReasonWord)>,
    by_node: BTreeMap<String, BTreeSet<String>>,
    told: HashMap<String, (u32, Duration)>,
}

impl Waiting {
    /// Notes that a request waits; whether that is news. It is woken by changes of the node it is about, and of the one
    /// that has what it asks for.
    pub(super) fn put(&self, request: &str, node: Option<&str>, reason: &Reason) -> bool {
        let word = ReasonWord::from(reason);
        let holder = match reason {
            Reason::HeldByAnother { holder, .. } => Some(holder.as_str()),
            _ => None,
        };
        let nodes: Vec<String> = node.into_iter().chain(holder).map(str::to_owned).collect();
        let mut inner = self.inner();
        let before = inner.take(request);
        for node in &nodes {
            inner
                .by_node
                .entry(node.clone())
                .or_default()
                .insert(request.to_owned());
        }
        inner.requests.insert(request.to_owned(), (nodes, word));
        before != Some(word)
    }

    /// Notes that a request waits no longer; whether it did.
    pub(super) fn remove(&self, request: &str) -> bool {
        self.inner().take(request).is_some()
    }

    /// The requests that wait and are about a node.
    pub(super) fn of(&self, node: &str) -> Vec<String> {
        self.inner().by_node.get(node).into_iter().flatten().cloned().collect()
    }

    /// All requests that wait for something to change.
    pub(super) fn all(&self) -> Vec<String> {
        self.inner().by_node.values().flatten().cloned().collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.inner().requests.len()
    }

    /// Whether another Event may be told of this user's requests, at `now` of a clock that only runs forward.
    pub(super) fn may_tell(&self, requester: &str, now: Duration) -> bool {
        let mut inner = self.inner();
        // Users who have not asked for long start anew; so the table stays as small as the crowd.
        inner
            .told
            .retain(|_, (_, last)| now.saturating_sub(*last) < REFILL * AT_ONCE);
        let (left, last) = inner.told.entry(requester.to_owned()).or_insert((AT_ONCE, now));
        let refilled = u32::try_from(now.saturating_sub(*last).as_secs() / REFILL.as_secs()).unwrap_or(AT_ONCE);
        if refilled > 0 {
            *left = left.saturating_add(refilled).min(AT_ONCE);
            *last = now;
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Forgets a request; why it waited.
    fn take(&mut self, request: &str) -> Option<ReasonWord> {
        let (nodes, word) = self.requests.remove(request)?;
        for node in nodes {
            if let Some(requests) = self.by_node.get_mut(&node) {
                requests.remove(request);
                if requests.is_empty() {
                    self.by_node.remove(&node);
                }
            }
        }
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_news_once_and_again_for_another_reason() {
        let waiting = Waiting::default();
        let no_node = Reason::NoNode("n".to_owned());
        assert!(waiting.put("a", Some("n"), &no_node));
        assert!(!waiting.put("a", Some("n"), &no_node));
        assert!(waiting.put("a", Some("n"), &Reason::NoAddresses("n".to_owned())));
        assert!(waiting.put("b", None, &Reason::NoNames));
        assert_eq!(
            (waiting.of("n"), waiting.all(), waiting.len()),
            (vec!["a".to_owned()], vec!["a".to_owned()], 2)
        );
        let held = Reason::HeldByAnother {
            host: "10.0.0.1"
                .parse()
                .map(crate::reconcilers::host_name::Host::Address)
                .unwrap(),
            holder: "m".to_owned(),
        };
        assert!(waiting.put("a", Some("n"), &held));
        assert_eq!(
            (waiting.of("n"), waiting.of("m")),
            (vec!["a".to_owned()], vec!["a".to_owned()]),
            "woken by both"
        );
        assert!(waiting.remove("a") && !waiting.remove("a") && waiting.remove("b"));
        assert!(waiting.of("m").is_empty());
        assert_eq!((waiting.of("n").len(), waiting.len()), (0, 0));
    }

    #[test]
    fn a_flood_is_told_of_a_little_and_others_as_always() {
        let waiting = Waiting::default();
        let told = |requester: &str, second| waiting.may_tell(requester, Duration::from_secs(second));
        let flood = (0..1000).filter(|_| told("hostile", 100)).count();
        assert_eq!(flood, 20);
        assert!(told("other", 100));
        assert!(told("hostile", 110) && !told("hostile", 111));
        assert_eq!((0..1000).filter(|_| told("hostile", 1000)).count(), 20);
    }
}
