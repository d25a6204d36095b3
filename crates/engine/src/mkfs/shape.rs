//! The counts of the new file system: blocks, groups, inodes, descriptor blocks.
//!
//! They depend on one another (a last group too small for its own metadata is given up, which
//! changes the inodes of the others, which may need smaller groups), so they are found by
//! repetition. The rules are mke2fs's, because people compare the counts and know them.

use nextent_num::{must_fit, whole_part};
use nextent_ondisk::{Compat, Features, Incompat, RoCompat};

use super::error::MkfsError;

/// Blocks that the last group must have beyond its own metadata.
const LAST_GROUP_ROOM: u64 = 50;
/// Volumes can grow by this factor while mounted, through the reserved descriptor blocks.
const GROWTH: u64 = 1024;
/// The free counts of descriptors of 32 bytes have 16 bits.
const MAX_BLOCKS_PER_GROUP: u32 = (1 << 16) - 8;

/// The reserved inodes, `lost+found`, and one more.
const MIN_INODES: u64 = 12;

/// The input.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) blocks_count: u64,
    pub(super) block_size: u32,
    pub(super) inode_size: u32,
    pub(super) desc_size: u16,
    /// 0 for as many as mke2fs makes where no ratio gives one.
    pub(super) inodes: u64,
    pub(super) blocks_per_group: Option<u32>,
    pub(super) resize: Option<u64>,
    pub(super) reserved_percent: f64,
    pub(super) backup_supers: u8,
    /// The size follows from the contents: a single group may be full, and inodes are not rounded
    /// down.
    pub(super) fitted: bool,
    pub(super) features: Features,
}

/// The counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) blocks_count: u64,
    pub(super) reserved_blocks: u64,
    pub(super) blocks_per_group: u32,
    pub(super) group_count: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inodes_count: u32,
    pub(super) table_blocks: u32,
    pub(super) gdt_blocks: u32,
    pub(super) reserved_gdt_blocks: u32,
    pub(super) features: Features,
}

impl Shape {
    /// So many blocks, without groups and inodes.
    pub(super) fn without_groups(
        blocks_count: u64,
        blocks_per_group: u32,
        features: Features,
    ) -> Self {
        Self {
            blocks_count,
            reserved_blocks: 0,
            blocks_per_group,
            group_count: 0,
            inodes_per_group: 0,
            inodes_count: 0,
            table_blocks: 0,
            gdt_blocks: 0,
            reserved_gdt_blocks: 0,
            features,
        }
    }
}

/// One attempt's result.
enum Outcome {
    Fits,
    /// The last group is too small by itself and is given up.
    Drop {
        blocks: u64,
    },
    /// More inodes a group than a bitmap has bits.
    SmallerGroups,
}

impl Request {
    fn first_block(&self) -> u64 {
        u64::from(self.block_size == 1024)
    }

    /// Blocks of a group when nothing else is asked: as many as a bitmap has bits.
    pub(super) fn default_blocks_per_group(&self) -> u32 {
        (self.block_size * 8).min(MAX_BLOCKS_PER_GROUP)
    }

    fn checked_blocks_per_group(&self) -> Result<u32, MkfsError> {
        let max = self.default_blocks_per_group();
        match self.blocks_per_group {
            None => Ok(max),
            Some(n) if n % 8 != 0 => {
                Err(MkfsError::option("blocks per group must be a multiple of 8"))
            }
            Some(n) if !(256..=max).contains(&n) => {
                let text = format!("blocks per group must be from 256 to {max}");
                Err(MkfsError::option(text))
            }
            Some(n) => Ok(n),
        }
    }

    /// Descriptor blocks of a volume of `blocks`.
    fn gdt_of(&self, blocks: u64, blocks_per_group: u32) -> u64 {
        let groups = (blocks - self.first_block()).div_ceil(u64::from(blocks_per_group));
        groups.div_ceil(u64::from(self.block_size / u32::from(self.desc_size)))
    }

    /// Descriptor blocks kept for growth from `now` to `most`.
    fn kept(&self, now: u64, most: u64) -> u32 {
        must_fit(most.saturating_sub(now).min(u64::from(self.block_size / 4)))
    }

