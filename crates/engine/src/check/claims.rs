//! The owner of each block: fixed metadata first, then files.
//!
//! Blocks are counted in the unit of the block bitmap, clusters. Fixed metadata of several kinds
//! may share a cluster, a file's neighbouring blocks may, two files may not.

use nextent_ondisk::{BlockNo, Geometry};

use super::bits::Bits;

/// All blocks in use, as found.
pub(super) struct Claims {
    geo: Geometry,
    /// Clusters in use.
    pub(super) used: Bits,
    /// Blocks of fixed metadata.
    pub(super) meta: Bits,
    /// Clusters taken more than once.
    pub(super) twice: Bits,
}

/// What one inode has taken so far.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Clusters.
    pub(super) clusters: u64,
    /// Its last cluster, which its next block may lie in too.
    last: Option<u64>,
}

/// A claim that cannot be granted whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// The block is fixed metadata.
    Metadata(BlockNo),
    /// The block (the first of its cluster) is another file's.
    File(BlockNo),
}

impl Claims {
    pub(super) fn new(geo: &Geometry) -> Self {
        let [used, meta, twice] = [(); 3].map(|()| Bits::new());
        Self { geo: geo.clone(), used, meta, twice }
    }

    /// The clusters of a run that lies on the volume.
    fn clusters(&self, start: BlockNo, len: u64) -> std::ops::Range<u64> {
        let from = start.0.saturating_sub(self.geo.first_data_block.0);
        let end = from + len;
        from >> self.geo.cluster_bits..end.div_ceil(u64::from(self.geo.cluster_blocks))
    }

    fn block_of(&self, cluster: u64) -> BlockNo {
        BlockNo((cluster << self.geo.cluster_bits) + self.geo.first_data_block.0)
    }

    /// Takes a run for fixed metadata; the first block of it that is fixed metadata already.
    pub(super) fn fixed(&self, start: BlockNo, len: u64) -> Option<BlockNo> {
        let mut first = None;
        let from = start.0.saturating_sub(self.geo.first_data_block.0);
        self.meta.insert(from..from + len, &mut |part| {
            first.get_or_insert(BlockNo(part.start + self.geo.first_data_block.0));
        });
        self.used.insert(self.clusters(start, len), &mut |_| ());
        first
    }

    /// The first block of a run that is fixed metadata.
    pub(super) fn metadata_in(&self, start: BlockNo, len: u64) -> Option<BlockNo> {
        let from = start.0.saturating_sub(self.geo.first_data_block.0);
        let found = self.meta.first_in(from..from + len)?;
        Some(BlockNo(found + self.geo.first_data_block.0))
    }

    /// Takes a run for a file.
    pub(super) fn file(&self, taken: &mut Taken, start: BlockNo, len: u64) -> Option<Clash> {
        let metadata = self.metadata_in(start, len).map(Clash::Metadata);
        let mut clusters = self.clusters(start, len);
        let last = clusters.end.checked_sub(1);
        if taken.last == Some(clusters.start) && self.geo.cluster_bits > 0 {
            clusters.start += 1;
        }
        taken.last = last;
        taken.clusters += clusters.end - clusters.start;
        let mut clash = None;
        self.used.insert(clusters, &mut |part| {
            clash.get_or_insert(Clash::File(self.block_of(part.start)));
            self.twice.insert(part, &mut |_| ());
        });
        metadata.or(clash)
    }

    /// Takes a run of bad blocks, which may belong to a file or to metadata.
    pub(super) fn bad(&self, start: BlockNo, len: u64) {
        self.used.insert(self.clusters(start, len), &mut |_| ());
    }

    /// The first block of a run that several files take.
    pub(super) fn shared_in(&self, start: BlockNo, len: u64) -> Option<BlockNo> {
        self.twice.first_in(self.clusters(start, len)).map(|cluster| self.block_of(cluster))
    }
}
