//! Turns: who asks a thousand times does not hold up who asks once.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Admits a number of works at one time, and those that wait in turns by their key.
#[derive(Debug)]
pub(super) struct Fair<K: Clone + Eq + Hash> {
    state: Arc<Mutex<State<K>>>,
}

#[derive(Debug)]
struct State<K> {
    free: usize,
    /// The keys with somebody waiting, in the order of their turns.
    turns: VecDeque<K>,
    waiting: HashMap<K, VecDeque<oneshot::Sender<()>>>,
}

/// The right to work, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<K: Clone + Eq + Hash> {
    state: Arc<Mutex<State<K>>>,
}

impl<K: Clone + Eq + Hash> Fair<K> {
    /// Admits `limit` at one time.
    #[must_use]
    pub(super) fn new(limit: usize) -> Self {
        let state = State {
            free: limit,
            turns: VecDeque::new(),
            waiting: HashMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self, key: K) -> Turn<K> {
        let waits = {
            let mut state = lock(&self.state);
            if state.free > 0 {
                state.free -= 1;
                None
            } else {
                let (admit, admitted) = oneshot::channel();
                if !state.waiting.contains_key(&key) {
                    state.turns.push_back(key.clone());
                }
                state.waiting.entry(key).or_default().push_back(admit);
                Some(admitted)
            }
        };
        let turn = Waiting {
            state: Arc::clone(&self.state),
            admitted: waits,
        };
        turn.wait().await
    }
}

/// Somebody who waits. If it gives up in the moment in which it is admitted, its turn goes on to the next.
struct Waiting<K: Clone + Eq + Hash> {
    state: Arc<Mutex<State<K>>>,
    admitted: Option<oneshot::Receiver<()>>,
}

impl<K: Clone + Eq + Hash> Waiting<K> {
    async fn wait(mut self) -> Turn<K> {
        if let Some(admitted) = &mut self.admitted {
            // The sender is dropped only after it has sent, or with the state itself.
            let _ = admitted.await;
        }
        self.admitted = None;
        Turn {
            state: Arc::clone(&self.state),
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for Waiting<K> {
    fn drop(&mut self) {
        if let Some(admitted) = &mut self.admitted
            && (admitted.try_recv().is_ok())
        {
            release(&self.state);
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for Turn<K> {
    fn drop(&mut self) {
        release(&self.state);
    }
}

/// Gives a place to who is next, or back.
fn release<K: Clone + Eq + Hash>(state: &Mutex<State<K>>) {
    let mut state = lock(state);
    while let Some(key) = state.turns.pop_front() {
        let Some(queue) = state.waiting.get_mut(&key) else {
            continue;
        };
        let next = queue.pop_front();
        if queue.is_empty() {
            state.waiting.remove(&key);
        } else {
            state.turns.push_back(key);
        }
        // One that no longer waits passes its turn on.
        if next.is_some_and(|admit| admit.send(()).is_ok()) {
            return;
        }
    }
    state.free += 1;
}

fn lock<K>(state: &Mutex<State<K>>) -> std::sync::MutexGuard<'_, State<K>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Who is admitted, one after the other, when all of them wait at one time.
    fn order(keys: &[&'static str]) -> Vec<(&'static str, usize)> {
        let fair = Fair::new(1);
        let mut running = fair.turn("first").now_or_never();
        let mut waiting: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| (*key, index, Box::pin(fair.turn(*key))))
            .collect();
        for (_, _, turn) in &mut waiting {
            assert!(turn.as_mut().now_or_never().is_none());
        }
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running.take());
            let next = waiting.iter_mut().position(|(_, _, turn)| {
                running = turn.as_mut().now_or_never();
                running.is_some()
            });
            let (key, index, _) = waiting.remove(next.expect("somebody is next"));
            order.push((key, index));
        }
        order
    }

    #[test]
    fn turns_go_round_and_within_a_key_who_comes_first_is_first() {
        assert_eq!(
            order(&["a", "a", "a", "a", "b", "b", "c"]),
            [("a", 0), ("b", 4), ("c", 6), ("a", 1), ("b", 5), ("a", 2), ("a", 3)]
        );
    }

    #[test]
    fn who_gives_up_loses_no_place() {
        let fair = Fair::new(1);
        let running = fair.turn("x").now_or_never().unwrap();
        let mut first = Box::pin(fair.turn("a"));
        let mut second = Box::pin(fair.turn("b"));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        // Given up before its turn, and in the moment of it.
        let mut third = Box::pin(fair.turn("c"));
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        drop(running);
        drop(second);
        let third = third.as_mut().now_or_never();
        assert!(third.is_some(), "the place went on");
        drop(third);
        assert!(fair.turn("d").now_or_never().is_some(), "and is free again");
    }
}
