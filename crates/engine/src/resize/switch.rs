//! Changes the size of the volume, when everything is where the new layout has it.
//!
//! | step | geometry | action | a crash after it leaves |
//! |---|---|---|---|
//! | 1 | old | blocks that the new layout does not have or needs for descriptors are in use; no resize inode; the superblock asks for a check; commit | the old size; blocks that e2fsck -p frees |
//! | 2 | old | new groups are written behind the old end; flush | the same |
//! | 3 | new | the superblock has the new counts, in one sector; flush (where descriptors get another width: a commit of all of them) | the new size; blocks that e2fsck -p frees |
//! | 4 | new | blocks without an owner become free; the resize inode is back; commit | the new size; old backups |
//! | 5 | new | backups of superblock and descriptors; flush | the same |
//! | 6 | new | the superblock asks for no check; flush | the new size |

use nextent_num::to_usize;
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{Compat, Geometry, GroupNo, Incompat, Superblock, bitmap};

use super::commit::set_recovery;
use super::new_groups::NewGroups;
use super::resize_inode::{self, Detached};
use super::target::Target;
use super::volume::Volume;
use crate::error::Result;
use crate::mkfs::backup_superblock;
use crate::open::write_super;

/// What step 1 leaves for later steps.
pub(super) struct Prepared {
    old: Geometry,
    resize_inode: Option<Detached>,
    new_groups: Option<NewGroups>,
}

impl Volume {
    /// Step 1.
    pub(super) fn prepare_switch(&mut self, target: &Target) -> Result<Prepared> {
        let old = self.geo.clone();
        let new = &target.geo;
        self.initialize_heads(new)?;
        let mut resize_inode = None;
        if !resize_inode::same_map(&old, new) {
            resize_inode = self.detach_resize_inode()?;
        }
        // Those that the new layout has, too.
        let kept = self.geo.backup_groups.map(|group| match new.backup_groups.contains(&group) {
            true => group,
            false => 0,
        });
        self.set_backup_groups(kept);
        let both = old.group_count.min(new.group_count);
        for group in (0..both).map(GroupNo) {
            let head = new.head_blocks(group);
            let start = head.start.max(new.first_data_block.0);
            self.mark(start..head.end.min(old.blocks_count), true)?;
        }
        let mut new_groups = None;
        if new.group_count > old.group_count {
            new_groups = Some(self.place_new_groups(new)?);
        } else if new.blocks_count < old.blocks_count {
            let last = GroupNo(new.group_count - 1);
            let end = old.group_first_block(last).0 + u64::from(old.group_blocks(last));
            self.mark(new.blocks_count..end, true)?;
        }
        self.require_check();
        self.commit()?;
        Ok(Prepared { old, resize_inode, new_groups })
    }

    /// Bitmaps that the place of superblocks implies are written, since that place changes, and
    /// that of the last group, which ends early.
    fn initialize_heads(&mut self, new: &Geometry) -> Result<()> {
        let last = GroupNo(new.group_count.min(self.geo.group_count) - 1);
        for group in self.geo.groups() {
            let uninit = self.descs[to_usize(group.0)].flags & flags::BLOCK_UNINIT != 0;
            let backup = self.geo.has_super(group) || new.has_super(group);
            let moved = self.geo.head_blocks(group) != new.head_blocks(group);
            let head = backup || moved || group == last;
            if uninit && head && self.geo.features.group_csum() {
                self.block_bitmap(group)?;
                self.descs[to_usize(group.0)].flags &= !flags::BLOCK_UNINIT;
                self.changed.insert(group.0);
            }
        }
        Ok(())
    }

    fn set_backup_groups(&mut self, groups: [u32; 2]) {
        if !self.geo.features.has(Compat::SPARSE_SUPER2) {
            return;
        }
        self.geo.backup_groups = groups;
        for (to, group) in self.sb.backup_bgs.iter_mut().zip(groups) {
            to.set(group);
        }
    }

    /// Steps 2 to 6.
    pub(super) fn switch(
        &mut self,
        target: &Target,
        prepared: Prepared,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let Prepared { old, resize_inode, new_groups } = prepared;
        let new = &target.geo;
        let mut descs = Vec::new();
        if let Some(groups) = &new_groups {
            descs = self.write_new_groups(new, groups, progress)?;
            self.flush()?;
        }
        let mut leaving = Vec::new();
        for group in (new.group_count..old.group_count).map(GroupNo) {
            leaving.extend(self.metadata_runs(group));
        }
        self.forget_groups(new.group_count);
        self.descs.extend(descs);
        self.set_size(target)?;
        // Step 4. What the new layout does not have, or uses for heads, does not become free.
        for run in leaving {
            for (part, vacated) in self.vacated.split(run) {
                if !vacated {
                    self.free(part)?;
                }
            }
        }
        self.free_old_heads(&old, new)?;
        self.free_extension(&old, new, new_groups.as_ref())?;
        self.set_backup_groups(new.backup_groups);
        match resize_inode {
            Some(detached) if new.features.has(Compat::RESIZE_INODE) => {
                self.attach_resize_inode(detached, new.reserved_gdt_blocks)?;
            }
            Some(detached) => self.drop_resize_inode(&detached)?,
            None => {}
        }
        self.commit()?;
        self.finish()
    }

