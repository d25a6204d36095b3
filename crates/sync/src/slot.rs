//! Slots: a small number for every thread, and data kept per slot.
//!
//! A thread keeps the lowest free slot from its first use until it ends, so
//! what is stored per slot is touched by one thread at a time while there are
//! no more threads than slots; beyond that threads share, so per-slot data
//! still needs a lock or atomics, which then are all but never contended.

use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of slots; threads beyond it share.
pub const SLOTS: usize = 256;

/// Index of a slot, below the number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u16);

impl SlotId {
    /// The slot as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

static TAKEN: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];
static HIGH: AtomicUsize = AtomicUsize::new(0);
static SHARED: AtomicUsize = AtomicUsize::new(0);

struct Lease(Cell<Option<(SlotId, bool)>>);

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((slot, true)) = self.0.get() {
            TAKEN[slot.index() / 64].fetch_and(!(1 << (slot.index() % 64)), Ordering::Release);
        }
    }
}

thread_local! {
    static LEASE: Lease = const { Lease(Cell::new(None)) };
}

/// The calling thread's slot.
pub fn current_slot() -> SlotId {
    LEASE
        .try_with(|lease| match lease.0.get() {
            Some((slot, _)) => slot,
            None => {
                let taken = take();
                lease.0.set(Some(taken));
                taken.0
            }
        })
        .unwrap_or(SlotId(0))
}

#[cold]
fn take() -> (SlotId, bool) {
    for (word, bits) in TAKEN.iter().enumerate() {
        let mut seen = bits.load(Ordering::Relaxed);
        while seen != u64::MAX {
            let bit = seen.trailing_ones() as usize;
            match bits.compare_exchange_weak(
                seen,
                seen | 1 << bit,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let index = word * 64 + bit;
                    HIGH.fetch_max(index + 1, Ordering::SeqCst);
                    return (SlotId(index as u16), true);
                }
                Err(now) => seen = now,
            }
        }
    }
    let index = SHARED.fetch_add(1, Ordering::Relaxed) % SLOTS;
    (SlotId(index as u16), false)
}

/// One `T` for each slot, a cache-line pair apart.
pub struct PerCore<T> {
    items: Box<[CachePadded<T>]>,
}

impl<T> PerCore<T> {
    /// Makes the value of every slot.
    pub fn new(mut make: impl FnMut(SlotId) -> T) -> Self {
        Self { items: (0..SLOTS).map(|i| CachePadded::new(make(SlotId(i as u16)))).collect() }
    }

    /// The value of the calling thread's slot.
    pub fn here(&self) -> &T {
        &self.items[current_slot().index()]
    }

    /// The value of `slot`.
    pub fn get(&self, slot: SlotId) -> &T {
        &self.items[slot.index()]
    }

    /// The values of all slots that a thread has ever had, the caller's included.
    pub fn used(&self) -> impl Iterator<Item = &T> {
        let high = HIGH.load(Ordering::SeqCst);
        self.items[..high].iter().map(|padded| &**padded)
    }

    /// The values of all slots.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|padded| &**padded)
    }
}
