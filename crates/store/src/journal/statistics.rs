//! Counts of commits and the use of the log, for reports.
//!
//! Only the thread with the turn to commit counts, so plain loads and stores suffice. Relaxed: a
//! reader needs no order between the numbers.

use super::core::Journal;
use nextent_num::to_u64;
use nextent_sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a journal has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStatistics {
    /// Whole transactions that were made durable.
    pub commits: u64,
    /// Fast commits that were made durable.
    pub fast_commits: u64,
    /// Metadata blocks in the whole transactions, without the log's own blocks.
    pub blocks: u64,
    /// The time of all whole commits together, from closing the gate to the last flush.
    pub time: Duration,
    /// The longest of these times.
    pub longest: Duration,
    /// Blocks of the circular log; 0 for a volume without a journal.
    pub log_blocks: u64,
    /// Blocks of the log in transactions that are not checkpointed yet.
    pub log_used: u64,
    /// Why the journal stopped, if it did.
    pub error: Option<String>,
}

/// The counts. Times are in nanoseconds.
#[derive(Default)]
pub(super) struct CommitCounts {
    commits: AtomicU64,
    fast_commits: AtomicU64,
    blocks: AtomicU64,
    time: AtomicU64,
    longest: AtomicU64,
}

impl CommitCounts {
    /// Counts a whole commit of `blocks` blocks. The caller has the turn.
    pub(super) fn count(&self, blocks: usize, took: Duration) {
        let took = nanoseconds(took);
        add(&self.commits, 1);
        add(&self.blocks, to_u64(blocks));
        add(&self.time, took);
        if took > self.longest.load(Ordering::Relaxed) {
            self.longest.store(took, Ordering::Relaxed);
        }
    }

    /// Counts a fast commit. The caller has the turn.
    pub(super) fn count_fast(&self) {
        add(&self.fast_commits, 1);
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Journal {
    /// The counts so far. Takes `[journal.log]`.
    pub(crate) fn statistics(&self) -> JournalStatistics {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        let (log_used, log_blocks) = self.log.usage();
        JournalStatistics {
            commits: read(&counts.commits),
            fast_commits: read(&counts.fast_commits),
            blocks: read(&counts.blocks),
            time: Duration::from_nanos(read(&counts.time)),
            longest: Duration::from_nanos(read(&counts.longest)),
            log_blocks,
            log_used,
            error: self.abort_cause(),
        }
    }
}
