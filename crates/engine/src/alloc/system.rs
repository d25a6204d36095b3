//! The system zone: the blocks of superblocks, descriptors, bitmaps, inode tables and the journal.
//!
//! They are in use whatever a bitmap says, and no file may map or free them. The zone does not
//! change after it is built, so readers need no lock.

use nextent_ondisk::{BlockNo, Geometry, GroupNo};
use nextent_sync::Arc;

/// The sorted, disjoint ranges of the system zone.
pub(crate) struct SystemZone {
    geo: Arc<Geometry>,
    /// (first block, end) of bitmaps, tables and the journal. The heads of groups are computed.
    ranges: Vec<(u64, u64)>,
}

impl SystemZone {
    /// Sorts and merges `ranges` of (first block, length).
    pub(crate) fn new(geo: Arc<Geometry>, ranges: Vec<(BlockNo, u32)>) -> Self {
        let mut sorted: Vec<(u64, u64)> =
            ranges.into_iter().map(|(start, len)| (start.0, start.0 + u64::from(len))).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
        for (start, end) in sorted {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        merged.shrink_to_fit();
        Self { geo, ranges: merged }
    }

    /// Whether the zone overlaps `[start, start + len)`, which must lie on the volume.
    pub(crate) fn touches(&self, start: BlockNo, len: u64) -> bool {
        let end = start.0 + len;
        self.overlapping(start.0, end).next().is_some() || self.heads(start.0, end).next().is_some()
    }

    /// The ranges of the zone in a group.
    pub(crate) fn of_group(&self, group: GroupNo) -> impl Iterator<Item = (u64, u64)> + '_ {
        let start = self.geo.group_first_block(group).0;
        let end = start + u64::from(self.geo.group_blocks(group));
        self.heads(start, end).chain(self.overlapping(start, end))
    }

    /// Superblocks and descriptors of the groups that `[start, end)` touches.
    fn heads(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.geo.group_of(BlockNo(start)).map_or(0, |group| group.0);
        let last = self.geo.group_of(BlockNo(end - 1)).map_or(first, |group| group.0);
        (first..=last).filter_map(move |group| {
            let head = self.geo.head_blocks(GroupNo(group));
            clip((head.start, head.end), start, end)
        })
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self.ranges.partition_point(|range| range.1 <= start);
        let ranges = self.ranges[from..].iter().take_while(move |range| range.0 < end);
        ranges.filter_map(move |&range| clip(range, start, end))
    }
}

fn clip(range: (u64, u64), start: u64, end: u64) -> Option<(u64, u64)> {
    let clipped = (range.0.max(start), range.1.min(end));
    (clipped.0 < clipped.1).then_some(clipped)
}
