//! Leases of regions to per-thread slots.
//!
//! - Each slot leases a few regions and allocates in them. Searches of other slots read the table
//!   of owners and skip these regions.
//! - A lease does not exclude; the region's lock does. A lease keeps that lock, and the data under
//!   it, in the cache of one core.
//! - The table is therefore read and stored with relaxed order, and a search may ignore leases when
//!   space runs out. A stale entry costs time, not correctness.
//!
//! Lock rank: `alloc.lease` (400), held while the slot's regions are locked.

use super::core::{Core, summary};
use super::layout::RegionNo;
use super::locks;
use super::region::Region;
use nextent_num::{must_fit, to_usize};
use nextent_sync::atomic::{AtomicU16, Ordering};
use nextent_sync::{Arc, BiasedMutex, PerCore, current_slot};

/// Most regions that one slot may lease.
const MAX_LEASES: usize = 8;

/// The leases of all slots.
pub(crate) struct Leases {
    slots: PerCore<BiasedMutex<SlotLeases>>,
}

/// The leases of one slot. `[alloc.lease]`
#[derive(Default)]
pub(crate) struct SlotLeases {
    /// Most recently used first. The reference keeps the group of a leased region loaded.
    regions: Vec<Arc<Region>>,
    /// The region in which the last search that ignored leases ended.
    pub(crate) shared: Option<RegionNo>,
}

/// The value for the calling thread's slot in a table of owners.
pub(crate) fn mark() -> u16 {
    must_fit::<u16, _>(current_slot().index()) + 1
}

/// Makes the caller's slot the owner; false if another slot is.
pub(crate) fn acquire(owner: &AtomicU16) -> bool {
    let mine = mark();
    owner.load(Ordering::Relaxed) == mine
        || owner.load(Ordering::Relaxed) == 0
            && owner.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Removes the caller's slot as the owner.
pub(crate) fn release(owner: &AtomicU16) {
    let _ = owner.compare_exchange(mark(), 0, Ordering::Relaxed, Ordering::Relaxed);
}

impl Leases {
    pub(crate) fn new() -> Self {
        Self { slots: PerCore::new(|_| BiasedMutex::new(&locks::LEASE, SlotLeases::default())) }
    }

    /// The leases of the caller's slot.
    pub(crate) fn of_caller(&self) -> nextent_sync::BiasedMutexGuard<'_, SlotLeases> {
        self.slots.here().lock()
    }

    /// Most leases that a slot may have now, so that all slots together lease at most half of the
    /// regions.
    fn limit(&self, core: &Core) -> usize {
        let slots = self.slots.used().count().max(1);
        (core.owners.len() / (2 * slots)).clamp(1, MAX_LEASES)
    }

    /// Leases a region to the caller's slot; false if another slot leases it. Ends the least
    /// recently used lease if the slot has too many.
    pub(crate) fn lease(&self, slot: &mut SlotLeases, core: &Core, region: &Arc<Region>) -> bool {
        if !acquire(&core.owners[to_usize(region.no().0)]) {
            return false;
        }
        if !slot.touch(region.no()) {
            slot.regions.insert(0, Arc::clone(region));
        }
        if slot.regions.len() > 1
            && slot.regions.len() > self.limit(core)
            && let Some(oldest) = slot.regions.pop()
        {
            end(core, &oldest);
        }
        true
    }

    /// The first region from `start` on, wrapping around, that no slot leases and that may have a
    /// free chunk of `order`.
    pub(crate) fn find(&self, core: &Core, start: RegionNo, order: u32) -> Option<RegionNo> {
        let count = core.layout.count();
        let start = start.0 % count;
        (start..count).chain(0..start).map(RegionNo).find(|&region| {
            let group = core.layout.group(region);
            core.owner(region) == 0
                && summary::may_have(core.summary(region), order)
                && core.group(group).free_clusters.load(Ordering::Relaxed) > 0
                && core.layout.len(group, core.layout.index(region)) > 0
                && !core.is_bad(group)
        })
    }

    /// The region in which a slot without a goal and without leases begins to search.
    pub(crate) fn start_region(core: &Core) -> RegionNo {
        // Steps of the golden ratio spread any number of slots evenly over the volume.
        let part = must_fit::<u32, _>(current_slot().index()).wrapping_mul(0x9e37_79b9);
        RegionNo(must_fit((u64::from(part) * u64::from(core.layout.count())) >> 32))
    }
}

impl SlotLeases {
    /// The leased regions, most recently used first.
    pub(crate) fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// The region `no`, if the slot leases it.
    pub(crate) fn get(&self, no: RegionNo) -> Option<&Arc<Region>> {
        self.regions.iter().find(|region| region.no() == no)
    }

    /// Moves a leased region to the front; false if the slot does not lease it.
    pub(crate) fn touch(&mut self, no: RegionNo) -> bool {
        let found = self.regions.iter().position(|region| region.no() == no);
        if let Some(at) = found.filter(|at| *at > 0) {
            self.regions[..=at].rotate_right(1);
        }
        found.is_some()
    }

    /// Ends the lease of a region.
    pub(crate) fn give_up(&mut self, core: &Core, region: &Arc<Region>) {
        self.regions.retain(|other| other.no() != region.no());
        end(core, region);
    }
}

/// Ends the ownership of a region and publishes its summary to searches.
fn end(core: &Core, region: &Region) {
    release(&core.owners[to_usize(region.no().0)]);
    region.publish_if_unleased(&region.lock());
}
