//! Starting a handle, and more credits for one.

use super::super::super::gate::State;
use super::super::Joined;
use super::StateGate;

impl StateGate {
    pub(in crate::journal::museum) fn start(&self, credits: i64, may: fn(State) -> bool) -> Joined {
        let journal = self.journal.state.lock();
        if !may(journal.state) {
            return Joined::Closed;
        }
        let mut handles = self.handles.lock();
        if handles.outstanding + credits > self.capacity {
            return Joined::Full(journal.tid);
        }
        handles.outstanding += credits;
        handles.updates += 1;
        handles.count += 1;
        Joined::Inside(journal.tid)
    }

    pub(in crate::journal::museum) fn take(&self, n: i64) -> bool {
        let _journal = self.journal.state.lock();
        let mut handles = self.handles.lock();
        let fits = handles.outstanding + n <= self.capacity;
        if fits {
            handles.outstanding += n;
        }
        fits
    }
}
