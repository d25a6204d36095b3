//! Blocks without an owner, by the block bitmaps.

use nextent_num::to_usize;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{Geometry, GroupDesc, GroupNo, bitmap};

use super::{BlockUse, Scan, count};

impl Scan<'_> {
    /// Counts free blocks, and those in use without an owner.
    pub(super) fn rest(&self) {
        self.each_group(|group, desc| self.rest_of(group, desc.as_ref()));
    }

    fn rest_of(&self, group: GroupNo, desc: Option<&GroupDesc>) {
        let geo = &self.image.geo;
        let mut owned = vec![0; to_usize(geo.blocks_per_group / 8)];
        let start = u64::from(group.0) * u64::from(geo.blocks_per_group);
        self.owned.copy_to(start, &mut owned);
        let uninit = desc.is_some_and(|desc| desc.has_flag(&geo.features, flags::BLOCK_UNINIT));
        if uninit && geo.cluster_bits == 0 {
            return self.each_clear(group, &owned, |_, _| BlockUse::Free);
        }
        let Some(stored) = desc.and_then(|desc| self.in_use(desc, &owned)) else {
            return self.each_clear(group, &owned, |_, _| BlockUse::Unreadable);
        };
        let with = |f: fn(u8, u8) -> u8| -> Vec<u8> {
            owned.iter().zip(&stored).map(|(owned, stored)| f(*owned, *stored)).collect()
        };
        self.each_clear(group, &with(|owned, stored| owned | stored), |_, _| BlockUse::Free);
        self.each_clear(group, &with(|owned, stored| owned | !stored), |from, to| {
            match bitmap::find_set(&owned, from, to) {
                Some(_) => BlockUse::ClusterRest,
                None => BlockUse::Unowned,
            }
        });
        let wrong = with(|owned, stored| !owned | stored);
        count(&self.marked_free, bitmap::count_clear(&wrong, geo.group_blocks(group)));
    }

    /// The block bitmap of a group, a bit for each block.
    fn in_use(&self, desc: &GroupDesc, owned: &[u8]) -> Option<Vec<u8>> {
        let geo = &self.image.geo;
        if desc.has_flag(&geo.features, flags::BLOCK_UNINIT) {
            return Some(expand(geo, owned.len(), |bit| {
                let first = bit << geo.cluster_bits;
                bitmap::find_set(owned, first, first + geo.cluster_blocks).is_some()
            }));
        }
        let stored = self.image.block(5, desc.block_bitmap)?;
        Some(match geo.cluster_bits {
            0 => stored,
            _ => expand(geo, owned.len(), |bit| bitmap::test(&stored, bit)),
        })
    }

    /// Counts the runs of clear bits for the use that `of` gives the cluster they lie in.
    fn each_clear(&self, group: GroupNo, bits: &[u8], of: impl Fn(u32, u32) -> BlockUse) {
        let geo = &self.image.geo;
        let (first, end) = (geo.group_first_block(group).0, geo.group_blocks(group));
        let mut at = 0;
        while let Some(start) = bitmap::find_clear(bits, at, end) {
            let mut stop = bitmap::find_set(bits, start, end).unwrap_or(end);
            let cluster = start & !(geo.cluster_blocks - 1);
            if geo.cluster_bits > 0 {
                stop = stop.min(cluster + geo.cluster_blocks);
            }
            let run = first + u64::from(start)..first + u64::from(stop);
            self.add(run, of(cluster, cluster + geo.cluster_blocks));
            at = stop;
        }
    }
}

/// A bitmap of blocks from one of clusters.
fn expand(geo: &Geometry, bytes: usize, is_set: impl Fn(u32) -> bool) -> Vec<u8> {
    let mut bits = vec![0; bytes];
    for cluster in (0..geo.clusters_per_group).filter(|cluster| is_set(*cluster)) {
        bitmap::set_run(&mut bits, cluster << geo.cluster_bits, geo.cluster_blocks);
    }
    bits
}
