//! Those who wait for a commit, and when a commit waits for them.
//!
//! Who waits sleeps in a *room*: of two sets, for odd and for even transactions, the room of its
//! slot. So a commit that is done wakes only those it was made for, and they do not queue
//! for one lock when they wake. Whether a transaction is settled is an atomic that is looked at
//! under the room's lock: stored before the room is locked to wake, it cannot be missed.
//!
//! Callers who sync again and again come in groups: those whom one commit woke come back
//! together, too late for the commit that began meanwhile for the others, and each commit carries
//! half of them. So a commit that follows one for several callers waits until as many of these
//! have come back, at most as long as a commit takes. A caller alone never waits for this; when
//! most of the others do not come back, it is not tried again for a while.

use super::gate;
use crate::locks;
use nextent_num::to_usize;
use nextent_ondisk::Tid;
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{CachePadded, Condvar, Mutex, PerCore, current_slot, injected};
use std::time::Duration;

/// Rooms for the waiters of one transaction; a power of two.
const ROOMS: usize = 8;
/// A commit never waits longer for callers to come back.
const MOST: Duration = Duration::from_millis(4);
/// Commits after one that waited in vain.
const PAUSE: u32 = 16;

/// Callers asleep in one room.
struct Room {
    /// How many. `[journal.room]`
    waiting: Mutex<u32>,
    wake: Condvar,
}

/// All rooms, and who asked last for what.
pub(super) struct Waiters {
    rooms: Box<[CachePadded<Room>]>,
    /// The transaction that a slot's thread waited for last, plus one; 0 for none. Relaxed: a
    /// hint, used by that thread.
    last: PerCore<AtomicU64>,
}

impl Waiters {
    pub(super) fn new() -> Self {
        let room = || Room { waiting: Mutex::new(&locks::ROOM, 0), wake: Condvar::new() };
        let rooms = (0..2 * ROOMS).map(|_| CachePadded::new(room())).collect();
        Self { rooms, last: PerCore::new(|_| AtomicU64::new(0)) }
    }

    fn of(&self, tid: Tid) -> &[CachePadded<Room>] {
        let set = to_usize(tid.0) % 2 * ROOMS;
        &self.rooms[set..set + ROOMS]
    }

    /// Sleeps until `over`, which becomes true before [`wake`](Self::wake) for `tid` is called.
    pub(super) fn sleep(&self, tid: Tid, over: impl Fn() -> bool) {
        let room = &self.of(tid)[current_slot().index() % ROOMS];
        let mut waiting = room.waiting.lock();
        let mut lost = injected("lost-wakeup");
        while std::mem::take(&mut lost) || !over() {
            *waiting += 1;
            room.wake.wait(&mut waiting);
            *waiting -= 1;
        }
    }

    /// Wakes all who wait for `tid`.
    pub(super) fn wake(&self, tid: Tid) {
        for room in self.of(tid) {
            if *room.waiting.lock() > 0 {
                room.wake.notify_all();
            }
        }
    }

    /// Notes that the caller asks for `tid`; true if it asked for the one before.
    pub(super) fn note(&self, tid: Tid) -> bool {
        let last = self.last.get(current_slot());
        let before = last.load(Ordering::Relaxed);
        last.store(u64::from(tid.0) + 1, Ordering::Relaxed);
        // The one before `tid`, plus one.
        before != 0 && before == u64::from(tid.0)
    }
}

/// What is known of the callers of the last commit and the next. `[journal.control]`
#[derive(Default)]
pub(super) struct Group {
    /// Callers that asked for an even, an odd transaction: the last and the next.
    asked: [u32; 2],
    /// Those of them who had asked for the one before.
    returned: [u32; 2],
    /// Commits yet to come that do not wait.
    pause: u32,
    /// What a commit takes, on average.
    usual: Duration,
}

impl Group {
    /// A caller asks for `tid`; true if those for whom its commit waits are now all there.
    pub(super) fn join(&mut self, tid: Tid, returned: bool) -> bool {
        let own = to_usize(tid.0) % 2;
        self.asked[own] += 1;
        self.returned[own] += u32::from(returned);
        returned && self.returned[own] == self.asked[1 - own]
    }

    /// How long the commit of `tid` may wait for callers to come back.
    pub(super) fn patience(&mut self, tid: Tid) -> Option<Duration> {
        if self.is_complete(tid) {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        Some(self.usual.min(MOST)).filter(|time| *time > gate::SHORT)
    }

    /// Whether all are there who are worth waiting for.
    pub(super) fn is_complete(&self, tid: Tid) -> bool {
        let own = to_usize(tid.0) % 2;
        self.asked[1 - own] < 2 || self.returned[own] >= self.asked[1 - own]
    }

    /// The time is over: was it in vain?
    pub(super) fn give_up(&mut self, tid: Tid) {
        let own = to_usize(tid.0) % 2;
        if self.returned[own] < self.asked[1 - own] / 2 {
            self.pause = PAUSE;
        }
    }

    /// What a commit takes, on average.
    pub(super) fn usual(&self) -> Duration {
        self.usual
    }

    /// `tid` is closed: what follows is counted anew.
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

    fn group() -> Group {
        let mut group = Group::default();
        group.took(Duration::from_millis(1));
        group
    }

    #[test]
    fn one_caller_is_not_waited_for() {
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
        // Four others, who came too late for the first.
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
