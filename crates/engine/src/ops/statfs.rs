//! `statvfs(3)`.

use super::NAME_MAX;
use crate::Statfs;
use crate::alloc::Privilege;
use crate::error::Result;
use crate::ops::Inodes;
use nextent_num::must_fit;

impl Inodes {
    /// The size and usage of the volume, without the blocks of superblocks, descriptors, bitmaps,
    /// inode tables and the journal.
    ///
    /// # Errors
    /// None.
    pub fn statfs(&self) -> Result<Statfs> {
        let fs = &self.fs;
        let geometry = &fs.geometry;
        let overhead = self.overhead_blocks();
        Ok(Statfs {
            block_size: geometry.block_size,
            blocks: geometry.blocks_count.saturating_sub(overhead),
            blocks_free: fs.blocks.free_blocks(),
            blocks_available: fs.blocks.available(Privilege::User),
            files: u64::from(geometry.inodes_count),
            files_free: fs.inodes.free_inodes(),
            name_max: must_fit(NAME_MAX),
            uuid: geometry.uuid,
        })
    }

    /// Blocks of fixed metadata, from the superblock or computed from the geometry.
    fn overhead_blocks(&self) -> u64 {
        let geometry = &self.fs.geometry;
        let noted = u64::from(self.fs.sup.with(|sb| sb.overhead_clusters.get()));
        if noted != 0 {
            return noted << geometry.cluster_bits;
        }
        self.fs.blocks.overhead() + self.journal_blocks
    }
}
