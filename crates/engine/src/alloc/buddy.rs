//! Free clusters of one region, searchable by position, by length and by order.
//!
//! The structure is a pyramid of bitmaps. Bit `i` of order `o` is set if the `1 << o` clusters from
//! `i << o` on are all free. Order 0 is the bitmap of free clusters. A chunk is a *maximal* buddy
//! if its parent's bit is clear.
//!
//! Unlike lists of maximal buddies, the pyramid needs no splitting and merging. Taking a range
//! clears its ancestors. Returning it sets each ancestor whose other half is free too. Both stop at
//! the first order in which no bit changes.
//!
//! # Invariants
//!
//! - `counts[o]` is the number of set bits of order `o`, so `counts[0]` is the number of free
//!   clusters.
//! - `fragments` is the number of maximal free runs.
//! - All clusters of a range that is taken are free; none of a range that is returned is. Both are
//!   asserted.
//!
//! The lock of the region guards its buddy. `reads` and `writes` report to the simulator which of
//! the buddy's cache lines move with that lock.

#[cfg(any(test, feature = "lab"))]
mod maximal;

use super::bits;
use nextent_num::{must_fit, to_usize};
use nextent_sync::writes;

/// Order of the largest chunk: 8192 clusters.
pub const MAX_ORDER: usize = 13;

const LEVELS: usize = MAX_ORDER + 1;

/// Longest run that is searched for by shifting words instead of by enumerating runs.
const SHORT: u32 = 64;

/// Most chunks of the highest free order that the search for a long run examines.
const CANDIDATES: usize = 16;

/// The free clusters of one region.
pub struct Buddy {
    len: u32,
    levels: Box<[u64]>,
    offsets: [u16; LEVELS + 1],
    counts: [u16; LEVELS],
    fragments: u32,
}

/// A range of a region: first cluster and number of clusters.
pub type Run = (u32, u32);

impl Buddy {
    /// A region of `len` clusters, none of them free.
    ///
    /// # Panics
    /// If `len` is zero or above 8192.
    pub fn full(len: u32) -> Self {
        assert!(len > 0 && len <= 1 << MAX_ORDER, "a region has 1 to 8192 clusters");
        let mut offsets = [0u16; LEVELS + 1];
        for order in 0..LEVELS {
            let words: u16 = must_fit(bits::word_count(len >> order));
            offsets[order + 1] = offsets[order] + words;
        }
        let levels = vec![0; usize::from(offsets[LEVELS])].into();
        Self { len, levels, offsets, counts: [0; LEVELS], fragments: 0 }
    }

    /// A region whose free clusters are the clear bits of `used`.
    pub fn from_used(len: u32, used: &[u64]) -> Self {
        let mut buddy = Self::full(len);
        let free: Vec<u64> = used.iter().map(|word| !word).collect();
        for (start, n) in bits::runs(&free, 0, len) {
            buddy.give(start, n);
        }
        buddy
    }

    /// Number of clusters, free or not.
    pub fn size(&self) -> u32 {
        self.len
    }

    /// Number of free clusters.
    pub fn free(&self) -> u32 {
        u32::from(self.counts[0])
    }

    /// Number of maximal free runs.
    #[cfg(any(test, feature = "lab"))]
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// The highest order with a free chunk.
    pub fn largest_order(&self) -> Option<usize> {
        self.counts.iter().rposition(|&n| n > 0)
    }

    /// Whether `at` is free.
    pub fn is_free(&self, at: u32) -> bool {
        at < self.len && bits::test(self.level(0), at)
    }

    /// Whether all of the range is free.
    pub fn all_free(&self, start: u32, n: u32) -> bool {
        self.run_at(start, n) == n
    }

    /// Whether none of the range is free.
    pub fn none_free(&self, start: u32, n: u32) -> bool {
        bits::next_set(self.level(0), start, start + n).is_none()
    }

