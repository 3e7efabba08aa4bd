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
    requests: BTreeMap<String, (Option<String>, ReasonWord)>,
    by_node: BTreeMap<String, BTreeSet<String>>,
    told: HashMap<String, (u32, Duration)>,
}

impl Waiting {
    /// Notes that a request waits; whether that is news.
    pub(super) fn put(&self, request: &str, node: Option<&str>, reason: &Reason) -> bool {
        let word = ReasonWord::from(reason);
        let mut inner = self.inner();
        if let Some(node) = node {
            let requests = inner.by_node.entry(node.to_owned()).or_default();
            requests.insert(request.to_owned());
        }
        let before = inner
            .requests
            .insert(request.to_owned(), (node.map(str::to_owned), word));
        before.is_none_or(|(_, before)| before != word)
    }

    /// Notes that a request waits no longer; whether it did.
    pub(super) fn remove(&self, request: &str) -> bool {
        let mut inner = self.inner();
        let Some((node, _)) = inner.requests.remove(request) else {
            return false;
        };
        if let Some(node) = node
            && let Some(requests) = inner.by_node.get_mut(&node)
        {
            requests.remove(request);
            if requests.is_empty() {
                inner.by_node.remove(&node);
            }
        }
        true
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
        assert!(waiting.remove("a") && !waiting.remove("a") && waiting.remove("b"));
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
