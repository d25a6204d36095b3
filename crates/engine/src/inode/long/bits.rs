//! A set of a file's blocks: bits, in pieces that are there only where bits are.
//!
//! Cheap to add to in any order, and gives its blocks back in order, neighbours as one run. One bit
//! a block where blocks lie close, half a kilobyte for each that lies alone.

use std::ops::Range;

use nextent_num::{must_fit, to_usize, usize_of_u32};
use nextent_ondisk::FileBlock;
use nextent_sync::reads;

/// Blocks of a piece.
const PIECE: u32 = 64 * 64;
/// Words of a piece.
const WORDS: usize = usize_of_u32(PIECE / 64);

type Piece = [u64; WORDS];

/// The set.
#[derive(Debug, Default)]
pub(super) struct Bits {
    /// By the number of the piece, from `first` on.
    pieces: Vec<Option<Box<Piece>>>,
    /// Pieces that are there.
    there: usize,
    /// None before it are.
    first: usize,
}

impl Bits {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.there == 0
    }

    /// Bytes that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.there * size_of::<Piece>() + self.pieces.len() * size_of::<Option<Box<Piece>>>()
    }

    /// Adds the blocks of `run`.
    pub(super) fn insert(&mut self, run: Range<FileBlock>) {
        let (mut at, end) = (run.start.0, run.end.0);
        while at < end {
            let stop = end.min(at.saturating_add(PIECE - at % PIECE));
            let piece = self.piece(to_usize(at / PIECE));
            for word in at % PIECE / 64..=(stop - 1) % PIECE / 64 {
                // The part of the word that is inside.
                let begin = (at / PIECE * PIECE + word * 64).max(at);
                let len = stop.min((begin / 64 * 64).saturating_add(64)) - begin;
                piece[to_usize(word)] |= u64::MAX >> (64 - len) << (begin % 64);
            }
            at = stop;
        }
    }

    /// Adds all of `other`.
    pub(super) fn take_in(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (number, piece) in other.pieces.into_iter().enumerate().skip(other.first) {
            let Some(piece) = piece else { continue };
            reads(&*piece);
            let own = self.piece(number);
            own.iter_mut().zip(*piece).for_each(|(word, more)| *word |= more);
        }
    }

    fn piece(&mut self, number: usize) -> &mut Piece {
        if number >= self.pieces.len() {
            self.pieces.resize_with(number + 1, || None);
        }
        let there = &mut self.there;
        self.first = self.first.min(number);
        self.pieces[number].get_or_insert_with(|| {
            *there += 1;
            Box::new([0; WORDS])
        })
    }

    /// Takes blocks out from the lowest on, as runs that rise: all there are, or at least `least`.
    pub(super) fn take_runs(&mut self, least: usize) -> Vec<Range<FileBlock>> {
        let mut runs: Vec<Range<FileBlock>> = Vec::new();
        while self.there > 0 && runs.len() < least {
            if let Some(piece) = self.pieces[self.first].take() {
                self.there -= 1;
                runs_of(must_fit::<u32, _>(self.first) * PIECE, &piece, &mut runs);
            }
            self.first += 1;
        }
        if self.there == 0 {
            *self = Self::default();
        }
        runs
    }
}

/// Adds the runs of a piece that begins at block `base`.
fn runs_of(base: u32, piece: &Piece, runs: &mut Vec<Range<FileBlock>>) {
    for (n, word) in piece.iter().enumerate() {
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

    fn all(bits: &mut Bits, least: usize) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        while !bits.is_empty() {
            let runs = bits.take_runs(least);
            assert!(runs.len() >= least || bits.is_empty());
            all.extend(runs.iter().map(|run| (run.start.0, run.end.0)));
        }
        all
    }

    #[test]
    fn runs_come_back_in_order_and_joined() {
        let mut bits = Bits::default();
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
        let (mut one, mut other) = (Bits::default(), Bits::default());
        one.insert(FileBlock(5000)..FileBlock(5001));
        one.insert(FileBlock(20_000)..FileBlock(20_002));
        other.insert(FileBlock(5001)..FileBlock(5002));
        other.insert(FileBlock(9)..FileBlock(10));
        one.take_in(other);
        one.take_in(Bits::default());
        bits.take_in(one);
        assert_eq!(all(&mut bits, 1), [(9, 10), (5000, 5002), (20_000, 20_002)]);
    }

    #[test]
    fn it_is_the_set_of_what_was_added() {
        let mut state = 9_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for most in [1, 70, 9000] {
            let (mut bits, mut set) = (Bits::default(), BTreeSet::new());
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
