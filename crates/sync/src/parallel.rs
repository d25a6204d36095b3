//! Work spread over a few threads that live for one call.
//!
//! Threads take items one at a time, so a slow item does not delay the rest. The caller works too,
//! and every thread has ended when a call returns. The caller waits for the workers, so their lock
//! order begins at the highest rank that the caller holds.

use crate::{primitive, rank};

/// How many threads can run at once here, at least one.
pub fn available_cores() -> usize {
    primitive::available_cores()
}

/// Calls `f` on every item, on the caller and up to `workers - 1` more threads.
///
/// # Panics
/// If `f` does, after the other threads have finished.
pub fn parallel_for<I, F>(workers: usize, items: I, f: F)
where
    I: IntoIterator,
    I::IntoIter: Send,
    I::Item: Send,
    F: Fn(I::Item) + Sync,
{
    let done = try_parallel_for(workers, items, |item| {
        f(item);
        Ok::<(), std::convert::Infallible>(())
    });
    match done {
        Ok(()) => (),
        Err(never) => match never {},
    }
}

/// As [`parallel_for`], until `f` fails: no thread takes an item after that. Returns the first
/// failure by time, once all threads have finished.
///
/// # Errors
/// The first error of `f`.
///
/// # Panics
/// As [`parallel_for`].
pub fn try_parallel_for<I, E, F>(workers: usize, items: I, f: F) -> Result<(), E>
where
    I: IntoIterator,
    I::IntoIter: Send,
    I::Item: Send,
    E: Send,
    F: Fn(I::Item) -> Result<(), E> + Sync,
{
    let items = items.into_iter();
    let most = items.size_hint().1.unwrap_or(usize::MAX);
    let queue = primitive::Mutex::new(Queue { items: Some(items), failure: None });
    let work = || {
        while let Some(item) = next(&queue) {
            if let Err(cause) = f(item) {
                fail(&queue, cause);
            }
        }
    };
    run(workers.min(most), &work);
    queue.into_inner().failure.map_or(Ok(()), Err)
}

/// `f` of each item, in the items' order.
///
/// # Panics
/// As [`parallel_for`].
pub fn parallel_map<I, R, F>(workers: usize, items: I, f: F) -> Vec<R>
where
    I: IntoIterator,
    I::IntoIter: Send,
    I::Item: Send,
    R: Send,
    F: Fn(I::Item) -> R + Sync,
{
    let results = primitive::Mutex::new(Vec::new());
    parallel_for(workers, items.into_iter().enumerate(), |(at, item)| {
        let result = f(item);
        results.lock().push((at, result));
    });
    let mut results = results.into_inner();
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The items that no thread has taken yet; `None` after the last, or after a failure.
struct Queue<I, E> {
    items: Option<I>,
    failure: Option<E>,
}

fn next<I: Iterator, E>(queue: &primitive::Mutex<Queue<I, E>>) -> Option<I::Item> {
    let mut queue = queue.lock();
    let item = queue.items.as_mut()?.next();
    if item.is_none() {
        queue.items = None;
    }
    item
}

fn fail<I, E>(queue: &primitive::Mutex<Queue<I, E>>, cause: E) {
    let mut queue = queue.lock();
    queue.items = None;
    queue.failure.get_or_insert(cause);
}

fn run(workers: usize, work: &(impl Fn() + Sync)) {
    let order = rank::highest();
    primitive::on_workers(workers.saturating_sub(1), || {
        let _bound = rank::inherit(&order);
        work();
    });
}

#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
mod tests {
    use super::*;
    use crate::thread;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_item_is_done_once() {
        let sum = AtomicU64::new(0);
        parallel_for(4, 0..1000_u64, |n| {
            sum.fetch_add(n, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 499_500);
    }

    #[test]
    fn results_keep_their_order() {
        let squares = parallel_map(3, vec![5_u32, 1, 4], |n| n * n);
        assert_eq!(squares, [25, 1, 16]);
        assert!(parallel_map(0, Vec::<u8>::new(), |n| n).is_empty());
    }

    #[test]
    fn a_failure_stops_the_rest() {
        let started = AtomicU64::new(0);
        let result = try_parallel_for(2, 0.., |n: u64| {
            started.fetch_add(1, Ordering::Relaxed);
            if n < 10 { Ok(()) } else { Err(n) }
        });
        assert!(result.is_err_and(|n| n >= 10));
        assert!(started.into_inner() < 20);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_reaches_the_caller() {
        let caller = thread::current().id();
        let others = AtomicU64::new(0);
        parallel_for(2, 0..1000, |_| {
            if thread::current().id() != caller {
                others.fetch_add(1, Ordering::Relaxed);
                panic!("in a worker");
            }
            while others.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
        });
    }
}
