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
//!
//! A look tells of the neighbours of the block it is for, too: where many slots begin to write to
//! one file, they all look at the same few leaves of its tree, and that is where they meet.

use nextent_ondisk::{BlockNo, FileBlock};

use crate::map::{Extent, State};

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

impl Run {
    fn of(extent: &Extent) -> Self {
        Self { at: extent.at.0, len: extent.len, start: extent.start.0 }
    }

    /// The first block of the file behind it.
    fn end(&self) -> u32 {
        self.at + self.len
    }

    /// Whether `next`, which does not begin before it, lies to it on the device as in the file.
    fn is_of_one_piece_with(&self, next: &Self) -> bool {
        self.start + u64::from(next.at - self.at) == next.start
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

    /// Notes `new`, which rise and do not overlap.
    fn note(&mut self, new: &[Run]) {
        let (Some(from), Some(to)) = (new.first(), new.last()) else { return };
        let runs = &mut self.0;
        if runs.len() + new.len() > MOST {
            runs.clear();
        }
        let first = runs.partition_point(|run| run.end() < from.at);
        let last = runs.partition_point(|run| run.at <= to.end());
        let mut all: Vec<Run> = runs[first..last].iter().chain(new).copied().collect();
        all.sort_unstable_by_key(|run| run.at);
        let mut is_odd = false;
        all.dedup_by(|next, run| {
            let follows = run.is_of_one_piece_with(next);
            is_odd |= next.at < run.end() && !follows;
            let joins = next.at <= run.end() && follows;
            if joins {
                run.len = run.end().max(next.end()) - run.at;
            }
            joins
        });
        if is_odd {
            // Blocks that have two places: a damaged map, of which nothing is believed.
            return runs.clear();
        }
        runs.splice(first..last, all);
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

    /// Notes where `near`, extents of the map in order around an unwritten block, lie: of pieces of
    /// which some is unwritten.
    pub(crate) fn note_fresh(&mut self, (edition, idle): (u64, u64), near: &[Extent]) {
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
        let follows = |one: &Extent, next: &Extent| {
            one.end() == next.at && Run::of(one).is_of_one_piece_with(&Run::of(next))
        };
        let some = near.chunk_by(follows).filter_map(|piece| {
            let len = piece.iter().map(|extent| extent.len).sum();
            let fresh = piece.iter().any(|extent| extent.state == State::Unwritten);
            fresh.then(|| Run { len, ..Run::of(&piece[0]) })
        });
        fresh.runs.note(&some.collect::<Vec<Run>>());
    }

    /// Notes where those of `near`, extents of the map in order, lie that hold data.
    pub(crate) fn note_written(&mut self, edition: u64, near: &[Extent]) {
        self.keep(edition);
        self.fresh.streak = 0;
        let written = near.iter().filter(|extent| extent.state == State::Written).map(Run::of);
        self.runs.note(&written.collect::<Vec<Run>>());
    }
}
