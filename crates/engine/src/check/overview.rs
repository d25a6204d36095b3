//! Reads what a volume says of itself, group by group, without check or replay.

use std::fmt;
use std::ops::Range;

use nextent_device::BlockDevice;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::mmp::MmpBlock;
use nextent_ondisk::{Geometry, GroupDesc, GroupNo, InodeNo, Superblock, bitmap};
use nextent_sync::Arc;

use super::image::Image;
use super::{CheckOptions, open, survey, walk};
use crate::error::Result;

/// The inode whose blocks are bad.
const BAD_BLOCKS: InodeNo = InodeNo(1);

/// A volume whose superblock was read.
pub struct Overview(Image);

impl fmt::Debug for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overview").field("geometry", &self.0.geo).finish_non_exhaustive()
    }
}

impl Overview {
    /// Reads the superblock of the volume on `device`: the one that `options` name, else the first
    /// or a backup of it.
    ///
    /// # Errors
    ///
    /// No superblock, an unknown feature, a device that fails.
    pub fn read(device: Arc<dyn BlockDevice>, options: &CheckOptions) -> Result<Self> {
        let options = CheckOptions { limit: 1, workers: 1, ..*options };
        open::bare(device, &options).map(Self)
    }

    /// The superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.0.sb
    }

    /// The geometry.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.0.geo
    }

    /// The superblock of the journal inside the volume, when there is one that can be read.
    #[must_use]
    pub fn journal(&self) -> Option<JournalSuperblock> {
        survey::journal(&self.0)
    }

    /// The block of multiple mount protection, if the volume has one that can be read.
    #[must_use]
    pub fn multi_mount(&self) -> Option<MmpBlock> {
        survey::multi_mount(&self.0)
    }

    /// The blocks that the volume lists as bad.
    #[must_use]
    pub fn bad_blocks(&self) -> Vec<Range<u64>> {
        let Some((inode, _)) = self.0.inode(0, BAD_BLOCKS) else { return Vec::new() };
        let runs = walk::runs(&self.0, 0, BAD_BLOCKS, &inode).runs;
        runs.iter().map(|run| run.start.0..run.end()).collect()
    }

    /// The descriptor of a group, as it is stored.
    #[must_use]
    pub fn descriptor(&self, group: GroupNo) -> Option<GroupDesc> {
        let (block, at) = self.0.geo.desc_location(group);
        let bytes = self.0.block(5, block)?;
        let end = at + usize::from(self.0.geo.desc_size);
        GroupDesc::read(bytes.get(at..end)?).ok()
    }

    /// Runs of free blocks of a group, by its bitmap. With clusters of several blocks, a run ends
    /// with the first block of its last cluster.
    #[must_use]
    pub fn free_blocks(&self, group: GroupNo, desc: &GroupDesc) -> Option<Vec<Range<u64>>> {
        let geo = &self.0.geo;
        let bits = match desc.has_flag(&geo.features, flags::BLOCK_UNINIT) {
            true if geo.cluster_bits == 0 => bitmap::implied(geo, group, desc),
            true => return None,
            false => self.0.block(5, desc.block_bitmap)?,
        };
        let first = geo.group_first_block(group).0;
        let block = |bit: u32| first + (u64::from(bit) << geo.cluster_bits);
        Some(runs(&bits, geo.group_clusters(group), block))
    }

    /// Runs of free inodes of a group, by its bitmap.
    #[must_use]
    pub fn free_inodes(&self, group: GroupNo, desc: &GroupDesc) -> Option<Vec<Range<u64>>> {
        let geo = &self.0.geo;
        let bits = match desc.has_flag(&geo.features, flags::INODE_UNINIT) {
            true => vec![0; geo.inode_bitmap_bytes()],
            false => self.0.block(5, desc.inode_bitmap)?,
        };
        let first = u64::from(geo.inode_at(group, 0).0);
        Some(runs(&bits, geo.inodes_per_group, |bit| first + u64::from(bit)))
    }
}

/// The runs of clear bits among the first `len`, each bit as a number on the volume.
fn runs(bits: &[u8], len: u32, number: impl Fn(u32) -> u64) -> Vec<Range<u64>> {
    let mut runs = Vec::new();
    let mut at = 0;
    while let Some(start) = bitmap::find_clear(bits, at, len) {
        let end = bitmap::find_set(bits, start, len).unwrap_or(len);
        runs.push(number(start)..number(end - 1) + 1);
        at = end;
    }
    runs
}
