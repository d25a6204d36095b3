//! Blocks that a fast commit names belong to its file until the whole transaction is durable, even
//! if the file loses them meanwhile. Until then no other file may get them, and trim must not
//! discard them.

mod common;

use common::{Image, VolumeFs, assert_durable, close, create_two_files, open_without_timer};
use nextent::inodes::{FallocateMode, Inodes};
use nextent::{Cred, OpenOptions};
use nextent_device::MemoryDevice;
use nextent_sync::Arc;
use nextent_testkit::{PosixFs, RenameFlags, XattrFlags, e2fs, need};

const SMALL: &[&str] = &["-t", "ext4", "-O", "fast_commit", "-J", "size=8"];
const KIB1: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=4"];
/// Size of the durable file.
const LEN: usize = 6 << 20;

/// A name, and an operation by which `/a` loses blocks.
type BlockLoss = (&'static str, fn(&VolumeFs<'_>));

const LOSSES: [BlockLoss; 6] = [
    ("truncate", |fs| fs.truncate("/a", 0).unwrap()),
    ("unlink", |fs| fs.unlink("/a").unwrap()),
    ("replace", |fs| {
        fs.create("/c", 0o644).unwrap();
        fs.rename("/c", "/a", RenameFlags::Replace).unwrap();
    }),
    ("punch", |fs| fs.punch("/a", 0, LEN as u64 - 4096).unwrap()),
    ("collapse", |fs| fs.collapse("/a", 0, LEN as u64 - 4096).unwrap()),
    ("by pieces", |fs| {
        (0..6).rev().for_each(|part| fs.truncate("/a", part << 20).unwrap());
    }),
];

/// After each kind of loss, another file is written that needs more than the other free blocks. It
/// is written completely, and gets none of the blocks before the commit.
#[test]
fn another_file_does_not_get_them() {
    for (what, lose) in LOSSES {
        for args in [SMALL, KIB1] {
            let image = need!(Image::make(24 << 20, args));
            let (device, volume) = create_two_files(&image, &OpenOptions::new());
            let fs = VolumeFs(&volume);
            fs.write("/a", 0, &vec![b'A'; LEN]).unwrap();
            fs.fsync("/a").unwrap();
            lose(&fs);
            fs.write("/b", 0, &vec![b'B'; 3 << 20]).unwrap();
            assert_durable(what, &device, LEN);
            close(&volume);
            device.save(&image.path()).unwrap();
            e2fs::assert_clean(&image.path());
        }
    }
}

/// A file is synced, truncated to 0, written and synced again. Its window has none of the blocks of
/// the first fsync.
#[test]
fn the_file_itself_does_not_get_them() {
    let image = need!(Image::make(24 << 20, SMALL));
    let (device, volume) = create_two_files(&image, &OpenOptions::new());
    let fs = VolumeFs(&volume);
    let ino = volume.resolve(&Cred::root(), b"/a", false).unwrap().ino;
    volume.open_file(&Cred::root(), ino, nextent::inodes::Access::READ_WRITE).unwrap();
    for _ in 0..64 {
        volume.append(&Cred::root(), ino, &[b'A'; 4096]).unwrap();
    }
    fs.fsync("/a").unwrap();
    fs.truncate("/a", 0).unwrap();
    volume.append(&Cred::root(), ino, &[b'B'; 100_000]).unwrap();
    assert_durable("written again", &device, 64 * 4096);
    volume.release(ino).unwrap();
    close(&volume);
}

/// The device reads discarded blocks as zeros.
#[test]
fn trim_does_not_discard_them() {
    let image = need!(Image::make(24 << 20, SMALL));
    let (device, volume) = create_two_files(&image, &OpenOptions::new());
    let fs = VolumeFs(&volume);
    fs.write("/a", 0, &vec![b'A'; LEN]).unwrap();
    fs.fsync("/a").unwrap();
    fs.unlink("/a").unwrap();
    let before = volume.trim(0..u64::MAX, 1).unwrap();
    assert_durable("trim", &device, LEN);
    // Trim discards them after the removal is durable.
    volume.sync().unwrap();
    let after = volume.trim(0..u64::MAX, 1).unwrap();
    assert!(after >= before + LEN as u64, "{before} bytes, then {after}");
    close(&volume);
}

