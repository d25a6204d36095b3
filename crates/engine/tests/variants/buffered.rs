//! Buffered reads and overwrites of one file by many threads, together with direct transfers and
//! truncations.

use crate::common::direct::{BLOCK, STALE, file, finish, opened, opened_with, read, stale};
use crate::common::{Image, KINDS, close};
use nextent::Cred;
use nextent::inodes::{Access, Buffer, FallocateMode, Inodes, OpenFile, ROOT_INO, SetAttr, Wait};
use nextent_device::MemoryDevice;
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::{e2fs, need};

/// Blocks that no thread removes. As many blocks follow that another thread truncates and punches.
const KEPT: u64 = 128;
/// Writers. Block n belongs to writer n % WRITERS.
const WRITERS: u64 = 6;

fn byte_of(block: u64) -> u8 {
    (block % WRITERS) as u8 + 1
}

/// A pseudo-random number below `below`.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) % below
}

/// Writes one of the writer's blocks, or a part of it. Three of the writers write directly.
fn write_one(f: &OpenFile<'_>, writer: u64, state: &mut u64, below: u64) {
    let block = random(state, below / WRITERS) * WRITERS + writer;
    let byte = byte_of(block);
    if writer.is_multiple_of(2) {
        let (from, len) = match random(state, 3) {
            0 => (0, BLOCK),
            1 => (random(state, 3000), 1 + random(state, 1000)),
            _ => (512, 1024),
        };
        let data = vec![byte; len as usize];
        assert_eq!(f.write(block * BLOCK + from, &data).unwrap(), data.len());
    } else {
        let data = vec![byte; if random(state, 2) == 0 { 4096 } else { 512 }];
        let done = f.write_direct(block * BLOCK, &data, Wait::Allowed);
        assert_eq!(done.unwrap(), data.len());
    }
}

/// Checks that every byte is its writer's or zero. In `kept` blocks no byte may be zero.
fn check_bytes(f: &OpenFile<'_>, from: u64, buf: &mut [u8], kept: bool) {
    let got = f.read(from, buf).unwrap();
    for (n, byte) in buf[..got].iter().enumerate() {
        let block = (from + n as u64) / BLOCK;
        let right = *byte == byte_of(block) || (*byte == 0 && !(kept && block < KEPT));
        assert!(right, "block {block} has {byte:#x}");
    }
}

fn remove_range(f: &OpenFile<'_>, n: u64) {
    let at = (KEPT + n * 7 % KEPT) * BLOCK;
    match n % 5 {
        0 => f.set_len(at + n % 3 * 1000).unwrap(),
        1 => f.fallocate(FallocateMode::PunchHole, at, 9 * BLOCK + 100).unwrap(),
        2 => f.fallocate(FallocateMode::Allocate, KEPT * BLOCK, KEPT * BLOCK).unwrap(),
        3 => {
            let zero = FallocateMode::ZeroRange { keep_size: false };
            f.fallocate(zero, at, 5 * BLOCK).unwrap();
        }
        _ => {
            // Moved blocks keep their writer.
            let len = WRITERS * BLOCK;
            let start = (KEPT / WRITERS + 1) * len;
            let _ = f.fallocate(FallocateMode::CollapseRange, start, len);
            let _ = f.fallocate(FallocateMode::InsertRange, start + len, len);
        }
    }
}

#[test]
fn many_threads_of_all_kinds() {
    crate::variants().iter().for_each(|variant| {
        let (image, device) = need!(stale(64 << 20, KINDS[1].1));
        let volume = opened_with(&device, variant);
        let f = file(&volume, b"file");
        f.fallocate(FallocateMode::Allocate, 0, 2 * KEPT * BLOCK).unwrap();
        // The threads convert the first half by overwrites; then all of it is written.
        for kept in [false, true] {
            if kept {
                for block in 0..KEPT {
                    f.write(block * BLOCK, &[byte_of(block); BLOCK as usize]).unwrap();
                }
            }
            run_threads(&volume, &f, kept);
        }
        let mut all = vec![0; (KEPT * BLOCK) as usize];
        check_bytes(&f, 0, &mut all, true);
        assert!(!all.contains(&STALE));
        assert_eq!(read(&f, 0..KEPT * BLOCK), all);
        drop(f);
        finish(&image, &device, volume);
    });
}