    /// Those for the growth that was asked for, if there are any. Groups count as mke2fs counts
    /// them there: as large as a bitmap has bits, unless their size was asked for.
    fn asked_gdt(&self) -> Result<Option<u32>, MkfsError> {
        let Some(blocks) = self.resize else { return Ok(None) };
        if blocks <= self.blocks_count {
            let text = "the resize maximum must be greater than the file system";
            return Err(MkfsError::option(text));
        }
        let per_group = self.blocks_per_group.unwrap_or(self.block_size * 8);
        let most = self.gdt_of(blocks.min(u32::MAX.into()), per_group);
        let kept = self.kept(self.gdt_of(self.blocks_count, per_group), most);
        Ok(Some(kept).filter(|kept| *kept > 0))
    }

    /// Room for growth that is asked for is the resize inode's, whatever the features say.
    fn set_resize_inode(&self, features: &mut Features) -> Result<(), MkfsError> {
        if self.asked_gdt()?.is_none() {
            return Ok(());
        }
        if *features == Features::EMPTY {
            return Err(MkfsError::option("resize needs features, which revision 0 has not"));
        }
        if features.has(Incompat::META_BG) {
            return Err(MkfsError::option("resize and meta_bg exclude each other"));
        }
        if !features.has(RoCompat::SPARSE_SUPER) && !features.has(Compat::SPARSE_SUPER2) {
            return Err(MkfsError::option("resize needs sparse_super"));
        }
        features.set(Compat::RESIZE_INODE, true);
        Ok(())
    }

    fn wanted_reserved_gdt(&self, shape: &Shape) -> Result<u32, MkfsError> {
        // A maximum within the descriptor blocks there are asks for nothing, which is the default.
        let asked = self.asked_gdt()?;
        if !shape.features.has(Compat::RESIZE_INODE) {
            return Ok(0);
        }
        let most = u64::from(u32::MAX);
        let grown = shape.blocks_count.saturating_mul(GROWTH).min(most).max(shape.blocks_count);
        let grown = self.gdt_of(grown, shape.blocks_per_group);
        Ok(asked.unwrap_or_else(|| self.kept(shape.gdt_blocks.into(), grown)))
    }

    /// Finds the counts.
    ///
    /// # Errors
    ///
    /// Options that leave no room, or numbers out of range.
    pub(super) fn solve(&self) -> Result<Shape, MkfsError> {
        let reserved = whole_part(self.reserved_percent * self.blocks_count as f64 / 100.0);
        // The share of whole blocks, as mke2fs has it, not the percentage that was asked for.
        let share = 100.0 * reserved as f64 / self.blocks_count.max(1) as f64;
        let blocks_per_group = self.checked_blocks_per_group()?;
        let mut shape = Shape::without_groups(self.blocks_count, blocks_per_group, self.features);
        shape.reserved_blocks = reserved;
        self.set_resize_inode(&mut shape.features)?;
        // Each round drops the last group or shrinks all groups by 8 blocks, so it ends.
        loop {
            match self.attempt(&mut shape)? {
                Outcome::Fits => return Ok(shape),
                Outcome::Drop { blocks } => {
                    shape.blocks_count -= blocks;
                    shape.reserved_blocks = whole_part(share * shape.blocks_count as f64 / 100.0);
                }
                Outcome::SmallerGroups => {
                    shape.blocks_per_group -= 8;
                    shape.blocks_count = self.blocks_count;
                }
            }
        }
    }

    fn attempt(&self, shape: &mut Shape) -> Result<Outcome, MkfsError> {
        let small = || MkfsError::TooSmall("the device cannot hold one block group".into());
        let blocks = shape
            .blocks_count
            .checked_sub(self.first_block())
            .filter(|n| *n > 0)
            .ok_or_else(small)?;
        let per_group = u64::from(shape.blocks_per_group);
        let groups = blocks.div_ceil(per_group);
        if groups > u64::from(u32::MAX - (1 << 16)) {
            return Err(MkfsError::option("too many block groups; use a larger block size"));
        }
        shape.group_count = must_fit(groups);
        let per_block = self.block_size / u32::from(self.desc_size);
        shape.gdt_blocks = shape.group_count.div_ceil(per_block);
        if !self.spread_inodes(shape)? {
            return Ok(Outcome::SmallerGroups);
        }
        self.reserve_descriptors(shape)?;
        let all = u64::from(shape.table_blocks) + u64::from(self.head_blocks(shape)) + 2;
        if all > per_group {
            return Err(MkfsError::option("too many inodes for the size of a block group"));
        }
        self.check_last_group(shape, blocks % per_group)
    }

