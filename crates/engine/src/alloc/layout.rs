//! Division of the volume into regions, the units of leasing and locking.
//!
//! - A region has a power of two of clusters, at most 8192, and lies inside one group.
//! - Small volumes have smaller regions, so that many threads can lease one each.
//! - Positions in a region count clusters. Callers of the allocator count blocks. All conversions
//!   are in this module.

use super::buddy::MAX_ORDER;
use super::request::BlockRun;
use nextent_num::must_fit;
use nextent_ondisk::{BlockNo, Corrupt, Geometry, GroupNo, Structure};
use nextent_sync::Arc;

/// Regions that a volume should have, unless they would be smaller than `SMALL_ORDER`.
const ENOUGH: u64 = 256;
/// Smallest region, unless a group is smaller: 512 clusters.
const SMALL_ORDER: u32 = 9;
/// Regions begin on a word of the bitmap.
const WORD_ORDER: u32 = 6;

/// The number of a region, in the order of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionNo(pub u32);

/// The position of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterPos {
    /// The region.
    pub region: RegionNo,
    /// The index of the cluster in the region.
    pub at: u32,
}

/// The division of one volume into regions.
pub struct Layout {
    pub(crate) geo: Arc<Geometry>,
    order: u32,
    per_group: u32,
}

impl Layout {
    pub(crate) fn new(geo: Arc<Geometry>) -> Self {
        let clusters = geo.blocks_count >> geo.cluster_bits;
        let wish = (clusters / ENOUGH).max(1).ilog2().clamp(SMALL_ORDER, must_fit(MAX_ORDER));
        let whole = geo.clusters_per_group.next_power_of_two().ilog2();
        let order = wish.min(whole).max(WORD_ORDER);
        let per_group = geo.clusters_per_group.div_ceil(1 << order);
        Self { geo, order, per_group }
    }

    /// Number of regions, including those without clusters at the volume's end.
    pub(crate) fn count(&self) -> u32 {
        self.geo.group_count.saturating_mul(self.per_group)
    }

    /// Number of regions in a group.
    pub(crate) fn per_group(&self) -> u32 {
        self.per_group
    }

    /// Clusters in a region, except for the last one of a group.
    pub(crate) fn size(&self) -> u32 {
        1 << self.order
    }

    /// The group of a region.
    pub fn group(&self, region: RegionNo) -> GroupNo {
        GroupNo(region.0 / self.per_group)
    }

    /// The index of the region in its group.
    pub fn index(&self, region: RegionNo) -> u32 {
        region.0 % self.per_group
    }

    /// The first region of a group.
    pub(crate) fn first(&self, group: GroupNo) -> RegionNo {
        RegionNo(group.0 * self.per_group)
    }

    /// Clusters of the `index`th region of a group; 0 past the end of the volume.
    pub(crate) fn len(&self, group: GroupNo, index: u32) -> u32 {
        let clusters = self.geo.group_clusters(group).min(self.geo.clusters_per_group);
        clusters.saturating_sub(index << self.order).min(self.size())
    }

    /// The bit of the region's first cluster in its group's bitmap.
    pub fn first_bit(&self, index: u32) -> u32 {
        index << self.order
    }

    /// The position of a block's cluster; none for a block outside all groups.
    pub fn find(&self, block: BlockNo) -> Option<ClusterPos> {
        let (group, at) = self.geo.locate(block)?;
        let cluster = at >> self.geo.cluster_bits;
        let region = RegionNo(group.0 * self.per_group + (cluster >> self.order));
        Some(ClusterPos { region, at: cluster & (self.size() - 1) })
    }

    /// The first block of a cluster.
    pub(crate) fn block(&self, pos: ClusterPos) -> BlockNo {
        let group = self.geo.group_first_block(self.group(pos.region));
        let cluster = self.first_bit(self.index(pos.region)) + pos.at;
        BlockNo(group.0 + (u64::from(cluster) << self.geo.cluster_bits))
    }

    /// `n` clusters from a position, as blocks.
    pub(crate) fn run(&self, pos: ClusterPos, n: u32) -> BlockRun {
        BlockRun { start: self.block(pos), len: n << self.geo.cluster_bits }
    }

    /// The number of clusters for `blocks` blocks, rounded up.
    pub fn clusters(&self, blocks: u32) -> u32 {
        let bits = self.geo.cluster_bits;
        must_fit((u64::from(blocks) + (1 << bits) - 1) >> bits)
    }

    /// Splits `[start, start + len)` at region boundaries into (position, clusters).
    ///
    /// # Errors
    /// A range that is empty, leaves the volume, or does not consist of whole clusters.
    pub fn pieces(
        &self,
        start: BlockNo,
        len: u32,
    ) -> Result<impl Iterator<Item = (ClusterPos, u32)> + use<'_>, Corrupt> {
        let (first, mask) = (self.geo.first_data_block.0, u64::from(self.geo.cluster_blocks) - 1);
        let whole = len > 0 && (start.0.wrapping_sub(first) | u64::from(len)) & mask == 0;
        if !whole || !self.geo.holds_run(start, u64::from(len)) {
            let error = Corrupt::field(Structure::BlockBitmap, "length of a block range", len);
            return Err(error.at_block(start));
        }
        let layout = self;
        let (mut block, mut left) = (start, self.clusters(len));
        Ok(std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let pos = layout.find(block)?;
            let here = layout.len(layout.group(pos.region), layout.index(pos.region));
            let n = left.min(here.checked_sub(pos.at).filter(|&n| n > 0)?);
            left -= n;
            block = BlockNo(block.0 + (u64::from(n) << layout.geo.cluster_bits));
            Some((pos, n))
        }))
    }
}
