//! A slot's cache of one file's extents.
//!
//! Invariant: between two exclusive holds, a block that holds data stays where it is and the size
//! does not shrink. So written extents and the least size are valid for a transfer of the same
//! generation, without a lookup in the map.
//!
//! Unwritten blocks stay where they are too, but another writer may have written them since. So
//! they are cached only for writers of whole blocks: converting a block that is already written
//! changes nothing. They are cached after several lookups in a row have found unwritten blocks, and
//! dropped after a conversion that found mostly written blocks ([`UnwrittenRuns`]). Holes are not
//! cached, because another writer may fill them.
//!
//! A lookup also returns neighbouring extents. When many slots begin to write to one file, all of
//! them contend for the same few leaves of its map, so fewer lookups help.

use nextent_ondisk::{BlockNo, FileBlock};

use crate::map::{Extent, ExtentState};

/// Cached runs of one kind; at the limit the slot drops all of them.
const MAX_RUNS: usize = 2048;

/// Lookups in a row that must find unwritten blocks before such blocks are cached.
const STREAK: u32 = 4;

/// Blocks that are adjacent in the file and on the device.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u32,
    len: u32,
    start: u64,
}

impl Run {
    /// The place of block `at` and the number of blocks that follow it, at most `max`.
    #[inline]
    fn find(&self, at: FileBlock, max: u32) -> Option<(BlockNo, u32)> {
        let skip = at.0.checked_sub(self.at)?;
        let len = self.len.checked_sub(skip).filter(|left| *left > 0)?.min(max);
        Some((BlockNo(self.start + u64::from(skip)), len))
    }
}

impl Run {
    fn of(extent: &Extent) -> Self {
        Self { at: extent.at.0, len: extent.len, start: extent.start.0 }
    }

    /// The first block of the file after the run.
    fn end(&self) -> u32 {
        self.at + self.len
    }

    /// Whether `next`, which does not begin earlier, is as far away on the device as in the file.
    fn is_contiguous_with(&self, next: &Self) -> bool {
        self.start + u64::from(next.at - self.at) == next.start
    }
}

/// Runs in order, none overlapping.
#[derive(Debug, Default)]
struct Runs(Vec<Run>);

impl Runs {
    /// The place of block `at` and the number of blocks that follow it, at most `max`.
    #[inline]
    fn find(&self, at: FileBlock, max: u32) -> Option<(BlockNo, u32)> {
        let pos = self.0.partition_point(|run| run.at <= at.0);
        self.0.get(pos.checked_sub(1)?)?.find(at, max)
    }

    /// Adds `new`, which rise and do not overlap.
    fn note(&mut self, new: &[Run]) {
        let (Some(from), Some(to)) = (new.first(), new.last()) else { return };
        let runs = &mut self.0;
        if runs.len() + new.len() > MAX_RUNS {
            runs.clear();
        }
        let first = runs.partition_point(|run| run.end() < from.at);
        let last = runs.partition_point(|run| run.at <= to.end());
        let mut all: Vec<Run> = runs[first..last].iter().chain(new).copied().collect();
        all.sort_unstable_by_key(|run| run.at);
        let mut is_damaged = false;
        all.dedup_by(|next, run| {
            let follows = run.is_contiguous_with(next);
            is_damaged |= next.at < run.end() && !follows;
            let joins = next.at <= run.end() && follows;
            if joins {
                run.len = run.end().max(next.end()) - run.at;
            }
            joins
        });
        if is_damaged {
            // Two places for one block: the map is damaged, so nothing from it is cached.
            return runs.clear();
        }
        runs.splice(first..last, all);
    }
}

/// Cached unwritten blocks.
#[derive(Debug, Default)]
struct UnwrittenRuns {
    /// Count of needless conversions when the runs were cached.
    needless: u64,
    runs: Runs,
    /// Lookups in a row that found unwritten blocks.
    streak: u32,
}

/// The extent cache of one slot for one file.
#[derive(Debug, Default)]
pub(crate) struct ExtentCache {
    generation: u64,
    /// The least size.
    size: u64,
    runs: Runs,
    unwritten: UnwrittenRuns,
}

impl ExtentCache {
    /// Drops entries of another generation.
    #[inline]
    fn enter_generation(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.size = 0;
            self.runs.0.clear();
            self.unwritten.runs.0.clear();
        }
    }

    /// The least size of the file.
    #[inline]
    pub(crate) fn size(&self, generation: u64) -> u64 {
        if self.generation == generation { self.size } else { 0 }
    }

    /// Caches the size.
    pub(crate) fn note_size(&mut self, generation: u64, size: u64) {
        self.enter_generation(generation);
        self.size = self.size.max(size);
    }

    /// The place of block `at`, if it holds data, and the number of blocks that follow it, at most
    /// `max`.
    #[inline]
    pub(crate) fn written(
        &self,
        generation: u64,
        at: FileBlock,
        max: u32,
    ) -> Option<(BlockNo, u32)> {
        if self.generation == generation { self.runs.find(at, max) } else { None }
    }

    /// Like [`written`](Self::written) for blocks that were unwritten and may be written by now.
    /// `needless` is the count of needless conversions.
    #[inline]
    pub(crate) fn unwritten(
        &self,
        (generation, needless): (u64, u64),
        at: FileBlock,
        max: u32,
    ) -> Option<(BlockNo, u32)> {
        let known = self.generation == generation && self.unwritten.needless == needless;
        if known { self.unwritten.runs.find(at, max) } else { None }
    }

    /// Caches extents around an unwritten block. `near` is in the order of the map; contiguous
    /// extents are cached as one run if any of them is unwritten.
    pub(crate) fn note_unwritten(&mut self, (generation, needless): (u64, u64), near: &[Extent]) {
        self.enter_generation(generation);
        let fresh = &mut self.unwritten;
        fresh.streak += 1;
        if fresh.streak < STREAK {
            return;
        }
        if fresh.needless != needless {
            fresh.needless = needless;
            fresh.runs.0.clear();
        }
        let follows = |one: &Extent, next: &Extent| {
            one.end() == next.at && Run::of(one).is_contiguous_with(&Run::of(next))
        };
        let some = near.chunk_by(follows).filter_map(|piece| {
            let len = piece.iter().map(|extent| extent.len).sum();
            let fresh = piece.iter().any(|extent| extent.state == ExtentState::Unwritten);
            fresh.then(|| Run { len, ..Run::of(&piece[0]) })
        });
        fresh.runs.note(&some.collect::<Vec<Run>>());
    }

    /// Caches the written extents of `near`, which is in the order of the map.
    pub(crate) fn note_written(&mut self, generation: u64, near: &[Extent]) {
        self.enter_generation(generation);
        self.unwritten.streak = 0;
        let written =
            near.iter().filter(|extent| extent.state == ExtentState::Written).map(Run::of);
        self.runs.note(&written.collect::<Vec<Run>>());
    }
}
