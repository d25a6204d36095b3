//! What the mballoc designs set aside: behind a large file's last blocks, and
//! for the small files of a CPU.
//!
//! How much is set aside follows from the size that the file will have with
//! the request. A file that goes on where it ended is served from what was set
//! aside for it; a small file by what its CPU has, under that CPU's lock. What
//! is set aside is free on disk. When space runs out all of it is taken back,
//! by an epoch in each group, so nothing breaks if an owner forgets its part.

use super::locks;
use super::place::Place;
use nextent_num::must_fit;
use nextent_ondisk::{Geometry, GroupNo};
use nextent_sync::{Mutex, PerCore};

/// Blocks up to which a file is small.
const SMALL: u64 = 16;
/// Bytes that are set aside for small files at once; at least `LEAST_FOR_SMALL` clusters.
const FOR_SMALL: u32 = 512;
const LEAST_FOR_SMALL: u32 = 32;
/// Parts a CPU may keep, and how many it keeps when it has more.
const MOST_PARTS: usize = 8;
const KEPT_PARTS: usize = 5;

/// Clusters set aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pa {
    pub(crate) group: GroupNo,
    pub(crate) start: u32,
    pub(crate) n: u32,
    pub(crate) epoch: u32,
}

impl Pa {
    pub(super) fn place(&self) -> Place {
        Place { group: self.group, at: self.start }
    }

    /// What is left when the first `n` clusters are taken.
    pub(super) fn rest(self, n: u32) -> Option<Self> {
        (n < self.n).then_some(Self { start: self.start + n, n: self.n - n, ..self })
    }
}

/// What a design keeps for a growing file; guarded as the file's window is.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// Clusters that it got since it was empty, or since it was last given up.
    pub(super) clusters: u32,
    /// Where it got its last, in designs that keep that in the file.
    pub(super) goal: Option<Place>,
    pub(super) aside: Option<Pa>,
}

/// Whether a file of `clusters` is small.
pub(super) fn is_small(geo: &Geometry, clusters: u32) -> bool {
    u64::from(clusters) << geo.cluster_bits <= SMALL
}

/// How many clusters to look for when a large file of `before` clusters asks for `asked`.
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

/// How many clusters to look for when a small file asks for `asked`.
pub(super) fn for_small(geo: &Geometry, asked: u32) -> u32 {
    (FOR_SMALL >> geo.cluster_bits).max(LEAST_FOR_SMALL).min(geo.clusters_per_group).max(asked)
}

/// What each CPU has for small files.
pub(super) struct Localities(PerCore<Mutex<Vec<Pa>>>);

impl Localities {
    pub(super) fn new() -> Self {
        Self(PerCore::new(|_| Mutex::new(&locks::LOCALITY, Vec::new())))
    }

    /// The caller's, locked for the whole of an allocation.
    pub(super) fn here(&self) -> nextent_sync::MutexGuard<'_, Vec<Pa>> {
        self.0.here().lock()
    }
}

/// Takes out the part nearest to `goal` that has `n` clusters.
pub(super) fn nearest(parts: &mut Vec<Pa>, n: u32, goal: Place) -> Option<Pa> {
    let distance = |pa: &Pa| (pa.group.0.abs_diff(goal.group.0), pa.start.abs_diff(goal.at));
    let enough = parts.iter().enumerate().filter(|(_, pa)| pa.n >= n);
    let (i, _) = enough.min_by_key(|(_, pa)| distance(pa))?;
    Some(parts.swap_remove(i))
}

/// Keeps a part; returns those that are too many.
pub(super) fn keep(parts: &mut Vec<Pa>, pa: Pa) -> Vec<Pa> {
    parts.push(pa);
    if parts.len() <= MOST_PARTS {
        return Vec::new();
    }
    parts.drain(..parts.len() - KEPT_PARTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pa(group: u32, start: u32, n: u32) -> Pa {
        Pa { group: GroupNo(group), start, n, epoch: 0 }
    }

    #[test]
    fn a_cpu_keeps_a_few_parts_and_takes_the_nearest_that_will_do() {
        let mut parts = Vec::new();
        for i in 0..8 {
            assert!(keep(&mut parts, pa(i, 100 * i, 4 + i)).is_empty());
        }
        let goal = Place { group: GroupNo(2), at: 0 };
        assert_eq!(nearest(&mut parts, 5, goal).unwrap().group, GroupNo(2));
        assert_eq!(nearest(&mut parts, 9, goal).unwrap().group, GroupNo(5));
        assert!(nearest(&mut parts, 12, goal).is_none());
        assert!(keep(&mut parts, pa(20, 0, 1)).is_empty());
        assert!(keep(&mut parts, pa(21, 0, 1)).is_empty());
        assert_eq!(keep(&mut parts, pa(22, 0, 1)).len(), 4);
        assert_eq!(parts.len(), KEPT_PARTS);
    }

    #[test]
    fn a_part_shrinks_to_nothing() {
        assert_eq!(pa(1, 10, 4).rest(3).map(|pa| (pa.start, pa.n)), Some((13, 1)));
        assert!(pa(1, 10, 4).rest(4).is_none());
    }
}
