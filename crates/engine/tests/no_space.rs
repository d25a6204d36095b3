//! Full volumes, and changes of a frozen volume.

mod common;

use common::{Image, KINDS, VolumeTree, close};
use nextent::inodes::{FallocateMode, InodeNo, Inodes, NewNode, ROOT_INO, SetAttr};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::MemoryDevice;
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{e2fs, need, tree::walk};

/// Fills the volume by `threads` threads.
fn fill(volume: &Inodes, threads: usize) {
    let root = Cred::root();
    thread::scope(|scope| {
        for n in 0..threads {
            let (volume, root) = (&volume, &root);
            scope.spawn(move || {
                let dir = volume.mkdir(root, ROOT_INO, format!("d{n}").as_bytes(), 0o755);
                let dir = dir.map_or(ROOT_INO, |attr| attr.ino);
                for i in 0..100_000u32 {
                    let name = format!("file-{n}-{i}");
                    let made = volume.mknod(root, dir, name.as_bytes(), NewNode::Regular, 0o644);
                    let ino = match made {
                        Ok(attr) => attr.ino,
                        Err(error) if error.is_full_volume() => return,
                        Err(error) => panic!("{error}"),
                    };
                    let len = 1000 * (i as usize % 90 + 1);
                    let done = match i % 3 {
                        0 => volume.write(root, ino, 0, &vec![7; len]).map(|n| n == len),
                        1 => volume
                            .fallocate(root, ino, FallocateMode::Allocate, 5000, len as u64)
                            .map(|()| true),
                        _ => volume.write(root, ino, 1 << 21, &vec![9; len]).map(|n| n == len),
                    };
                    match done {
                        Ok(true) => {}
                        Ok(false) | Err(Error::NoSpace) if i > 10_000 => return,
                        Ok(false) | Err(Error::NoSpace | Error::NotSupported) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

#[test]
fn a_full_volume_is_valid_and_can_be_emptied() {
    for (kind, args) in [KINDS[1], KINDS[2], KINDS[7], KINDS[10]] {
        eprintln!("kind {kind}");
        let mut all = args.to_vec();
        all.extend(["-N", "800"]);
        let image = need!(Image::make(16 << 20, &all));
        let volume = image.open();
        let before = volume.statfs().unwrap();
        fill(&volume, 4);
        let full = volume.statfs().unwrap();
        assert!(full.files_free < 40 || full.blocks_available < 200, "{full:?}");
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
        let volume = image.open();
        let root = Cred::root();
        let mut names = Vec::new();
        let tree = walk(&VolumeTree(&volume)).unwrap();
        for entry in tree.entries.iter().rev() {
            if entry.path != b"/" {
                names.push(entry.path.clone());
            }
        }
        for path in names {
            let (dir, name) = volume.resolve_parent(&root, &path).unwrap();
            match volume.unlink(&root, dir, name) {
                Err(Error::IsDir) => volume.rmdir(&root, dir, name).unwrap(),
                done => done.unwrap(),
            }
        }
        volume.sync().unwrap();
        let after = volume.statfs().unwrap();
        assert_eq!((after.files_free, after.blocks_free), (before.files_free, before.blocks_free));
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}

/// Allocates all free blocks.
fn allocate_all(volume: &Inodes) -> InodeNo {
    let root = Cred::root();
    let made = volume.mknod(&root, ROOT_INO, b"all", NewNode::Regular, 0o644).unwrap();
    let (mut at, mut piece) = (0, 1 << 22);
    while piece >= 1024 {
        match volume.fallocate(&root, made.ino, FallocateMode::KeepSize, at, piece) {
            Ok(()) => at += piece,
            Err(Error::NoSpace) => piece /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    made.ino
}

/// An append fills the last free block, waits for a commit that frees others, and continues. It
/// does not write the first block again.
#[test]
fn an_append_continues_after_a_commit_frees_blocks() {
    let image = need!(Image::make(16 << 20, KINDS[2].1));
    let volume = image.open();
    let root = Cred::root();
    let make = |name: &[u8]| volume.mknod(&root, ROOT_INO, name, NewNode::Regular, 0o644);
    let (file, other) = (make(b"file").unwrap(), make(b"other").unwrap());
    volume.append(&root, file.ino, &[1; 100]).unwrap();
    volume.write(&root, other.ino, 0, &[2; 400 << 10]).unwrap();
    let all = allocate_all(&volume);
    volume.sync().unwrap();
    // The freed blocks count as free, but until the next commit only the reserve is allocatable.
    volume.unlink(&root, ROOT_INO, b"other").unwrap();
    volume.fallocate(&root, all, FallocateMode::KeepSize, 1 << 30, 300 << 10).unwrap();
    assert_eq!(volume.append(&root, file.ino, &[3; 60_000]).unwrap(), 100);
    let mut bytes = vec![0; 70_000];
    let n = volume.read(file.ino, 0, &mut bytes).unwrap();
    assert_eq!(n, 60_100);
    assert!(bytes[..100].iter().all(|b| *b == 1) && bytes[100..n].iter().all(|b| *b == 3));
    close(&volume);
    e2fs::assert_clean(&image.path());
}

#[test]
fn changes_of_a_frozen_volume_wait() {
    let image = need!(Image::make(32 << 20, KINDS[0].1));
    let volume = image.open();
    let root = Cred::root();
    let file = volume.mknod(&root, ROOT_INO, b"file", NewNode::Regular, 0o644).unwrap();
    volume.freeze().unwrap();
    thread::scope(|scope| {
        let change = scope.spawn(|| {
            let set = SetAttr { size: Some(5), ..SetAttr::default() };
            volume.setattr(&root, file.ino, &set).unwrap()
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!change.is_finished());
        let copy = MemoryDevice::load(&image.path()).unwrap();
        let read_only = OpenOptions::new().read_only(true);
        let frozen = Inodes::open(Arc::new(copy), &read_only).unwrap();
        assert_eq!(frozen.resolve(&root, b"/file", true).unwrap().size, 0);
        assert_eq!(volume.getattr(file.ino).unwrap().size, 0);
        volume.thaw().unwrap();
        assert_eq!(change.join().unwrap().size, 5);
    });
    assert!(matches!(volume.thaw(), Err(Error::Invalid)));
    close(&volume);
}
