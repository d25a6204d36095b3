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

/// Runs of one kind that a slot keeps; when there are more it forgets them all.
const MOST: usize = 2048;

/// Looks in a row that must find unwritten blocks before places of such are noted.
const STREAK: u32 = 4;

/// A run of blocks in a row, in the file and on the device.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u32,
    len: u32,
    start: u64,
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

/// Runs in order, none overlapping.
#[derive(Debug, Default)]
struct Runs(Vec<Run>);

impl Runs {
    /// Where block `at` lies and for how many blocks that goes on, at most `max`.
    #[inline]
    fn place(&self, at: FileBlock, max: u32) -> Option<(BlockNo, u32)> {
        let pos = self.0.partition_point(|run| run.at <= at.0);
        self.0.get(pos.checked_sub(1)?)?.place(at, max)
    }

    /// Notes that `len` blocks from `at` lie at `start`.
    fn note(&mut self, at: FileBlock, start: BlockNo, len: u32) {
        let runs = &mut self.0;
        if runs.len() >= MOST {
            runs.clear();
        }
        // What is known of these blocks lies inside the new run, or goes on as it does.
        let first = runs.partition_point(|run| run.at + run.len <= at.0);
        let last = runs.partition_point(|run| run.at < at.0 + len);
        let mut run = Run { at: at.0, len, start: start.0 };
        if let (Some(known), Some(end)) =
            (runs.get(first..last).and_then(|known| known.first()), runs[..last].last())
        {
            let stop = (end.at + end.len).max(at.0 + len);
            if known.at < run.at {
                run.start -= u64::from(run.at - known.at);
                run.at = known.at;
            }
            run.len = stop - run.at;
        }
        runs.splice(first..last, [run]);
    }
}

/// What is known of unwritten blocks.
#[derive(Debug, Default)]
struct Fresh {
    /// Conversions that had mostly nothing to do, when the runs were noted.
    idle: u64,
    runs: Runs,
    /// Looks at the map in a row that found unwritten blocks.
    streak: u32,
}

/// One slot's knowledge of one file.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    edition: u64,
    /// The size at least.
    size: u64,
    runs: Runs,
    fresh: Fresh,
}

impl Seen {
    /// Forgets what is of another edition.
    #[inline]
    fn keep(&mut self, edition: u64) {
        if self.edition != edition {
            self.edition = edition;
            self.size = 0;
            self.runs.0.clear();
            self.fresh.runs.0.clear();
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
        if self.edition == edition { self.runs.place(at, max) } else { None }
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
        let known = self.edition == edition && self.fresh.idle == idle;
        if known { self.fresh.runs.place(at, max) } else { None }
    }

    /// Notes that `len` blocks from `at`, some of which were found unwritten, lie at `start`.
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
        if fresh.idle != idle {
            fresh.idle = idle;
            fresh.runs.0.clear();
        }
        fresh.runs.note(at, start, len);
    }

    /// Notes that `len` blocks from `at` hold data and lie at `start`.
    pub(crate) fn note_written(&mut self, edition: u64, at: FileBlock, start: BlockNo, len: u32) {
        self.keep(edition);
        self.fresh.streak = 0;
        self.runs.note(at, start, len);
    }
}
