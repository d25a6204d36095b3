//! Waiting for a condition on simulated cores.

use super::lines::Use;
use super::lock::MutexGuard;
use super::task::Wait;
use super::waits::Waiter;
use super::{uses, world};
use std::time::Duration;

/// A condition: its address is what waiters are queued at.
#[derive(Default)]
pub(crate) struct Condvar {
    /// So that it has an address of its own.
    _word: u64,
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self { _word: 0 }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn stop<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, limit: Option<Duration>) -> bool {
        let address = self.address();
        // Letting go may run others; between it and the queue nobody runs, as a condition promises.
        guard.leave();
        let limit = world::with(|world| {
            let (task, since) = (world.caller(), world.now());
            world.queue(address).push_back(Waiter { task, shares: true, since });
            limit.map(|limit| since.saturating_add(super::time::picos(limit)))
        })
        .expect("a condition is waited for inside of a simulation");
        let timed_out = world::block(Wait::Condition, limit);
        if timed_out {
            world::with(|world| {
                let me = world.caller();
                world.queue(address).retain(|waiter| waiter.task != me);
            });
        }
        guard.enter();
        timed_out
    }

    pub(crate) fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.stop(guard, None);
    }

    pub(crate) fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> bool {
        self.stop(guard, Some(timeout))
    }

    fn notify(&self, most: usize) {
        let address = self.address();
        uses::access(address, Use::Load);
        world::with(|world| {
            let cost = if world.is_charging() { world.machine.wake } else { 0 };
            for _ in 0..most {
                let Some(waiter) = world.take_waiter(address) else { return };
                world.pass(cost / 4);
                let now = world.now();
                world.wake(waiter.task, now + cost);
            }
        });
    }

    pub(crate) fn notify_one(&self) {
        self.notify(1);
    }

    pub(crate) fn notify_all(&self) {
        self.notify(usize::MAX);
    }
}
