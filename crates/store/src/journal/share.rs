//! Work of one commit shared out over cores, when it is much.
//!
//! The helpers live for one step of a commit, so between commits they cost nothing; starting them
//! takes some tens of microseconds, so a step with less to do than several times that is done
//! alone. What comes out does not depend on how many took part.

use nextent_sync::{available_cores, parallel_map};

/// Items that one thread takes at a time: under a millisecond of work, and under a model one.
const PART: usize = if cfg!(feature = "model-shuttle") { 1 } else { 512 };
/// Fewer parts than this are done alone.
const LEAST: usize = if cfg!(feature = "model-shuttle") { 2 } else { 4 };
/// More threads than this gain nothing: the device is next.
const MOST: usize = 8;

/// What `f` makes of each part of `items`, in order.
pub(super) fn parts<'i, T: Sync, R: Send>(
    items: &'i [T],
    f: impl Fn(&'i [T]) -> R + Sync,
) -> Vec<R> {
    if items.len() < LEAST * PART {
        return vec![f(items)];
    }
    parallel_map(workers(), items.chunks(PART), f)
}

/// What `f` makes of each item, part by part, in order.
pub(super) fn map<T: Send, R: Send>(items: Vec<T>, f: impl Fn(T) -> R + Sync) -> Vec<R> {
    if items.len() < LEAST * PART {
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
    available_cores().min(MOST)
}
