//! Pass 1, first half: group descriptors and the blocks with a fixed use.

use nextent_ondisk::group_desc::{self, flags};
use nextent_ondisk::mmp::{MmpBlock, SEQ_CLEAN, SEQ_FSCK};
use nextent_ondisk::{BlockNo, Geometry, GroupDesc, GroupNo, Incompat};

use super::claims::Claims;
use super::image::Image;
use super::report::Problem;

/// Checks every descriptor and takes the blocks of fixed metadata.
pub(super) fn check(image: &Image, claims: &Claims) {
    if let Some(block) = mmp(image) {
        claims.fixed(block, 1);
    }
    // Superblocks and descriptors first: a conflict is then reported for what overlaps them.
    image.each_desc(1, |group, _, _| {
        let head = image.geo.head_blocks(group);
        if !head.is_empty() {
            claims.fixed(BlockNo(head.start), head.end - head.start);
        }
    });
    image.each_desc(1, |group, desc, raw| {
        if let Err(error) = group_desc::verify(&image.geo, group, raw) {
            image.push(Problem::corrupt(1, "group-checksum", &error));
        }
        uninit(image, group, &desc);
        match desc.check(&image.geo, group) {
            Ok(()) => places(image, claims, group, &desc),
            Err(error) => image.push(Problem::corrupt(1, "group-descriptor", &error)),
        }
    });
}

fn places(image: &Image, claims: &Claims, group: GroupNo, desc: &GroupDesc) {
    let table = u64::from(image.geo.inode_table_blocks);
    for (what, start, len) in [
        ("block bitmap", desc.block_bitmap, 1),
        ("inode bitmap", desc.inode_bitmap, 1),
        ("inode table", desc.inode_table, table),
    ] {
        if let Some(block) = claims.fixed(start, len) {
            let text = format!("the {what} lies on other metadata");
            image.push(Problem::error(1, "metadata-overlap", text).in_group(group).at_block(block));
        }
    }
}

/// Flags that mean nothing on this volume, or contradict each other.
fn uninit(image: &Image, group: GroupNo, desc: &GroupDesc) {
    let geo = &image.geo;
    let any = desc.flags & (flags::BLOCK_UNINIT | flags::INODE_UNINIT) != 0;
    let text = if !geo.features.group_csum() && (any || desc.itable_unused != 0) {
        "marked uninitialized, which needs a feature that the volume has not"
    } else if desc.has_flag(&geo.features, flags::BLOCK_UNINIT) && is_last(geo, group) {
        "the last group's block bitmap is marked uninitialized"
    } else {
        return;
    };
    image.push(Problem::error(1, "group-uninit", text).in_group(group));
}

fn is_last(geo: &Geometry, group: GroupNo) -> bool {
    group.0 + 1 == geo.group_count && group.0 > 0
}

/// The block of the multi-mount protection, checked.
fn mmp(image: &Image) -> Option<BlockNo> {
    if !image.geo.features.has(Incompat::MMP) {
        return None;
    }
    let block = BlockNo(image.sb.mmp_block.get());
    if !image.geo.holds_run(block, 1) {
        let text = format!("the superblock's multi-mount protection block {block} cannot be");
        image.push(Problem::error(0, "mmp", text));
        return None;
    }
    let bytes = image.block(0, block)?;
    match MmpBlock::read(&image.geo, &bytes) {
        Ok(mmp) if mmp.sequence.get() == SEQ_FSCK && image.claimed => {}
        Ok(mmp) if mmp.sequence.get() == SEQ_FSCK => {
            let text = "a check that repairs has the volume, by its multi-mount protection";
            image.push(Problem::error(0, "mmp", text).at_block(block));
        }
        Ok(mmp) if mmp.sequence.get() != SEQ_CLEAN => {
            let text = "another program may have the volume open, by its multi-mount protection";
            image.push(Problem::note(0, "mmp", text).at_block(block));
        }
        Ok(_) => {}
        Err(error) => image.push(Problem::corrupt(0, "mmp", &error).at_block(block)),
    }
    Some(block)
}
