//! Per-thread slots: the lowest free one, kept until the thread ends.

use nextent_num::{must_fit, to_usize};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of slots; threads beyond it share.
pub(crate) const SLOTS: usize = 256;

const NONE: u16 = u16::MAX;
/// Set in a thread's slot if other threads may use the same slot.
const SHARES: u16 = 1 << 15;

/// A bit per slot. [acquire when taken, release when returned, so that a slot's next thread sees
/// what the last one did]
static TAKEN: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

/// One above the highest slot ever taken. [sequentially consistent: raised before the slot's thread
/// can store anything in it, so a barrier that makes such a store visible makes this visible]
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// Count of threads that found no free slot. [relaxed]
static SHARED: AtomicUsize = AtomicUsize::new(0);

/// Returns the slot when its thread ends.
struct SlotLease(Cell<u16>);

impl Drop for SlotLease {
    fn drop(&mut self) {
        let slot = usize::from(self.0.get());
        // Code that runs later in this thread's end shares a slot with other threads.
        SLOT.set(NONE);
        if slot < SLOTS {
            TAKEN[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::Release);
        }
    }
}

std::thread_local! {
    // Apart from the lease: a value without a destructor is read by one load.
    static SLOT: Cell<u16> = const { Cell::new(NONE) };
    static LEASE: SlotLease = const { SlotLease(Cell::new(NONE)) };
}

#[inline]
pub(crate) fn slot_of_caller() -> u16 {
    slot_and_owner().0
}

/// The caller's slot, and whether no other thread uses it.
#[inline]
pub(crate) fn slot_and_owner() -> (u16, bool) {
    let mut slot = SLOT.get();
    if slot == NONE {
        slot = take();
    }
    (slot & !SHARES, slot & SHARES == 0)
}

/// One above the highest slot that a thread has ever had.
#[inline]
pub(crate) fn slots_used() -> usize {
    HIGH.load(Ordering::SeqCst)
}

#[cold]
fn take() -> u16 {
    let own = LEASE.try_with(|lease| {
        let slot = free_slot()?;
        lease.0.set(slot);
        Some(slot)
    });
    let slot = own.ok().flatten().unwrap_or_else(|| {
        let turn = SHARED.fetch_add(1, Ordering::Relaxed) % SLOTS;
        HIGH.fetch_max(turn + 1, Ordering::SeqCst);
        must_fit::<u16, _>(turn) | SHARES
    });
    SLOT.set(slot);
    slot
}

fn free_slot() -> Option<u16> {
    for (word, bits) in TAKEN.iter().enumerate() {
        let mut seen = bits.load(Ordering::Relaxed);
        while seen != u64::MAX {
            let bit = to_usize(seen.trailing_ones());
            let taken = seen | 1 << bit;
            match bits.compare_exchange_weak(seen, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    let slot = word * 64 + bit;
                    HIGH.fetch_max(slot + 1, Ordering::SeqCst);
                    return Some(must_fit(slot));
                }
                Err(now) => seen = now,
            }
        }
    }
    None
}
