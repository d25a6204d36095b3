//! Conversions that direct writers put off: everyone who asks about the file knows of them, they
//! are durable when they should be, and nobody who takes blocks away loses his way.

mod common;

use common::dio::{BLOCK, check_cuts, file, finish, opened, read, stale};
use common::{Image, KINDS, close};
use nextent::inodes::{Access, FallocateMode, Inodes, OpenFile, ROOT_INO, SeekKind, SetAttr, Wait};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Duration, now, thread};
use nextent_testkit::need;

fn allocated<'v>(volume: &'v Inodes, name: &[u8], blocks: u64) -> OpenFile<'v> {
    let f = file(volume, name);
    f.fallocate(FallocateMode::Allocate, 0, blocks * BLOCK).unwrap();
    f
}

fn put(f: &OpenFile<'_>, block: u64, byte: u8) {
    let done = f.write_direct(block * BLOCK, &[byte; BLOCK as usize], Wait::Allowed);
    assert_eq!(done.unwrap(), BLOCK as usize);
}

/// Unwritten blocks, by the map.
fn unwritten(volume: &Inodes, f: &OpenFile<'_>) -> u64 {
    let all = volume.fiemap(f.ino(), 0, u64::MAX, usize::MAX).unwrap();
    let bytes: u64 = all.iter().filter(|e| e.unwritten).map(|e| e.len).sum();
    bytes / BLOCK
}

#[test]
fn everyone_knows_what_was_written() {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let volume = opened(&device);
    type Asks = fn(&Inodes, &OpenFile<'_>, u64);
    let asks: [Asks; 7] = [
        |_, f, block| assert_eq!(read(f, block * BLOCK..(block + 1) * BLOCK), [5; 4096]),
        |_, f, block| {
            let mut bytes = [0; 4096];
            assert_eq!(f.read(block * BLOCK, &mut bytes).unwrap(), 4096);
            assert_eq!(bytes, [5; 4096]);
        },
        |volume, f, _| assert_eq!(unwritten(volume, f), 63),
        |volume, f, block| {
            let found = volume.seek(f.ino(), 0, SeekKind::Data).unwrap();
            assert_eq!(found, block * BLOCK);
        },
        |volume, f, block| {
            let found = volume.seek(f.ino(), block * BLOCK, SeekKind::Hole);
            assert_eq!(found.unwrap(), (block + 1) * BLOCK);
        },
        // A part of the block: the rest must stay.
        |_, f, block| {
            f.write(block * BLOCK + 100, &[6; 100]).unwrap();
            let bytes = read(f, block * BLOCK..(block + 1) * BLOCK);
            let sixes = bytes.iter().filter(|byte| **byte == 6).count();
            assert_eq!((sixes, bytes.iter().filter(|byte| **byte == 5).count()), (100, 3996));
        },
        |_, f, block| {
            f.write_direct(block * BLOCK + 512, &[6; 512], Wait::Allowed).unwrap();
            let bytes = read(f, block * BLOCK..(block + 1) * BLOCK);
            let sixes = bytes.iter().filter(|byte| **byte == 6).count();
            assert_eq!((sixes, bytes.iter().filter(|byte| **byte == 5).count()), (512, 3584));
        },
    ];
    for (n, ask) in asks.into_iter().enumerate() {
        let f = allocated(&volume, format!("file{n}").as_bytes(), 64);
        let block = 17 + n as u64;
        put(&f, block, 5);
        ask(&volume, &f, block);
    }
    finish(&image, &device, volume);
}

#[test]
fn who_reads_in_another_thread_sees_what_is_done() {
    let (image, device) = need!(stale(64 << 20, KINDS[1].1));
    let volume = opened(&device);
    let blocks = 4000;
    let f = allocated(&volume, b"file", blocks);
    let told: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for t in 0..2u64 {
            let (f, told) = (&f, &told[t as usize]);
            scope.spawn(move || {
                for n in 0..blocks / 2 {
                    put(f, n * 2 + t, (n % 200) as u8 + 1);
                    told.store(n + 1, Ordering::Release);
                }
            });
        }
        for t in 0..2u64 {
            let (f, volume, told) = (&f, &volume, &told[t as usize]);
            scope.spawn(move || {
                let mut last = 0;
                let mut bytes = [0; 4096];
                while last < blocks / 2 {
                    last = told.load(Ordering::Acquire);
                    let Some(n) = last.checked_sub(1) else { continue };
                    let at = (n * 2 + t) * BLOCK;
                    match n % 3 {
                        0 => assert_eq!(f.read(at, &mut bytes).unwrap(), 4096),
                        1 => bytes.copy_from_slice(&read(f, at..at + BLOCK)),
                        _ => {
                            let found = volume.seek(f.ino(), at, SeekKind::Data).unwrap();
                            assert_eq!(found, at);
                            continue;
                        }
                    }
                    assert!(bytes.iter().all(|byte| *byte == (n % 200) as u8 + 1), "{n}");
                }
            });
        }
    });
    assert_eq!(unwritten(&volume, &f), 0);
    drop(f);
    finish(&image, &device, volume);
}

