use proptest::prelude::*;

use super::*;
use crate::testing::{Image, recording};
use crate::{GroupDesc, Superblock, bitmap, group_desc};

/// Arguments of mke2fs that exercise each rule of this module.
const LAYOUTS: &[(&str, &str)] = &[
    ("-t ext4", "64m"),
    ("-t ext4 -O orphan_file,metadata_csum_seed", "64m"),
    ("-t ext4 -b 1024 -g 1024", "40m"),
    ("-t ext4 -b 1024 -O ^resize_inode,meta_bg -g 256", "40m"),
    ("-t ext4 -b 1024 -O ^resize_inode,meta_bg,^64bit -g 256 -N 10000", "60m"),
    ("-t ext4 -O bigalloc -C 65536", "48m"),
    ("-t ext4 -b 1024 -O bigalloc -C 4096", "40m"),
    ("-t ext4 -O sparse_super2,^resize_inode -b 1024 -g 2048", "64m"),
    ("-t ext4 -O ^metadata_csum,uninit_bg", "64m"),
    ("-t ext4 -O ^metadata_csum,uninit_bg,^64bit -b 1024", "64m"),
    ("-t ext4 -O ^64bit -b 2048 -I 128", "64m"),
    ("-t ext3 -b 1024", "40m"),
    ("-t ext2 -r 0 -b 1024", "20m"),
    ("-t ext4 -b 65536", "40m"),
    ("-t ext4 -I 1024 -b 4096", "64m"),
    ("-t ext4 -E stride=4,stripe_width=16 -G 4 -g 1024 -b 1024", "33m"),
];

#[test]
fn images_of_mke2fs_check_and_verify() {
    for (number, (args, size)) in LAYOUTS.iter().enumerate() {
        let image = Image::make(&format!("layout-{number:02}"), args, size);
        let sb = image.superblock();
        sb.verify_checksum().unwrap();
        let geometry = sb.check(image.bytes.len() as u64).expect(args);
        let (mut free, mut inodes) = (0, 0);
        for group in geometry.groups() {
            let bytes = image.desc_bytes(group);
            group_desc::verify(&geometry, group, bytes).expect(args);
            let desc = GroupDesc::read(bytes).unwrap();
            desc.check(&geometry, group).expect(args);
            free += u64::from(desc.free_clusters) << geometry.cluster_bits;
            inodes += desc.free_inodes;
            verify_bitmaps(&image, &geometry, group, &desc);
            let mut copy = bytes.to_vec();
            copy[..32].fill(0xee);
            desc.write(&mut copy);
            assert_eq!(copy[..0x14], bytes[..0x14]);
            group_desc::seal(&geometry, group, &mut copy);
        }
        assert_eq!(free, sb.free_blocks_count(), "{args}");
        assert_eq!(inodes, sb.free_inodes_count.get(), "{args}");
        compare_with_dumpe2fs(&image, &geometry, args);
    }
}

fn verify_bitmaps(image: &Image, geometry: &Geometry, group: GroupNo, desc: &GroupDesc) {
    if !desc.has_flag(&geometry.features, group_desc::flags::BLOCK_UNINIT) {
        let map = image.block(desc.block_bitmap);
        bitmap::verify_block_bitmap(geometry, group, desc, map).unwrap();
        let clusters = geometry.group_clusters(group);
        assert_eq!(bitmap::count_clear(map, clusters), desc.free_clusters);
        for block in geometry.head_blocks(group) {
            let (at, index) = geometry.locate(BlockNo(block)).unwrap();
            assert_eq!(at, group);
            assert!(bitmap::test(map, index >> geometry.cluster_bits));
        }
    }
    if !desc.has_flag(&geometry.features, group_desc::flags::INODE_UNINIT) {
        let map = image.block(desc.inode_bitmap);
        bitmap::verify_inode_bitmap(geometry, group, desc, map).unwrap();
        assert_eq!(bitmap::count_clear(map, geometry.inodes_per_group), desc.free_inodes);
    }
}

