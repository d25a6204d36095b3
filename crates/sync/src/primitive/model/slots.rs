//! Slots of a model's threads, fresh in each execution.

use super::base;
use nextent_num::must_fit;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of slots; threads beyond it share.
pub(crate) const SLOTS: usize = 4;

/// A flag per slot. A standard lock: the scheduler stops no thread inside it.
type Taken = Arc<Mutex<[bool; SLOTS]>>;

base::lazy_static! {
    static ref TAKEN: Taken = Taken::default();
}

/// A thread's slot.
struct SlotLease {
    slot: u16,
    /// The table to return the slot to, if this thread owns it.
    from: Option<Taken>,
}

base::thread_local! {
    static LEASE: SlotLease = SlotLease::take();
}

impl SlotLease {
    fn take() -> Self {
        let from = Taken::clone(&TAKEN);
        let free = {
            let mut taken = from.lock().unwrap_or_else(PoisonError::into_inner);
            let free = taken.iter().position(|taken| !taken);
            if let Some(slot) = free {
                taken[slot] = true;
            }
            free
        };
        match free {
            Some(slot) => Self { slot: must_fit(slot), from: Some(from) },
            None => Self { slot: must_fit::<u16, _>(SLOTS) - 1, from: None },
        }
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        // Loom does not see that the next thread comes after this one.
        let reuse = cfg!(not(feature = "model-loom"));
        if let Some(from) = self.from.take().filter(|_| reuse) {
            let mut taken = from.lock().unwrap_or_else(PoisonError::into_inner);
            taken[usize::from(self.slot)] = false;
        }
    }
}

pub(crate) fn slot_of_caller() -> u16 {
    LEASE.try_with(|lease| lease.slot).unwrap_or(must_fit::<u16, _>(SLOTS) - 1)
}

pub(crate) fn slot_and_owner() -> (u16, bool) {
    let own = LEASE.try_with(|lease| (lease.slot, lease.from.is_some()));
    own.unwrap_or((must_fit::<u16, _>(SLOTS) - 1, false))
}

/// All of them: there are few, and this is not about memory order.
pub(crate) fn slots_used() -> usize {
    SLOTS
}
