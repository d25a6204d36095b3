//! Starts and extends handles.

use super::StateLockGate;
use nextent_store::{Joined, Joiner};

impl StateLockGate {
    pub(super) fn start_handle(&self, credits: i64, joiner: Joiner) -> Joined {
        let running = self.journal.running.lock();
        if !running.access.admits(joiner) {
            return Joined::Refused;
        }
        let mut handles = self.handles.lock();
        if handles.outstanding + credits > self.capacity {
            return Joined::Full(running.tid);
        }
        handles.outstanding += credits;
        handles.updates += 1;
        handles.count += 1;
        Joined::Inside(running.tid)
    }

    pub(super) fn take_credits(&self, n: i64) -> bool {
        let _running = self.journal.running.lock();
        let mut handles = self.handles.lock();
        let fits = handles.outstanding + n <= self.capacity;
        if fits {
            handles.outstanding += n;
        }
        fits
    }
}
