use std::fs::File;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::*;
use crate::inode::{self, Inode};
use crate::testing::Image;
use crate::{GroupNo, InodeNo};

/// Writes a file with a hole after each block. It needs more extents than the root holds.
fn holes(dir: &std::path::Path) {
    let file = File::create(dir.join("holes")).unwrap();
    for block in 0..600u64 {
        file.write_at(&[(block % 255 + 1) as u8; 1024], block * 2048).unwrap();
    }
    file.set_len(3 << 30).unwrap();
}

/// Collects the extents below a node and checks every checksum and rule.
fn walk(image: &Image, seed: u32, bytes: &[u8], expected: &Expected, out: &mut Vec<Extent>) {
    let geometry = image.geometry();
    let header = check(&geometry, bytes, expected).unwrap();
    let node = Node::new(bytes).unwrap();
    if header.depth == 0 {
        out.extend(node.extents());
        return;
    }
    let entries: Vec<_> = node.indexes().collect();
    for (at, index) in entries.iter().enumerate() {
        let end = entries.get(at + 1).map_or(expected.range.end, |next| u64::from(next.block.0));
        let range = u64::from(index.block.0)..end;
        let child = image.block(index.child);
        if geometry.features.metadata_csum() {
            verify(seed, child).unwrap();
            let mut copy = child.to_vec();
            seal(seed, index.child, &mut copy);
            assert_eq!(copy, child);
            copy[20] ^= 1;
            assert!(verify(seed, &copy).is_err());
        }
        walk(image, seed, child, &Expected { depth: Some(header.depth - 1), range }, out);
    }
}

#[test]
fn trees_of_mke2fs_read_and_verify() {
    for (name, args) in [
        ("holes", "-t ext4 -b 1024 -d %/tree"),
        ("holes-without-csum", "-t ext4 -b 1024 -O ^metadata_csum -d %/tree"),
    ] {
        let image = Image::make_from(name, args, "16m", holes);
        let geometry = image.geometry();
        let ino = image.inode_called("holes");
        let inode = Inode::read(&geometry, image.inode_bytes(ino)).unwrap();
        assert_eq!(inode.size, 3 << 30);
        let seed = inode.csum_seed(&geometry, ino);
        let mut extents = Vec::new();
        walk(&image, seed, &inode.block, &Expected::ROOT, &mut extents);
        assert_eq!(extents.len(), 600);
        for (number, extent) in extents.iter().enumerate() {
            assert_eq!((extent.block.0, extent.len), (number as u32 * 2, 1));
            assert_eq!(image.block(extent.start)[0], (number % 255 + 1) as u8);
        }
        // 600 data blocks, with 84 extents a leaf.
        assert!(inode.sectors(&geometry) >= 2 * (600 + 8));
    }
}

#[test]
fn every_inode_of_an_image_verifies_and_is_written_back_unchanged() {
    for (name, args) in [
        ("inodes-256", "-t ext4 -d %/tree"),
        ("inodes-128", "-t ext4 -I 128 -d %/tree"),
        ("inodes-1024", "-t ext4 -I 1024 -d %/tree"),
    ] {
        let image = Image::make_from(name, args, "16m", holes);
        let geometry = image.geometry();
        for number in 1..=geometry.inodes_count.min(20) {
            let ino = InodeNo(number);
            let bytes = image.inode_bytes(ino);
            let inode = Inode::read(&geometry, bytes).unwrap();
            if inode.mode == 0 {
                continue;
            }
            inode::verify(&geometry, ino, bytes).expect(args);
            let mut copy = bytes.to_vec();
            copy[..BASE].fill(0x55);
            inode.write(&geometry, &mut copy);
            inode::seal(&geometry, ino, &mut copy);
            // An inode's write leaves two words of the base alone: faddr and a reserved one.
            copy[0x70..0x74].copy_from_slice(&bytes[0x70..0x74]);
            copy[0x7e..0x80].copy_from_slice(&bytes[0x7e..0x80]);
            inode::seal(&geometry, ino, &mut copy);
            assert_eq!(copy, bytes, "{args} inode {number}");
        }
        assert!(geometry.has_group(GroupNo(0)));
    }
}

