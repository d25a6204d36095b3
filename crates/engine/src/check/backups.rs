//! Pass 0, last part: the backups of superblock and descriptors.
//!
//! Nothing uses backups while the originals are valid, so a problem is a note and no error, as with
//! e2fsck. Counts, states and times may differ: backups are as old as the last mkfs or repair.

use nextent_ondisk::{BlockNo, Features, GroupDesc, GroupNo, Incompat, RoCompat, Superblock};

use super::image::Image;
use super::open::read;
use super::report::Problem;

/// The most groups whose superblocks, and descriptor blocks whose copies, are compared.
const MOST: usize = 64;

/// Compares the backups and notes each that could not replace the original.
pub(super) fn check(image: &Image) {
    superblocks(image);
    descriptors(image);
}

fn superblocks(image: &Image) {
    let geo = &image.geo;
    let groups = (1..geo.group_count).map(GroupNo);
    let backups = groups.filter_map(|group| Some((group, geo.super_block_of(group)?)));
    for (group, block) in backups.take(MOST) {
        let wrong = match read(&*image.device, block.0 << geo.block_bits) {
            Err(error) => Some(format!("cannot be used: {error}")),
            Ok(sb) if sb.verify_checksum().is_err() => Some("has a wrong checksum".into()),
            Ok(sb) => difference(&image.sb, &sb, group).map(String::from),
        };
        if let Some(wrong) = wrong {
            let text = format!("the backup of the superblock {wrong}");
            image.push(Problem::note(0, "backup", text).in_group(group).at_block(block));
        }
    }
}

/// The fields of `copy`, in `group`, with which a repair would go wrong.
fn difference(sb: &Superblock, copy: &Superblock, group: GroupNo) -> Option<&'static str> {
    let shape = |sb: &Superblock| {
        let sizes = (sb.log_block_size.get(), sb.first_data_block.get(), sb.inode_size_bytes());
        let groups = (sb.blocks_per_group.get(), sb.inodes_per_group.get(), sb.desc_size.get());
        (sizes, groups, sb.blocks_count(), sb.inodes_count.get())
    };
    // Features that say that a structure is in use, and not its layout, may be old in the backup.
    let lasting = |sb: &Superblock| {
        let mut features: Features = sb.features();
        features.set(Incompat::RECOVER, false);
        features.set(RoCompat::ORPHAN_PRESENT, false);
        features.set(RoCompat::LARGE_FILE, false);
        features.set(RoCompat::DIR_NLINK, false);
        (features.incompat, features.ro_compat)
    };
    if copy.uuid != sb.uuid {
        Some("is of another volume")
    } else if u32::from(copy.block_group_nr.get()) != group.0 & 0xffff {
        Some("belongs to another group")
    } else if shape(copy) != shape(sb) {
        Some("says another size or layout")
    } else if lasting(copy) != lasting(sb) {
        Some("says other features")
    } else {
        None
    }
}

/// A descriptor's copy must lead to the same bitmaps and tables.
fn descriptors(image: &Image) {
    let geo = &image.geo;
    for index in (0..geo.gdt_blocks()).take(MOST) {
        let Some(first) = image.block(0, geo.gdt_block(index)) else { continue };
        for block in geo.gdt_backups(index).take(MOST) {
            let Some(copy) = image.block(0, block) else { continue };
            if let Some(group) = first_astray(image, index, &first, &copy) {
                let text = format!("the backup of descriptors leads astray for group {group}");
                image.push(Problem::note(0, "backup", text).at_block(block));
            }
        }
    }
}

/// The first group of descriptor block `index` whose backup has other locations.
fn first_astray(image: &Image, index: u32, first: &[u8], copy: &[u8]) -> Option<GroupNo> {
    let places = |bytes: &[u8]| {
        let desc = GroupDesc::read(bytes).ok()?;
        Some([desc.block_bitmap, desc.inode_bitmap, desc.inode_table].map(|block: BlockNo| block.0))
    };
    let size = usize::from(image.geo.desc_size);
    let groups = index * image.geo.descs_per_block..image.geo.group_count;
    let pairs = first.chunks_exact(size).zip(copy.chunks_exact(size));
    let mut astray = groups.zip(pairs).filter(|(_, (a, b))| places(a) != places(b));
    astray.next().map(|(group, _)| GroupNo(group))
}
