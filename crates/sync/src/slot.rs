//! Per-thread slots: a small number for every thread, and data per slot.
//!
//! A thread takes the lowest free slot at its first use and keeps it until it ends. So one thread
//! at a time uses the data of a slot, while there are no more threads than slots. Beyond that
//! threads share, so per-slot data still needs a lock or atomics, which are almost never contended.
//! The next owner of a slot sees everything that the last one did.

use crate::primitive;
use crossbeam_utils::CachePadded;
use nextent_num::must_fit;
use std::fmt;

/// Number of slots; threads beyond it share.
pub const SLOTS: usize = primitive::SLOTS;

/// Index of a slot, below the number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u16);

impl SlotId {
    /// The slot as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The calling thread's slot.
#[inline]
pub fn current_slot() -> SlotId {
    SlotId(primitive::slot_of_caller())
}

/// The calling thread's slot, and whether no other thread uses it. Only then may plain stores
/// change the slot's data.
#[inline]
pub fn current_slot_owned() -> (SlotId, bool) {
    let (slot, owned) = primitive::slot_and_owner();
    (SlotId(slot), owned)
}

/// One `T` for each slot, aligned to pairs of cache lines.
pub struct PerCore<T> {
    items: Box<[CachePadded<T>]>,
}

impl<T> PerCore<T> {
    /// Makes the value of every slot.
    pub fn new(mut make: impl FnMut(SlotId) -> T) -> Self {
        Self { items: (0..SLOTS).map(|i| CachePadded::new(make(SlotId(must_fit(i))))).collect() }
    }

    /// The value of the calling thread's slot.
    #[inline]
    pub fn here(&self) -> &T {
        self.get(current_slot())
    }

    /// The value of `slot`.
    #[inline]
    pub fn get(&self, slot: SlotId) -> &T {
        &self.items[slot.index()]
    }

    /// The values of all slots that a thread has ever had, the caller's included.
    ///
    /// After an [`asymmetric_slow`](crate::asymmetric_slow) that makes a thread's store in its
    /// value visible, that value is among them.
    pub fn used(&self) -> impl Iterator<Item = &T> {
        self.items[..primitive::slots_used()].iter().map(|padded| &**padded)
    }

    /// The values of all slots.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|padded| &**padded)
    }
}

impl<T> fmt::Debug for PerCore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCore").finish_non_exhaustive()
    }
}

/// Slots belong to the process: a test that counts them, or their data, runs while it holds this.
#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
mod tests {
    use super::*;
    use crate::thread;
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};

    /// Runs `work` in `threads` threads at once. A scope ends with the last closure, possibly
    /// before its thread has returned its slot; a join waits for that too.
    fn in_threads(threads: usize, work: impl Fn() + Sync) {
        thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
            for thread in started {
                thread.join().expect("no panic");
            }
        });
    }

    fn slots_of(threads: usize) -> Vec<usize> {
        let all_have_one = Barrier::new(threads);
        let slots = Mutex::new(Vec::new());
        in_threads(threads, || {
            let slot = current_slot();
            assert_eq!(slot, current_slot());
            slots.lock().expect("no panic").push(slot.index());
            all_have_one.wait();
        });
        slots.into_inner().expect("no panic")
    }

    #[test]
    fn threads_have_distinct_slots() {
        let _alone = alone();
        let slots = slots_of(200);
        let distinct: HashSet<_> = slots.iter().collect();
        assert_eq!(distinct.len(), 200);
        assert!(slots.iter().all(|&slot| slot < SLOTS));
    }

    #[test]
    fn slots_are_reused() {
        let _alone = alone();
        for _ in 0..20 {
            // More threads than slots in all, never more than slots at once.
            let distinct: HashSet<_> = slots_of(50).into_iter().collect();
            assert_eq!(distinct.len(), 50);
        }
    }

    #[test]
    fn more_threads_than_slots_share() {
        let _alone = alone();
        let slots = slots_of(SLOTS + 20);
        assert!(slots.iter().all(|&slot| slot < SLOTS));
        assert!(slots.iter().collect::<HashSet<_>>().len() > SLOTS / 2);
    }

    #[test]
    fn at_most_one_thread_owns_a_slot() {
        let _alone = alone();
        let all_have_one = Barrier::new(SLOTS + 20);
        let owners = Mutex::new(vec![0; SLOTS]);
        in_threads(SLOTS + 20, || {
            let (slot, owned) = current_slot_owned();
            assert_eq!((slot, owned), current_slot_owned());
            assert_eq!(slot, current_slot());
            owners.lock().expect("no panic")[slot.index()] += u32::from(owned);
            all_have_one.wait();
        });
        assert!(owners.into_inner().expect("no panic").iter().all(|&owners| owners <= 1));
    }

    #[test]
    fn a_value_for_every_slot() {
        let values = PerCore::new(SlotId::index);
        assert_eq!(*values.here(), current_slot().index());
        assert_eq!(values.all().count(), SLOTS);
        assert!(values.used().any(|slot| *slot == current_slot().index()));
        assert_eq!(*values.get(current_slot()), *values.here());
    }
}