/// Fast commits continue after blocks were freed, and recovery restores all of them.
#[test]
fn fast_commits_continue_after_frees() {
    let image = need!(Image::make(24 << 20, SMALL));
    let (device, volume) = create_two_files(&image, &OpenOptions::new());
    let fs = VolumeFs(&volume);
    fs.write("/a", 0, &vec![b'A'; 1 << 20]).unwrap();
    fs.fsync("/a").unwrap();
    fs.truncate("/a", 0).unwrap();
    fs.write("/b", 0, &vec![b'B'; 1 << 20]).unwrap();
    fs.fsync("/b").unwrap();
    let cut = Arc::new(device.snapshot());
    let recovered = open_without_timer(&cut, &OpenOptions::new());
    assert!(recovered.recovery().fast_commits > 2, "{:?}", recovered.recovery());
    let b = VolumeFs(&recovered).read("/b", 0, 2 << 20).unwrap();
    assert!(b.len() == 1 << 20 && b.iter().all(|byte| *byte == b'B'));
    close(&recovered);
    drop(recovered);
    assert_durable("beside", &device, 1 << 20);
    close(&volume);
    device.save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// Free blocks in the cases with some free blocks.
const SOME_BLOCKS: u64 = 300;

/// A volume with `left` free blocks, and 4 MiB that the allocator withholds until a commit.
fn volume_with_withheld_blocks(image: &Image, left: u64) -> (Arc<MemoryDevice>, Inodes) {
    let (device, volume) = create_two_files(image, &OpenOptions::new());
    let fs = VolumeFs(&volume);
    fs.mkdir("/dir", 0o755).unwrap();
    let free = volume.statfs().unwrap().blocks_free;
    fs.create("/rest", 0o644).unwrap();
    assert_eq!(fs.allocate("/rest", 0, free << 10, true), Err(libc::ENOSPC));
    let all = volume.resolve(&Cred::root(), b"/rest", false).unwrap().sectors / 2;
    fs.unlink("/rest").unwrap();
    volume.sync().unwrap();
    fs.create("/rest", 0o644).unwrap();
    // A few blocks less, because the map may have other nodes than before.
    fs.allocate("/rest", 0, (all - left - (4 << 10) - 8) << 10, true).unwrap();
    volume.sync().unwrap();
    fs.write("/a", 0, &vec![b'A'; 4 << 20]).unwrap();
    fs.fsync("/a").unwrap();
    if left == 0 {
        fs.create("/last", 0o644).unwrap();
        assert_eq!(fs.allocate("/last", 0, 64 << 10, true), Err(libc::ENOSPC));
        assert_eq!(fs.mkdir("/dir/no", 0o755), Err(libc::ENOSPC));
    }
    fs.truncate("/a", 0).unwrap();
    (device, volume)
}

type Allocation = (&'static str, fn(&Inodes, &VolumeFs<'_>));

/// Operations that allocate. Each must wait for a commit that frees blocks.
const ALLOCATIONS: [Allocation; 9] = [
    ("write", |_, fs| fs.write("/b", 0, &vec![b'B'; 3 << 20]).unwrap()),
    ("append", |volume, _| {
        let ino = volume.resolve(&Cred::root(), b"/b", false).unwrap().ino;
        assert_eq!(volume.append(&Cred::root(), ino, &vec![b'B'; 3 << 20]).unwrap(), 0);
    }),
    ("direct write", |volume, _| {
        let ino = volume.resolve(&Cred::root(), b"/b", false).unwrap().ino;
        let data = vec![b'B'; 3 << 20];
        let wait = nextent::inodes::Wait::Allowed;
        let done = volume.write_direct(&Cred::root(), ino, 0, &data, wait).unwrap();
        assert_eq!(done, data.len());
    }),
    ("fallocate", |_, fs| fs.allocate("/b", 0, 3 << 20, false).unwrap()),
    ("zero range", |_, fs| fs.zero("/b", 0, 3 << 20, false).unwrap()),
    ("mkdir", |_, fs| (0..40).for_each(|n| fs.mkdir(&format!("/dir/{n}"), 0o755).unwrap())),
    ("symlink", |_, fs| {
        let target = "t".repeat(900);
        (0..40).for_each(|n| fs.symlink(&target, &format!("/dir/{n}")).unwrap());
    }),
    ("xattr", |_, fs| {
        (0..40).for_each(|n| {
            fs.create(&format!("/dir/{n}"), 0o644).unwrap();
            let value = vec![n; 500];
            fs.set_xattr(&format!("/dir/{n}"), "user.x", &value, XattrFlags::Any).unwrap();
        });
    }),
    ("extents", |volume, _| {
        let ino = volume.resolve(&Cred::root(), b"/b", false).unwrap().ino;
        for n in 0..2000 {
            let mode = FallocateMode::Allocate;
            volume.fallocate(&Cred::root(), ino, mode, n * 2048, 1024).unwrap();
        }
    }),
];

#[test]
fn an_allocation_waits_for_the_commit() {
    for (left, (what, take)) in
        ALLOCATIONS.into_iter().flat_map(|take| [(0, take), (SOME_BLOCKS, take)])
    {
        let image = need!(Image::make(24 << 20, KIB1));
        let (device, volume) = volume_with_withheld_blocks(&image, left);
        eprintln!("{what}, {left} blocks left");
        take(&volume, &VolumeFs(&volume));
        close(&volume);
        device.save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());
    }
}
