//! Atomic groups of metadata changes.
//!
//! A [`Handle`] is one operation's share of the running transaction. Any number
//! run at once; none of them stores to a line that another core uses:
//!
//! | step | what it touches |
//! |---|---|
//! | start | own slot: pin, then read the gate word; credits from the own slot |
//! | change a block | the block; own slot's list the first time in a transaction |
//! | stop | own slot: credits back, unpin |
//! | commit | the gate word, then every slot once |
//!
//! Life of a transaction, and the function that makes each step:
//!
//! | state | entered by |
//! |---|---|
//! | Running | `Gate::open` |
//! | Locked: no new handle joins, reserved ones may | `Gate::lock` |
//! | Switch: nobody joins, no handle runs | `Gate::drain` |
//! | Rendering: the next transaction runs already | `commit::render` |
//! | Written: all blocks are in the log | `Log::write_blocks` |
//! | Committed | `Log::write_commit`, whose second flush is the commit point |
//! | Checkpointed: home, log space free again | `checkpoint::run` |
//!
//! Commits are strictly one after another. A block or object that the next
//! transaction changes before the commit came for it keeps a frozen image of
//! the older state; there is never more than one.

mod checkpoint;
mod close;
mod commit;
mod core;
mod fast;
mod gate;
mod handle;
mod log;
mod recovery;
mod seam;
mod share;
mod sink;
mod slot;
mod supersede;
mod waiters;

pub(crate) use core::Journal;
pub use handle::{Handle, REVOKES_PER_CREDIT, Reservation};
pub(crate) use log::{Jbd2Log, JournalArea, Log, read_superblock};
pub use log::{JournalRun, JournalUse};
pub use recovery::Recovery;
pub(crate) use recovery::{clear_error, recover};
pub use seam::AdmissionFactory;
#[cfg(feature = "lab")]
pub use seam::{Access, Admission, Joined, Joiner};
pub use sink::{Dirty, Phase, RenderSink};
pub(crate) use supersede::supersede;

use crate::{Error, Result};
use nextent_ondisk::BlockNo;
use nextent_sync::Arc;
use nextent_sync::thread::{self, JoinHandle};

pub(crate) use checkpoint::checkpoint;
pub(crate) use close::{close, end_freezes};

/// Starts the threads that commit and checkpoint.
///
/// # Errors
///
/// `Io` if the system has no thread to give; none is left running then.
pub(crate) fn spawn(journal: &Arc<Journal>) -> Result<Vec<JoinHandle<()>>> {
    let (a, b) = (journal.clone(), journal.clone());
    let commits = spawn_named("nextent-commit", move || commit::run(&a))?;
    match spawn_named("nextent-home", move || checkpoint::run(&b)) {
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

/// Has the threads end without a further commit, and waits for one that runs.
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

/// Leaves word of an abort in the log.
pub(crate) fn record_error(journal: &Journal) {
    journal.log.record_error();
}

/// Notes on disk that the log is empty. All is home and the threads are gone.
fn mark_clean(journal: &Journal) -> Result<()> {
    journal.log.mark_clean(journal.cache.flushes(), journal.running())
}
