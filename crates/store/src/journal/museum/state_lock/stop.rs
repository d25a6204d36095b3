//! Stopping a handle.

use super::{Handles, StateGate};
use nextent_sync::atomic::Ordering;

impl StateGate {
    pub(in crate::journal::museum) fn stop(&self, unused: i64) -> bool {
        if self.hacked {
            return self.stop_unlocked(unused);
        }
        let _journal = self.journal.state.lock();
        let last = self.handles.lock().remove(unused);
        last && self.journal.closed.load(Ordering::Relaxed)
    }

    /// The hack of 2010. What it reads of the journal may be old; a commit that found someone
    /// inside looks again by itself after a while.
    fn stop_unlocked(&self, unused: i64) -> bool {
        let last = self.handles.lock().remove(unused);
        last && self.journal.closed.load(Ordering::Relaxed)
    }
}

impl Handles {
    /// Counts a handle out; whether it was the last inside.
    fn remove(&mut self, unused: i64) -> bool {
        assert!(self.updates > 0, "a handle that stops has started");
        self.outstanding -= unused;
        self.updates -= 1;
        self.updates == 0
    }
}
