//! Quotas of free clusters for each per-thread slot. The owner of a slot updates its quota with
//! plain stores.
//!
//! | step | owner of a slot | recalling thread |
//! |---|---|---|
//! | 1 | sets `updating` of its slot | sets `recalling` |
//! | 2 | passes the fast side of the asymmetric barrier | passes the slow side |
//! | 3 | reads `recalling`; gives up if it is set | waits until no slot has `updating` set |
//! | 4 | changes its quota | takes all quotas |
//! | 5 | clears `updating` (Release) | clears `recalling` (Release) |
//!
//! The barrier makes at least one of the two see the other's flag, so they never change a quota at
//! the same time. The Release stores of step 5 pair with the Acquire loads of step 3. Threads that
//! share a slot have no quota. The journal's gate has the same protocol; `nextent-sync` has the
//! loom model.

use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use nextent_sync::{
    CachePadded, PerCore, asymmetric_fast, asymmetric_slow, current_slot_owned, thread,
};

/// The quota of one slot.
#[derive(Default)]
struct Quota {
    /// The owner is changing the quota.
    updating: AtomicBool,
    /// Stored by the owner while `updating` is set, or by a recall. Relaxed: see the module.
    clusters: AtomicU64,
}

/// The quotas of all slots.
pub(super) struct Quotas {
    slots: PerCore<Quota>,
    /// A recall is running.
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

    /// Sets the caller's quota to the result of `change`, which gets the old one and must take no
    /// lock. False if the result is none, the caller shares its slot, or a recall is running.
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

    /// Sets all quotas to 0 and returns their sum. One caller at a time.
    ///
    /// Executes membarrier(2), which interrupts each core that runs the process, unless all quotas
    /// read as 0.
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

    /// The sum of all quotas. Inexact while slots update theirs.
    pub(super) fn sum(&self) -> u64 {
        self.slots.used().map(|quota| quota.clusters.load(Ordering::Relaxed)).sum()
    }

    /// The number of slots in use, at least one.
    pub(super) fn len(&self) -> usize {
        self.slots.used().count().max(1)
    }
}
