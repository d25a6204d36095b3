//! A damaged size of a file.

use crate::common::{self, Image, close};
use nextent::inodes::{FallocateMode, NewNode, ROOT_INO, SeekKind, SetAttr, Wait};
use nextent::{Cred, Error};
use nextent_testkit::{e2fs, need};

/// With a damaged size, larger than any map can have, no call changes the blocks at the start.
#[test]
fn a_damaged_size_does_not_wrap() {
    let block = 4096;
    let start: Vec<u8> = (0..4 * block).map(|n| (n % 251 + 1) as u8).collect();
    let root = Cred::root();
    for variant in crate::variants() {
        eprintln!("variant {}", variant.name);
        let image = need!(Image::make(32 << 20, &["-t", "ext4", "-b", "4096"]));
        let volume = image.open();
        let ino = volume.mknod(&root, ROOT_INO, b"file", NewNode::Regular, 0o644).unwrap().ino;
        volume.write(&root, ino, 0, &start).unwrap();
        close(&volume);
        drop(volume);
        let size = (1_u64 << 50) + 100;
        need!(e2fs::debugfs(&image.path(), true, &[&format!("sif /file size {size}")]));
        let volume = common::open(&image.path(), &variant.options);
        let volume = volume.unwrap();
        assert_eq!(volume.getattr(ino).unwrap().size, size);
        for beyond in [block << 32, (block << 32) + block, (block << 33) + 2 * block] {
            let data = [9; 4096];
            // The call fails, or changes other blocks than those at the start.
            let _ = volume.write(&root, ino, beyond, &data);
            let _ = volume.write(&root, ino, beyond + 5, &data[..7]);
            for wait in [Wait::Never, Wait::Allowed] {
                let _ = volume.write_direct(&root, ino, beyond, &data, wait);
                let mut back = [9; 4096];
                if volume.read_direct(ino, beyond, &mut back, wait).is_ok() {
                    assert_eq!(back, [0; 4096], "{beyond:#x}");
                }
            }
            let mut back = [9; 4096];
            assert_eq!(volume.read(ino, beyond, &mut back).unwrap(), back.len());
            assert_eq!(back, [0; 4096], "{beyond:#x}");
            assert!(matches!(volume.seek(ino, beyond, SeekKind::Data), Err(Error::NoData)));
            assert_eq!(volume.seek(ino, beyond, SeekKind::Hole).unwrap(), beyond);
            let punch = FallocateMode::PunchHole;
            assert!(volume.fallocate(&root, ino, punch, beyond, 2 * block).is_err());
        }
        // A truncation would zero the rest of the last block, but there is no such block.
        let shorter = SetAttr { size: Some(3 * block), ..SetAttr::default() };
        volume.setattr(&root, ino, &shorter).unwrap();
        let mut back = vec![0; start.len()];
        assert_eq!(volume.read(ino, 0, &mut back).unwrap() as u64, 3 * block);
        assert_eq!(back[..3 * block as usize], start[..3 * block as usize]);
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}
