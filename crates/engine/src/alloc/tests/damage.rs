//! Damaged bitmaps and descriptors, and impossible requests.

use super::*;
use nextent_device::BlockDevice;
use nextent_ondisk::GroupNo;

/// Changes one byte of the image and opens it.
fn damaged(image: &Image, offset: u64, variant: &Variant) -> Open {
    let device = image.device();
    let mut byte = [0];
    device.read_at(offset, &mut byte).unwrap();
    device.write_at(offset, &[byte[0] ^ 0x41]).unwrap();
    Open::new(device, variant)
}

#[test]
fn a_damaged_bitmap_excludes_its_group_and_names_it() {
    variants().iter().for_each(damaged_bitmap);
}

fn damaged_bitmap(variant: &Variant) {
    let Some(image) = Image::make("-t ext4 -b 4096", 300) else { return };
    let open = image.open_as(variant);
    let bitmap = open.block_bitmap(GroupNo(0));
    let offset = bitmap.0 << open.geo.block_bits;
    drop(open);
    let open = damaged(&image, offset + 2000, variant);
    let goal = BlockNo(30_000);
    let run = open.allocate(10, 10, Some(goal)).unwrap();
    assert_ne!(open.geo.group_of(run.start), Some(GroupNo(0)));
    let damage = open.blocks.damage();
    assert!(
        matches!(&damage[..], [Error::Corrupt(error)] if error.location.group == Some(GroupNo(0)))
    );
    assert!(open.blocks.free(&open.start(), goal, 1, BlockKind::Data).is_err());
    assert!(open.blocks.is_free(goal, 1).is_err());
}

#[test]
fn a_bitmap_without_checksum_is_compared_with_its_descriptor() {
    let Some(image) = Image::make("-t ext2 -b 1024", 20) else { return };
    let open = image.open();
    let bitmap = open.block_bitmap(GroupNo(0));
    let offset = bitmap.0 << open.geo.block_bits;
    drop(open);
    let open = damaged(&image, offset, &Variant::engine());
    let run = open.allocate(10, 10, Some(BlockNo(5000))).unwrap();
    assert_ne!(open.geo.group_of(run.start), Some(GroupNo(0)));
    assert_eq!(open.blocks.damage().len(), 1);
}

#[test]
fn a_damaged_descriptor_excludes_its_group() {
    let Some(image) = Image::make("-t ext4", 300) else { return };
    let open = image.open();
    let (block, at) = open.geo.desc_location(GroupNo(1));
    let offset = (block.0 << open.geo.block_bits) + at as u64;
    drop(open);
    let open = damaged(&image, offset, &Variant::engine());
    assert_eq!(open.blocks.damage().len(), 1);
    assert!(open.blocks.inode_table(GroupNo(1)).is_err());
    let goal = open.geo.group_first_block(GroupNo(1));
    let run = open.allocate(10, 10, Some(goal)).unwrap();
    assert_ne!(open.geo.group_of(run.start), Some(GroupNo(1)));
    let ino = InodeNo(open.geo.inodes_per_group + 5);
    assert!(open.inodes.is_used(ino).is_err());
}

#[test]
fn impossible_requests_are_refused() {
    let Some(image) = Image::make("-t ext4", 64) else { return };
    let open = image.open();
    assert!(matches!(open.allocate(0, 0, None), Err(Error::Corrupt(_))));
    assert!(matches!(open.allocate(1, 2, None), Err(Error::Corrupt(_))));
    assert!(open.allocate(1, 1, Some(BlockNo(u64::MAX))).is_ok());
    assert!(open.allocate(u32::MAX, 1, Some(BlockNo(0))).is_ok());
    assert!(matches!(open.allocate(u32::MAX, u32::MAX, None), Err(Error::NoSpace)));
    assert!(matches!(open.allocate(9000, 9000, None), Err(Error::NoSpace)), "beyond a region");
    assert!(open.inodes.is_used(InodeNo(0)).is_err());
    assert!(open.inodes.is_used(InodeNo(u32::MAX)).is_err());
}
