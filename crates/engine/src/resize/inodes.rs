//! Gives other numbers to inodes whose numbers the new layout does not have.
//!
//! The number of an inode is in its place in the tables, in all directory entries that lead to it,
//! and in the checksums of the inode and of its blocks. Each inode moves in one commit with all of
//! this.

use nextent_num::{to_u64, to_usize};
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::inode::{self as format, Inode};
use nextent_ondisk::{BlockNo, Compat, FileType, GroupNo, InodeNo, bitmap, extent, orphan};

use super::references::{NewNumbers, Reference};
use super::volume::Volume;
use crate::error::{Error, Result};
use crate::inode::object::has_map;

/// Blocks that an inode changes besides its own and those that name it: two blocks of tables, and
/// for two groups a bitmap and a descriptor.
const FEW: usize = 8;

/// Free numbers up to a limit: those of groups with inodes in use first.
struct FreeNumbers {
    limit: u32,
    /// Groups with free numbers, the next one last.
    groups: Vec<u32>,
    /// The index in the group from which on numbers may be free.
    at: u32,
}

/// The blocks of an inode whose checksums depend on its number, or which name it.
#[derive(Default)]
struct OwnBlocks {
    /// Nodes of its extent tree.
    nodes: Vec<BlockNo>,
    directory: Vec<BlockNo>,
    orphans: Vec<BlockNo>,
}

impl Volume {
    /// The number of inodes in use above `limit`, and of free inodes up to it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if inodes must move on a volume that forbids it.
    pub(super) fn inodes_to_move(&mut self, limit: u32) -> Result<(u64, u64)> {
        let (mut to_move, mut free) = (0, 0);
        let per_group = self.geo.inodes_per_group;
        for group in self.geo.groups() {
            // Numbers of the group up to the limit.
            let below = limit.saturating_sub(group.0 * per_group).min(per_group);
            let bits = self.inode_bitmap(group)?;
            let (all_free, free_below) =
                (bitmap::count_clear(bits, per_group), bitmap::count_clear(bits, below));
            free += u64::from(free_below);
            to_move += u64::from((per_group - below) - (all_free - free_below));
        }
        if to_move > 0 {
            self.refuse_stable_inodes()?;
        }
        Ok((to_move, free))
    }

    fn refuse_stable_inodes(&self) -> Result<()> {
        if self.geo.features.has(Compat::STABLE_INODES) {
            let text = "shrinking a volume whose inode numbers must not change (stable_inodes)";
            return Err(Error::unsupported(text));
        }
        Ok(())
    }

    /// Moves the inodes with numbers above `limit`. Calls `progress` with the number of those that
    /// have moved and of all.
    ///
    /// # Errors
    /// [`Error::NoInodes`] if there are not enough free numbers. The volume is consistent then.
    pub(super) fn move_inodes(
        &mut self,
        limit: u32,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let mut leaving = Vec::new();
        let first = limit / self.geo.inodes_per_group;
        for group in (first..self.geo.group_count).map(GroupNo) {
            leaving.extend(self.used_inodes(group)?.into_iter().filter(|ino| ino.0 > limit));
        }
        if leaving.is_empty() {
            return Ok(());
        }
        self.refuse_stable_inodes()?;
        let references = self.find_references(limit)?;
        let mut free = self.free_numbers(limit);
        let mut numbers = NewNumbers::default();
        let steps = to_u64(leaving.len());
        for (done, from) in (0..).zip(leaving) {
            progress(done, steps);
            self.move_inode(from, references.of(from), &mut free, &mut numbers)?;
            self.moved_inodes += 1;
            self.commit_if_full()?;
        }
        progress(steps, steps);
        self.commit()
    }

    fn move_inode(
        &mut self,
        from: InodeNo,
        references: &[Reference],
        free: &mut FreeNumbers,
        numbers: &mut NewNumbers,
    ) -> Result<()> {
        let (inode, raw) = self.inode(from)?;
        let own = self.own_blocks(from, &inode)?;
        let blocks = own.nodes.len() + own.directory.len() + own.orphans.len();
        self.make_room(blocks + references.len() + FEW)?;
        let is_dir = inode.file_type() == Some(FileType::Directory);
        let to = self.take_number(free, is_dir)?;
        self.put_inode(to, &raw)?;
        self.clear_inode(from, is_dir)?;
        self.reseal(&own, &inode, from, to)?;
        numbers.add(from, to);
        for place in references {
            self.renumber(place, to, numbers)?;
        }
        self.renumber_in_values((&inode, &raw), from, to)?;
        self.renumber_in_super(from, to);
        Ok(())
    }

    /// The blocks that depend on the number of an inode.
    fn own_blocks(&self, ino: InodeNo, inode: &Inode) -> Result<OwnBlocks> {
        let mut own = OwnBlocks::default();
        if !has_map(inode) {
            return Ok(own);
        }
        if inode.file_type() == Some(FileType::Directory) {
            own.directory = self.directory_blocks(ino, inode)?;
        }
        if !self.geo.features.metadata_csum() {
            // Only the first block has an entry `.`.
            own.directory.truncate(1);
            return Ok(own);
        }
        let map = self.read_map(ino, inode)?;
        let features = &self.geo.features;
        if features.has(Compat::ORPHAN_FILE) && ino.0 == self.sb.orphan_file_inum.get() {
            let runs = map.extents.iter();
            let blocks = |start: u64, len: u32| (start..start + u64::from(len)).map(BlockNo);
            own.orphans = runs.flat_map(|run| blocks(run.start.0, run.len)).collect();
        }
        if inode.has_flag(format::flags::EXTENTS) {
            own.nodes = map.nodes;
        }
        Ok(own)
    }

