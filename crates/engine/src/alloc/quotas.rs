//! What each slot has drawn from the escrow, changed by its owner with plain stores.
//!
//! The owner marks its slot, passes a light barrier and looks whether quotas are being taken away;
//! if not, its quota is its own until it clears the mark. Who takes them away says so, passes a
//! heavy barrier and waits until no slot is updating. Of the two at least one sees the other, so a
//! quota is never changed by both. Clearing the mark (release) pairs with the look at it (acquire),
//! and the end of taking away with the owner's next look. Threads that share a slot have no quota.
//! That is the pattern of the journal's gate, under loom in `nextent-sync`.

use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use nextent_sync::{
    CachePadded, PerCore, asymmetric_fast, asymmetric_slow, current_slot_owned, thread,
};

/// The quota of one slot.
#[derive(Default)]
struct Quota {
    /// Its owner is changing it.
    updating: AtomicBool,
    /// Stored by the owner while updating, or by who takes quotas away. Relaxed, see the module.
    clusters: AtomicU64,
}

/// The quotas of all slots.
pub(super) struct Quotas {
    slots: PerCore<Quota>,
    /// They are being taken away.
    recalling: CachePadded<AtomicBool>,
}

impl Quotas {
    pub(super) fn new() -> Self {
        let recalling = CachePadded::new(AtomicBool::new(false));
        Self { slots: PerCore::new(|_| Quota::default()), recalling }
    }

    /// Whether the calling thread may have a quota.
    pub(super) fn available_to_caller() -> bool {
        current_slot_owned().1
    }

    /// Makes the caller's quota what `change` says; false if it says nothing, or there is no quota
    /// to be had now. `change` takes no lock.
    #[inline]
    pub(super) fn update(&self, change: impl FnOnce(u64) -> Option<u64>) -> bool {
        let (slot, owned) = current_slot_owned();
        if !owned {
            return false;
        }
        let quota = self.slots.get(slot);
        quota.updating.store(true, Ordering::Relaxed);
        asymmetric_fast();
        let open = !self.recalling.load(Ordering::Acquire);
        let new = if open { change(quota.clusters.load(Ordering::Relaxed)) } else { None };
        if let Some(new) = new {
            quota.clusters.store(new, Ordering::Relaxed);
        }
        quota.updating.store(false, Ordering::Release);
        new.is_some()
    }

    /// Takes all quotas away and says how much they were. One caller at a time.
    ///
    /// Interrupts every core that runs the process, unless no slot is seen to have anything.
    pub(super) fn recall(&self) -> u64 {
        if self.sum() == 0 {
            return 0;
        }
        self.recalling.store(true, Ordering::Relaxed);
        asymmetric_slow();
        let mut all = 0;
        for quota in self.slots.used() {
            while quota.updating.load(Ordering::Acquire) {
                thread::yield_now();
            }
            all += quota.clusters.swap(0, Ordering::Relaxed);
        }
        self.recalling.store(false, Ordering::Release);
        all
    }

    /// What is drawn, more or less.
    pub(super) fn sum(&self) -> u64 {
        self.slots.used().map(|quota| quota.clusters.load(Ordering::Relaxed)).sum()
    }

    /// How many slots may have a quota; at least one.
    pub(super) fn len(&self) -> usize {
        self.slots.used().count().max(1)
    }
}
