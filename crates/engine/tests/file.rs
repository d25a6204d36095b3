//! Open files: access modes, growth and close.

mod common;

use common::{Image, KINDS, close};
use nextent::inodes::{Access, FallocateMode, Inodes, ROOT_INO, SeekKind, SetAttr, Wait};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::MemoryDevice;
use nextent_sync::{Arc, Duration};
use nextent_testkit::{e2fs, need};

const STEP: u64 = 8192;

/// Grows a file by small steps beyond every window, with and without a change of its size, and with
/// truncations.
#[test]
fn grows_in_steps_on_every_kind() {
    for (kind, args) in KINDS.iter().filter(|(kind, _)| kind.starts_with("ext4")) {
        eprintln!("kind {kind}");
        let image = need!(Image::make(64 << 20, args));
        let root = Cred::root();
        let volume = image.open();
        let ino = volume.create(&root, ROOT_INO, b"file", 0o644).unwrap().ino;
        volume.release(ino).unwrap();
        let file = volume.file(&root, ino, Access::READ_WRITE).unwrap();
        for round in 0..3 {
            for step in 0..300 {
                let mode = match step % 7 {
                    6 => FallocateMode::KeepSize,
                    _ => FallocateMode::Allocate,
                };
                file.fallocate(mode, step * STEP, STEP).unwrap();
            }
            let attr = file.attr();
            let meta = attr.sectors * 512 - 300 * STEP;
            assert_eq!((attr.size, meta), (300 * STEP, 0), "round {round}");
            if round < 2 {
                file.set_len(0).unwrap();
                assert_eq!((file.attr().size, file.attr().sectors), (0, 0));
            }
        }
        assert!(volume.fiemap(ino, 0, u64::MAX, 100).unwrap().len() <= 4);
        assert_eq!(volume.seek(ino, 0, SeekKind::Hole).unwrap(), 0);
        let mut bytes = vec![1; 3 * STEP as usize];
        assert_eq!(file.read(7 * STEP, &mut bytes).unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 0));
        drop(file);
        close(&volume);
        drop(volume);
        e2fs::assert_clean(&image.path());
    }
}

/// A truncation of an open file to 0 keeps its window; its last close releases it.
#[test]
fn a_rewritten_file_uses_its_window() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4"]));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let root = Cred::root();
    let ino = volume.create(&root, ROOT_INO, b"file", 0o644).unwrap().ino;
    let file = volume.file(&root, ino, Access::READ_WRITE).unwrap();
    let grow = || {
        (0..30).for_each(|n| file.fallocate(FallocateMode::Allocate, n * STEP, STEP).unwrap());
        let all = volume.fiemap(ino, 0, u64::MAX, 100).unwrap();
        (all[0].physical, all.last().map(|last| last.physical + last.len).unwrap(), all.len())
    };
    let mut last = grow();
    // Blocks that no past transaction has are reusable at once.
    for _ in 0..3 {
        file.set_len(0).unwrap();
        let next = grow();
        assert!(next.2 == 1 && (last.0..last.1).contains(&next.0), "{next:?} after {last:?}");
        last = next;
    }
    // Other files' blocks are behind the window.
    volume.sync().unwrap();
    file.set_len(0).unwrap();
    assert_eq!(grow(), (last.1, last.1 + 30 * STEP, 1));
    // A truncation to more than 0 releases the window, and so does the last close.
    file.set_len(STEP).unwrap();
    assert!(grow().2 <= 2);
    file.set_len(0).unwrap();
    drop(file);
    volume.release(ino).unwrap();
    volume.sync().unwrap();
    let file = volume.file(&root, ino, Access::READ_WRITE).unwrap();
    file.fallocate(FallocateMode::Allocate, 0, STEP).unwrap();
    assert!(volume.fiemap(ino, 0, u64::MAX, 100).unwrap()[0].physical < last.1);
    drop(file);
    close(&volume);
    drop(volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

#[test]
fn an_open_file_enforces_its_mode_and_frees_an_unlinked_inode() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-O", "orphan_file"]));
    let root = Cred::root();
    let volume = image.open();
    let free = volume.statfs().unwrap().blocks_free;
    let ino = volume.create(&root, ROOT_INO, b"file", 0o600).unwrap().ino;
    volume.release(ino).unwrap();
    let stranger = Cred::user(7, 7, Vec::new(), 0);
    assert!(matches!(volume.file(&stranger, ino, Access::READ), Err(Error::Access)));
    assert!(matches!(volume.file(&root, ROOT_INO, Access::READ), Err(Error::IsDir)));
    {
        let reader = volume.file(&root, ino, Access::READ).unwrap();
        assert!(matches!(reader.write(0, b"x"), Err(Error::Access)));
        assert!(matches!(reader.set_len(0), Err(Error::Access)));
        let writer = volume.file(&root, ino, Access::WRITE).unwrap();
        assert!(matches!(writer.read(0, &mut [0]), Err(Error::Access)));
        writer.write(0, &[5; 100_000]).unwrap();
        assert_eq!(writer.append(b"end").unwrap(), 100_000);
        writer.sync().unwrap();
        volume.unlink(&root, ROOT_INO, b"file").unwrap();
        let mut end = [0; 4];
        assert_eq!(reader.read(99_999, &mut end).unwrap(), 4);
        assert_eq!(&end, b"\x05end");
    }
    assert!(matches!(volume.getattr(ino), Err(Error::NotFound)));
    volume.sync().unwrap();
    assert_eq!(volume.statfs().unwrap().blocks_free, free);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}

