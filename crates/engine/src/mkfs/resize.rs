//! The resize inode, which owns the blocks reserved after the descriptors, so that the table can
//! grow.
//!
//! Its only tree of pointers has two levels. The second-level blocks are the reserved blocks of
//! group 0; each lists the blocks of the same place in the groups that hold backups. A reserved
//! block's index in the first level is the number of the descriptor block it will become.

use nextent_num::{to_u64, to_usize};
use nextent_ondisk::inode::BLOCK_AREA;
use nextent_ondisk::numbers::RESIZE_INO;
use nextent_ondisk::{BlockNo, Compat, GroupNo, indirect};

use super::error::MkfsError;
use super::files::Files;
use super::room::What;

impl Files<'_> {
    /// Makes the resize inode, when features ask for it.
    ///
    /// # Errors
    ///
    /// No room, or more backups than a block of pointers can list.
    pub(super) fn add_resize_inode(&mut self) -> Result<(), MkfsError> {
        let geometry = self.geometry;
        if !geometry.features.has(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let per_block = geometry.block_size / 4;
        let backups: Vec<BlockNo> = (1..geometry.group_count)
            .map(GroupNo)
            .filter(|group| geometry.has_super(*group))
            .map(|group| geometry.group_first_block(group))
            .collect();
        if backups.len() > to_usize(per_block) {
            return Err(MkfsError::option("too many backups for resize_inode"));
        }
        let reserved = geometry.reserved_gdt_blocks;
        let tables = geometry.gdt_blocks() + geometry.inode_table_blocks;
        let goal = geometry.first_data_block.0 + 2 + u64::from(reserved + tables);
        let top_block = self.room.take_block(goal, What::Block("the resize inode"))?;
        let mut top = self.room.new_block();
        for at in 0..reserved {
            let ordinal = geometry.gdt_blocks() + at;
            let block = BlockNo(geometry.super_location().0.0 + 1 + u64::from(ordinal));
            indirect::set_pointer(&mut top, to_usize(ordinal % per_block), block);
            let mut list = self.room.new_block();
            for (at, backup) in backups.iter().enumerate() {
                let copy = BlockNo(backup.0 + 1 + u64::from(ordinal));
                indirect::set_pointer(&mut list, at, copy);
            }
            self.room.blocks.push((block, list));
        }
        self.room.blocks.push((top_block, top));
        let mut inode = self.new_system_file();
        let mut root = [0; BLOCK_AREA];
        indirect::set_pointer(&mut root, indirect::DOUBLE, top_block);
        inode.block = root;
        let reach = u64::from(per_block);
        let direct = u64::from(indirect::DIRECT);
        inode.size = (direct + reach + reach * reach) << geometry.block_bits;
        self.room.set_blocks(&mut inode, 1 + u64::from(reserved) * (1 + to_u64(backups.len())))?;
        self.add(RESIZE_INO, inode);
        Ok(())
    }
}
