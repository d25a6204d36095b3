use proptest::prelude::*;

use super::*;
use crate::acl::{Acl, AclEntry, Tag};
use crate::testing::{Image, small_geometry};
use crate::{Inode, inode};

fn fill(tree: &std::path::Path) {
    std::fs::write(tree.join("file"), "x").unwrap();
}

#[test]
fn attributes_set_by_debugfs_read_and_verify() {
    let args = "-t ext4 -b 4096 -d %/tree";
    let mut image = Image::make_from("attributes", args, "16m", fill);
    let large = vec![b'v'; 1500];
    let value = image.file_with(&large);
    image.debugfs_write(&[
        "ea_set file user.short some",
        &format!("ea_set -f {value} file user.large"),
        "ea_set file trusted.other 12345",
        "ea_set file security.long-name-of-an-attribute-here 1234567",
        "ea_set file user.in-the-block-too and-more-bytes-than-fit-an-inode-now",
    ]);
    let geometry = image.geometry();
    let ino = image.inode_called("file");
    let bytes = image.inode_bytes(ino);
    inode::verify(&geometry, ino, bytes).unwrap();
    let inode = Inode::read(&geometry, bytes).unwrap();
    let area = &bytes[inode.xattr_area(&geometry).unwrap()];
    let inside: Vec<_> = in_inode(&geometry, area).unwrap().collect();
    let block = image.block(inode.file_acl);
    verify(geometry.csum_seed, inode.file_acl, block).unwrap();
    let (header, outside) = in_block(&geometry, block).unwrap();
    assert_eq!(header.refcount, 1);
    let found = outside.find(index::USER, b"large").unwrap();
    assert_eq!(found.value, Value::Bytes(&large));
    let outside: Vec<_> = outside.collect();
    assert_eq!(inside.len() + outside.len(), 5);
    for entry in &outside {
        let Value::Bytes(value) = entry.value else { panic!("a value elsewhere") };
        assert_eq!(entry.hash, entry_hash(entry.name, value));
    }
    // e2fsprogs stores no hash of the block.
    assert_eq!(header.hash, 0);
    let hash = block_hash(outside.iter().map(|entry| entry.hash));
    // Our encoding of the same attributes gives the same block, except for the order of values.
    let mut ours = vec![0xee; block.len()];
    assert_eq!(write_block(&mut ours, &outside), Some(hash));
    seal(geometry.csum_seed, inode.file_acl, &mut ours);
    assert_eq!(in_block(&geometry, &ours).unwrap().1.collect::<Vec<_>>(), outside);
    verify(geometry.csum_seed, inode.file_acl, &ours).unwrap();
}

#[test]
fn attributes_set_by_the_kernel_read_and_verify() {
    let work = |root: &std::path::Path| {
        let file = root.join("file");
        std::fs::write(&file, "x").unwrap();
        let set = |program: &str, args: &[&str]| {
            let _ = std::process::Command::new(program).args(args).arg(&file).status();
        };
        set("setfattr", &["-n", "user.caf\u{e9}", "-v", "value"]);
        set("setfattr", &["-n", "user.empty"]);
        set("setfattr", &["-n", "trusted.large", "-v", &"0123456".repeat(200)]);
        set("setfattr", &["-n", "user.b", "-v", &"x".repeat(99)]);
        set("setfacl", &["-m", "u:1000:rw,g:70000:r"]);
        std::fs::File::open(root).unwrap().sync_all().unwrap();
        set("sync", &["-f"]);
    };
    let mut image = Image::interrupted("kernel-attributes", "-t ext4 -b 4096", "16m", work);
    image.reload();
    let geometry = image.geometry();
    let bytes = image.inode_bytes(image.inode_called("file"));
    let inode = Inode::read(&geometry, bytes).unwrap();
    let area = &bytes[inode.xattr_area(&geometry).unwrap()];
    let inside: Vec<_> = in_inode(&geometry, area).unwrap().collect();
    assert!(inside.iter().all(|entry| entry.hash == 0));
    let mut ours = vec![0; area.len()];
    assert!(write_inode(&mut ours, &inside));
    let block = image.block(inode.file_acl);
    verify(geometry.csum_seed, inode.file_acl, block).unwrap();
    let (header, outside) = in_block(&geometry, block).unwrap();
    let outside: Vec<_> = outside.collect();
    let mut ours = vec![0; block.len()];
    assert_eq!(write_block(&mut ours, &outside), Some(header.hash));
    let read: Vec<_> = in_block(&geometry, &ours).unwrap().1.collect();
    assert_eq!(read, outside, "order and hashes are the kernel's");
    let all = || inside.iter().chain(&outside);
    assert_eq!(all().count(), 5);
    let acl = all().find(|entry| entry.index == index::POSIX_ACL_ACCESS).unwrap();
    let Value::Bytes(acl) = acl.value else { panic!("a value elsewhere") };
    let acl = Acl::from_disk(acl).unwrap();
    assert!(acl.is_valid());
    assert_eq!(acl.perm_of(Tag::User(1000)), Some(6));
    assert_eq!(acl.mode_bits(), inode.mode & 0o777);
}

