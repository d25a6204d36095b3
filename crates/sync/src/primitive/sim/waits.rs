//! Who waits for which lock or condition, and what is remembered of locks besides.

use super::table::{Spreading, Table};
use super::world::World;
use std::collections::{HashMap, VecDeque};

/// How long, on average, others may come before one who sleeps: `parking_lot` takes up to a
/// millisecond, by chance.
const UNFAIR: u64 = 500_000_000;

/// Who waits for a lock or condition.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) task: usize,
    pub(crate) shares: bool,
    pub(crate) since: u64,
}

/// By the address of a lock or condition.
#[derive(Default)]
pub(super) struct Waits {
    waiters: Table<VecDeque<Waiter>>,
    /// Who let go last of a lock that is looked at, and when others see that.
    left: HashMap<usize, (usize, u64), Spreading>,
    /// When a sleeping lock is handed over next.
    due: HashMap<usize, u64, Spreading>,
}

/// What who waits for a sleeping lock does between two looks.
#[derive(Clone, Copy)]
pub(crate) enum Rest {
    /// So many instructions that say that it waits.
    Pauses(u64),
    /// Offers its core.
    Offer,
}

impl World {
    /// Who waits at an address.
    pub(crate) fn queue(&mut self, address: usize) -> &mut VecDeque<Waiter> {
        self.waits.waiters.entry(address)
    }

    /// The first of those who wait at an address, who does no longer.
    pub(crate) fn take_waiter(&mut self, address: usize) -> Option<Waiter> {
        self.waits.waiters.get_mut(address)?.pop_front()
    }

    /// All who wait at an address, who do no longer.
    pub(crate) fn take_waiters(&mut self, address: usize) -> VecDeque<Waiter> {
        self.waits.waiters.get_mut(address).map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn nobody_waits(&self, address: usize) -> bool {
        self.waits.waiters.get(address).is_none_or(VecDeque::is_empty)
    }

    /// Notes that the caller has let go of the lock at an address, and when others see that.
    pub(crate) fn note_left(&mut self, address: usize, seen: u64) {
        let caller = self.caller();
        self.waits.left.insert(address, (caller, seen));
    }

    /// When the caller will see that another has let go of it, if it does not yet.
    pub(crate) fn unseen(&self, address: usize) -> Option<u64> {
        let (by, seen) = *self.waits.left.get(&address).filter(|_| self.is_charging())?;
        (by != self.caller() && self.now() < seen).then_some(seen)
    }

    /// Notes that `task` need not take the lock that it waits for.
    pub(crate) fn note_handed(&mut self, task: usize) {
        self.tasks[task].handed = true;
    }

    /// Whether the lock that the caller has waited for was handed over.
    pub(crate) fn was_handed(&mut self) -> bool {
        std::mem::take(&mut self.me().handed)
    }

    /// Whether who waits for a sleeping lock looks at it now and then.
    pub(crate) fn is_looking(&self) -> bool {
        self.is_charging() && self.machine.pause > 0
    }

    /// How long it rests before a look, if it does.
    pub(crate) fn rest(&self, rest: Rest) -> Option<u64> {
        let time = match rest {
            Rest::Pauses(pauses) => pauses * self.machine.pause,
            Rest::Offer => self.machine.offer,
        };
        self.is_looking().then_some(time)
    }

    /// How long a wake-up takes this time, which the caller begins. Where pauses are told it is
    /// from three quarters to five quarters of it: of wake-ups after 2 us of sleep on Zen 4 a tenth
    /// takes less, and a tenth more than 1.24 times the middle one.
    pub(crate) fn waking(&mut self) -> u64 {
        let wake = self.machine.wake;
        if self.is_looking() { self.me().about(wake) } else { wake }
    }

    /// How long who spins rests between two looks, where that is told.
    pub(crate) fn pause(&mut self) -> Option<u64> {
        let pause = self.rest(Rest::Pauses(1))?;
        // Cores that always took the same steps would fall into step.
        Some(pause * 7 / 8 + self.me().any(pause / 4))
    }

    /// Begins anew after a look that found what was not expected, where pauses are told.
    pub(crate) fn guess_wrong(&mut self, instructions: u64) {
        if self.is_looking() {
            self.pass(instructions * self.instruction);
            self.follow();
        }
    }

    /// Whether it is time that the sleeping lock at an address is handed over.
    pub(crate) fn is_due(&mut self, address: usize) -> bool {
        let now = self.now();
        let due = self.waits.due.entry(address).or_insert(now + UNFAIR);
        let is_due = *due <= now;
        if is_due {
            *due = now + UNFAIR;
        }
        is_due
    }
}
