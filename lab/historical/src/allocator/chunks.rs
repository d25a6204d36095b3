//! Free clusters of a whole group: consecutive buddies of 8192 clusters, as those of ext4 with
//! blocks of 4 KiB.

use nextent::lab_seams::alloc::buddy::{Buddy, MAX_ORDER, Run};
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_sync::{computes, reads};

/// Clusters of a buddy.
const SIZE: u32 = 1 << MAX_ORDER;

/// Free clusters of a group. `[historical.group]`
pub(super) struct Chunks {
    len: u32,
    free: u32,
    /// No cluster below this is free.
    first: u32,
    chunks: Box<[Buddy]>,
}

impl Chunks {
    /// A group whose free clusters are the clear bits of `used`.
    pub(super) fn from_used(len: u32, used: &[u64]) -> Self {
        let words = to_usize(SIZE) / 64;
        let chunk = |(i, used): (usize, &[u64])| {
            Buddy::from_used((len - must_fit::<u32, _>(i) * SIZE).min(SIZE), used)
        };
        let chunks: Box<[Buddy]> = used.chunks(words).enumerate().map(chunk).collect();
        let free = chunks.iter().map(Buddy::free).sum();
        let mut all = Self { len, free, first: 0, chunks };
        all.first = all.next_run(0).map_or(len, |run| run.0);
        all
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Number of maximal free runs.
    pub(super) fn fragments(&self) -> u32 {
        // Instructions counted by callgrind, as everywhere in this module.
        computes(53 * to_u64(self.chunks.len()));
        let joined = self
            .chunks
            .windows(2)
            .filter(|pair| pair[0].is_free(pair[0].size() - 1) && pair[1].is_free(0));
        let joined: u32 = must_fit(joined.count());
        self.chunks.iter().map(Buddy::fragments).sum::<u32>() - joined
    }

    /// The highest order of which a whole chunk is free.
    pub(super) fn largest_order(&self) -> Option<usize> {
        computes(45 * to_u64(self.chunks.len()));
        reads(&*self.chunks);
        self.chunks.iter().filter_map(Buddy::largest_order).max()
    }

    /// The parts of a range: the buddy's index, and the run in it.
    fn parts((start, n): Run) -> impl Iterator<Item = (usize, Run)> {
        let end = start + n;
        let mut at = start;
        std::iter::from_fn(move || {
            let part = (end - at).min(SIZE - at % SIZE);
            let found = (to_usize(at / SIZE), (at % SIZE, part));
            at += part;
            (part > 0).then_some(found)
        })
    }

    /// Takes a range that is free.
    pub(super) fn take(&mut self, run: Run) {
        computes(250);
        Self::parts(run).for_each(|(i, (at, n))| self.chunks[i].take(at, n));
        self.free -= run.1;
        if run.0 == self.first {
            self.first += run.1;
        }
    }

    /// Frees a range of which no cluster is free.
    pub(super) fn give(&mut self, run: Run) {
        Self::parts(run).for_each(|(i, (at, n))| self.chunks[i].give(at, n));
        self.free += run.1;
        self.first = self.first.min(run.0);
    }

    /// Length of the free run that begins at `at`, counted up to `max`.
    pub(super) fn run_at(&self, at: u32, max: u32) -> u32 {
        let max = max.min(self.len.saturating_sub(at));
        let mut found = 0;
        for (i, (at, n)) in Self::parts((at, max)) {
            let here = self.chunks[i].run_at(at, n);
            found += here;
            if here < n {
                break;
            }
        }
        found
    }

    /// The first free run at or after `from`.
    pub(super) fn next_run(&self, from: u32) -> Option<Run> {
        let from = from.max(self.first);
        let first = to_usize(from / SIZE);
        for (i, chunk) in self.chunks.iter().enumerate().skip(first) {
            let at = if i == first { from % SIZE } else { 0 };
            if let Some((start, _)) = chunk.next_run(at) {
                let start = must_fit::<u32, _>(i) * SIZE + start;
                return Some((start, self.run_at(start, self.len)));
            }
        }
        None
    }

    /// The lowest chunk of the smallest order that has one, from `order` up.
    pub(super) fn find_order(&self, order: usize) -> Option<u32> {
        reads(&*self.chunks);
        (order..=MAX_ORDER).find_map(|order| {
            self.chunks.iter().enumerate().find_map(|(i, chunk)| {
                chunk.find_maximal(order).map(|at| must_fit::<u32, _>(i) * SIZE + (at << order))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_across_buddies() {
        let len = 3 * SIZE - 100;
        let mut used = vec![0; (len as usize).div_ceil(64)];
        used[0] = 0b1011;
        let mut chunks = Chunks::from_used(len, &used);
        assert_eq!((chunks.free(), chunks.fragments()), (len - 3, 2));
        assert_eq!(chunks.next_run(0), Some((2, 1)));
        assert_eq!(chunks.next_run(3), Some((4, len - 4)));
        chunks.take((SIZE - 5, 10));
        assert_eq!((chunks.free(), chunks.fragments()), (len - 13, 3));
        assert_eq!(chunks.run_at(SIZE + 5, 9000), 9000);
        assert_eq!(chunks.run_at(SIZE - 6, 9), 1);
        chunks.give((SIZE - 5, 10));
        assert_eq!((chunks.free(), chunks.fragments()), (len - 3, 2));
        chunks.take((2, 1));
        chunks.take((4, 10));
        assert_eq!(chunks.next_run(0), Some((14, len - 14)));
        chunks.give((4, 10));
        chunks.give((2, 1));
        assert_eq!(chunks.next_run(0), Some((2, 1)));
        assert_eq!(chunks.find_order(0), Some(2));
        assert_eq!(chunks.find_order(1), Some(4));
        assert_eq!(chunks.find_order(2), Some(4));
        assert_eq!(chunks.find_order(12), Some(SIZE / 2));
        assert_eq!(chunks.find_order(13), Some(SIZE));
        assert_eq!(chunks.largest_order(), Some(13));
    }
}
