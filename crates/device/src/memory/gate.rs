//! The gate of a memory device: it lets threads copy from chunks without a lock, and waits for them
//! before chunks are freed or shared.
//!
//! Protocol, with an asymmetric barrier (fast side: compiler barrier; slow side: membarrier(2)):
//!
//! | step | copying thread | closing thread |
//! |---|---|---|
//! | 1 | sets the mark of its per-thread slot | sets `closed` |
//! | 2 | fast side of the barrier | slow side of the barrier |
//! | 3 | reads `closed`; if it is set, clears the mark and uses the lock | waits until no slot is marked |
//! | 4 | copies, then clears the mark | frees or shares chunks, then clears `closed` |
//!
//! The barrier guarantees that at least one of the two threads sees the other's store. So no thread
//! is inside while chunks are freed or shared. A thread that shares its slot with another one stays
//! outside. The clearing of the mark (release) pairs with the closer's read (acquire), so the copy
//! is complete. `sync/tests/loom_memory.rs` checks all executions.
//!
//! A thread that stays outside writes under the lock of the closing threads ([`Gate::outside`]). So
//! no byte changes while the gate is closed, and a snapshot is of one moment.

use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{
    CachePadded, LockClass, Mutex, MutexGuard, PerCore, asymmetric_fast, asymmetric_slow,
    current_slot_owned, thread,
};

static GATE: LockClass = LockClass::new("device.gate", 895);

/// The gate of one device.
pub(super) struct Gate {
    inside: PerCore<AtomicBool>,
    /// Store when opened: release. Load: acquire.
    closed: CachePadded<AtomicBool>,
    /// Serializes the closing threads, and the writes of threads outside.
    closer: Mutex<()>,
}

/// A guard: no thread is inside while it lives.
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

    /// Calls `copy` inside the gate; `None` if the thread cannot enter. `copy` must take no lock.
    #[inline]
    pub(super) fn inside<R>(&self, copy: impl FnOnce() -> Option<R>) -> Option<R> {
        let (slot, owned) = current_slot_owned();
        if !owned {
            return None;
        }
        let mark = self.inside.get(slot);
        mark.store(true, Ordering::Relaxed);
        asymmetric_fast();
        let done = if self.closed.load(Ordering::Acquire) { None } else { copy() };
        mark.store(false, Ordering::Release);
        done
    }

    /// Calls `write` while the gate is open, for a thread that cannot enter.
    #[cold]
    pub(super) fn outside(&self, write: impl FnOnce()) {
        let _open = self.closer.lock();
        write();
    }

    /// Closes the gate and waits until no thread is inside.
    pub(super) fn close(&self) -> Closed<'_> {
        let alone = self.closer.lock();
        self.closed.store(true, Ordering::Relaxed);
        asymmetric_slow();
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