    /// The free runs in order of position.
    #[cfg(test)]
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        bits::runs(self.level(0), 0, self.len)
    }

    /// The first free run at or after `from`.
    pub fn next_run(&self, from: u32) -> Option<Run> {
        bits::runs(self.level(0), from, self.len).next()
    }

    /// Length of the free run that begins at `at`, at most `max`.
    pub fn run_at(&self, at: u32, max: u32) -> u32 {
        if at >= self.len {
            return 0;
        }
        let end = self.len.min(at.saturating_add(max));
        bits::next_clear(self.level(0), at, end).unwrap_or(end) - at
    }

    /// Marks a range as not free.
    ///
    /// # Panics
    /// If a cluster of it is not free.
    pub fn take(&mut self, start: u32, n: u32) {
        assert!(n > 0 && start + n <= self.len, "taking clusters beyond the region");
        writes(self);
        let last = start + n - 1;
        let left = start > 0 && self.is_free(start - 1);
        let right = self.is_free(last + 1);
        for order in 0..LEVELS {
            let (from, to) = (start >> order, (last >> order) + 1);
            if order > 0 && to - from == 1 {
                self.clear_upwards(order, from);
                break;
            }
            let cleared = self.clear(order, from, to.min(self.len >> order));
            assert!(order > 0 || cleared == n, "taking clusters that are not free");
            if cleared == 0 {
                break;
            }
            self.counts[order] -= must_fit::<u16, _>(cleared);
        }
        self.fragments = self.fragments + u32::from(left) + u32::from(right) - 1;
    }

    /// Marks a range as free.
    ///
    /// # Panics
    /// If a cluster of it is free already or beyond the region.
    pub fn give(&mut self, start: u32, n: u32) {
        let (mut from, mut to) = (start, start + n);
        assert!(n > 0 && to <= self.len, "returning clusters beyond the region");
        assert!(self.none_free(start, n), "returning clusters that are free");
        writes(self);
        let left = start > 0 && self.is_free(start - 1);
        let right = self.is_free(to);
        self.fragments = self.fragments + 1 - u32::from(left) - u32::from(right);
        for order in 0..LEVELS {
            self.set(order, from, to);
            self.counts[order] += must_fit::<u16, _>(to - from);
            if to - from == 1 {
                self.set_upwards(order, from);
                break;
            }
            // A chunk at either edge completes its parent if its sibling is free.
            if from % 2 == 1 && self.bit(order, from - 1) {
                from -= 1;
            }
            if to % 2 == 1 && to < self.len >> order && self.bit(order, to) {
                to += 1;
            }
            (from, to) = (from.div_ceil(2), to / 2);
            if from >= to {
                break;
            }
        }
    }

    /// Clears a bit and its ancestors, up to the first that is clear.
    fn clear_upwards(&mut self, order: usize, mut at: u32) {
        for above in order..LEVELS {
            let word = usize::from(self.offsets[above]) + to_usize(at / 64);
            let mask = 1 << (at % 64);
            // A chunk that crosses the region's end has no bit, and neither have its ancestors.
            match self.levels.get_mut(word) {
                Some(bits) if at < self.len >> above && *bits & mask != 0 => {
                    writes(bits);
                    *bits &= !mask;
                }
                _ => return,
            }
            self.counts[above] -= 1;
            at /= 2;
        }
    }

    /// Sets the ancestors of a bit that was just set, up to the first with a clear half.
    fn set_upwards(&mut self, order: usize, mut at: u32) {
        for above in order + 1..LEVELS {
            if !self.bit(above - 1, at ^ 1) {
                return;
            }
            at /= 2;
            let word = usize::from(self.offsets[above]) + to_usize(at / 64);
            writes(&self.levels[word]);
            self.levels[word] |= 1 << (at % 64);
            self.counts[above] += 1;
        }
    }

    /// Clears `[from, to)` of one order and returns how many bits were set. Ranges in one word, the
    /// common case, take one step.
    fn clear(&mut self, order: usize, from: u32, to: u32) -> u32 {
        if from >= to {
            return 0;
        }
        if from / 64 != (to - 1) / 64 {
            return bits::clear(self.level_mut(order), from, to);
        }
        let mask = (u64::MAX >> (64 - (to - from))) << (from % 64);
        let word = &mut self.levels[usize::from(self.offsets[order]) + to_usize(from / 64)];
        let hit = *word & mask;
        writes(word);
        *word &= !mask;
        // Avoids counting bits, which is slow on targets without an instruction for it.
        if hit == mask { to - from } else { hit.count_ones() }
    }

    /// Sets `[from, to)` of one order.
    fn set(&mut self, order: usize, from: u32, to: u32) {
        if from / 64 != (to - 1) / 64 {
            return bits::set(self.level_mut(order), from, to);
        }
        let mask = (u64::MAX >> (64 - (to - from))) << (from % 64);
        let word = &mut self.levels[usize::from(self.offsets[order]) + to_usize(from / 64)];
        writes(word);
        *word |= mask;
    }

    fn bit(&self, order: usize, at: u32) -> bool {
        let word = self.levels[usize::from(self.offsets[order]) + to_usize(at / 64)];
        word >> (at % 64) & 1 == 1
    }

    /// The first `n` contiguous free clusters from `hint` on, else from 0 on.
    pub fn find_run(&self, n: u32, hint: u32) -> Option<Run> {
        let largest = self.largest_order()?;
        // Every run of n clusters contains an aligned chunk of order log2(n) - 1.
        if n > self.free() || to_usize(n.ilog2()) > largest + 1 {
            return None;
        }
        let hint = if hint < self.len { hint } else { 0 };
        if n <= SHORT {
            return self.find_short(n, hint);
        }
        let level = self.level(0);
        let fits = |&(_, len): &Run| len >= n;
        let found = bits::runs(level, hint, self.len)
            .find(fits)
            .or_else(|| bits::runs(level, 0, self.len).find(fits));
        found.map(|(start, _)| (start, n))
    }

    fn find_short(&self, n: u32, hint: u32) -> Option<Run> {
        let level = self.level(0);
        let first = to_usize(hint / 64);
        let tail = u64::MAX << (hint % 64);
        let last = level.len();
        let order = (first..last).chain(0..=first.min(last - 1));
        for (step, word) in order.enumerate() {
            let next = level.get(word + 1).copied().unwrap_or(0);
            let mut here = starts_of_runs(level[word], next, n);
            if step == 0 {
                here &= tail;
            }
            if here != 0 {
                return Some((must_fit::<u32, _>(word) * 64 + here.trailing_zeros(), n));
            }
        }
        None
    }

    /// A free run of at most `max` clusters, at least a quarter as long as the longest one.
    pub fn find_near_longest(&self, max: u32) -> Option<Run> {
        let order = self.largest_order()?;
        let level = self.level(order);
        let chunks = (0..self.len >> order).filter(|&i| bits::test(level, i)).take(CANDIDATES);
        let mut best: Option<Run> = None;
        for chunk in chunks {
            let inside = chunk << order;
            let start = inside - self.free_before(inside);
            let len = self.run_at(start, max);
            if best.is_none_or(|(_, longest)| len > longest) {
                best = Some((start, len));
            }
        }
        best
    }

    /// Length of the free run that ends before `at`.
    fn free_before(&self, at: u32) -> u32 {
        let level = self.level(0);
        let mut free = 0;
        while free < at {
            let bit = (at - free) % 64;
            let word = level[to_usize((at - free - 1) / 64)];
            let shifted = if bit == 0 { word } else { word << (64 - bit) };
            let ones = shifted.leading_ones();
            free += ones;
            if ones < if bit == 0 { 64 } else { bit } {
                break;
            }
        }
        free
    }

    fn level(&self, order: usize) -> &[u64] {
        &self.levels[usize::from(self.offsets[order])..usize::from(self.offsets[order + 1])]
    }

    fn level_mut(&mut self, order: usize) -> &mut [u64] {
        &mut self.levels[usize::from(self.offsets[order])..usize::from(self.offsets[order + 1])]
    }
}

/// The bits of `word` where a run of `n` set bits begins. The run may continue in `next`.
fn starts_of_runs(word: u64, next: u64, n: u32) -> u64 {
    let mut bits = u128::from(next) << 64 | u128::from(word);
    let mut have = 1;
    while have < n {
        let step = have.min(n - have);
        bits &= bits >> step;
        have += step;
    }
    must_fit(bits & u128::from(u64::MAX))
}
