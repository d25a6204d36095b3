//! Which blocks of the new volume are taken, as runs.
//!
//! A fresh volume of any size has few runs (one for the metadata of a flex group, one for each
//! backup superblock), so this costs what is used, not what there is. Runs never touch: neighbours
//! are merged, so two runs always have a free block between them.

use std::collections::BTreeMap;

use nextent_ondisk::BlockNo;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Run {
    pub(crate) fn end(self) -> u64 {
        self.start + self.len
    }
}

/// The taken blocks of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Start to end of each taken run.
    runs: BTreeMap<u64, u64>,
}

impl Space {
    /// Takes blocks that must be free.
    pub(crate) fn take(&mut self, start: BlockNo, len: u64) {
        if len == 0 {
            return;
        }
        let (mut start, mut end) = (start.0, start.0 + len);
        debug_assert!(self.is_free(start, len), "blocks {start}..{end} are taken twice");
        if let Some((&before, &stop)) = self.runs.range(..start).next_back()
            && stop == start
        {
            start = before;
        }
        if let Some(&after) = self.runs.get(&end) {
            self.runs.remove(&end);
            end = after;
        }
        self.runs.insert(start, end);
    }

    /// Gives back blocks that must be taken.
    pub(super) fn give_back(&mut self, start: BlockNo, len: u64) {
        let (start, end) = (start.0, start.0 + len);
        let run = self.runs.range(..=start).next_back().map(|(&from, &stop)| (from, stop));
        let Some((from, stop)) = run.filter(|(_, stop)| len > 0 && *stop >= end) else {
            debug_assert!(len == 0, "blocks {start}..{end} are not taken");
            return;
        };
        self.runs.remove(&from);
        if from < start {
            self.runs.insert(from, start);
        }
        if end < stop {
            self.runs.insert(end, stop);
        }
    }

    /// Whether all of the run is free.
    pub(super) fn is_free(&self, start: u64, len: u64) -> bool {
        match self.runs.range(..start + len).next_back() {
            Some((_, &end)) => end <= start,
            None => true,
        }
    }

    /// The free run that starts at the first free block at or after `from`, cut at `end`.
    pub(super) fn next_free(&self, from: u64, end: u64) -> Option<Run> {
        let mut start = from;
        if let Some((_, &stop)) = self.runs.range(..=from).next_back() {
            start = start.max(stop);
        }
        if start >= end {
            return None;
        }
        let stop = self.runs.range(start..end).next().map_or(end, |(&next, _)| next);
        Some(Run { start, len: stop - start })
    }

    /// The first `len` free blocks in one piece that start at or after `from` and end by `end`.
    pub(super) fn find(&self, from: u64, end: u64, len: u64) -> Option<u64> {
        let mut at = from;
        while let Some(run) = self.next_free(at, end) {
            if run.len >= len {
                return Some(run.start);
            }
            at = run.end();
        }
        None
    }

    /// The taken runs inside a range, cut to it.
    pub(crate) fn taken_in(&self, start: u64, end: u64) -> impl Iterator<Item = Run> + '_ {
        let first = self.runs.range(..start).next_back().map(|(_, &stop)| (start, stop));
        let first = first.filter(|(from, stop)| stop > from);
        let rest = self.runs.range(start..end).map(|(&from, &stop)| (from, stop));
        first
            .into_iter()
            .chain(rest)
            .map(move |(from, stop)| Run { start: from, len: stop.min(end) - from })
    }

    /// The number of runs.
    pub(super) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// How many blocks of a range are taken.
    pub(super) fn count_in(&self, start: u64, end: u64) -> u64 {
        self.taken_in(start, end).map(|run| run.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_are_found() {
        let mut space = Space::default();
        space.take(BlockNo(10), 5);
        space.take(BlockNo(20), 5);
        space.take(BlockNo(15), 2);
        assert_eq!(space.runs.len(), 2);
        space.take(BlockNo(17), 3);
        assert_eq!(space.runs, BTreeMap::from([(10, 25)]));
        assert_eq!(space.next_free(12, 40), Some(Run { start: 25, len: 15 }));
        assert_eq!(space.next_free(2, 40), Some(Run { start: 2, len: 8 }));
        assert_eq!(space.find(2, 40, 9), Some(25));
        assert_eq!(space.find(2, 40, 16), None);
        assert_eq!(space.count_in(12, 22), 10);
        assert!(space.is_free(25, 100) && !space.is_free(5, 6));
        assert!(space.is_free(5, 5));
        space.give_back(BlockNo(12), 3);
        assert_eq!(space.runs, BTreeMap::from([(10, 12), (15, 25)]));
        space.give_back(BlockNo(10), 2);
        space.give_back(BlockNo(20), 5);
        assert_eq!(space.runs, BTreeMap::from([(15, 20)]));
        space.take(BlockNo(20), 5);
        assert_eq!(space.count_in(0, 100), 10);
    }
}