#[test]
fn an_acl_converted_by_e2fsprogs_reads() {
    let mut image = Image::make_from("acl", "-t ext4 -d %/tree", "16m", fill);
    let entry = |tag, perm| AclEntry { tag, perm };
    let entries = [
        (Tag::UserObj, 6),
        (Tag::User(1000), 4),
        (Tag::GroupObj, 4),
        (Tag::Mask, 4),
        (Tag::Other, 0),
    ];
    let acl = Acl { entries: entries.map(|(tag, perm)| entry(tag, perm)).to_vec() };
    let value = image.file_with(&acl.to_xattr());
    image.debugfs_write(&[&format!("ea_set -f {value} file system.posix_acl_access")]);
    let geometry = image.geometry();
    let bytes = image.inode_bytes(image.inode_called("file"));
    let inode = Inode::read(&geometry, bytes).unwrap();
    let area = &bytes[inode.xattr_area(&geometry).unwrap()];
    let list = in_inode(&geometry, area).unwrap();
    let Value::Bytes(stored) = list.find(index::POSIX_ACL_ACCESS, b"").unwrap().value else {
        panic!("a value elsewhere");
    };
    assert_eq!(Acl::from_disk(stored).unwrap(), acl);
    assert_eq!(acl.to_disk(), stored);
}

#[test]
fn names_split_and_join() {
    for name in ["user.a", "trusted.x.y", "security.selinux", "system.posix_acl_default"] {
        let (number, rest) = split_name(name.as_bytes()).unwrap();
        assert_eq!(full_name(number, rest).unwrap(), name.as_bytes());
    }
    assert_eq!(split_name(b"system.data"), Some((index::SYSTEM, &b"data"[..])));
    for name in ["user.", "user", "", "other.x", "system."] {
        assert_eq!(split_name(name.as_bytes()), None, "{name}");
    }
    assert_eq!(full_name(index::ENCRYPTION, b"c"), None);
}

#[test]
fn damage_is_named() {
    let geometry = small_geometry();
    let entry = |name, value| XattrEntry { index: 1, name, value: Value::Bytes(value), hash: 0 };
    let entries = [entry(b"one", b"first"), entry(b"second", b"2")];
    let mut good = vec![0; 4096];
    write_block(&mut good, &entries).unwrap();
    let damages: [(usize, &[u8]); 7] = [
        (0, &[1]),      // magic
        (4, &[0]),      // references
        (8, &[2]),      // blocks
        (32, &[255]),   // name reaches into the values, over zeros
        (34, &[50, 0]), // value inside the entries
        (36, &[9]),     // value in an inode, without the feature
        (41, &[255]),   // value past the end
    ];
    in_block(&geometry, &good).unwrap();
    for (at, new) in damages {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        assert!(in_block(&geometry, &bytes).is_err(), "byte {at}");
    }
    assert!(in_block(&geometry, &good[..40]).is_err());
    assert!(in_block(&geometry, &[0; 8]).is_err());
}

fn names() -> impl Strategy<Value = Vec<(u8, Vec<u8>, Vec<u8>)>> {
    let one = (
        1u8..8,
        proptest::collection::vec(1u8.., 1..30),
        proptest::collection::vec(any::<u8>(), 0..60),
    );
    proptest::collection::vec(one, 0..8)
}

