//! A set of numbers that many threads grow at once: block or cluster numbers.
//!
//! Kept as chunks of bits that exist only where something was set, so an empty volume of any size
//! costs nothing and a full one an eighth of a byte a block.

use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::HashMap;
use std::ops::Range;

use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, RwLock};

use super::locks;

const WORDS: usize = 512;
/// Numbers in a chunk.
const CHUNK: u64 = to_u64(WORDS) * 64;
const SHARDS: usize = 64;

type Chunk = [AtomicU64; WORDS];
type Shard = RwLock<HashMap<u64, Arc<Chunk>>>;

/// A growing set of numbers.
pub(super) struct Bits {
    shards: Box<[Shard]>,
}

/// The words a run touches within one chunk, with the bits of it in each.
fn words(run: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let (start, end) = (run.start % CHUNK, run.end - run.start / CHUNK * CHUNK);
    (start / 64..end.div_ceil(64)).map(move |word| {
        let low = start.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        let mask = (u64::MAX >> (64 - high)) & (u64::MAX << low);
        (to_usize(word), mask)
    })
}

/// A run cut at the borders of chunks.
fn pieces(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = run.start;
    std::iter::from_fn(move || {
        let end = (at / CHUNK + 1).saturating_mul(CHUNK).min(run.end);
        let piece = at..end;
        at = end;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Bits {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(&locks::BITS, HashMap::default()));
        Self { shards: shards.collect() }
    }

    fn shard(&self, chunk: u64) -> &Shard {
        &self.shards[to_usize(chunk % to_u64(SHARDS))]
    }

    fn chunk(&self, chunk: u64) -> Option<Arc<Chunk>> {
        self.shard(chunk).read().get(&chunk).cloned()
    }

    fn chunk_or_new(&self, chunk: u64) -> Arc<Chunk> {
        if let Some(found) = self.chunk(chunk) {
            return found;
        }
        let new = || Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        self.shard(chunk).write().entry(chunk).or_insert_with(new).clone()
    }

    /// Adds a run and calls back for each part that was in the set already.
    pub(super) fn insert(&self, run: Range<u64>, clash: &mut dyn FnMut(Range<u64>)) {
        for piece in pieces(run) {
            let number = piece.start / CHUNK;
            let chunk = self.chunk_or_new(number);
            for (word, mask) in words(piece) {
                let before = chunk[word].fetch_or(mask, Ordering::Relaxed) & mask;
                if before != 0 {
                    ranges(number * CHUNK + to_u64(word) * 64, before, clash);
                }
            }
        }
    }

    /// Whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.read().is_empty())
    }

    /// The first number of a run that is in the set.
    pub(super) fn first_in(&self, run: Range<u64>) -> Option<u64> {
        pieces(run).find_map(|piece| {
            let base = piece.start / CHUNK * CHUNK;
            let chunk = self.chunk(piece.start / CHUNK)?;
            words(piece).find_map(|(word, mask)| {
                let bits = chunk[word].load(Ordering::Relaxed) & mask;
                (bits != 0).then(|| base + to_u64(word) * 64 + u64::from(bits.trailing_zeros()))
            })
        })
    }

    #[cfg(test)]
    fn contains(&self, number: u64) -> bool {
        self.first_in(number..number + 1).is_some()
    }

    /// Writes the membership of the numbers from `start`, a multiple of 8, into `out` as a bitmap.
    pub(super) fn copy_to(&self, start: u64, out: &mut [u8]) {
        out.fill(0);
        let end = start + to_u64(out.len()) * 8;
        for piece in pieces(start..end) {
            let Some(chunk) = self.chunk(piece.start / CHUNK) else { continue };
            let first = to_usize((piece.start % CHUNK) / 8);
            let at = to_usize((piece.start - start) / 8);
            let len = to_usize((piece.end - piece.start) / 8);
            for (n, byte) in out[at..at + len].iter_mut().enumerate() {
                let place = first + n;
                let word = chunk[place / 8].load(Ordering::Relaxed);
                *byte = must_fit(word >> (place % 8 * 8) & 0xff);
            }
        }
    }
}

/// The runs of set bits of a word.
fn ranges(base: u64, mut bits: u64, each: &mut dyn FnMut(Range<u64>)) {
    while bits != 0 {
        let start = bits.trailing_zeros();
        let len = (bits >> start).trailing_ones();
        each(base + u64::from(start)..base + u64::from(start + len));
        let run = if len == 64 { u64::MAX } else { ((1 << len) - 1) << start };
        bits &= !run;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_plain_set() {
        let bits = Bits::new();
        let mut plain = std::collections::BTreeSet::new();
        let mut seed = 1u64;
        for _ in 0..300 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (seed >> 33) % 100_000;
            let run = start..start + 1 + (seed >> 20) % 700;
            let mut clashes = 0;
            bits.insert(run.clone(), &mut |part| clashes += part.end - part.start);
            let before = run.filter(|n| !plain.insert(*n)).count();
            assert_eq!(clashes, before as u64);
        }
        assert!(!bits.is_empty());
        for n in (0..101_000).step_by(7) {
            assert_eq!(bits.contains(n), plain.contains(&n), "{n}");
            assert_eq!(bits.first_in(n..n + 50), plain.range(n..n + 50).next().copied());
        }
        let mut map = vec![1; 9000];
        bits.copy_to(32_000, &mut map);
        for n in 0..72_000 {
            assert_eq!(map[n / 8] >> (n % 8) & 1 == 1, plain.contains(&(n as u64 + 32_000)));
        }
        bits.insert(0..64, &mut |_| ());
        bits.insert(u64::MAX / 2..u64::MAX / 2 + 70_000, &mut |_| panic!("nothing is there"));
    }
}
