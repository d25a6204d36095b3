//! The blocks that the new layout needs for something else, or does not have.
//!
//! Nothing may stay in them, and nothing is allocated there.

use std::ops::Range;

use nextent_ondisk::{BlockNo, Geometry};

/// Sorted, disjoint ranges of blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Vacated {
    ranges: Vec<Range<u64>>,
}

impl Vacated {
    /// The blocks between a smaller end and the old one, and what the heads of groups need beyond
    /// their old heads.
    pub(super) fn new(old: &Geometry, new: &Geometry) -> Self {
        let mut ranges = Vec::new();
        let both = old.group_count.min(new.group_count);
        for group in new.groups().take_while(|group| group.0 < both) {
            let (before, after) = (old.head_blocks(group), new.head_blocks(group));
            let start = after.start.max(before.end);
            let end = after.end.min(old.blocks_count);
            if start < end {
                ranges.push(start..end);
            }
        }
        if new.blocks_count < old.blocks_count {
            ranges.push(new.blocks_count..old.blocks_count);
        }
        Self { ranges }
    }

    /// These ranges, which are disjoint.
    pub(super) fn of(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_unstable_by_key(|range| range.start);
        Self { ranges }
    }

    /// The ranges, in order.
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Adds ranges that are disjoint from all others.
    pub(super) fn add(&mut self, ranges: impl IntoIterator<Item = Range<u64>>) {
        self.ranges.extend(ranges);
        self.ranges.sort_unstable_by_key(|range| range.start);
    }

    /// Whether there is no such block.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether `block` is one of them.
    pub(super) fn contains(&self, block: BlockNo) -> bool {
        self.touches(block, 1)
    }

    /// Whether one of `len` blocks from `start` is.
    pub(super) fn touches(&self, start: BlockNo, len: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= start.0);
        self.ranges.get(at).is_some_and(|range| range.start < start.0.saturating_add(len))
    }

    /// Splits a run at the edges of the ranges: each part, and whether it must move.
    pub(super) fn split(&self, run: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts = Vec::new();
        let mut at = run.start;
        let first = self.ranges.partition_point(|range| range.end <= run.start);
        for range in &self.ranges[first..] {
            if range.start >= run.end {
                break;
            }
            if at < range.start {
                parts.push((at..range.start, false));
            }
            let end = range.end.min(run.end);
            parts.push((at.max(range.start)..end, true));
            at = end;
        }
        if at < run.end {
            parts.push((at..run.end, false));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_split_at_the_edges() {
        let vacated = Vacated { ranges: vec![10..20, 30..40] };
        assert_eq!(vacated.split(0..5), [(0..5, false)]);
        assert_eq!(
            vacated.split(5..35),
            [(5..10, false), (10..20, true), (20..30, false), (30..35, true)]
        );
        assert_eq!(vacated.split(12..18), [(12..18, true)]);
        assert!(vacated.contains(BlockNo(10)) && !vacated.contains(BlockNo(20)));
        assert!(vacated.touches(BlockNo(20), 11) && !vacated.touches(BlockNo(20), 10));
        assert!(!vacated.touches(BlockNo(40), 100));
    }
}