proptest! {
    #[test]
    fn lists_round_trip(list in names(), len in 60usize..400) {
        let geometry = small_geometry();
        let entries: Vec<_> = list
            .iter()
            .map(|(index, name, value)| {
                let value = Value::Bytes(value);
                XattrEntry { index: *index, name, value, hash: 0 }
            })
            .collect();
        let mut area = vec![0xee; len];
        if write_inode(&mut area, &entries) {
            let read: Vec<_> = in_inode(&geometry, &area).unwrap().collect();
            prop_assert_eq!(&read, &entries);
        } else {
            prop_assert!(space_for(entries.iter().copied()) + INODE_HEADER > len);
        }
        let mut block = vec![0xee; 1024];
        if write_block(&mut block, &entries).is_some() {
            let (_, read) = in_block(&geometry, &block).unwrap();
            let mut read: Vec<_> = read.map(|entry| XattrEntry { hash: 0, ..entry }).collect();
            prop_assert!(read.is_sorted_by_key(|entry| (entry.index, entry.name.len())));
            for entry in &entries {
                let at = read.iter().position(|other| other == entry);
                read.remove(at.expect("each entry is there"));
            }
            prop_assert!(read.is_empty());
        }
    }

    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), inside: bool) {
        let mut geometry = small_geometry();
        geometry.features.set(Incompat::EA_INODE, bytes.len() % 2 == 0);
        if bytes.len() > 44 {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
            let at = if inside { 4 } else { 32 };
            // A short name and value, so that the parser gets further.
            bytes[at] &= 15;
            bytes[at + 4..at + 12].fill(0);
            bytes[at + 8] = 4;
            bytes[at + 3] = 0;
        }
        if let Ok(list) = in_inode(&geometry, &bytes) {
            let _ = (list.find(1, b"x"), list.count());
        }
        if let Ok((_, list)) = in_block(&geometry, &bytes) {
            let _ = (list.find(1, b"x"), list.count());
        }
        let _ = verify(1, BlockNo(1), &bytes);
        let _ = renumber_in_inode(&geometry, &mut bytes, InodeNo(5), InodeNo(6));
        let _ = renumber_in_block(&geometry, &mut bytes, InodeNo(5), InodeNo(6));
        set_refcount(&mut bytes, 7);
        seal(1, BlockNo(1), &mut bytes);
    }
}

#[test]
fn hashes_over_signed_name_bytes_differ_only_for_non_ascii() {
    for name in [&b"plain"[..], "gr\u{f6}\u{df}e".as_bytes(), &[0x80, 0x7f, 0xff, 0xc3]] {
        let signed = |byte: u8| i32::from(byte.cast_signed()).cast_unsigned();
        let start = name.iter().fold(0u32, |hash, &byte| hash.rotate_left(5) ^ signed(byte));
        let fold = |hash: u32, word: u32| hash.rotate_left(16) ^ word;
        assert_eq!(signed_foreign_entry_hash(name, 77), fold(start, 77));
        for len in 0..10 {
            let value = vec![3; len];
            let words = value.chunks(4).map(|chunk| {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                u32::from_le_bytes(word)
            });
            assert_eq!(signed_entry_hash(name, &value), words.fold(start, fold), "{len}");
        }
        let alike = signed_entry_hash(name, b"v") == entry_hash(name, b"v");
        assert_eq!(alike, name.is_ascii());
    }
}

#[test]
fn inodes_of_values_get_another_number() {
    let mut geometry = small_geometry();
    geometry.features.set(Incompat::EA_INODE, true);
    let entry = |name, value, hash| XattrEntry { index: 1, name, value, hash };
    let stored = |from: u32| {
        [
            entry(&b"first"[..], Value::Inode(InodeNo(from), 5000), 77),
            entry(b"other", Value::Inode(InodeNo(12), 6000), 78),
            entry(b"same!", Value::Inode(InodeNo(from), 5000), 79),
            entry(b"within", Value::Bytes(&[11, 0, 0, 0]), 0),
        ]
    };
    let (from, to) = (InodeNo(11), InodeNo(13));
    let mut area = vec![0; 200];
    assert!(write_inode(&mut area, &stored(11)));
    assert_eq!(renumber_in_inode(&geometry, &mut area, from, to).unwrap(), 2);
    let read: Vec<_> = in_inode(&geometry, &area).unwrap().collect();
    assert_eq!(read, stored(13));
    let (mut block, mut expected) = (vec![0; 1024], vec![0; 1024]);
    write_block(&mut block, &stored(11)).unwrap();
    assert_eq!(renumber_in_block(&geometry, &mut block, from, to).unwrap(), 2);
    write_block(&mut expected, &stored(13)).unwrap();
    assert_eq!(block, expected);
    let mut none = [0; 3];
    assert_eq!(renumber_in_inode(&geometry, &mut none, from, to).unwrap(), 0);
    assert!(renumber_in_block(&geometry, &mut none, from, to).is_err());
}
