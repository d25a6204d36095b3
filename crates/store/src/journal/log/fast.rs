//! The area of fast commits, after the circular log.
//!
//! Its records continue the log's last transaction only: each full commit makes them void, and the
//! next fast commit begins at the area's start. Only the thread with the turn to commit uses it.

use super::map::JournalArea;
use crate::Result;
use crate::flushes::Flushes;
use nextent_num::must_fit;
use nextent_ondisk::Tid;
use nextent_ondisk::fast_commit::FastCommit;
use nextent_sync::atomic::{AtomicU32, Ordering};

/// The area of a journal for fast commits.
pub(crate) struct FastArea {
    area: JournalArea,
    /// The area is `first..end`. One more block follows, which stays zero: if fast commits fill it,
    /// Linux 6.18 reads on past the journal and refuses the volume.
    first: u32,
    end: u32,
    /// Blocks that the fast commits of the running transaction fill. Relaxed: the turn orders it.
    used: AtomicU32,
}

impl FastArea {
    pub(super) fn new(area: JournalArea, first: u32, end: u32) -> Self {
        Self { area, first, end, used: AtomicU32::new(0) }
    }

    /// The most bytes of a record.
    pub(in crate::journal) fn longest_record(&self) -> usize {
        FastCommit::longest(self.area.block_size())
    }

    /// Writes one fast commit of `tid` and makes it durable, after flush `data` has succeeded;
    /// false, with nothing written, if too few blocks are left.
    pub(in crate::journal) fn write(
        &self,
        tid: Tid,
        records: &[Vec<u8>],
        data: u64,
        flushes: &Flushes,
    ) -> Result<bool> {
        let used = self.used.load(Ordering::Relaxed);
        let size = self.area.block_size();
        let mut commit = FastCommit::new(size);
        if used == 0 {
            commit.head(tid);
        }
        records.iter().for_each(|record| commit.push(record));
        let bytes = commit.finish(tid);
        let blocks: Vec<&[u8]> = bytes.chunks_exact(size).collect();
        let count: u32 = must_fit(blocks.len());
        if count > self.end.saturating_sub(self.first + used) {
            return Ok(false);
        }
        flushes.reach(data)?;
        self.area.write(self.first + used, &blocks)?;
        flushes.flush()?;
        self.used.store(used + count, Ordering::Relaxed);
        Ok(true)
    }

    /// A full commit is durable, so the records here are void by their number. Linux leaves them;
    /// but e2fsck, up to 1.47 at least, takes them for damage.
    pub(in crate::journal) fn end_transaction(&self) -> Result<()> {
        if self.used.swap(0, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.clear()
    }

    /// Makes the first block of the area, and the one after it, zero.
    pub(super) fn clear(&self) -> Result<()> {
        for at in [self.first, self.end] {
            if self.area.read(at)?.iter().any(|byte| *byte != 0) {
                self.area.write(at, &[&vec![0; self.area.block_size()]])?;
            }
        }
        Ok(())
    }
}
