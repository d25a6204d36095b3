//! Starts and extends handles.

use super::RwLockGate;
use nextent_store::{Joined, Joiner};
use nextent_sync::atomic::Ordering;

impl RwLockGate {
    pub(super) fn start_handle(&self, credits: i64, joiner: Joiner) -> Joined {
        let running = self.head.running.read();
        if !running.access.admits(joiner) {
            return Joined::Refused;
        }
        if !self.take_credits(credits) {
            return Joined::Full(running.tid);
        }
        self.counts.updates.fetch_add(1, Ordering::Relaxed);
        self.counts.count.fetch_add(1, Ordering::Relaxed);
        Joined::Inside(running.tid)
    }

    /// Adds the credits first, and subtracts them if they exceed the capacity. Meanwhile the gate
    /// may refuse another handle that would fit, which then waits for the next transaction.
    pub(super) fn take_credits(&self, n: i64) -> bool {
        if self.counts.outstanding.fetch_add(n, Ordering::Relaxed) + n <= self.capacity {
            return true;
        }
        self.counts.outstanding.fetch_sub(n, Ordering::Relaxed);
        false
    }
}
