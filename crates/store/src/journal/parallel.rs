//! Steps of one commit, spread over several cores where they are long.
//!
//! The worker threads live for one step, so they cost nothing between commits. Starting them takes
//! some tens of microseconds, so a step with little more work than that stays on one thread. The
//! result does not depend on the number of threads.

use nextent_sync::{available_cores, parallel_map};

/// Items that one thread takes at a time: under a millisecond of work. One in models.
const PART: usize = if cfg!(feature = "model-shuttle") { 1 } else { 512 };
/// Fewer parts than this stay on the calling thread.
const MIN_PARTS: usize = if cfg!(feature = "model-shuttle") { 2 } else { 4 };
/// More threads than this gain nothing: the device limits them.
const MAX_WORKERS: usize = 8;

/// `f` of each part of `items`, in order.
pub(super) fn parts<'i, T: Sync, R: Send>(
    items: &'i [T],
    f: impl Fn(&'i [T]) -> R + Sync,
) -> Vec<R> {
    if items.len() < MIN_PARTS * PART {
        return vec![f(items)];
    }
    parallel_map(workers(), items.chunks(PART), f)
}

/// `f` of each item, in order.
pub(super) fn map<T: Send, R: Send>(items: Vec<T>, f: impl Fn(T) -> R + Sync) -> Vec<R> {
    if items.len() < MIN_PARTS * PART {
        return items.into_iter().map(f).collect();
    }
    let mut rest = items;
    let mut parts = Vec::with_capacity(rest.len().div_ceil(PART));
    while !rest.is_empty() {
        let after = rest.split_off(PART.min(rest.len()));
        parts.push(std::mem::replace(&mut rest, after));
    }
    let all =
        parallel_map(workers(), parts, |part: Vec<T>| part.into_iter().map(&f).collect::<Vec<R>>());
    all.into_iter().flatten().collect()
}

fn workers() -> usize {
    available_cores().min(MAX_WORKERS)
}
