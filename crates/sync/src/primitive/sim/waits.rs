//! Who waits for which lock or condition, and what is remembered of locks besides.

use super::table::Spreading;
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

/// Something for each address that came into use.
///
/// It is freed in the order in which that happened. In the order of a hash of addresses, which are
/// others in each process, what is allocated afterwards would lie elsewhere each time, and with it
/// the next simulation of a process.
#[derive(Default)]
struct InOrder<T> {
    /// Where in `all`.
    places: HashMap<usize, usize, Spreading>,
    all: Vec<T>,
}

impl<T: Default> InOrder<T> {
    fn get(&self, address: usize) -> Option<&T> {
        Some(&self.all[*self.places.get(&address)?])
    }

    fn get_mut(&mut self, address: usize) -> Option<&mut T> {
        Some(&mut self.all[*self.places.get(&address)?])
    }

    fn entry(&mut self, address: usize) -> &mut T {
        let new = self.all.len();
        let place = *self.places.entry(address).or_insert(new);
        if place == new {
            self.all.push(T::default());
        }
        &mut self.all[place]
    }
}

/// By the address of a lock or condition.
#[derive(Default)]
pub(super) struct Waits {
    waiters: InOrder<VecDeque<Waiter>>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    std::thread_local! {
        static FREED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Default)]
    struct Noted(usize);

    impl Drop for Noted {
        fn drop(&mut self) {
            FREED.with_borrow_mut(|freed| freed.push(self.0));
        }
    }

    #[test]
    fn what_addresses_had_is_freed_in_the_order_in_which_it_came() {
        let addresses: Vec<usize> = (0..64).map(|n| (n * 37 % 64) << 6).collect();
        let mut all = InOrder::<Noted>::default();
        assert!(all.get(64).is_none() && all.get_mut(64).is_none());
        for address in &addresses {
            all.entry(*address).0 = *address;
        }
        assert_eq!(all.entry(64).0, 64);
        assert_eq!(all.get(128).map(|noted| noted.0), Some(128));
        drop(all);
        assert_eq!(FREED.take(), addresses);
    }
}
