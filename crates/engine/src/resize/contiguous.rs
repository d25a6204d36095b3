//! Chooses places in one piece, as inode tables need them.
//!
//! A place may hold blocks of files, which leave it first. It holds no metadata of groups.

use std::ops::Range;

use nextent_num::must_fit;
use nextent_ondisk::{Geometry, GroupNo, Incompat, bitmap};

use super::vacate::Vacated;
use super::volume::Volume;
use crate::error::{Error, Result};

/// Blocks that no place may have.
pub(super) struct Fixed {
    /// Sorted and disjoint.
    runs: Vec<Range<u64>>,
}

impl Fixed {
    /// The metadata of all groups, the heads of groups in the new layout, and what must be vacated.
    pub(super) fn new(volume: &Volume, new: &Geometry, vacated: &Vacated) -> Self {
        let geo = &volume.geo;
        let mut runs: Vec<_> = geo.groups().flat_map(|group| volume.metadata_runs(group)).collect();
        runs.extend(geo.groups().map(|group| geo.head_blocks(group)));
        runs.extend(new.groups().map(|group| new.head_blocks(group)));
        runs.extend(vacated.ranges().iter().cloned());
        Self::of(runs)
    }

    fn of(mut runs: Vec<Range<u64>>) -> Self {
        // Groups without a superblock have no head. Binary searches need the ends in order, and an
        // empty run would break that once a window begins at it.
        runs.retain(|run| !run.is_empty());
        runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(runs.len());
        for run in runs {
            match merged.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => merged.push(run),
            }
        }
        Self { runs: merged }
    }

    /// The parts of `within` that a place may have.
    fn gaps(&self, within: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = within.start;
        let first = self.runs.partition_point(|run| run.end <= within.start);
        for run in &self.runs[first..] {
            if run.start >= within.end {
                break;
            }
            if at < run.start {
                gaps.push(at..run.start);
            }
            at = at.max(run.end);
        }
        if at < within.end {
            gaps.push(at..within.end);
        }
        gaps
    }

    fn add(&mut self, place: Range<u64>) {
        let at = self.runs.partition_point(|run| run.start < place.start);
        self.runs.insert(at, place);
    }
}

impl Volume {
    /// Chooses `len` blocks in one piece for the metadata of a group: free ones if possible. Later
    /// choices do not overlap it.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn choose_place(
        &mut self,
        group: GroupNo,
        len: u64,
        fixed: &mut Fixed,
    ) -> Result<Range<u64>> {
        // Only flexible groups may have their metadata in other groups.
        let count = self.geo.group_count;
        let all = if self.geo.features.has(Incompat::FLEX_BG) { count } else { 1 };
        let groups = (0..all).map(|at| GroupNo((group.0 + at) % count));
        let mut usable = None;
        for group in groups {
            let start = self.geo.group_first_block(group).0;
            let end = start + u64::from(self.geo.group_blocks(group));
            for gap in fixed.gaps(start..end) {
                if let Some(place) = self.free_inside(group, &gap, len)? {
                    fixed.add(place.clone());
                    return Ok(place);
                }
                if usable.is_none() && gap.end - gap.start >= len {
                    usable = Some(gap.start..gap.start + len);
                }
            }
        }
        let place = usable.ok_or(Error::NoSpace)?;
        fixed.add(place.clone());
        Ok(place)
    }

    /// The first `len` free blocks in `gap`, a part of `group`.
    fn free_inside(
        &mut self,
        group: GroupNo,
        gap: &Range<u64>,
        len: u64,
    ) -> Result<Option<Range<u64>>> {
        let start = self.geo.group_first_block(group).0;
        let (mut at, end) = (must_fit::<u32, _>(gap.start - start), must_fit(gap.end - start));
        let bits = self.block_bitmap(group)?;
        while let Some(from) = bitmap::find_clear(bits, at, end) {
            at = bitmap::find_set(bits, from, end).unwrap_or(end);
            if u64::from(at - from) >= len {
                let from = start + u64::from(from);
                return Ok(Some(from..from + len));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_at_an_empty_run_is_taken() {
        let mut fixed = Fixed::of(vec![10..20, 30..30, 40..45]);
        fixed.add(30..31);
        assert_eq!(fixed.gaps(30..50), [31..40, 45..50]);
    }
}
