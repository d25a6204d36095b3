//! The resize inode, which owns the blocks reserved for descriptors, while their number changes.
//!
//! Its map must match the superblock's counts of groups and descriptor blocks, and both cannot
//! change in one sector. So the volume has no resize inode meanwhile: its blocks are in use without
//! an owner, which e2fsck -p repairs. `mkfs::resize` describes the map.

use nextent_num::{to_u64, to_usize};
use nextent_ondisk::inode::{BLOCK_AREA, Inode};
use nextent_ondisk::numbers::RESIZE_INO;
use nextent_ondisk::{BlockNo, Compat, Geometry, GroupNo, indirect};

use super::volume::Volume;
use crate::error::{Error, Result};

/// The inode while the volume does not have it.
pub(super) struct Detached {
    inode: Inode,
    /// The block of its first pointers.
    top: BlockNo,
}

/// The groups with copies of the reserved blocks.
fn backups(geo: &Geometry) -> impl Iterator<Item = GroupNo> + '_ {
    geo.groups().skip(1).filter(|group| geo.has_super(*group))
}

/// Whether the resize inode has the same map in both layouts.
pub(super) fn same_map(old: &Geometry, new: &Geometry) -> bool {
    let on = |geo: &Geometry| geo.features.has(Compat::RESIZE_INODE);
    on(old) == on(new)
        && (!on(old)
            || (old.gdt_blocks() == new.gdt_blocks()
                && old.reserved_gdt_blocks == new.reserved_gdt_blocks
                && backups(old).eq(backups(new))))
}

impl Volume {
    /// Takes the resize inode away. Its blocks stay in use.
    pub(super) fn detach_resize_inode(&mut self) -> Result<Option<Detached>> {
        if !self.geo.features.has(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let (inode, mut raw) = self.inode(RESIZE_INO)?;
        let top = indirect::pointer(&inode.block, indirect::DOUBLE);
        if !self.geo.holds_run(top, 1) {
            return Err(Error::unsupported("a damaged resize inode; check the volume"));
        }
        let empty = Inode { extra_isize: inode.extra_isize, ..Inode::default() };
        empty.write(&self.geo, &mut raw);
        self.put_inode(RESIZE_INO, &raw)?;
        self.set_reserved(false, 0);
        Ok(Some(Detached { inode, top }))
    }

    fn set_reserved(&mut self, on: bool, blocks: u32) {
        self.geo.features.set(Compat::RESIZE_INODE, on);
        self.geo.reserved_gdt_blocks = blocks;
        let mut features = self.sb.features();
        features.set(Compat::RESIZE_INODE, on);
        self.sb.set_features(features);
        // At most a quarter of a block's bytes, so 16 bits hold it.
        self.sb.reserved_gdt_blocks.set(u16::try_from(blocks).unwrap_or(u16::MAX));
    }

    /// Moves the block of first pointers, if it must move. The others lie behind descriptors.
    pub(super) fn move_resize_inode(&mut self) -> Result<()> {
        let (mut inode, mut raw) = self.inode(RESIZE_INO)?;
        let top = indirect::pointer(&inode.block, indirect::DOUBLE);
        if !self.geo.features.has(Compat::RESIZE_INODE) || !self.vacated.contains(top) {
            return Ok(());
        }
        let to = self.allocate_block(true)?;
        let bytes = self.block(top)?;
        self.put(to, bytes);
        self.free(top.0..top.0 + 1)?;
        self.moved_blocks += 1;
        indirect::set_pointer(&mut inode.block, indirect::DOUBLE, to);
        inode.write(&self.geo, &mut raw);
        self.put_inode(RESIZE_INO, &raw)
    }

    /// Frees the block of first pointers: the volume no longer has a resize inode.
    pub(super) fn drop_resize_inode(&mut self, detached: &Detached) -> Result<()> {
        self.free(detached.top.0..detached.top.0 + 1)
    }

    /// Gives the volume a resize inode with `reserved` blocks behind the descriptors of each copy.
    pub(super) fn attach_resize_inode(&mut self, detached: Detached, reserved: u32) -> Result<()> {
        self.set_reserved(true, reserved);
        let geo = self.geo.clone();
        for group in geo.groups().filter(|group| geo.has_super(*group)) {
            let head = geo.head_blocks(group);
            self.mark(head.start.max(geo.first_data_block.0)..head.end, true)?;
        }
        let per_block = geo.block_size / 4;
        let backups: Vec<BlockNo> = backups(&geo).map(|g| geo.group_first_block(g)).collect();
        let mut top = vec![0; geo.block_len()];
        for at in 0..reserved {
            let ordinal = geo.gdt_blocks() + at;
            let block = BlockNo(geo.super_location().0.0 + 1 + u64::from(ordinal));
            indirect::set_pointer(&mut top, to_usize(ordinal % per_block), block);
            let mut list = vec![0; geo.block_len()];
            for (slot, backup) in backups.iter().enumerate().take(to_usize(per_block)) {
                let copy = BlockNo(backup.0 + 1 + u64::from(ordinal));
                indirect::set_pointer(&mut list, slot, copy);
            }
            self.put(block, list);
        }
        self.put(detached.top, top);
        let mut inode = detached.inode;
        inode.block = [0; BLOCK_AREA];
        indirect::set_pointer(&mut inode.block, indirect::DOUBLE, detached.top);
        let blocks = 1 + u64::from(reserved) * (1 + to_u64(backups.len()));
        inode.set_sectors(&geo, blocks * u64::from(geo.block_size / 512))?;
        let (_, mut raw) = self.inode(RESIZE_INO)?;
        inode.write(&geo, &mut raw);
        self.put_inode(RESIZE_INO, &raw)
    }
}
