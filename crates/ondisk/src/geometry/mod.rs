//! The layout of a volume: the numbers that never change while it is open.
//!
//! Invariants: only [`Superblock::check`] makes a [`Geometry`], so every number in it is possible
//! and every sum below stays in range. It holds no counter and no state.
//!
//! Source: ext4 disk layout documentation, "Layout", "Block Groups", "Meta Block Groups",
//! "Flexible Block Groups".

mod check;

use std::ops::Range;

use crate::error::{Corrupt, Structure};
use crate::{BlockNo, Compat, Features, GroupNo, Incompat, InodeNo, RoCompat};

/// The location of one inode in its group's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeLocation {
    /// The group.
    pub group: GroupNo,
    /// The inode's index in the group, from 0: its bit in the inode bitmap.
    pub index: u32,
    /// The block, counted from the table's first.
    pub table_block: u32,
    /// The byte in that block.
    pub offset: usize,
}

/// The immutable numbers of a volume, all checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block: a power of two from 1024 to 65536.
    pub block_size: u32,
    /// The binary logarithm of [`Self::block_size`].
    pub block_bits: u32,
    /// Blocks of a cluster, the unit of allocation: 1 without `bigalloc`, else a power of two.
    pub cluster_blocks: u32,
    /// The binary logarithm of [`Self::cluster_blocks`].
    pub cluster_bits: u32,
    /// Blocks of the volume.
    pub blocks_count: u64,
    /// The block where group 0 starts: 1 with blocks of 1 KiB and no clusters, else 0.
    pub first_data_block: BlockNo,
    /// Blocks of each group but the last; a multiple of 8.
    pub blocks_per_group: u32,
    /// Clusters, thus bits in the block bitmap, of each group but the last.
    pub clusters_per_group: u32,
    /// Inodes of each group; a multiple of 8.
    pub inodes_per_group: u32,
    /// Inodes of the volume: groups times [`Self::inodes_per_group`].
    pub inodes_count: u32,
    /// The first inode that is not reserved.
    pub first_inode: InodeNo,
    /// Bytes of an inode: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// Inodes in one block of a table.
    pub inodes_per_block: u32,
    /// Blocks of a group's inode table.
    pub inode_table_blocks: u32,
    /// Bytes of a group descriptor: 32, or a power of two from 64 to 1024.
    pub desc_size: u16,
    /// Descriptors in one block.
    pub descs_per_block: u32,
    /// The number of groups, at least 1.
    pub group_count: u32,
    /// Blocks reserved after the descriptor table for its growth.
    pub reserved_gdt_blocks: u32,
    /// The first meta group, in descriptor blocks; meaningful with `meta_bg`.
    pub first_meta_bg: u32,
    /// Groups of a flex group, a power of two; 1 without `flex_bg`.
    pub flex_groups: u32,
    /// Groups that hold backups with `sparse_super2`; 0 for none.
    pub backup_groups: [u32; 2],
    /// The features in the superblock as it was read. `needs_recovery` and `orphan_present` may
    /// have changed since.
    pub features: Features,
    /// The system that made the volume, see [`creator`](crate::superblock::creator). It decides the
    /// meaning of some inode fields.
    pub creator_os: u32,
    /// The seed of checksums.
    pub csum_seed: u32,
    /// The volume's UUID.
    pub uuid: [u8; 16],
}

