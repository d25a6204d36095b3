//! Stops handles.

use super::{HandleCounts, StateLockGate};
use nextent_sync::atomic::Ordering;

impl StateLockGate {
    pub(super) fn stop_handle(&self, unused: i64) -> bool {
        if self.may_stop_unlocked {
            return self.stop_unlocked(unused);
        }
        let _running = self.journal.running.lock();
        let last = self.handles.lock().remove(unused);
        last && self.journal.closed.load(Ordering::Relaxed)
    }

    /// The hack of 2010. The loaded flag may be stale. A commit that found a handle inside polls
    /// again after a timeout.
    fn stop_unlocked(&self, unused: i64) -> bool {
        let last = self.handles.lock().remove(unused);
        last && self.journal.closed.load(Ordering::Relaxed)
    }
}

impl HandleCounts {
    /// Subtracts a handle. Returns whether it was the last.
    fn remove(&mut self, unused: i64) -> bool {
        assert!(self.updates > 0, "a handle that stops has started");
        self.outstanding -= unused;
        self.updates -= 1;
        self.updates == 0
    }
}
