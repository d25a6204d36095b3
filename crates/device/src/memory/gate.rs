//! Who uses the memory of chunks without a lock, and who waits for them.
//!
//! A thread that copies marks its slot, passes a light barrier and looks whether the gate is open:
//! if so it is inside until it clears the mark. Who takes memory away closes the gate, passes a
//! heavy barrier and waits until no slot is marked. Of the two at least one sees the other, so
//! nobody is inside while memory goes; threads that share a slot stay outside. Clearing the mark
//! (release) pairs with the look at it (acquire): the copy is over. All executions are checked in
//! `sync/tests/loom_memory.rs`.

use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{
    CachePadded, LockClass, Mutex, MutexGuard, PerCore, current_slot_owned, heavy_barrier,
    light_barrier, thread,
};

static GATE: LockClass = LockClass::new("device.gate", 895);

/// The gate of one device.
pub(super) struct Gate {
    inside: PerCore<AtomicBool>,
    /// Release when opened, acquire when looked at.
    closed: CachePadded<AtomicBool>,
    /// One closes it at a time.
    closer: Mutex<()>,
}

/// Nobody is inside while this lives.
pub(super) struct Closed<'g> {
    gate: &'g Gate,
    _alone: MutexGuard<'g, ()>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            inside: PerCore::new(|_| AtomicBool::new(false)),
            closed: CachePadded::new(AtomicBool::new(false)),
            closer: Mutex::new(&GATE, ()),
        }
    }

    /// Calls `copy` inside; none if that is not possible now. `copy` takes no lock.
    #[inline]
    pub(super) fn inside<R>(&self, copy: impl FnOnce() -> Option<R>) -> Option<R> {
        let (slot, owned) = current_slot_owned();
        if !owned {
            return None;
        }
        let mark = self.inside.get(slot);
        mark.store(true, Ordering::Relaxed);
        light_barrier();
        let done = if self.closed.load(Ordering::Acquire) { None } else { copy() };
        mark.store(false, Ordering::Release);
        done
    }

    /// Closes the gate and waits until nobody is inside.
    pub(super) fn close(&self) -> Closed<'_> {
        let alone = self.closer.lock();
        self.closed.store(true, Ordering::Relaxed);
        heavy_barrier();
        for mark in self.inside.used() {
            while mark.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        Closed { gate: self, _alone: alone }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.closed.store(false, Ordering::Release);
    }
}
