//! Slots of a model's threads, fresh in each execution.

use super::base;
use nextent_num::must_fit;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of slots; threads beyond it share.
pub(crate) const SLOTS: usize = 4;

/// A flag a slot. A standard lock: no thread of a model is stopped inside it,
/// and it is no scheduling point.
type Taken = Arc<Mutex<[bool; SLOTS]>>;

base::lazy_static! {
    static ref TAKEN: Taken = Taken::default();
}

struct Lease {
    slot: u16,
    /// Where to give the slot back, if it is this thread's own.
    from: Option<Taken>,
}

base::thread_local! {
    static LEASE: Lease = Lease::take();
}

impl Lease {
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

impl Drop for Lease {
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

/// All of them: there are few, and it says nothing about memory order.
pub(crate) fn slots_used() -> usize {
    SLOTS
}
