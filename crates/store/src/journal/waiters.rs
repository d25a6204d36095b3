//! Threads that wait for a commit, and the commit that waits for them.
//!
//! # Wait queues
//!
//! A caller of a commit sleeps in a wait queue. There are two sets of queues, for odd and for even
//! transactions; the caller's slot chooses the queue of its set. So the end of a commit wakes only
//! its own callers, and they do not contend for one lock when they wake. Whether a transaction is
//! complete is an atomic, which the committer stores before it locks a queue to wake it. A waiter
//! loads it under the queue's lock, so it misses no wake-up.
//!
//! # Groups
//!
//! Callers that sync repeatedly form groups: the callers that one commit woke return together, too
//! late for the commit that has begun meanwhile for the others. Each commit then carries half of
//! them. So a commit that follows one for several callers waits until as many of these have
//! returned, at most as long as a commit takes. A single caller never waits for this. When most of
//! the others do not return, the next [`PAUSE`] commits do not wait.
//!
//! Lock ranks: `[journal.wait-queue]` 615; a group is under `[journal.control]`.

use super::gate;
use crate::locks;
use nextent_num::to_usize;
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{CachePadded, Condvar, Mutex, PerCore, current_slot, injected};
use std::time::Duration;

/// Queues for the waiters of one transaction; a power of two.
const QUEUES: usize = 8;
/// The longest time that a commit waits for callers to return.
const MAX_PATIENCE: Duration = Duration::from_millis(4);
/// Commits that do not wait after one that waited in vain.
const PAUSE: u32 = 16;

/// Callers that sleep in one queue.
struct WaitQueue {
    /// Their number. `[journal.wait-queue]`
    waiting: Mutex<u32>,
    wake: Condvar,
}

/// All queues, and the last request of each slot.
pub(super) struct Waiters {
    queues: Box<[CachePadded<WaitQueue>]>,
    /// The transaction that a slot's thread waited for last, plus one; 0 for none. Relaxed: a
    /// hint, used by that thread.
    last: PerCore<AtomicU64>,
}

impl Waiters {
    pub(super) fn new() -> Self {
        let queue =
            || WaitQueue { waiting: Mutex::new(&locks::WAIT_QUEUE, 0), wake: Condvar::new() };
        let queues = (0..2 * QUEUES).map(|_| CachePadded::new(queue())).collect();
        Self { queues, last: PerCore::new(|_| AtomicU64::new(0)) }
    }

    fn of(&self, tid: Tid) -> &[CachePadded<WaitQueue>] {
        let set = to_usize(tid.0) % 2 * QUEUES;
        &self.queues[set..set + QUEUES]
    }

    /// Sleeps until `over`, which becomes true before [`wake`](Self::wake) for `tid` is called.
    pub(super) fn sleep(&self, tid: Tid, over: impl Fn() -> bool) {
        let queue = &self.of(tid)[current_slot().index() % QUEUES];
        let mut waiting = queue.waiting.lock();
        let mut lost = injected("lost-wakeup");
        while std::mem::take(&mut lost) || !over() {
            *waiting += 1;
            queue.wake.wait(&mut waiting);
            *waiting -= 1;
        }
    }

    /// Wakes all waiters of `tid`.
    pub(super) fn wake(&self, tid: Tid) {
        for queue in self.of(tid) {
            if *queue.waiting.lock() > 0 {
                queue.wake.notify_all();
            }
        }
    }

    /// Notes that the caller requests `tid`; true if its last request was the transaction before.
    pub(super) fn note(&self, tid: Tid) -> bool {
        let last = self.last.get(current_slot());
        let before = last.load(Ordering::Relaxed);
        last.store(u64::from(tid.0) + 1, Ordering::Relaxed);
        // `tid - 1`, plus one.
        before != 0 && before == u64::from(tid.0)
    }
}

/// Counts of the callers of the last commit and the next. `[journal.control]`
#[derive(Default)]
pub(super) struct CommitGroup {
    /// Callers of the newest even and the newest odd transaction: the last and the next.
    asked: [u32; 2],
    /// Those of them that called for the transaction before.
    returned: [u32; 2],
    /// Commits yet to come that do not wait.
    pause: u32,
    /// Average duration of a commit.
    usual: Duration,
}

impl CommitGroup {
    /// A caller requests `tid`; true if the callers that its commit waits for are complete now.
    pub(super) fn join(&mut self, tid: Tid, returned: bool) -> bool {
        let own = to_usize(tid.0) % 2;
        self.asked[own] += 1;
        self.returned[own] += u32::from(returned);
        returned && self.returned[own] == self.asked[1 - own]
    }

    /// How long the commit of `tid` may wait for callers to return.
    pub(super) fn patience(&mut self, tid: Tid) -> Option<Duration> {
        if self.is_complete(tid) {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        Some(self.usual.min(MAX_PATIENCE)).filter(|time| *time > gate::WORTH_SLEEPING)
    }

    /// Whether all callers worth waiting for have come.
    pub(super) fn is_complete(&self, tid: Tid) -> bool {
        let own = to_usize(tid.0) % 2;
        self.asked[1 - own] < 2 || self.returned[own] >= self.asked[1 - own]
    }

    /// The wait of `tid` timed out: pauses waiting if it was in vain.
    pub(super) fn give_up(&mut self, tid: Tid) {
        let own = to_usize(tid.0) % 2;
        if self.returned[own] < self.asked[1 - own] / 2 {
            self.pause = PAUSE;
        }
    }

    /// Average duration of a commit.
    pub(super) fn usual(&self) -> Duration {
        self.usual
    }

    /// `tid` is closed: counts the callers of the next transaction from 0.
    pub(super) fn close(&mut self, tid: Tid) {
        let next = to_usize(tid.next().0) % 2;
        (self.asked[next], self.returned[next]) = (0, 0);
    }

    /// A commit took `time`.
    pub(super) fn took(&mut self, time: Duration) {
        self.usual = (self.usual * 3 + time) / 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> CommitGroup {
        let mut group = CommitGroup::default();
        group.took(Duration::from_millis(1));
        group
    }

    #[test]
    fn no_commit_waits_for_a_single_caller() {
        let mut group = group();
        for n in 1..20 {
            group.join(Tid(n), n > 1);
            assert_eq!(group.patience(Tid(n)), None);
            group.close(Tid(n));
        }
    }

    #[test]
    fn two_halves_become_one_group() {
        let mut group = group();
        (0..4).for_each(|_| assert!(!group.join(Tid(1), false)));
        group.close(Tid(1));
        // Four others, too late for the first.
        (0..4).for_each(|_| assert!(!group.join(Tid(2), false)));
        assert!(group.patience(Tid(2)).is_some());
        let complete: Vec<bool> = (0..4).map(|_| group.join(Tid(2), true)).collect();
        assert_eq!(complete, [false, false, false, true]);
        assert!(group.is_complete(Tid(2)));
        group.close(Tid(2));
        assert_eq!(group.asked[0], 8);
    }

    #[test]
    fn a_wait_in_vain_is_not_repeated_at_once() {
        let mut group = group();
        (0..2).for_each(|_| assert!(!group.join(Tid(1), false)));
        group.close(Tid(1));
        assert!(group.patience(Tid(2)).is_some());
        group.give_up(Tid(2));
        assert_eq!(group.patience(Tid(2)), None);
    }
}