impl Geometry {
    /// Bytes of a block, as a length.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.block_size as usize
    }

    /// Whether inodes have the layout of the Hurd. It has a translator's block in the place of
    /// Linux' version, and the upper mode bits and the author in the place of Linux' upper
    /// attribute block number and checksum.
    #[must_use]
    pub fn is_hurd(&self) -> bool {
        self.creator_os == crate::superblock::creator::HURD
    }

    /// Whether `block` is on the volume.
    #[must_use]
    pub fn holds(&self, block: BlockNo) -> bool {
        block.0 < self.blocks_count
    }

    /// Whether the `len` blocks from `block` are on the volume and after the first data block.
    /// Pointers to file data and metadata must be.
    #[must_use]
    #[inline]
    pub fn holds_run(&self, block: BlockNo, len: u64) -> bool {
        block > self.first_data_block
            && block.0.checked_add(len).is_some_and(|end| end <= self.blocks_count)
    }

    /// Whether `group` exists.
    #[must_use]
    pub fn has_group(&self, group: GroupNo) -> bool {
        group.0 < self.group_count
    }

    /// All groups.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = GroupNo> + use<> {
        (0..self.group_count).map(GroupNo)
    }

    /// The group of `block` and the block's index in it. `None` for a block before group 0 or past
    /// the end.
    #[must_use]
    pub fn locate(&self, block: BlockNo) -> Option<(GroupNo, u32)> {
        if !self.holds(block) {
            return None;
        }
        let from_start = block.0.checked_sub(self.first_data_block.0)?;
        let per_group = u64::from(self.blocks_per_group);
        Some((GroupNo((from_start / per_group) as u32), (from_start % per_group) as u32))
    }

    /// The group of `block`. `None` for a block that belongs to no group.
    #[must_use]
    pub fn group_of(&self, block: BlockNo) -> Option<GroupNo> {
        self.locate(block).map(|(group, _)| group)
    }

    /// The first block of `group`.
    #[must_use]
    pub fn group_first_block(&self, group: GroupNo) -> BlockNo {
        let start = u64::from(group.0) * u64::from(self.blocks_per_group);
        BlockNo(self.first_data_block.0 + start)
    }

    /// The blocks of `group`: fewer in the last group, 0 if the group does not exist.
    #[must_use]
    pub fn group_blocks(&self, group: GroupNo) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_first_block(group).0);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// The clusters of `group`, which are the meaningful bits of its bitmap. A partial last cluster
    /// counts.
    #[must_use]
    pub fn group_clusters(&self, group: GroupNo) -> u32 {
        self.group_blocks(group).div_ceil(self.cluster_blocks)
    }

    /// The clusters that hold `blocks` blocks.
    #[must_use]
    pub fn clusters(&self, blocks: u64) -> u64 {
        blocks.div_ceil(u64::from(self.cluster_blocks))
    }

    /// The group of an inode, and its bit in the group's inode bitmap.
    ///
    /// # Errors
    ///
    /// A number that is 0 or past the last inode.
    pub fn inode_group(&self, ino: InodeNo) -> Result<(GroupNo, u32), Corrupt> {
        if ino.0 == 0 || ino.0 > self.inodes_count {
            return Err(Corrupt::field(Structure::Inode, "inode number", ino.0));
        }
        let index = ino.0 - 1;
        Ok((GroupNo(index / self.inodes_per_group), index % self.inodes_per_group))
    }

    /// The inode at `index` in `group`.
    #[must_use]
    pub fn inode_at(&self, group: GroupNo, index: u32) -> InodeNo {
        InodeNo(group.0.wrapping_mul(self.inodes_per_group).wrapping_add(index).wrapping_add(1))
    }

    /// The location of an inode.
    ///
    /// # Errors
    ///
    /// A number that is 0 or past the last inode.
    pub fn inode_location(&self, ino: InodeNo) -> Result<InodeLocation, Corrupt> {
        let (group, index) = self.inode_group(ino)?;
        Ok(InodeLocation {
            group,
            index,
            table_block: index / self.inodes_per_block,
            offset: (index % self.inodes_per_block) as usize * usize::from(self.inode_size),
        })
    }

    /// Whether an inode number is reserved for the file system. The root is.
    #[must_use]
    pub fn is_reserved_inode(&self, ino: InodeNo) -> bool {
        ino < self.first_inode
    }

    /// The flex group of `group`.
    #[must_use]
    pub fn flex_group_of(&self, group: GroupNo) -> u32 {
        group.0 / self.flex_groups
    }

    /// The block that holds the first superblock, and its offset there.
    #[must_use]
    pub fn super_location(&self) -> (BlockNo, usize) {
        if self.block_size == 1024 { (BlockNo(1), 0) } else { (BlockNo(0), 1024) }
    }

    /// Whether `group` holds a superblock: group 0 always, others by the features.
    #[must_use]
    pub fn has_super(&self, group: GroupNo) -> bool {
        if group.0 == 0 {
            return true;
        }
        if self.features.has(Compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group.0);
        }
        if group.0 == 1 || !self.features.has(RoCompat::SPARSE_SUPER) {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(group.0, base))
    }

    /// The superblock's block in `group`, or `None` if the group has none.
    #[must_use]
    pub fn super_block_of(&self, group: GroupNo) -> Option<BlockNo> {
        match group.0 {
            0 => Some(self.super_location().0),
            _ => self.has_super(group).then(|| self.group_first_block(group)),
        }
    }

    /// Blocks of the whole descriptor table.
    #[must_use]
    pub fn gdt_blocks(&self) -> u32 {
        self.group_count.div_ceil(self.descs_per_block)
    }

    /// Whether descriptor block `index` (from 0) is located by the rule of meta groups.
    fn in_meta_group(&self, index: u32) -> bool {
        self.features.has(Incompat::META_BG) && index >= self.first_meta_bg
    }

    /// Descriptor blocks in the run after each superblock: all without `meta_bg`.
    #[must_use]
    pub fn contiguous_gdt_blocks(&self) -> u32 {
        if self.features.has(Incompat::META_BG) {
            self.first_meta_bg.min(self.gdt_blocks())
        } else {
            self.gdt_blocks()
        }
    }

    /// The block of the primary copy of descriptor block `index` (from 0).
    #[must_use]
    pub fn gdt_block(&self, index: u32) -> BlockNo {
        if !self.in_meta_group(index) {
            return BlockNo(self.super_location().0.0 + 1 + u64::from(index));
        }
        let group = GroupNo(index * self.descs_per_block);
        self.meta_gdt_in(group)
    }

    /// The copy of the descriptor block in a group of a meta group: after its superblock, if it has
    /// one.
    fn meta_gdt_in(&self, group: GroupNo) -> BlockNo {
        match self.super_block_of(group) {
            Some(block) => BlockNo(block.0 + 1),
            None => self.group_first_block(group),
        }
    }

    /// Block and byte offset of the primary copy of the descriptor of `group`.
    #[must_use]
    pub fn desc_location(&self, group: GroupNo) -> (BlockNo, usize) {
        let block = self.gdt_block(group.0 / self.descs_per_block);
        (block, (group.0 % self.descs_per_block) as usize * usize::from(self.desc_size))
    }

    /// The backup copies of descriptor block `index`.
    pub fn gdt_backups(&self, index: u32) -> impl Iterator<Item = BlockNo> + '_ {
        let meta = self.in_meta_group(index);
        let first = index.saturating_mul(self.descs_per_block);
        let in_meta = [first.saturating_add(1), first.saturating_add(self.descs_per_block - 1)];
        let count = if meta { 1 + usize::from(self.descs_per_block > 2) } else { 0 };
        let meta_copies = in_meta.into_iter().take(count).map(GroupNo);
        let meta_copies = meta_copies.filter(|g| self.has_group(*g)).map(|g| self.meta_gdt_in(g));
        let backups = if meta { 0..0 } else { 1..self.group_count };
        let backups = backups.map(GroupNo).filter_map(|g| self.super_block_of(g));
        meta_copies.chain(backups.map(move |block| BlockNo(block.0 + 1 + u64::from(index))))
    }

    /// The blocks at the start of `group` that hold its superblock, its descriptor blocks and the
    /// blocks reserved for their growth. They are in use, whatever the bitmap says.
    #[must_use]
    pub fn head_blocks(&self, group: GroupNo) -> Range<u64> {
        let start = self.group_first_block(group).0;
        let mut end = match self.super_block_of(group) {
            Some(block) => block.0 + 1,
            None => start,
        };
        if self.in_meta_group(group.0 / self.descs_per_block) {
            let place = group.0 % self.descs_per_block;
            end += u64::from(place <= 1 || place == self.descs_per_block - 1);
        } else if self.has_super(group) {
            end += u64::from(self.contiguous_gdt_blocks() + self.reserved_gdt_blocks);
        }
        start..end.min(self.group_first_block(group).0 + u64::from(self.group_blocks(group)))
    }

    /// Bytes of the block bitmap that the checksum covers.
    #[must_use]
    pub fn block_bitmap_bytes(&self) -> usize {
        (self.clusters_per_group / 8) as usize
    }

    /// Bytes of the inode bitmap that the checksum covers.
    #[must_use]
    pub fn inode_bitmap_bytes(&self) -> usize {
        (self.inodes_per_group / 8) as usize
    }

    /// The largest size, in bytes, of a file that maps its blocks by extents.
    #[must_use]
    pub fn max_extent_size(&self) -> u64 {
        u64::from(u32::MAX) << self.block_bits
    }
}

fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

#[cfg(test)]
mod tests;
