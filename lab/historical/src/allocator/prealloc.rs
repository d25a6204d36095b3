//! Preallocation of the mballoc designs: after a large file's last blocks, and for the small files
//! of a CPU.
//!
//! The file's size after the request determines the length of a preallocation. A file that
//! continues where it ended uses its own. A small file uses that of its CPU, under that CPU's lock.
//! Preallocated clusters are free on disk. When space runs out the allocator recalls all of them by
//! an epoch in each group, so an owner need not release its part.

use super::group_pos::GroupPos;
use super::locks;
use nextent_num::must_fit;
use nextent_ondisk::{Geometry, GroupNo};
use nextent_sync::{Mutex, PerCore};

/// The largest size of a small file, in blocks.
const SMALL: u64 = 16;
/// Blocks that are preallocated for small files at once; at least `LEAST_FOR_SMALL` clusters.
const FOR_SMALL: u32 = 512;
const LEAST_FOR_SMALL: u32 = 32;
/// The most parts of a CPU, and how many it keeps when it has more.
const MOST_PARTS: usize = 8;
const KEPT_PARTS: usize = 5;

/// Preallocated clusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prealloc {
    pub(crate) group: GroupNo,
    pub(crate) start: u32,
    pub(crate) n: u32,
    pub(crate) epoch: u32,
}

impl Prealloc {
    pub(super) fn pos(&self) -> GroupPos {
        GroupPos { group: self.group, at: self.start }
    }

    /// The rest after the first `n` clusters are used.
    pub(super) fn rest(self, n: u32) -> Option<Self> {
        (n < self.n).then_some(Self { start: self.start + n, n: self.n - n, ..self })
    }
}

/// The state of a growing file. The lock of the file's window guards it.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// Clusters allocated since the file was empty, or since its last release.
    pub(super) clusters: u32,
    /// Its last allocation, in designs with a goal in the inode.
    pub(super) goal: Option<GroupPos>,
    pub(super) prealloc: Option<Prealloc>,
}

/// Whether a file of `clusters` is small.
pub(super) fn is_small(geo: &Geometry, clusters: u32) -> bool {
    u64::from(clusters) << geo.cluster_bits <= SMALL
}

/// The clusters to search for when a large file of `before` clusters requests `asked`.
pub(super) fn for_large(geo: &Geometry, before: u32, asked: u32) -> u32 {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let bits = geo.block_bits + geo.cluster_bits;
    let (from, bytes) = (u64::from(before) << bits, u64::from(asked) << bits);
    let size = from + bytes;
    let target = if size <= MIB {
        size.next_power_of_two().max(16 * KIB)
    } else if size <= 4 * MIB {
        size.next_multiple_of(2 * MIB)
    } else if size <= 8 * MIB {
        size.next_multiple_of(4 * MIB)
    } else if bytes <= 8 * MIB {
        size.next_multiple_of(8 * MIB)
    } else {
        size
    };
    must_fit::<u32, _>((target - from) >> bits).clamp(asked, geo.clusters_per_group.max(asked))
}

/// The clusters to search for when a small file requests `asked`.
pub(super) fn for_small(geo: &Geometry, asked: u32) -> u32 {
    (FOR_SMALL >> geo.cluster_bits).max(LEAST_FOR_SMALL).min(geo.clusters_per_group).max(asked)
}

/// Each CPU's preallocation for small files.
pub(super) struct Localities(PerCore<Mutex<Vec<Prealloc>>>);

impl Localities {
    pub(super) fn new() -> Self {
        Self(PerCore::new(|_| Mutex::new(&locks::LOCALITY, Vec::new())))
    }

    /// The preallocation of the caller's CPU, locked during an allocation.
    pub(super) fn here(&self) -> nextent_sync::MutexGuard<'_, Vec<Prealloc>> {
        self.0.here().lock()
    }
}

/// Removes the part nearest to `goal` that has `n` clusters.
pub(super) fn take_nearest(parts: &mut Vec<Prealloc>, n: u32, goal: GroupPos) -> Option<Prealloc> {
    let distance = |pa: &Prealloc| (pa.group.0.abs_diff(goal.group.0), pa.start.abs_diff(goal.at));
    let enough = parts.iter().enumerate().filter(|(_, pa)| pa.n >= n);
    let (i, _) = enough.min_by_key(|(_, pa)| distance(pa))?;
    Some(parts.swap_remove(i))
}

/// Adds a part. Returns the parts to release, if there are too many.
pub(super) fn add_part(parts: &mut Vec<Prealloc>, pa: Prealloc) -> Vec<Prealloc> {
    parts.push(pa);
    if parts.len() <= MOST_PARTS {
        return Vec::new();
    }
    parts.drain(..parts.len() - KEPT_PARTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pa(group: u32, start: u32, n: u32) -> Prealloc {
        Prealloc { group: GroupNo(group), start, n, epoch: 0 }
    }

    #[test]
    fn a_cpu_keeps_few_parts_and_takes_the_nearest_that_fits() {
        let mut parts = Vec::new();
        for i in 0..8 {
            assert!(add_part(&mut parts, pa(i, 100 * i, 4 + i)).is_empty());
        }
        let goal = GroupPos { group: GroupNo(2), at: 0 };
        assert_eq!(take_nearest(&mut parts, 5, goal).unwrap().group, GroupNo(2));
        assert_eq!(take_nearest(&mut parts, 9, goal).unwrap().group, GroupNo(5));
        assert!(take_nearest(&mut parts, 12, goal).is_none());
        assert!(add_part(&mut parts, pa(20, 0, 1)).is_empty());
        assert!(add_part(&mut parts, pa(21, 0, 1)).is_empty());
        assert_eq!(add_part(&mut parts, pa(22, 0, 1)).len(), 4);
        assert_eq!(parts.len(), KEPT_PARTS);
    }

    #[test]
    fn a_used_part_has_no_rest() {
        assert_eq!(pa(1, 10, 4).rest(3).map(|pa| (pa.start, pa.n)), Some((13, 1)));
        assert!(pa(1, 10, 4).rest(4).is_none());
    }
}
