//! The orderly end of a journal.
//!
//! Invariants: a commit that reported success is on the device when the log is marked clean; a
//! handle that was stopped before is in the last transaction, and a later one is refused with
//! `ReadOnly`.
//!
//! | step | action | effect on other threads |
//! |---|---|---|
//! | 1 | `control.closing`: freezes end, new ones are refused | a frozen gate opens |
//! | 2 | `control.stop`: no other thread leads a commit, full or fast | callers wait for the last |
//! | 3 | the closing thread waits for a commit under way, then leads the last | handles wait |
//! | 4 | a checkpoint; no commit adds to its queue any more | - |
//! | 5 | the threads end; the log is marked clean | - |
//! | 6 | `Journal::close` | all waiters are refused |
//!
//! The last commit leaves the gate closed. An error in any step aborts the journal instead, so that
//! all waiters get the cause; the log then keeps the blocks that are not in place.
//!
//! `Journal::reopen` undoes a close.

use super::core::Journal;
use super::gate::GateState;
use super::{checkpoint, commit, mark_clean};
use crate::Result;
use nextent_sync::injected;
use nextent_sync::thread::JoinHandle;

/// Ends all freezes, and refuses new ones, so that the last handles can join.
pub(crate) fn end_freezes(journal: &Journal) {
    let mut control = journal.control.lock();
    control.closing = true;
    control.closes += 1;
    control.freezes = 0;
    journal.wake.notify_all();
    journal.done.notify_all();
}

/// Admits freezes again: the caller of [`end_freezes`] does not close the journal.
pub(crate) fn allow_freezes(journal: &Journal) {
    journal.control.lock().closing = false;
}

/// Commits, writes all blocks in place, ends `threads` and marks the log empty. The journal refuses
/// handles from then on. The caller calls this once.
///
/// # Errors
///
/// `Aborted` or `Io`; the journal is aborted then.
pub(crate) fn close(journal: &Journal, threads: Vec<JoinHandle<()>>) -> Result<()> {
    end_freezes(journal);
    let committed = if injected("commit-during-close") {
        journal.sync_all().and_then(|()| checkpoint(journal))
    } else {
        commit_last(journal).and_then(|()| checkpoint(journal))
    };
    super::stop(journal);
    for thread in threads {
        // A panic there was reported, and has aborted the journal.
        let _ = thread.join();
    }
    let closed = committed.and_then(|()| journal.check()).and_then(|()| {
        debug_assert!(
            journal.queue.is_empty() || injected("commit-during-close"),
            "a commit ended after the last checkpoint"
        );
        mark_clean(journal)
    });
    match &closed {
        Ok(()) => journal.close(),
        // No thread commits any more: threads that wait for a commit must get the cause.
        Err(error) => journal.abort(&error.to_string()),
    }
    closed
}

/// Makes the last commit, after which the gate stays closed. No other thread leads one meanwhile.
fn commit_last(journal: &Journal) -> Result<()> {
    let mut control = journal.control.lock();
    control.stop = true;
    journal.wake.notify_all();
    // A commit that waits for its callers goes on.
    journal.left.notify_all();
    while journal.is_committing() {
        journal.done.wait(&mut control);
    }
    // A gate that is still frozen has admitted no handle.
    if !journal.is_aborted() && journal.gate.load().0 != GateState::Frozen {
        commit::lead(journal, control);
    }
    journal.check()
}
