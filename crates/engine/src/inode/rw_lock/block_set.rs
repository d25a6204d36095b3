//! A set of file blocks: a sparse bitmap.
//!
//! Blocks can be added in any order and are returned in order, adjacent blocks as one run. It costs
//! one bit a block where blocks are dense, and 512 bytes for an isolated block.

use std::ops::Range;

use nextent_num::{must_fit, to_usize, usize_of_u32};
use nextent_ondisk::FileBlock;
use nextent_sync::reads;

const CHUNK_BLOCKS: u32 = 64 * 64;
const CHUNK_WORDS: usize = usize_of_u32(CHUNK_BLOCKS / 64);

type Chunk = [u64; CHUNK_WORDS];

/// A set of file blocks.
#[derive(Debug, Default)]
pub(super) struct BlockSet {
    /// Chunk `n` has the blocks from `n * CHUNK_BLOCKS` on.
    chunks: Vec<Option<Box<Chunk>>>,
    /// Number of allocated chunks.
    allocated: usize,
    /// All chunks before this one are absent.
    first: usize,
}

impl BlockSet {
    pub(super) fn is_empty(&self) -> bool {
        self.allocated == 0
    }

    /// Memory of the set, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.allocated * size_of::<Chunk>() + self.chunks.len() * size_of::<Option<Box<Chunk>>>()
    }

    pub(super) fn insert(&mut self, run: Range<FileBlock>) {
        let (mut at, end) = (run.start.0, run.end.0);
        while at < end {
            let stop = end.min(at.saturating_add(CHUNK_BLOCKS - at % CHUNK_BLOCKS));
            let chunk = self.chunk(to_usize(at / CHUNK_BLOCKS));
            for word in at % CHUNK_BLOCKS / 64..=(stop - 1) % CHUNK_BLOCKS / 64 {
                // The part of the word that is inside the run.
                let begin = (at / CHUNK_BLOCKS * CHUNK_BLOCKS + word * 64).max(at);
                let len = stop.min((begin / 64 * 64).saturating_add(64)) - begin;
                chunk[to_usize(word)] |= u64::MAX >> (64 - len) << (begin % 64);
            }
            at = stop;
        }
    }

    /// Adds all blocks of `other`.
    pub(super) fn merge(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (number, chunk) in other.chunks.into_iter().enumerate().skip(other.first) {
            let Some(chunk) = chunk else { continue };
            reads(&*chunk);
            let own = self.chunk(number);
            own.iter_mut().zip(*chunk).for_each(|(word, more)| *word |= more);
        }
    }

    fn chunk(&mut self, number: usize) -> &mut Chunk {
        if number >= self.chunks.len() {
            self.chunks.resize_with(number + 1, || None);
        }
        let allocated = &mut self.allocated;
        self.first = self.first.min(number);
        self.chunks[number].get_or_insert_with(|| {
            *allocated += 1;
            Box::new([0; CHUNK_WORDS])
        })
    }

    /// Removes the lowest blocks and returns them as rising runs: at least `least` runs, or all.
    pub(super) fn take_runs(&mut self, least: usize) -> Vec<Range<FileBlock>> {
        let mut runs: Vec<Range<FileBlock>> = Vec::new();
        while self.allocated > 0 && runs.len() < least {
            if let Some(chunk) = self.chunks[self.first].take() {
                self.allocated -= 1;
                runs_of(must_fit::<u32, _>(self.first) * CHUNK_BLOCKS, &chunk, &mut runs);
            }
            self.first += 1;
        }
        if self.allocated == 0 {
            *self = Self::default();
        }
        runs
    }
}

/// Appends the runs of a chunk whose first block is `base`.
fn runs_of(base: u32, chunk: &Chunk, runs: &mut Vec<Range<FileBlock>>) {
    for (n, word) in chunk.iter().enumerate() {
        let (mut rest, mut at) = (*word, base + must_fit::<u32, _>(n) * 64);
        while rest != 0 {
            let zeros = rest.trailing_zeros();
            let ones = (rest >> zeros).trailing_ones();
            let run = FileBlock(at + zeros)..FileBlock(at + zeros + ones);
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
            let passed = zeros + ones;
            rest = rest.checked_shr(passed).unwrap_or(0);
            at += passed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all(bits: &mut BlockSet, least: usize) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        while !bits.is_empty() {
            let runs = bits.take_runs(least);
            assert!(runs.len() >= least || bits.is_empty());
            all.extend(runs.iter().map(|run| (run.start.0, run.end.0)));
        }
        all
    }

    #[test]
    fn runs_are_taken_in_order_and_merged() {
        let mut bits = BlockSet::default();
        let cases = [(70, 71), (0, 3), (3, 64), (64, 70), (4090, 4100), (8192, 12288), (5, 6)];
        for (start, end) in cases {
            bits.insert(FileBlock(start)..FileBlock(end));
        }
        assert!(bits.bytes() > 3 * 512);
        assert_eq!(all(&mut bits, 1000), [(0, 71), (4090, 4100), (8192, 12288)]);
        assert!(bits.is_empty() && bits.bytes() == 0);
        let last = u32::MAX;
        bits.insert(FileBlock(last - 70)..FileBlock(last));
        assert_eq!(all(&mut bits, 1), [(last - 70, last)]);
        let (mut one, mut other) = (BlockSet::default(), BlockSet::default());
        one.insert(FileBlock(5000)..FileBlock(5001));
        one.insert(FileBlock(20_000)..FileBlock(20_002));
        other.insert(FileBlock(5001)..FileBlock(5002));
        other.insert(FileBlock(9)..FileBlock(10));
        one.merge(other);
        one.merge(BlockSet::default());
        bits.merge(one);
        assert_eq!(all(&mut bits, 1), [(9, 10), (5000, 5002), (20_000, 20_002)]);
    }

    #[test]
    fn the_set_has_exactly_the_added_blocks() {
        let mut state = 9_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for most in [1, 70, 9000] {
            let (mut bits, mut set) = (BlockSet::default(), BTreeSet::new());
            for _ in 0..300 {
                let start = random(60_000);
                let end = start + 1 + random(most);
                bits.insert(FileBlock(start)..FileBlock(end));
                set.extend(start..end);
            }
            let mut found = BTreeSet::new();
            let mut last = 0;
            for (start, end) in all(&mut bits, 7) {
                assert!(start >= last && start < end);
                last = end;
                found.extend(start..end);
            }
            assert_eq!(found, set);
        }
    }
}
