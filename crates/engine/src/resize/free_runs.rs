//! Free blocks that may be allocated, by place and by length.
//!
//! A run of the wanted length or the next longer one is taken, so that small holes fill first and
//! large ones stay for what needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free runs. They never touch one another.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeRuns {
    /// Start to end.
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_len: BTreeSet<(u64, u64)>,
}

impl FreeRuns {
    /// Adds blocks, which must not be free yet.
    pub(super) fn add(&mut self, run: Range<u64>) {
        let (mut start, mut end) = (run.start, run.end);
        if start >= end {
            return;
        }
        if let Some((&before, &stop)) = self.by_start.range(..start).next_back()
            && stop == start
        {
            self.remove(before);
            start = before;
        }
        if self.by_start.contains_key(&end) {
            end = self.remove(end);
        }
        self.insert(start, end);
    }

    fn insert(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_start.insert(start, end);
            self.by_len.insert((end - start, start));
        }
    }

    /// Removes the run at `start`; returns its end.
    fn remove(&mut self, start: u64) -> u64 {
        let end = self.by_start.remove(&start).unwrap_or(start);
        self.by_len.remove(&(end - start, start));
        end
    }

    /// Takes up to `len` blocks in one piece: the shortest run that has them, or else the start of
    /// the longest.
    pub(super) fn take(&mut self, len: u64) -> Option<Range<u64>> {
        let fits = self.by_len.range((len, 0)..).next();
        let (have, start) = *fits.or_else(|| self.by_len.last())?;
        let end = self.remove(start);
        let taken = start..start + have.min(len);
        self.insert(taken.end, end);
        Some(taken)
    }

    /// Takes the first `len` blocks in one piece inside `within`.
    pub(super) fn take_inside(&mut self, len: u64, within: &Range<u64>) -> Option<Range<u64>> {
        let first = self.by_start.range(..within.start).next_back();
        let runs = first.into_iter().chain(self.by_start.range(within.clone()));
        let (run, at) = runs
            .map(|(&start, &end)| (start, start.max(within.start), end.min(within.end)))
            .find(|(_, at, end)| at + len <= *end)
            .map(|(run, at, _)| (run, at))?;
        let end = self.remove(run);
        self.insert(run, at);
        self.insert(at + len, end);
        Some(at..at + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_run_that_fits_is_taken() {
        let mut runs = FreeRuns::default();
        runs.add(10..14);
        runs.add(20..23);
        runs.add(30..40);
        assert_eq!(runs.take(3), Some(20..23));
        assert_eq!(runs.take(3), Some(10..13));
        assert_eq!(runs.take(100), Some(30..40));
        assert_eq!(runs.take(1), Some(13..14));
        assert_eq!(runs.take(1), None);
    }

    #[test]
    fn neighbours_merge_and_ranges_are_kept() {
        let mut runs = FreeRuns::default();
        runs.add(10..14);
        runs.add(16..20);
        runs.add(14..16);
        assert_eq!(runs.take_inside(3, &(12..16)), Some(12..15));
        assert_eq!(runs.take_inside(3, &(11..17)), None);
        assert_eq!(runs.take_inside(2, &(0..100)), Some(10..12));
        assert_eq!(runs.take(9), Some(15..20));
        assert_eq!(runs.take(1), None);
    }
}
