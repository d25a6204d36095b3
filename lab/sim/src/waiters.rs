//! Threads that wait for a lock or a condition variable, by its address.

use crate::simulation::Simulation;
use crate::table::{NumberMap, Table};
use std::collections::VecDeque;

/// A thread that waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) task: usize,
    /// Whether it wants the lock shared.
    pub(crate) shared: bool,
}

#[derive(Default)]
pub(crate) struct Waiters {
    queues: Table<VecDeque<Waiter>>,
    /// For unfair spin locks: the last holder, and when other cores see that it released the lock.
    released: NumberMap<usize, (usize, u64)>,
}

impl Simulation {
    /// The threads that wait at an address.
    pub(crate) fn queue(&mut self, address: usize) -> &mut VecDeque<Waiter> {
        self.waiters.queues.entry(address)
    }

    /// Removes the first thread that waits at an address.
    pub(crate) fn take_waiter(&mut self, address: usize) -> Option<Waiter> {
        self.waiters.queues.get_mut(address)?.pop_front()
    }

    /// Removes all threads that wait at an address.
    pub(crate) fn take_waiters(&mut self, address: usize) -> VecDeque<Waiter> {
        self.waiters.queues.get_mut(address).map(std::mem::take).unwrap_or_default()
    }

    /// Whether no thread waits at an address.
    pub(crate) fn has_no_waiter(&self, address: usize) -> bool {
        self.waiters.queues.get(address).is_none_or(VecDeque::is_empty)
    }

    /// Notes that the caller released the spin lock at an address, which others see at `seen`.
    pub(crate) fn note_spin_release(&mut self, address: usize, seen: u64) {
        let caller = self.caller();
        self.waiters.released.insert(address, (caller, seen));
    }

    /// When the caller will see that another thread released a spin lock, if it does not yet.
    pub(crate) fn sees_release_at(&self, address: usize) -> Option<u64> {
        let (by, seen) = *self.waiters.released.get(&address).filter(|_| self.is_charging())?;
        (by != self.caller() && self.now() < seen).then_some(seen)
    }
}