    /// Blocks of superblock, descriptors and room for growth in a group that has them.
    fn head_blocks(&self, shape: &Shape) -> u32 {
        if shape.features.has(Incompat::META_BG) {
            return 2;
        }
        1 + shape.gdt_blocks + shape.reserved_gdt_blocks
    }

    /// Inodes to each group; `false` when a group would have more than its bitmap has bits.
    fn spread_inodes(&self, shape: &mut Shape) -> Result<bool, MkfsError> {
        let bits = u64::from(self.block_size) * 8;
        let per_table_block = self.block_size / self.inode_size;
        let inodes = match self.inodes {
            // One for each 4 KiB or each block of what is left of the volume by now.
            0 => {
                shape.blocks_count * u64::from(self.block_size)
                    / u64::from(self.block_size.max(4096))
            }
            asked => asked,
        };
        let mut per_group = inodes.max(MIN_INODES).div_ceil(u64::from(shape.group_count));
        if self.fitted {
            // A count is rounded down to a multiple of 8 below.
            per_group = per_group.next_multiple_of(8);
        }
        if per_group > bits {
            if shape.blocks_per_group >= 256 {
                return Ok(false);
            }
            per_group = bits;
        }
        per_group = per_group.min(u64::from((1 << 16) - per_table_block));
        loop {
            let table_blocks = must_fit::<u32, _>(per_group).div_ceil(per_table_block);
            let whole = (table_blocks * per_table_block).max(8) & !7;
            let total = u64::from(whole) * u64::from(shape.group_count);
            if total < MIN_INODES {
                per_group += u64::from(per_table_block);
                continue;
            }
            if let Ok(total) = u32::try_from(total) {
                shape.inodes_per_group = whole;
                shape.table_blocks = whole.div_ceil(per_table_block);
                shape.inodes_count = total;
                return Ok(true);
            }
            per_group -= 1;
            if per_group == 0 {
                return Err(MkfsError::option("too many block groups for 32-bit inode numbers"));
            }
        }
    }

    fn reserve_descriptors(&self, shape: &mut Shape) -> Result<(), MkfsError> {
        shape.reserved_gdt_blocks = self.wanted_reserved_gdt(shape)?;
        let table = u64::from(shape.reserved_gdt_blocks) + u64::from(shape.gdt_blocks);
        let too_much = table > u64::from(shape.blocks_per_group) * 3 / 4;
        if too_much && !shape.features.has(Incompat::META_BG) {
            shape.features.set(Incompat::META_BG, true);
            shape.features.set(Compat::RESIZE_INODE, false);
            shape.reserved_gdt_blocks = 0;
        }
        Ok(())
    }

    fn check_last_group(&self, shape: &Shape, rest: u64) -> Result<Outcome, MkfsError> {
        let mut overhead = 2 + u64::from(shape.table_blocks);
        if self.has_super(shape, shape.group_count - 1) {
            // All descriptors count, also where meta_bg keeps them elsewhere: mke2fs's rule.
            overhead += u64::from(1 + shape.gdt_blocks + shape.reserved_gdt_blocks);
        }
        let room = if self.fitted && shape.group_count == 1 { 0 } else { LAST_GROUP_ROOM };
        if rest == 0 || rest >= overhead + room {
            return Ok(Outcome::Fits);
        }
        if shape.group_count > 1 {
            return Ok(Outcome::Drop { blocks: rest });
        }
        if rest < overhead {
            let text = format!("{} blocks of metadata in {rest} blocks", overhead);
            return Err(MkfsError::TooSmall(text));
        }
        Err(MkfsError::TooSmall(format!("fewer than {LAST_GROUP_ROOM} blocks for files")))
    }

    fn has_super(&self, shape: &Shape, group: u32) -> bool {
        if shape.features.has(Compat::SPARSE_SUPER2) {
            let last = group == shape.group_count - 1;
            return group == 0
                || (group == 1 && self.backup_supers >= 1)
                || (last && self.backup_supers >= 2);
        }
        let power = |base: u32| {
            let mut n = group;
            while n > 1 && n.is_multiple_of(base) {
                n /= base;
            }
            n == 1
        };
        group <= 1
            || !shape.features.has(RoCompat::SPARSE_SUPER)
            || power(3)
            || power(5)
            || power(7)
    }
}
