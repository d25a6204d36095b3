//! Stopping a handle.

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

    /// The hack of 2010. The value that it loads of the journal may be stale; a commit that found a
    /// handle inside looks again by itself after a timeout.
    fn stop_unlocked(&self, unused: i64) -> bool {
        let last = self.handles.lock().remove(unused);
        last && self.journal.closed.load(Ordering::Relaxed)
    }
}

impl HandleCounts {
    /// Counts a handle out; whether it was the last inside.
    fn remove(&mut self, unused: i64) -> bool {
        assert!(self.updates > 0, "a handle that stops has started");
        self.outstanding -= unused;
        self.updates -= 1;
        self.updates == 0
    }
}