fn run_threads(volume: &Inodes, f: &OpenFile<'_>, kept: bool) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let over = &over;
            scope.spawn(move || {
                let mut state = writer;
                // Some threads only use the kept blocks.
                let below = if writer < 2 { KEPT } else { 2 * KEPT };
                while !over.load(Ordering::Relaxed) {
                    write_one(f, writer, &mut state, below);
                }
            });
        }
        for reader in 0..2 {
            let over = &over;
            scope.spawn(move || {
                let (mut state, mut buf) = (reader, vec![0; 20_000]);
                while !over.load(Ordering::Relaxed) {
                    let len = 1 + random(&mut state, 19_999) as usize;
                    let from = random(&mut state, 2 * KEPT * BLOCK);
                    check_bytes(f, from, &mut buf[..len], kept);
                }
            });
        }
        for n in 0..60 {
            remove_range(f, n);
            thread::sleep(Duration::from_micros(700));
            if n % 16 == 0 {
                f.sync().unwrap();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    volume.sync().unwrap();
}

/// Writes clear set-id bits, set times and extend the size also in files with in-flight counts.
#[test]
fn set_id_bits_times_and_size() {
    let image = need!(Image::make(32 << 20, KINDS[1].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened(&device);
    let f = file(&volume, b"file");
    f.write(0, &[1; 10_000]).unwrap();
    // Makes the file admit transfers to its counts.
    f.read_direct(0, &mut [0; 512], Wait::Allowed).unwrap();
    let mut buf = [9; 8192];
    assert_eq!(f.read(8000, &mut buf).unwrap(), 2000);
    assert_eq!((buf[1999], buf[2000]), (1, 9));
    assert_eq!(f.read(10_000, &mut buf).unwrap(), 0);
    assert_eq!(f.read(u64::MAX - 3, &mut buf).unwrap(), 0);
    let before = f.attr();
    thread::sleep(Duration::from_millis(10));
    f.write(100, b"over").unwrap();
    let after = f.attr();
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    assert_eq!(after.size, 10_000);
    let (user, root) = (Cred::user(1000, 1000, Vec::new(), 0), Cred::root());
    let set = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
    volume.setattr(&root, f.ino(), &set).unwrap();
    f.read_direct(0, &mut [0; 512], Wait::Allowed).unwrap();
    let users = volume.file(&user, f.ino(), Access::READ_WRITE).unwrap();
    users.write(5000, b"rights").unwrap();
    assert_eq!(f.attr().mode & 0o7777, 0o777);
    // Growth, and a read across an end that another thread has moved.
    f.read_direct(0, &mut [0; 512], Wait::Allowed).unwrap();
    users.write(9_990, &[2; 100]).unwrap();
    assert_eq!(f.read(9_990, &mut buf).unwrap(), 100);
    f.set_len(5).unwrap();
    assert_eq!(f.read(0, &mut buf).unwrap(), 5);
    volume.unlink(&root, ROOT_INO, b"file").unwrap();
    drop((f, users));
    finish(&image, &device, volume);
}

/// A damaged size, larger than any map can have, must not wrap block numbers.
#[test]
fn damaged_sizes() {
    let image = need!(Image::make(32 << 20, KINDS[1].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened(&device);
    let f = file(&volume, b"file");
    f.write(0, &[7; 8192]).unwrap();
    drop(f);
    close(&volume);
    drop(volume);
    device.save(&image.path()).unwrap();
    need!(e2fs::debugfs(&image.path(), true, &["sif /file size 0x7fffffffffff000"]));
    let volume = opened(&Arc::new(MemoryDevice::load(&image.path()).unwrap()));
    let root = Cred::root();
    let attr = volume.resolve(&root, b"/file", false).unwrap();
    let f = volume.file(&root, attr.ino, Access::READ_WRITE).unwrap();
    let reach = (1u64 << 32) * BLOCK;
    let mut queue = volume.queue(2);
    let attached = queue.attach(volume.file(&root, attr.ino, Access::READ_WRITE).unwrap());
    for round in 0..2 {
        let mut buf = [9; 8192];
        for at in [reach, reach - 4096] {
            assert_eq!(f.read(at, &mut buf).unwrap(), 8192, "{round}");
            assert_eq!(buf, [0; 8192]);
            assert!(f.write(at, &buf).is_err());
            assert!(f.write_direct(at, &buf, Wait::Allowed).is_err());
            buf.fill(9);
            assert_eq!(f.read_direct(at, &mut buf, Wait::Allowed).unwrap(), 8192);
            assert_eq!(buf, [0; 8192]);
            assert!(queue.write(attached, at, Buffer::new(8192), 0, Wait::Allowed).is_err());
        }
        assert_eq!(f.read(0, &mut buf).unwrap(), 8192);
        assert_eq!(buf, [7; 8192]);
    }
}