const BASE: usize = inode::BASE_SIZE;

fn extent(block: u32, len: u32, start: u64, unwritten: bool) -> Extent {
    Extent { block: FileBlock(block), len, start: BlockNo(start), unwritten }
}

#[test]
fn node_changes_give_the_expected_entries() {
    let mut bytes = vec![0xaa; 1024];
    let mut node = NodeMut::init(&mut bytes, 0);
    assert_eq!(node.view().header().max, 84);
    node.insert_extent(0, extent(10, 32768, 1 << 40, false));
    node.insert_extent(0, extent(0, 5, 7, true));
    node.insert_extent(2, extent(50000, 32767, 9, true));
    assert_eq!(node.view().find(FileBlock(0)), Some(0));
    assert_eq!(node.view().find(FileBlock(49999)), Some(1));
    assert_eq!(node.view().extent(1), extent(10, 32768, 1 << 40, false));
    assert_eq!(node.view().extent(2), extent(50000, 32767, 9, true));
    let mut root = [0; 60];
    let mut root = NodeMut::init(&mut root, 0);
    assert_eq!(root.view().header().max, ROOT_ENTRIES);
    node.move_tail(1, &mut root);
    assert_eq!((node.view().len(), root.view().len()), (1, 2));
    root.remove(0, 1);
    assert_eq!(root.view().extents().next(), Some(extent(50000, 32767, 9, true)));
    assert_eq!(root.view().find(FileBlock(1)), None);
    root.set_key(0, FileBlock(3));
    assert_eq!(root.view().key(0), FileBlock(3));
}

#[test]
fn damage_is_named() {
    let image = Image::make("extent-damage", "-t ext4 -b 1024", "16m");
    let geometry = image.geometry();
    let mut bytes = [0; 60];
    let mut node = NodeMut::init(&mut bytes, 0);
    node.insert_extent(0, extent(0, 10, 100, false));
    node.insert_extent(1, extent(20, 10, 200, false));
    let good = bytes;
    check(&geometry, &good, &Expected::ROOT).unwrap();
    let damages: &[fn(&mut [u8; 60])] = &[
        |b| b[0] = 0,
        |b| b[2] = 5,
        |b| b[4] = 5,
        |b| b[4] = 0,
        |b| b[6] = 6,
        |b| NodeMut::new(b).unwrap().set_key(1, FileBlock(9)),
        |b| NodeMut::new(b).unwrap().set_key(1, FileBlock(u32::MAX - 5)),
        |b| NodeMut::new(b).unwrap().set_extent(1, extent(20, 10, 16380, false)),
        |b| NodeMut::new(b).unwrap().set_extent(1, extent(20, 10, 1, false)),
        |b| b[16..18].fill(0),
        |b| {
            b[6] = 1;
            NodeMut::new(b).unwrap().set_index(0, Index { block: FileBlock(0), child: BlockNo(0) });
        },
        |b| {
            b[2] = 0;
            b[6] = 1;
        },
    ];
    for (number, damage) in damages.iter().enumerate() {
        let mut bytes = good;
        damage(&mut bytes);
        check(&geometry, &bytes, &Expected::ROOT).expect_err(&number.to_string());
    }
    let deeper = Expected { depth: Some(1), ..Expected::ROOT };
    assert!(check(&geometry, &good, &deeper).is_err());
    let later = Expected { depth: None, range: 1..100 };
    assert!(check(&geometry, &good, &later).is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic: bool) {
        if magic && bytes.len() > 8 {
            bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[3] = 0;
            bytes[5] = 0;
            bytes[6] &= 1;
            bytes[7] = 0;
        }
        let geometry = crate::testing::small_geometry();
        let _ = check(&geometry, &bytes, &Expected::ROOT);
        let _ = verify(1, &bytes);
        seal(1, BlockNo(0), &mut bytes);
        if let Ok(node) = Node::new(&bytes) {
            let _ = node.extents().count() + node.indexes().count();
            let _ = (node.find(FileBlock(77)), node.is_full());
        }
        let _ = crate::indirect::check(&geometry, &bytes);
    }
}
