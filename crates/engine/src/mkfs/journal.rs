//! The journal's file: how large, where, and its superblock.

use nextent_num::{low_half, must_fit};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::numbers::JOURNAL_INO;
use nextent_ondisk::{BlockNo, Compat, GroupNo, Incompat, Inode, Superblock};

use super::error::MkfsError;
use super::files::Files;
use super::options::MkfsOptions;

/// The format's own limits, in blocks.
const MIN_BLOCKS: u64 = 1024;
const MAX_BLOCKS: u64 = 10_240_000;
/// `jnl_blocks` holds the inode's block area and size.
const BACKUP_INODE_BLOCKS: u8 = 1;

/// The journal that fits a volume of this many blocks; `None` when the volume is too small.
pub(super) fn default_blocks(blocks: u64) -> Option<u64> {
    const KI: u64 = 1024;
    const MI: u64 = KI * KI;
    Some(match blocks {
        _ if blocks < 2 * KI => return None,
        _ if blocks < 32 * KI => KI,
        _ if blocks < 256 * KI => 4 * KI,
        _ if blocks < 512 * KI => 8 * KI,
        _ if blocks < 4 * MI => 16 * KI,
        _ if blocks < 8 * MI => 32 * KI,
        _ if blocks < 16 * MI => 64 * KI,
        _ if blocks < 32 * MI => 128 * KI,
        _ => 256 * KI,
    })
}

/// Checks a number of blocks that the caller chose.
pub(super) fn check_blocks(log: u64) -> Result<(), MkfsError> {
    if (MIN_BLOCKS..=MAX_BLOCKS).contains(&log) {
        return Ok(());
    }
    Err(MkfsError::option(format!(
        "the journal would have {log} blocks; it must have from {MIN_BLOCKS} to {MAX_BLOCKS}"
    )))
}

/// Blocks of a journal of `size` bytes, or of the usual size, on a volume of so many blocks of
/// `1 << block_bits` bytes.
///
/// # Errors
///
/// A volume that is too small for a journal, or a size out of range.
pub fn journal_blocks(volume: u64, block_bits: u32, size: Option<u64>) -> Result<u64, MkfsError> {
    let small = || MkfsError::TooSmall("the volume is too small for a journal".into());
    let default = default_blocks(volume).ok_or_else(small)?;
    let Some(bytes) = size else { return Ok(default) };
    let blocks = bytes.checked_shr(block_bits).unwrap_or(0);
    check_blocks(blocks)?;
    if blocks > volume / 2 {
        let text = format!("a journal of {blocks} blocks is too large for the volume");
        return Err(MkfsError::TooSmall(text));
    }
    Ok(blocks)
}

/// Blocks of the log, and of the fast-commit area behind it.
#[derive(Clone, Copy)]
struct Size {
    log: u64,
    fast_commit: u64,
}

