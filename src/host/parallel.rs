//! Work on many things at a time, such as files or keys: one alone leaves processors idle, or the disk.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` with every item, as many at a time as there are processors; what came of each, in no order.
pub(super) fn on_every_processor<I: Sync, R: Send>(items: &[I], work: impl Fn(&I) -> R + Sync) -> Vec<R> {
    at_once(items, thread::available_parallelism().map_or(1, usize::from), work)
}

/// The same, `most` at a time: for work that waits, and does not compute.
pub(super) fn at_once<I: Sync, R: Send>(items: &[I], most: usize, work: impl Fn(&I) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let one_after_another = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(item);
            results
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..most.min(items.len()) {
            scope.spawn(one_after_another);
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        let items: Vec<usize> = (0..1000).collect();
        let mut results = on_every_processor(&items, |item| item * 2);
        results.sort_unstable();
        assert!(results.iter().copied().eq(items.iter().map(|item| item * 2)));
        assert!(on_every_processor(&[0; 0], |item: &i32| *item).is_empty());
    }
}