/// No program changes the contents of a file with fs-verity, whose hashes lie behind its end. Its
/// attributes and names change as those of other files.
#[test]
fn contents_of_verity_files_are_fixed() {
    let image = need!(Image::make(64 << 20, &["-t", "ext4", "-b", "4096", "-O", "verity"]));
    let root = Cred::root();
    let volume = image.open();
    let ino = volume.create(&root, ROOT_INO, b"file", 0o644).unwrap().ino;
    let file = volume.file(&root, ino, Access::READ_WRITE).unwrap();
    file.write(0, b"contents").unwrap();
    file.fallocate(FallocateMode::KeepSize, 65536, 8192).unwrap();
    drop(file);
    volume.release(ino).unwrap();
    close(&volume);
    drop(volume);
    // Extents and fs-verity.
    need!(e2fs::debugfs(&image.path(), true, &["set_inode_field /file flags 0x180000"]));
    e2fs::assert_clean(&image.path());

    let volume = image.open();
    let refused = |done: nextent::Result<()>| assert!(matches!(done, Err(Error::Perm)), "{done:?}");
    refused(volume.open_file(&root, ino, Access::WRITE));
    refused(volume.write(&root, ino, 0, b"other").map(drop));
    refused(volume.append(&root, ino, b"other").map(drop));
    refused(volume.write_direct(&root, ino, 0, &[1; 4096], Wait::Allowed).map(drop));
    refused(volume.fallocate(&root, ino, FallocateMode::PunchHole, 0, 4096).map(drop));
    refused(volume.fallocate(&root, ino, FallocateMode::Allocate, 0, 1 << 20).map(drop));
    let shorter = SetAttr { size: Some(0), ..SetAttr::default() };
    refused(volume.setattr(&root, ino, &shorter).map(drop));
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    volume.setattr(&root, ino, &mode).unwrap();
    let file = volume.file(&root, ino, Access::READ).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(file.read(0, &mut bytes).unwrap(), 8);
    assert_eq!(bytes[..8], *b"contents");
    drop(file);
    volume.link(&root, ino, ROOT_INO, b"name").unwrap();
    volume.unlink(&root, ROOT_INO, b"file").unwrap();
    assert_eq!(volume.getattr(ino).unwrap().sectors, 24);
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
    let volume = image.open();
    volume.unlink(&root, ROOT_INO, b"name").unwrap();
    close(&volume);
    drop(volume);
    e2fs::assert_clean(&image.path());
}