    /// Gives the blocks of an inode checksums for its new number.
    fn reseal(&mut self, own: &OwnBlocks, inode: &Inode, from: InodeNo, to: InodeNo) -> Result<()> {
        let seed = inode.csum_seed(&self.geo, to);
        for block in &own.nodes {
            let mut bytes = self.block(*block)?;
            extent::seal(seed, *block, &mut bytes);
            self.put(*block, bytes);
        }
        for block in &own.directory {
            self.renumber_block((to, inode), *block, from, to)?;
        }
        for block in &own.orphans {
            let mut bytes = self.block(*block)?;
            orphan::seal(seed, *block, &mut bytes);
            self.put(*block, bytes);
        }
        Ok(())
    }

    /// Commits before a change of `blocks` blocks that does not fit into the transaction.
    fn make_room(&mut self, blocks: usize) -> Result<()> {
        let pending = self.images.len() + 3 * self.changed.len();
        let fits = self.journal.is_none() || pending + blocks + FEW <= self.room;
        if fits || pending == 0 { Ok(()) } else { self.commit() }
    }

    /// Fields of the superblock that name an inode.
    fn renumber_in_super(&mut self, from: InodeNo, to: InodeNo) {
        let sb = &mut self.sb;
        for field in [
            &mut sb.orphan_file_inum,
            &mut sb.usr_quota_inum,
            &mut sb.grp_quota_inum,
            &mut sb.prj_quota_inum,
            &mut sb.lpf_ino,
            &mut sb.first_error_ino,
            &mut sb.last_error_ino,
        ] {
            if field.get() == from.0 {
                field.set(to.0);
            }
        }
    }

    fn free_numbers(&self, limit: u32) -> FreeNumbers {
        let features = &self.geo.features;
        let groups = 0..limit.div_ceil(self.geo.inodes_per_group).min(self.geo.group_count);
        let desc = |group: &u32| &self.descs[to_usize(*group)];
        let mut groups: Vec<u32> = groups.filter(|group| desc(group).free_inodes > 0).collect();
        groups.sort_by_key(|group| {
            std::cmp::Reverse((desc(group).has_flag(features, flags::INODE_UNINIT), *group))
        });
        FreeNumbers { limit, groups, at: 0 }
    }

    /// Allocates a number.
    fn take_number(&mut self, free: &mut FreeNumbers, is_dir: bool) -> Result<InodeNo> {
        let per_group = self.geo.inodes_per_group;
        loop {
            let group = GroupNo(*free.groups.last().ok_or(Error::NoInodes)?);
            let reserved = if group.0 == 0 { self.geo.first_inode.0 - 1 } else { 0 };
            let end = (free.limit - group.0 * per_group).min(per_group);
            let bits = self.inode_bitmap(group)?;
            if let Some(index) = bitmap::find_clear(bits, free.at.max(reserved), end) {
                bitmap::set_run(bits, index, 1);
                free.at = index + 1;
                self.extend_table(group, index)?;
                let desc = &mut self.descs[to_usize(group.0)];
                desc.free_inodes = desc.free_inodes.saturating_sub(1);
                desc.used_dirs += u32::from(is_dir);
                self.changed.insert(group.0);
                return Ok(self.geo.inode_at(group, index));
            }
            free.groups.pop();
            free.at = 0;
        }
    }

    /// Makes the part of a group's table that may hold inodes reach the inode at `index`. The rest
    /// of a block is zeroed with its first inode.
    fn extend_table(&mut self, group: GroupNo, index: u32) -> Result<()> {
        let desc = self.descs[to_usize(group.0)];
        let touched = desc.inodes_touched(&self.geo);
        if index < touched {
            return Ok(());
        }
        let per_block = self.geo.inodes_per_block;
        for at in touched / per_block..=index / per_block {
            let block = BlockNo(desc.inode_table.0 + u64::from(at));
            let used = touched.saturating_sub(at * per_block);
            let mut bytes = match used {
                0 => vec![0; self.geo.block_len()],
                _ => self.block(block)?,
            };
            bytes[to_usize(used) * usize::from(self.geo.inode_size)..].fill(0);
            self.put(block, bytes);
        }
        let per_group = self.geo.inodes_per_group;
        let desc = &mut self.descs[to_usize(group.0)];
        desc.flags &= !flags::INODE_UNINIT;
        desc.itable_unused = per_group - (index + 1);
        Ok(())
    }

    /// Frees the number of an inode that moved.
    fn clear_inode(&mut self, ino: InodeNo, is_dir: bool) -> Result<()> {
        let (block, at) = self.inode_place(ino)?;
        let mut bytes = self.block(block)?;
        bytes[at..at + usize::from(self.geo.inode_size)].fill(0);
        self.put(block, bytes);
        let (group, index) = self.geo.inode_group(ino)?;
        bitmap::clear_run(self.inode_bitmap(group)?, index, 1);
        let desc = &mut self.descs[to_usize(group.0)];
        desc.free_inodes += 1;
        desc.used_dirs = desc.used_dirs.saturating_sub(is_dir.into());
        self.changed.insert(group.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