/// Compares with dumpe2fs, which prints for each group its blocks, superblock and descriptors.
fn compare_with_dumpe2fs(image: &Image, geometry: &Geometry, args: &str) {
    let dump = image.dumpe2fs();
    let words = |line: &str| line.split_once(':').unwrap().1.trim().to_owned();
    let line = dump.lines().find(|line| line.starts_with("Filesystem features")).unwrap();
    let listed = words(line).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if listed != ["(none)"] {
        assert_eq!(listed, geometry.features.names(), "{args}");
    }
    let mut group = None;
    for line in dump.lines() {
        if let Some(rest) = line.strip_prefix("Group ") {
            let Some((number, rest)) = rest.split_once(": (Blocks ") else { continue };
            let range = rest.split(')').next().unwrap();
            let number = GroupNo(number.parse().unwrap());
            let start = geometry.group_first_block(number).0;
            let end = start + u64::from(geometry.group_blocks(number)) - 1;
            let expected = if start == end { start.to_string() } else { format!("{start}-{end}") };
            assert_eq!(range, expected, "{args}");
            group = Some(number);
        }
        let (Some(group), line) = (group, line.trim()) else { continue };
        if let Some(rest) = line.split("superblock at ").nth(1) {
            let at: u64 = rest.split(',').next().unwrap().parse().unwrap();
            assert_eq!(geometry.super_block_of(group), Some(BlockNo(at)), "{args} {line}");
        }
        if let Some(rest) = line.split("Group descriptors at ").nth(1) {
            let first: u64 = rest.split(['-', ',']).next().unwrap().parse().unwrap();
            assert_eq!(geometry.super_block_of(group).unwrap().0 + 1, first, "{args}");
        }
        if let Some(rest) = line.split("Group descriptor at ").nth(1) {
            let at: u64 = rest.split(',').next().unwrap().parse().unwrap();
            assert!(all_gdt_copies(geometry).contains(&at), "{args} {line}");
        }
    }
}

fn all_gdt_copies(geometry: &Geometry) -> Vec<u64> {
    let mut all = Vec::new();
    for index in 0..geometry.gdt_blocks() {
        all.push(geometry.gdt_block(index).0);
        all.extend(geometry.gdt_backups(index).map(|block| block.0));
    }
    all
}

#[test]
fn backups_of_descriptors_are_copies() {
    if recording() {
        return; // the test above records the same images
    }
    for (number, (args, size)) in LAYOUTS.iter().enumerate() {
        let image = Image::make(&format!("layout-{number:02}"), args, size);
        let geometry = image.geometry();
        for index in 0..geometry.gdt_blocks() {
            let mut copies = 0;
            for backup in geometry.gdt_backups(index) {
                // Only the counts may differ, because mke2fs writes backups once.
                let (first, second) = (image.block(geometry.gdt_block(index)), image.block(backup));
                assert_eq!(first[..12], second[..12], "{args}");
                copies += 1;
            }
            let groups_left = geometry.group_count - index * geometry.descs_per_block;
            assert!(copies > 0 || groups_left == 1 || geometry.group_count == 1, "{args}");
        }
    }
}

#[test]
fn feature_names_agree_with_debugfs() {
    let mut image = Image::make("feature-names", "-t ext2 -b 1024", "2m");
    for bit in 0..32 {
        let mut sb = image.superblock();
        sb.feature_compat.set(1 << bit);
        sb.feature_ro_compat.set(1 << bit);
        sb.feature_incompat.set(0);
        sb.set_free_blocks_count(7);
        let names = sb.features().names();
        image.bytes[1024..2048].copy_from_slice(sb.bytes());
        image.write_back();
        let out = image.dumpe2fs_header();
        let mut lines = out.lines();
        let Some(line) = lines.find(|line| line.starts_with("Filesystem features")) else {
            continue;
        };
        let listed: Vec<_> = line.split_whitespace().skip(2).collect();
        assert_eq!(listed, names);
    }
}

#[test]
fn the_journal_backup_is_the_journal_inode() {
    let image = Image::make("journal-backup", "-t ext4", "64m");
    let mut sb = image.superblock();
    let journal = crate::Inode::read(&image.geometry(), image.inode_bytes(InodeNo(8))).unwrap();
    let backup = sb.journal_backup().unwrap();
    assert_eq!(backup, (journal.block, journal.size));
    sb.jnl_blocks = [0.into(); 17];
    sb.set_journal_backup(&backup.0, backup.1);
    assert_eq!(sb.bytes(), image.superblock().bytes());
}

