//! Pass 0: the backups of descriptors. The check uses them when the superblock is a backup, too,
//! and the first descriptors are damaged.
//!
//! Backups are as old as the last mkfs or repair. Their flags for unused bitmaps and tables may be
//! stale, so everything counts as used.

use nextent_device::{BlockDevice, Overlay};
use nextent_ondisk::group_desc::{self, flags};
use nextent_ondisk::{BlockNo, Geometry, GroupDesc, GroupNo, Incompat};
use nextent_sync::Arc;

use super::image::Image;
use super::report::Problem;

/// Replaces the first descriptors by their backups, in memory.
pub(super) fn replace(image: &mut Image) {
    let group = GroupNo(image.sb.block_group_nr.get().into());
    if group.0 == 0 || image.geo.features.has(Incompat::META_BG) || are_sound(image) {
        return;
    }
    let Some(start) = image.geo.super_block_of(group) else { return };
    let over = Overlay::new(Arc::clone(&image.device));
    for index in 0..image.geo.gdt_blocks() {
        let copy = BlockNo(start.0 + 1 + u64::from(index));
        let Some(mut block) = image.block(0, copy) else { return };
        use_all(&image.geo, index, &mut block);
        let at = image.geo.gdt_block(index).0 << image.geo.block_bits;
        if over.write_at(at, &block).is_err() {
            return;
        }
    }
    image.device = Arc::new(over);
    let text = "the group descriptors are damaged; the copies from this block on were used";
    image.push(Problem::error(0, "descriptors", text).at_block(BlockNo(start.0 + 1)));
}

fn are_sound(image: &Image) -> bool {
    image
        .geo
        .groups()
        .all(|group| image.desc(0, group).is_some_and(|desc| desc.check(&image.geo, group).is_ok()))
}

/// Clears the flags and counts for unused bitmaps and inodes in a block of descriptors.
fn use_all(geo: &Geometry, index: u32, block: &mut [u8]) {
    let groups = (index * geo.descs_per_block..geo.group_count).map(GroupNo);
    for (group, raw) in groups.zip(block.chunks_exact_mut(usize::from(geo.desc_size))) {
        if let Ok(mut desc) = GroupDesc::read(raw) {
            desc.flags &= !(flags::BLOCK_UNINIT | flags::INODE_UNINIT);
            desc.itable_unused = 0;
            desc.write(raw);
            group_desc::seal(geo, group, raw);
        }
    }
}
