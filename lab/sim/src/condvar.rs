//! Condition variables of simulated threads.

use crate::access;
use crate::coherence::Access;
use crate::lock::MutexGuard;
use crate::simulation::{self, block};
use crate::task::Wait;
use crate::thread::picoseconds;
use crate::waiters::Waiter;
use std::time::Duration;

/// A condition variable. Waiting threads queue at its address.
#[derive(Default)]
pub struct Condvar {
    /// Gives it an address of its own.
    _word: u64,
}

impl Condvar {
    /// A condition variable that no thread waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self { _word: 0 }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Waits; whether the time limit ended it.
    fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        limit: Option<Duration>,
    ) -> bool {
        let address = self.address();
        // Releasing the lock may run other threads. Between that and the queue none runs, so that
        // no notification is lost.
        guard.release();
        let limit = simulation::with(|sim| {
            let (task, now) = (sim.caller(), sim.now());
            sim.queue(address).push_back(Waiter { task, shared: true });
            limit.map(|limit| now.saturating_add(picoseconds(limit)))
        })
        .expect("a condition is waited for inside of a simulation");
        let timed_out = block(Wait::Condition, limit);
        if timed_out {
            simulation::with(|sim| {
                let me = sim.caller();
                sim.queue(address).retain(|waiter| waiter.task != me);
            });
        }
        guard.acquire();
        timed_out
    }

    /// Releases the lock, waits for a notification and takes the lock again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_until(guard, None);
    }

    /// As [`wait`](Self::wait), for `timeout` at most; whether that ended the wait.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        self.wait_until(guard, Some(timeout))
    }

    fn notify(&self, most: usize) {
        let address = self.address();
        access::access(address, Access::Load);
        simulation::with(|sim| {
            let wake = sim.wake_latency();
            for _ in 0..most {
                let Some(waiter) = sim.take_waiter(address) else { return };
                let now = sim.now();
                sim.wake(waiter.task, now + wake);
            }
        });
    }

    /// Wakes the thread that has waited longest.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }
}