    /// Step 3: the counts of the new layout, in a sector of the superblock.
    fn set_size(&mut self, target: &Target) -> Result<()> {
        if target.geo.desc_size != self.geo.desc_size {
            return self.set_width(target);
        }
        let (sb, to) = (&mut self.sb, &target.sb);
        sb.set_blocks_count(to.blocks_count());
        sb.inodes_count = to.inodes_count;
        sb.set_reserved_blocks_count(to.reserved_blocks_count());
        sb.first_meta_bg = to.first_meta_bg;
        self.geo = sb.check(u64::MAX)?;
        self.count_free();
        if self.trial { Ok(()) } else { write_super(&*self.device, &mut self.sb) }
    }

    /// Instead of step 3: all descriptors get another size, in one commit with the superblock.
    fn set_width(&mut self, target: &Target) -> Result<()> {
        let (mut features, to) = (self.sb.features(), &target.sb);
        features.set(Incompat::BIT64, to.features().has(Incompat::BIT64));
        self.sb.set_features(features);
        self.sb.desc_size = to.desc_size;
        self.sb.first_meta_bg = to.first_meta_bg;
        self.geo = self.sb.check(u64::MAX)?;
        for index in 0..self.geo.gdt_blocks() {
            self.put(self.geo.gdt_block(index), vec![0; self.geo.block_len()]);
        }
        for group in self.geo.groups() {
            // The checksums of bitmaps have another width, too.
            let desc = &self.descs[to_usize(group.0)];
            let (blocks, inodes) = (desc.block_bitmap, desc.inode_bitmap);
            let flagged = |flag| desc.has_flag(&self.geo.features, flag);
            let (no_blocks, no_inodes) =
                (flagged(flags::BLOCK_UNINIT), flagged(flags::INODE_UNINIT));
            if self.geo.features.metadata_csum() && !no_blocks {
                let sum = bitmap::block_checksum(&self.geo, &self.block(blocks)?);
                self.descs[to_usize(group.0)].block_bitmap_csum = sum;
            }
            if self.geo.features.metadata_csum() && !no_inodes {
                let sum = bitmap::inode_checksum(&self.geo, &self.block(inodes)?);
                self.descs[to_usize(group.0)].inode_bitmap_csum = sum;
            }
            self.put_desc(group.0)?;
        }
        self.commit()
    }

    /// Frees what heads of groups no longer need.
    fn free_old_heads(&mut self, old: &Geometry, new: &Geometry) -> Result<()> {
        for group in (0..old.group_count.min(new.group_count)).map(GroupNo) {
            let (before, after) = (old.head_blocks(group), new.head_blocks(group));
            let start = before.start.max(after.end).max(old.first_data_block.0);
            let end = before.end.min(new.blocks_count);
            if start < end && before.end > after.end {
                self.free(start..end)?;
            }
        }
        Ok(())
    }

    /// Frees what the old last group has gained, except for metadata.
    fn free_extension(
        &mut self,
        old: &Geometry,
        new: &Geometry,
        groups: Option<&NewGroups>,
    ) -> Result<()> {
        let last = GroupNo(old.group_count - 1);
        if new.blocks_count <= old.blocks_count {
            return Ok(());
        }
        let end = new.group_first_block(last).0 + u64::from(new.group_blocks(last));
        let gained = old.blocks_count..end;
        self.mark(gained.clone(), false)?;
        // The head of the group may reach beyond the old end.
        let head = new.head_blocks(last);
        self.mark(head.start.max(gained.start)..head.end, true)?;
        let taken = groups.map_or_else(Vec::new, |groups| groups.taken_in(&gained));
        taken.into_iter().try_for_each(|run| self.mark(run, true))
    }

    /// Steps 5 and 6.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.trial {
            return Ok(());
        }
        self.sb.state.set(self.state);
        self.sb.set_written_at(nextent_sync::unix_time().as_secs());
        set_recovery(&mut self.sb, false);
        self.set_overhead()?;
        for index in 0..self.geo.gdt_blocks() {
            let bytes = self.block(self.geo.gdt_block(index))?;
            for copy in self.geo.gdt_backups(index) {
                self.write(copy, &bytes)?;
            }
        }
        for group in self.geo.groups().skip(1) {
            if let Some(block) = self.geo.super_block_of(group) {
                let mut bytes = vec![0; self.geo.block_len()];
                let copy: Superblock = backup_superblock(&self.sb, group);
                bytes[..copy.bytes().len()].copy_from_slice(copy.bytes());
                self.write(block, &bytes)?;
            }
        }
        self.flush()?;
        write_super(&*self.device, &mut self.sb)
    }

    /// Counts the blocks that files cannot have, if the superblock has that count.
    fn set_overhead(&mut self) -> Result<()> {
        if self.sb.overhead_clusters.get() == 0 {
            return Ok(());
        }
        let geo = &self.geo;
        let heads: u64 = geo
            .groups()
            .map(|group| geo.head_blocks(group))
            .map(|head| head.end - head.start.max(geo.first_data_block.0))
            .sum();
        let groups = u64::from(geo.group_count) * (2 + u64::from(geo.inode_table_blocks));
        let journal = self.journal.as_ref().map_or(0, crate::open::Located::blocks);
        let all = geo.first_data_block.0 + heads + groups + journal;
        self.sb.overhead_clusters.set(u32::try_from(all).unwrap_or(u32::MAX));
        Ok(())
    }
}
