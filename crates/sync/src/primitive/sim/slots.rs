//! Slots of simulated threads: the lowest free one, from start to end.

use super::lines::CORES;
use super::stepping::quiet;
use super::world;

/// Number of slots; threads beyond it share.
pub(crate) const SLOTS: usize = CORES;

pub(crate) fn slot_of_caller() -> u16 {
    let _quiet = quiet();
    world::with(|world| world.slot()).unwrap_or(0)
}

pub(crate) fn slot_and_owner() -> (u16, bool) {
    let slot = slot_of_caller();
    (slot, usize::from(slot) < SLOTS - 1)
}

/// One above the highest slot that a thread has ever had.
pub(crate) fn slots_used() -> usize {
    let _quiet = quiet();
    world::with(|world| world.slots_used).unwrap_or(1)
}