impl Files<'_> {
    /// Checks a size that the caller chose. The default may take more of a small volume.
    fn check_journal_size(&self, log: u64, fast_commit: u64) -> Result<(), MkfsError> {
        check_blocks(log)?;
        if log + fast_commit > self.free_for_journal() / 2 {
            let text = format!("a journal of {log} blocks is too large for the volume");
            return Err(MkfsError::TooSmall(text));
        }
        Ok(())
    }

    /// The blocks that mke2fs counts as free when it checks a journal's size: all outside of
    /// superblocks, descriptors and the blocks reserved for these. A group that keeps its own
    /// bitmaps and inode table counts these too; those of flexible groups have no place yet.
    fn free_for_journal(&self) -> u64 {
        let geometry = self.geometry;
        let own = match geometry.flex_groups > 1 {
            true => 0,
            false => u64::from(geometry.inode_table_blocks) + 2,
        };
        let used = |group| {
            let head = geometry.head_blocks(group);
            head.end - head.start.max(geometry.first_data_block.0) + own
        };
        let used: u64 = geometry.groups().map(used).sum();
        (geometry.blocks_count - geometry.first_data_block.0).saturating_sub(used)
    }

    /// Blocks of the journal; `None` if the volume is too small for one.
    fn journal_size(&self, options: &MkfsOptions) -> Result<Option<Size>, MkfsError> {
        let bits = self.geometry.block_bits;
        let Some(default) = default_blocks(self.geometry.blocks_count) else { return Ok(None) };
        let log = options.journal.size.map_or(default, |bytes| bytes >> bits);
        let fast_commit = match options.journal.fast_commit_size {
            _ if !self.geometry.features.has(Compat::FAST_COMMIT) => 0,
            Some(bytes) => bytes >> bits,
            None => default / 64,
        };
        if options.journal.size.is_some() {
            self.check_journal_size(log, fast_commit)?;
        }
        Ok(Some(Size { log, fast_commit }))
    }

    /// Makes the journal, when features ask for it; returns its blocks.
    ///
    /// # Errors
    ///
    /// A size out of range or too large for the volume.
    pub(super) fn add_journal(
        &mut self,
        options: &MkfsOptions,
        sb: &mut Superblock,
        warnings: &mut Vec<String>,
    ) -> Result<u64, MkfsError> {
        let mut features = self.geometry.features;
        if !features.has(Compat::HAS_JOURNAL) {
            return Ok(0);
        }
        let Some(size) = self.journal_size(options)? else {
            warnings.push("the volume is too small for a journal".into());
            features.set(Compat::HAS_JOURNAL.with(Compat::ORPHAN_FILE), false);
            sb.set_features(features);
            return Ok(0);
        };
        let total = size.log + size.fast_commit;
        let blocks = u32::try_from(total).map_err(|_| {
            MkfsError::option(format!("a journal of {total} blocks has no numbers for them"))
        })?;
        let mut inode = self.new_system_file();
        inode.size = total << self.geometry.block_bits;
        // As with mke2fs, maps of pointers and packed metadata have it at the first free place.
        let goal = match options.journal.location {
            _ if !self.uses_extents() || options.extended.packed_meta_blocks => 0,
            Some(block) => block,
            None => self.middle(),
        };
        let runs = self.give_blocks(JOURNAL_INO, &mut inode, goal, total)?;
        let mut bytes = self.room.new_block();
        let mut journal = JournalSuperblock::new(self.geometry.block_size, blocks, sb.uuid);
        journal.set_fc_blocks(must_fit(size.fast_commit));
        let head = journal.to_bytes();
        bytes[..head.len()].copy_from_slice(&head);
        self.room.blocks.push((BlockNo(runs[0].start), bytes));
        if !options.extended.lazy_journal_init {
            self.zero(&runs);
        }
        sb.journal_inum.set(JOURNAL_INO.0);
        back_up(sb, &inode);
        self.add(JOURNAL_INO, inode);
        Ok(total)
    }

    /// The first block to try: an empty group near the middle of the volume, which halves the seeks
    /// of a disk.
    fn middle(&self) -> u64 {
        let geometry = self.geometry;
        let half = (geometry.blocks_count - geometry.first_data_block.0) / 2;
        let group = geometry.group_of(BlockNo(half)).map_or(0, |group| group.0);
        let last = geometry.group_count - 1;
        let flex = geometry.flex_groups;
        let flexible = geometry.features.has(Incompat::FLEX_BG) && flex > 1;
        let start = if flexible && group > flex {
            let lead = group - group % flex;
            (lead..=last).find(|group| self.free_in(*group) > 0).unwrap_or(0)
        } else {
            group.saturating_sub(1)
        };
        let end = if flexible && group > flex { start + 1 } else { group + 1 };
        let mut best = start;
        for group in start..=end.min(last) {
            if self.free_in(group) > self.free_in(best) {
                best = group;
            }
        }
        geometry.group_first_block(GroupNo(best)).0
    }

    fn free_in(&self, group: u32) -> u64 {
        let start = self.geometry.group_first_block(GroupNo(group)).0;
        let len = u64::from(self.geometry.group_blocks(GroupNo(group)));
        len - self.room.space.count_in(start, start + len)
    }
}

/// Copies the journal inode's map and size to the superblock. e2fsck uses the copy when the inode
/// is damaged.
fn back_up(sb: &mut Superblock, inode: &Inode) {
    sb.jnl_backup_type = BACKUP_INODE_BLOCKS;
    let (words, _) = inode.block.as_chunks::<4>();
    for (to, from) in sb.jnl_blocks.iter_mut().zip(words) {
        *to = (*from).into();
    }
    sb.jnl_blocks[15].set(low_half(inode.size >> 32));
    sb.jnl_blocks[16].set(low_half(inode.size));
}
