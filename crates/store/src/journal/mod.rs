//! Atomic groups of metadata changes.
//!
//! A [`Handle`] is one operation's share of the running transaction. Any number run at once, and
//! none of them stores to a cache line that another core uses:
//!
//! | step | touches |
//! |---|---|
//! | start | the thread's slot: pins it, then reads the gate word; takes credits from its lease |
//! | change a block | the block; the slot's list, the first time in a transaction |
//! | stop | the slot: gives credits back, unpins it |
//! | commit | the gate word, then every slot once |
//!
//! The life of a transaction:
//!
//! | state | entered by |
//! |---|---|
//! | open: handles join | `Gate::open` |
//! | draining: only reserved handles join | `Gate::drain` |
//! | shut: no handle joins, none is inside | the end of `Gate::drain` |
//! | rendering; the next transaction is open | `commit::render` |
//! | written: all its blocks are in the log | `Jbd2Log::write` up to its first flush |
//! | committed | the second flush of `Jbd2Log::write`, the commit point |
//! | checkpointed: its blocks are in place, its log space is free | `checkpoint::checkpoint` |
//!
//! Invariant: commits are strictly one after another. A block or object that the next transaction
//! changes before the commit has taken its image keeps a frozen image of the older state; there is
//! never more than one.

mod checkpoint;
mod close;
mod commit;
mod core;
mod fast;
mod gate;
mod handle;
mod log;
mod logged;
mod parallel;
mod recovery;
mod seam;
mod sink;
mod slot;
mod statistics;
mod supersede;
mod waiters;

pub(crate) use core::Journal;
pub use handle::{Handle, REVOKES_PER_CREDIT, Reservation};
pub(crate) use log::{Jbd2Log, JournalArea, Log, read_superblock};
pub use log::{JournalRun, JournalUse};
pub(crate) use logged::{empty_log, log_blocks, log_room};
pub use recovery::Recovery;
pub(crate) use recovery::{clear_error, recover};
pub use seam::AdmissionFactory;
#[cfg(feature = "lab")]
pub use seam::{Access, Admission, Joined, Joiner};
pub use sink::{Dirty, Phase, RenderSink};
pub use statistics::JournalStatistics;
pub(crate) use supersede::supersede;

use crate::{Error, Result};
use nextent_ondisk::BlockNo;
use nextent_sync::Arc;
use nextent_sync::thread::{self, JoinHandle};

pub(crate) use checkpoint::checkpoint;
pub(crate) use close::{allow_freezes, close, end_freezes};

/// Starts the threads that commit and checkpoint.
///
/// # Errors
///
/// `Io` if the system has no thread to give; none is left running then.
pub(crate) fn spawn(journal: &Arc<Journal>) -> Result<Vec<JoinHandle<()>>> {
    let (a, b) = (journal.clone(), journal.clone());
    let commits = spawn_named("nextent-commit", move || commit::run(&a))?;
    match spawn_named("nextent-ckpt", move || checkpoint::run(&b)) {
        Ok(checkpoints) => Ok(vec![commits, checkpoints]),
        Err(error) => {
            stop(journal);
            let _ = commits.join();
            Err(error)
        }
    }
}

fn spawn_named(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| Error::io("start of a thread for the journal", BlockNo(0), error))
}

/// Ends the threads without a further commit, and waits for a commit that runs.
pub(crate) fn stop(journal: &Journal) {
    let mut control = journal.control.lock();
    control.stop = true;
    journal.wake.notify_all();
    while journal.is_committing() {
        journal.done.wait(&mut control);
    }
    drop(control);
    journal.queue.stop();
}

/// Records an abort in the log.
pub(crate) fn record_error(journal: &Journal) {
    journal.log.record_error();
}

/// Records on disk that the log is empty. All blocks are in place, and the threads have ended.
fn mark_clean(journal: &Journal) -> Result<()> {
    journal.log.mark_clean(journal.cache.flushes(), journal.running())
}
