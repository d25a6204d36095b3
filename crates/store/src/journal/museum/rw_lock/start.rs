//! Starting a handle, and more credits for one.

use super::super::super::gate::State;
use super::super::Joined;
use super::RwGate;
use nextent_sync::atomic::Ordering;

impl RwGate {
    pub(in crate::journal::museum) fn start(&self, credits: i64, may: fn(State) -> bool) -> Joined {
        let journal = self.head.journal.read();
        if !may(journal.state) {
            return Joined::Closed;
        }
        if !self.take(credits) {
            return Joined::Full(journal.tid);
        }
        self.counts.updates.fetch_add(1, Ordering::Relaxed);
        self.counts.count.fetch_add(1, Ordering::Relaxed);
        Joined::Inside(journal.tid)
    }

    /// Adds first, and undoes that if it was too much: for that moment others may be refused
    /// although there is enough for them, which they wait out.
    pub(in crate::journal::museum) fn take(&self, n: i64) -> bool {
        if self.counts.outstanding.fetch_add(n, Ordering::Relaxed) + n <= self.capacity {
            return true;
        }
        self.counts.outstanding.fetch_sub(n, Ordering::Relaxed);
        false
    }
}