#[test]
fn impossible_numbers_are_refused() {
    let image = Image::make("impossible-numbers", "-t ext4 -b 1024", "16m");
    let good = image.superblock();
    let size = image.bytes.len() as u64;
    let changes: &[fn(&mut Superblock)] = &[
        |sb| sb.magic.set(1),
        |sb| sb.rev_level.set(2),
        |sb| sb.log_block_size.set(7),
        |sb| sb.log_cluster_size.set(1),
        |sb| sb.blocks_per_group.set(0),
        |sb| sb.blocks_per_group.set(8193),
        |sb| sb.blocks_per_group.set(16384),
        |sb| sb.inodes_per_group.set(0),
        |sb| sb.inodes_per_group.set(4),
        |sb| sb.inodes_count.set(17),
        |sb| sb.inode_size.set(200),
        |sb| sb.inode_size.set(2048),
        |sb| sb.first_ino.set(10),
        |sb| sb.desc_size.set(32),
        |sb| sb.desc_size.set(2048),
        |sb| sb.first_data_block.set(0),
        |sb| sb.set_blocks_count(1),
        |sb| sb.set_blocks_count(16385),
        |sb| sb.set_blocks_count(u64::MAX),
        |sb| sb.set_reserved_blocks_count(20000),
        |sb| sb.reserved_gdt_blocks.set(257),
    ];
    good.check(size).unwrap();
    for (number, change) in changes.iter().enumerate() {
        let mut sb = good.clone();
        change(&mut sb);
        sb.check(size).expect_err(&number.to_string());
        assert!(sb.verify_checksum().is_err());
        sb.seal();
        sb.verify_checksum().unwrap();
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1100), log in 0u32..8) {
        let _ = GroupDesc::read(&bytes);
        if let Ok((mut sb, _)) = <Superblock as zerocopy::FromBytes>::read_from_prefix(&bytes) {
            sb.magic.set(crate::superblock::SUPER_MAGIC);
            sb.log_block_size.set(log);
            walk(&sb);
            sb.rev_level.set(u32::from(bytes[0] & 1));
            walk(&sb);
        }
    }

    /// Damages a few words of a plausible superblock, so that later checks are also reached.
    #[test]
    fn no_small_damage_panics(
        changes in proptest::collection::vec((0usize..256, any::<u32>()), 1..4),
    ) {
        let mut sb = plausible();
        for (word, value) in changes {
            let mut bytes = sb.bytes().to_vec();
            bytes[word * 4..][..4].copy_from_slice(&value.to_le_bytes());
            sb = <Superblock as zerocopy::FromBytes>::read_from_bytes(&bytes).unwrap();
        }
        walk(&sb);
    }
}

fn plausible() -> Superblock {
    let mut sb = Superblock::empty();
    sb.log_block_size.set(2);
    sb.log_cluster_size.set(2);
    sb.blocks_per_group.set(32768);
    sb.clusters_per_group.set(32768);
    sb.inodes_per_group.set(8192);
    sb.set_blocks_count(100_000);
    sb.inodes_count.set(4 * 8192);
    sb.first_ino.set(11);
    sb.inode_size.set(256);
    sb
}

fn walk(sb: &Superblock) {
    let _ = sb.verify_checksum();
    let Ok(geometry) = sb.check(u64::MAX) else { return };
    let last = GroupNo(geometry.group_count - 1);
    for group in [GroupNo(0), GroupNo(1), last] {
        let _ = (geometry.head_blocks(group), geometry.desc_location(group));
        let _ = (geometry.group_clusters(group), geometry.flex_group_of(group));
    }
    let _ = geometry.gdt_backups(geometry.gdt_blocks() - 1).take(3).count();
    geometry.inode_location(InodeNo(geometry.inodes_count)).unwrap();
    assert!(geometry.inode_location(InodeNo(0)).is_err());
    assert_eq!(geometry.group_of(BlockNo(geometry.blocks_count - 1)), Some(last));
}
