//! The orderly end of a journal.
//!
//! Invariants: a commit that reported success is on the device when the log is marked clean; a
//! handle that was stopped before is in the last transaction, and a later one is refused with
//! `ReadOnly`.
//!
//! | step | what | effect on others |
//! |---|---|---|
//! | 1 | `control.closing`: freezes end, new ones are refused | a frozen gate opens |
//! | 2 | `control.stop`: no thread leads a commit any more, full or fast | callers of a commit wait for the last one |
//! | 3 | the closing thread waits for a commit under way, then leads the last one, which leaves the gate shut | handles wait at the gate |
//! | 4 | a checkpoint; no commit adds to its queue any more | |
//! | 5 | the threads end; the log is marked clean | |
//! | 6 | `Journal::close` | all who wait are refused |
//!
//! An error in any step aborts the journal instead, so that all who wait hear the cause; the log
//! then keeps what is not in place.

use super::core::Journal;
use super::gate::State;
use super::{checkpoint, commit, mark_clean};
use crate::Result;
use nextent_sync::injected;
use nextent_sync::thread::JoinHandle;

/// Ends all freezes, and refuses new ones: nothing else would let the last handles in.
pub(crate) fn end_freezes(journal: &Journal) {
    let mut control = journal.control.lock();
    control.closing = true;
    control.freezes = 0;
    journal.wake.notify_all();
    journal.done.notify_all();
}

/// Commits, writes all blocks in place, ends `threads` and marks the log empty. The journal refuses
/// handles from then on. The caller sees to it that this is called once.
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
        // No thread commits any more: those who wait for a commit must hear why.
        Err(error) => journal.abort(&error.to_string()),
    }
    closed
}

/// Makes the last commit, after which the gate stays shut. No other thread leads one meanwhile.
fn commit_last(journal: &Journal) -> Result<()> {
    let mut control = journal.control.lock();
    control.stop = true;
    journal.wake.notify_all();
    // Commits that wait for their callers do not any more.
    journal.left.notify_all();
    while journal.is_committing() {
        journal.done.wait(&mut control);
    }
    // A frozen gate, which the commit thread has not opened, is shut and has let nothing in.
    if !journal.is_aborted() && journal.gate.load().0 != State::Frozen {
        commit::lead(journal, control);
    }
    journal.check()
}
