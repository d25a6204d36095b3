//! The layout that a volume gets.

use nextent_ondisk::{Compat, Geometry, GroupNo, Incompat, Superblock};

use super::ResizeOptions;
use crate::error::{Error, Result};

/// Blocks that the last group must have beyond its own metadata. mke2fs and resize2fs have the same
/// rule, and people compare the counts.
const LAST_GROUP_ROOM: u64 = 50;

/// The new superblock, with the old counts of what is free, and its geometry.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) sb: Superblock,
    pub(super) geo: Geometry,
}

impl Target {
    /// The layout of the volume with at most `blocks` blocks.
    ///
    /// # Errors
    /// A number of blocks that the volume cannot have.
    pub(super) fn new(
        sb: &Superblock,
        geo: &Geometry,
        blocks: u64,
        options: &ResizeOptions,
    ) -> Result<Self> {
        let mut target = Self { sb: sb.clone(), geo: geo.clone() };
        target.set_width(options)?;
        let first = geo.first_data_block.0;
        let mut blocks = blocks;
        loop {
            let of_groups = blocks.checked_sub(first).filter(|n| *n > 0).ok_or(Error::NoSpace)?;
            target.set_blocks(geo, blocks)?;
            let last = GroupNo(target.geo.group_count - 1);
            let rest = of_groups % u64::from(geo.blocks_per_group);
            if rest == 0 || blocks == geo.blocks_count || rest >= target.least(last) {
                break;
            }
            if last.0 == 0 {
                return Err(Error::NoSpace);
            }
            blocks -= rest;
        }
        target.refuse_long_head()?;
        target.set_counts(sb);
        // The rules that a volume must satisfy hold for this one too.
        let expected = target.geo;
        target.geo = target.sb.check(u64::MAX)?;
        debug_assert_eq!(target.geo, expected);
        Ok(target)
    }

    /// Refuses descriptors that the last group has no room for. A volume that keeps its size keeps
    /// a last group of any size.
    fn refuse_long_head(&self) -> Result<()> {
        let geo = &self.geo;
        let last = GroupNo(geo.group_count - 1);
        let head = 1 + geo.contiguous_gdt_blocks() + geo.reserved_gdt_blocks;
        if geo.has_super(last) && head > geo.group_blocks(last) {
            let text = "a last group that is too small for a backup of all descriptors";
            return Err(Error::unsupported(text));
        }
        Ok(())
    }

    /// The fewest blocks of the last group.
    fn least(&self, last: GroupNo) -> u64 {
        let heads = match self.geo.has_super(last) {
            // All descriptors count, also where meta_bg keeps them elsewhere.
            true => u64::from(1 + self.geo.gdt_blocks() + self.geo.reserved_gdt_blocks),
            false => 0,
        };
        2 + u64::from(self.geo.inode_table_blocks) + heads + LAST_GROUP_ROOM
    }

    /// Sets the size of descriptors.
    fn set_width(&mut self, options: &ResizeOptions) -> Result<()> {
        let mut features = self.sb.features();
        let Some(wide) = options.wide.filter(|wide| *wide != features.has(Incompat::BIT64)) else {
            return Ok(());
        };
        if wide && !features.has(Incompat::EXTENTS) {
            return Err(Error::unsupported("64-bit block numbers without the feature extent"));
        }
        features.set(Incompat::BIT64, wide);
        self.sb.set_features(features);
        let size = if wide { 64 } else { 32 };
        self.sb.desc_size.set(if wide { size } else { 0 });
        self.geo.desc_size = size;
        self.geo.descs_per_block = self.geo.block_size / u32::from(size);
        self.geo.features = features;
        Ok(())
    }

    /// Sets the counts of blocks, groups, inodes and descriptor blocks.
    fn set_blocks(&mut self, old: &Geometry, blocks: u64) -> Result<()> {
        let geo = &mut self.geo;
        if !geo.features.has(Incompat::BIT64) && blocks > u64::from(u32::MAX) {
            let text = "more than 4294967295 blocks without the feature 64bit";
            return Err(Error::unsupported(text));
        }
        let groups = (blocks - geo.first_data_block.0).div_ceil(geo.blocks_per_group.into());
        let too_many = || Error::unsupported("more than 4294967295 inodes");
        let groups = u32::try_from(groups).map_err(|_| too_many())?;
        geo.inodes_count = groups.checked_mul(geo.inodes_per_group).ok_or_else(too_many)?;
        (geo.blocks_count, geo.group_count) = (blocks, groups);
        geo.first_meta_bg = old.first_meta_bg.min(geo.gdt_blocks());
        self.set_backups(old);
        self.set_reserved(old);
        Ok(())
    }

    /// With `sparse_super2` the backup in the last group follows the last group.
    fn set_backups(&mut self, old: &Geometry) {
        let geo = &mut self.geo;
        geo.backup_groups = old.backup_groups;
        if !geo.features.has(Compat::SPARSE_SUPER2) {
            return;
        }
        let (before, after) = (old.group_count - 1, geo.group_count - 1);
        let [first, second] = &mut geo.backup_groups;
        if after > before && *second == before && *second > 0 {
            if before == 1 && *first == 0 {
                // The single backup is in group 1, which is not the last of many by choice.
                return;
            }
            *second = after;
        }
        if after < before {
            *first = if *first > after { 0 } else { *first };
            *second = (*second).min(after);
            if *first == *second {
                *second = 0;
            }
        }
    }

    /// Blocks reserved for descriptors become descriptors, and the reverse.
    fn set_reserved(&mut self, old: &Geometry) {
        let geo = &mut self.geo;
        if !geo.features.has(Compat::RESIZE_INODE) {
            return;
        }
        let all = old.gdt_blocks() + old.reserved_gdt_blocks;
        let left = all.saturating_sub(geo.gdt_blocks()).min(geo.block_size / 4);
        geo.reserved_gdt_blocks = left;
        // The resize inode has pointers of 32 bits.
        if geo.blocks_count > u64::from(u32::MAX) {
            geo.reserved_gdt_blocks = 0;
        }
    }

    /// Sets the fields of the superblock.
    fn set_counts(&mut self, old: &Superblock) {
        let (sb, geo) = (&mut self.sb, &mut self.geo);
        sb.set_blocks_count(geo.blocks_count);
        sb.inodes_count.set(geo.inodes_count);
        sb.first_meta_bg.set(geo.first_meta_bg);
        // At most a quarter of a block's bytes, so 16 bits hold it.
        sb.reserved_gdt_blocks.set(u16::try_from(geo.reserved_gdt_blocks).unwrap_or(u16::MAX));
        for (to, group) in sb.backup_bgs.iter_mut().zip(geo.backup_groups) {
            to.set(group);
        }
        if geo.blocks_count > u64::from(u32::MAX) && geo.features.has(Compat::RESIZE_INODE) {
            geo.features.set(Compat::RESIZE_INODE, false);
            sb.set_features(geo.features);
        }
        // The same share of the blocks stays reserved.
        let share = u128::from(old.reserved_blocks_count()) * u128::from(geo.blocks_count);
        let reserved = share / u128::from(old.blocks_count().max(1));
        sb.set_reserved_blocks_count(u64::try_from(reserved).unwrap_or(0));
    }
}
