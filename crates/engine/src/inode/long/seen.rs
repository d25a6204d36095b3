//! What one slot has found out about a file, for as long as nobody had the file for itself.
//!
//! Blocks that hold data keep their place, and a file keeps its size or grows, until somebody
//! holds the lock exclusively. So runs of such blocks, and a size that the file has at least, can
//! be believed by whoever has a reference of the same edition, without a look at the map.
//!
//! Unwritten blocks keep their place too, but may be written by now, and holes may be filled. So
//! holes are never kept, and places of unwritten blocks are only for who writes whole blocks: it
//! converts what is written already, which changes nothing. They are noted where several looks in
//! a row found such blocks, and forgotten when a conversion had mostly nothing to do
//! ([`Fresh`]).

use nextent_ondisk::{BlockNo, FileBlock};

/// Runs that a slot keeps; when there are more it forgets them all.
const MOST: usize = 2048;

/// A run of blocks that hold data.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u32,
    len: u32,
    start: u64,
}

/// Runs of unwritten blocks that a slot keeps.
const MOST_FRESH: usize = 32;

/// Looks in a row that must find unwritten blocks before places of such are noted.
const STREAK: u32 = 4;

/// What is known of unwritten blocks.
#[derive(Debug, Default)]
struct Fresh {
    /// Conversions that had mostly nothing to do, when the runs were noted.
    idle: u64,
    runs: Vec<Run>,
    /// Looks at the map in a row that found unwritten blocks.
    streak: u32,
}

/// One slot's knowledge of one file.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    edition: u64,
    /// The size at least.
    size: u64,
    /// In order, none overlapping.
    runs: Vec<Run>,
    fresh: Fresh,
}

impl Run {
    /// Where block `at` of it lies and for how many blocks that goes on, at most `max`.
    #[inline]
    fn place(&self, at: FileBlock, max: u32) -> Option<(BlockNo, u32)> {
        let skip = at.0.checked_sub(self.at)?;
        let len = self.len.checked_sub(skip).filter(|left| *left > 0)?.min(max);
        Some((BlockNo(self.start + u64::from(skip)), len))
    }
}

impl Seen {
    /// Forgets what is of another edition.
    #[inline]
    fn keep(&mut self, edition: u64) {
        if self.edition != edition {
            self.edition = edition;
            self.size = 0;
            self.runs.clear();
            self.fresh.runs.clear();
        }
    }

    /// A size that the file has at least.
    #[inline]
    pub(crate) fn size(&self, edition: u64) -> u64 {
        if self.edition == edition { self.size } else { 0 }
    }

    /// Notes the size.
    pub(crate) fn note_size(&mut self, edition: u64, size: u64) {
        self.keep(edition);
        self.size = self.size.max(size);
    }

    /// Where block `at` lies and for how many blocks that goes on, at most `max`.
    #[inline]
    pub(crate) fn written(&self, edition: u64, at: FileBlock, max: u32) -> Option<(BlockNo, u32)> {
        if self.edition != edition {
            return None;
        }
        let pos = self.runs.partition_point(|run| run.at <= at.0);
        self.runs.get(pos.checked_sub(1)?)?.place(at, max)
    }

    /// The same of blocks that were unwritten, and are perhaps written by now; `idle` is the count
    /// of conversions that had mostly nothing to do.
    #[inline]
    pub(crate) fn fresh(
        &self,
        (edition, idle): (u64, u64),
        at: FileBlock,
        max: u32,
    ) -> Option<(BlockNo, u32)> {
        if self.edition != edition || self.fresh.idle != idle {
            return None;
        }
        self.fresh.runs.iter().find_map(|run| run.place(at, max))
    }

    /// Notes that `len` blocks from `at` were found unwritten and lie at `start`.
    pub(crate) fn note_fresh(
        &mut self,
        (edition, idle): (u64, u64),
        at: FileBlock,
        start: BlockNo,
        len: u32,
    ) {
        self.keep(edition);
        let fresh = &mut self.fresh;
        fresh.streak += 1;
        if fresh.streak < STREAK {
            return;
        }
        if fresh.idle != idle || fresh.runs.len() >= MOST_FRESH {
            fresh.idle = idle;
            fresh.runs.clear();
        }
        fresh.runs.push(Run { at: at.0, len, start: start.0 });
    }

    /// Notes that `len` blocks from `at` hold data and lie at `start`.
    pub(crate) fn note_written(
        &mut self,
        edition: u64,
        at: FileBlock,
        start: BlockNo,
        mut len: u32,
    ) {
        self.keep(edition);
        self.fresh.streak = 0;
        if self.runs.len() >= MOST {
            self.runs.clear();
        }
        // What is known of these blocks lies inside the new run, which is as long as its extent.
        let first = self.runs.partition_point(|run| run.at + run.len <= at.0);
        let last = self.runs.partition_point(|run| run.at < at.0 + len);
        let mut run = Run { at: at.0, len, start: start.0 };
        for known in &self.runs[first..last] {
            let shift = i64::from(at.0) - i64::from(known.at);
            if shift > 0 {
                run.at = known.at;
                run.start = start.0 - shift as u64;
                len += shift as u32;
            }
            len = len.max(known.at + known.len - run.at);
            run.len = len;
        }
        self.runs.splice(first..last, [run]);
    }
}
