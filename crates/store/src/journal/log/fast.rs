//! The blocks of fast commits, behind the log's circle.
//!
//! They count only for the transaction after the log's last: each full commit makes what is here
//! void, and the next fast commit begins anew. Used by who has the turn to commit, alone.

use super::map::JournalArea;
use crate::Result;
use crate::flushes::Flushes;
use nextent_num::must_fit;
use nextent_ondisk::Tid;
use nextent_ondisk::fast_commit::FastCommit;
use nextent_sync::atomic::{AtomicU32, Ordering};

pub(crate) struct FastArea {
    area: JournalArea,
    /// It is `first..end`. Behind is one block more, which stays zero: where fast commits fill that
    /// one too, Linux 6.18 reads on past the journal and refuses the volume.
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
    /// false, with nothing written, if there is no room left.
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

    /// A full commit is durable: what is here is void. Linux leaves it, and its number tells it
    /// from what counts; but e2fsck up to 1.47 at least takes it for damage.
    pub(in crate::journal) fn end_transaction(&self) -> Result<()> {
        if self.used.swap(0, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.clear()
    }

    /// Makes the area begin and end with nothing.
    pub(super) fn clear(&self) -> Result<()> {
        for at in [self.first, self.end] {
            if self.area.read(at)?.iter().any(|byte| *byte != 0) {
                self.area.write(at, &[&vec![0; self.area.block_size()]])?;
            }
        }
        Ok(())
    }
}