/// More than lists may hold, in an order that joins nothing.
#[test]
fn lists_are_bounded() {
    let (image, device) = need!(stale(400 << 20, KINDS[1].1));
    let volume = opened(&device);
    let blocks = 60_000;
    let f = allocated(&volume, b"file", blocks);
    thread::scope(|scope| {
        for t in 0..2 {
            let f = &f;
            scope.spawn(move || {
                for n in 0..blocks / 4 {
                    put(f, (n * 7919 % (blocks / 4)) * 4 + t * 2, t as u8 + 1);
                }
            });
        }
    });
    // Whoever came last settled nothing: the map is behind by what the lists may hold at most.
    f.sync().unwrap();
    assert_eq!(unwritten(&volume, &f), blocks / 2);
    let bytes = read(&f, 0..blocks * BLOCK);
    for (n, chunk) in bytes.chunks(BLOCK as usize).enumerate() {
        let own = [1, 0, 2, 0][n % 4];
        assert!(chunk.iter().all(|byte| *byte == own), "block {n}");
    }
    drop(f);
    finish(&image, &device, volume);
}

#[test]
fn who_takes_blocks_away_finds_them() {
    let (image, device) = need!(stale(64 << 20, KINDS[1].1));
    let volume = opened(&device);
    let root = Cred::root();
    type Takes = fn(&Inodes, &OpenFile<'_>, &[u8]);
    let takes: [Takes; 8] = [
        |_, f, _| f.set_len(10 * BLOCK).unwrap(),
        |_, f, _| f.fallocate(FallocateMode::PunchHole, 0, 20 * BLOCK).unwrap(),
        |_, f, _| f.fallocate(FallocateMode::CollapseRange, 0, 4 * BLOCK).unwrap(),
        |_, f, _| f.fallocate(FallocateMode::InsertRange, 4 * BLOCK, 4 * BLOCK).unwrap(),
        |_, f, _| {
            let mode = FallocateMode::ZeroRange { keep_size: true };
            f.fallocate(mode, 4 * BLOCK, 20 * BLOCK).unwrap();
            assert!(read(f, 4 * BLOCK..24 * BLOCK).iter().all(|byte| *byte == 0));
        },
        |volume, _, name| volume.unlink(&Cred::root(), ROOT_INO, name).unwrap(),
        |volume, _, name| {
            let mode = nextent::inodes::RenameMode::Replace;
            drop(file(volume, b"over"));
            volume.rename(&Cred::root(), (ROOT_INO, b"over"), (ROOT_INO, name), mode).unwrap();
        },
        |volume, f, _| {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            volume.setattr(&Cred::root(), f.ino(), &set).unwrap();
            f.append(&[4; 9000]).unwrap();
        },
    ];
    for (n, take) in takes.into_iter().enumerate() {
        let name = format!("file{n}");
        let f = allocated(&volume, name.as_bytes(), 64);
        (0..32).for_each(|n| put(&f, n * 2, 5));
        take(&volume, &f, name.as_bytes());
        drop(f);
        // What was taken away belongs to somebody else now.
        let other = file(&volume, format!("other{n}").as_bytes());
        other.write(0, &[8; 64 * 4096]).unwrap();
    }
    volume.sync().unwrap();
    for n in 0..takes.len() {
        let attr = volume.resolve(&root, format!("/other{n}").as_bytes(), false).unwrap();
        let other = volume.file(&root, attr.ino, Access::READ).unwrap();
        assert!(read(&other, 0..64 * BLOCK).iter().all(|byte| *byte == 8), "{n}");
    }
    finish(&image, &device, volume);
}

/// An open file without a name is freed with what was put off in it, and its number is used again.
#[test]
fn freed_files_take_it_along() {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let volume = opened(&device);
    for round in 0..20 {
        let f = allocated(&volume, b"file", 64);
        volume.unlink(&Cred::root(), ROOT_INO, b"file").unwrap();
        (0..32).for_each(|n| put(&f, n * 2, 5));
        drop(f);
        let other = allocated(&volume, format!("other{round}").as_bytes(), 64);
        put(&other, 1, 6);
        assert_eq!(unwritten(&volume, &other), 63);
    }
    finish(&image, &device, volume);
}

/// What a crash now would leave of the file's blocks.
fn left_now(device: &RecordingDevice<MemoryDevice>) -> u64 {
    left(device.image_at(device.events()))
}

fn left(device: MemoryDevice) -> u64 {
    let volume = Inodes::open(Arc::new(device), &OpenOptions::default()).unwrap();
    let root = Cred::root();
    let attr = volume.resolve(&root, b"/file", false).unwrap();
    let f = volume.file(&root, attr.ino, Access::READ).unwrap();
    let bytes = read(&f, 0..64 * BLOCK);
    bytes.chunks(BLOCK as usize).filter(|chunk| chunk[0] == 5).count() as u64
}

#[test]
fn it_is_durable_when_it_should_be() {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let device = Arc::new(RecordingDevice::new(device.snapshot()));
    let commit_interval = Duration::from_millis(200);
    let options = OpenOptions::new().commit_interval(commit_interval);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let f = allocated(&volume, b"file", 64);
    volume.sync().unwrap();
    type Syncs = fn(&Inodes, &OpenFile<'_>);
    let syncs: [Syncs; 5] = [
        |_, f| f.sync().unwrap(),
        |_, f| f.sync_data().unwrap(),
        |volume, _| volume.sync().unwrap(),
        |volume, _| {
            volume.freeze().unwrap();
            volume.thaw().unwrap();
        },
        |_, _| {},
    ];
    for (n, sync) in syncs.into_iter().enumerate() {
        let n = n as u64;
        put(&f, 3 * n, 5);
        sync(&volume, &f);
        // The last one by itself, after a while, with nobody who asks.
        let begin = now();
        while n == 4 && left_now(&device) < n + 1 && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(left_now(&device), n + 1, "{n}");
    }
    drop(f);
    finish(&image, device.inner(), volume);
}

/// Syncing waits for who is settling the same files at that moment.
#[test]
fn a_sync_covers_what_the_volume_settles_by_itself() {
    let (image, device) = need!(stale(64 << 20, KINDS[1].1));
    let device = Arc::new(RecordingDevice::new(device.snapshot()));
    let commit_interval = Duration::from_millis(10);
    let options = OpenOptions::new().commit_interval(commit_interval);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let others: Vec<_> =
        (0..40).map(|n| allocated(&volume, format!("other{n}").as_bytes(), 64)).collect();
    let f = allocated(&volume, b"file", 64);
    volume.sync().unwrap();
    let over = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // What is recorded stays in memory.
            for n in 0..400 {
                if over.load(Ordering::Relaxed) != 0 {
                    break;
                }
                others.iter().for_each(|other| put(other, n % 64, 7));
                thread::sleep(Duration::from_millis(4));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for n in 0..24 {
                put(&f, n, 5);
                thread::sleep(Duration::from_micros(n * 331 % 4000));
                volume.sync().unwrap();
                assert_eq!(left_now(&device), n + 1, "{n}");
            }
        }));
        over.store(1, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    drop((f, others));
    finish(&image, device.inner(), volume);
}

/// A map that cannot be changed any more: who reads or syncs hears of it, and nothing is taken for
/// zeros.
#[test]
fn failures_are_told() {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let memory = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(memory, 1));
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let f = allocated(&volume, b"file", 64);
    let other = file(&volume, b"other");
    volume.sync().unwrap();
    put(&f, 3, 5);
    device.add(Rule::on(OpKind::Write, Fault::Error(libc::EIO)));
    volume
        .setattr(&Cred::root(), other.ino(), &SetAttr { uid: Some(7), ..SetAttr::default() })
        .unwrap();
    assert!(other.sync().is_err());
    device.clear();
    let mut bytes = [0; 4096];
    for told in [
        f.read(3 * BLOCK, &mut bytes).map(drop),
        f.read_direct(3 * BLOCK, &mut bytes, Wait::Allowed).map(drop),
        volume.seek(f.ino(), 0, SeekKind::Data).map(drop),
        f.sync(),
        volume.sync(),
    ] {
        assert!(matches!(told, Err(Error::Aborted(_))), "{told:?}");
    }
    // Other files are as they were.
    assert_eq!(other.attr().size, 0);
    drop((f, other));
    assert!(volume.close().is_err());
    drop(volume);
    let after = left(device.inner().snapshot());
    assert_eq!(after, 0);
}

/// Power cuts while much is put off, and some is synced.
#[test]
fn power_cuts_lose_nothing_that_was_synced() {
    let (_image, device) = need!(stale(16 << 20, KINDS[1].1));
    let device = Arc::new(RecordingDevice::new(device.snapshot()));
    let commit_interval = Duration::from_millis(20);
    let options = OpenOptions::new().commit_interval(commit_interval);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let f = allocated(&volume, b"file", 200);
    f.sync().unwrap();
    let from = device.recording().events().len();
    thread::scope(|scope| {
        for t in 0..3u64 {
            let (f, device) = (&f, &device);
            scope.spawn(move || {
                for n in 0..60 {
                    let block = (n * 37 + t * 11) % 60 * 3 + t;
                    put(f, block, block as u8 % 7 + 1);
                    if n % 20 == 19 {
                        f.sync().unwrap();
                        device.mark(block + 1);
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
    drop(f);
    close(&volume);
    let recording = device.recording();
    check_cuts(&recording, from);
}
