//! Deferred conversions of direct writes. Every read of data or map includes them, every sync and
//! the commit interval make them durable, and operations that remove blocks complete them first.

mod common;

use common::direct::{BLOCK, check_cuts, file, finish, opened, read, stale};
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

fn write_block(f: &OpenFile<'_>, block: u64, byte: u8) {
    let done = f.write_direct(block * BLOCK, &[byte; BLOCK as usize], Wait::Allowed);
    assert_eq!(done.unwrap(), BLOCK as usize);
}

/// The number of unwritten blocks in the map.
fn unwritten(volume: &Inodes, f: &OpenFile<'_>) -> u64 {
    let all = volume.fiemap(f.ino(), 0, u64::MAX, usize::MAX).unwrap();
    let bytes: u64 = all.iter().filter(|e| e.unwritten).map(|e| e.len).sum();
    bytes / BLOCK
}

#[test]
fn calls_include_deferred_conversions() {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let volume = opened(&device);
    type Read = fn(&Inodes, &OpenFile<'_>, u64);
    let reads: [Read; 7] = [
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
        // A write to a part of the block keeps the rest.
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
    for (n, read_by) in reads.into_iter().enumerate() {
        let f = allocated(&volume, format!("file{n}").as_bytes(), 64);
        let block = 17 + n as u64;
        write_block(&f, block, 5);
        read_by(&volume, &f, block);
    }
    finish(&image, &device, volume);
}

#[test]
fn readers_in_other_threads_see_completed_writes() {
    let (image, device) = need!(stale(64 << 20, KINDS[1].1));
    let volume = opened(&device);
    let blocks = 4000;
    let f = allocated(&volume, b"file", blocks);
    let written: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for t in 0..2u64 {
            let (f, written) = (&f, &written[t as usize]);
            scope.spawn(move || {
                for n in 0..blocks / 2 {
                    write_block(f, n * 2 + t, (n % 200) as u8 + 1);
                    written.store(n + 1, Ordering::Release);
                }
            });
        }
        for t in 0..2u64 {
            let (f, volume, written) = (&f, &volume, &written[t as usize]);
            scope.spawn(move || {
                let mut last = 0;
                let mut bytes = [0; 4096];
                while last < blocks / 2 {
                    last = written.load(Ordering::Acquire);
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

/// Writes more blocks than the lists may have, in an order in which no runs merge.
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
                    write_block(f, (n * 7919 % (blocks / 4)) * 4 + t * 2, t as u8 + 1);
                }
            });
        }
    });
    // The last writes may still be deferred; the sync completes them.
    f.sync().unwrap();
    assert_eq!(unwritten(&volume, &f), blocks / 2);
    let bytes = read(&f, 0..blocks * BLOCK);
    for (n, chunk) in bytes.chunks(BLOCK as usize).enumerate() {
        let expected = [1, 0, 2, 0][n % 4];
        assert!(chunk.iter().all(|byte| *byte == expected), "block {n}");
    }
    drop(f);
    finish(&image, &device, volume);
}

#[test]
fn removals_complete_conversions_first() {
    let (image, device) = need!(stale(64 << 20, KINDS[1].1));
    let volume = opened(&device);
    let root = Cred::root();
    type Removal = fn(&Inodes, &OpenFile<'_>, &[u8]);
    let removals: [Removal; 8] = [
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
    for (n, remove_by) in removals.into_iter().enumerate() {
        let name = format!("file{n}");
        let f = allocated(&volume, name.as_bytes(), 64);
        (0..32).for_each(|n| write_block(&f, n * 2, 5));
        remove_by(&volume, &f, name.as_bytes());
        drop(f);
        // Another file gets the freed blocks.
        let other = file(&volume, format!("other{n}").as_bytes());
        other.write(0, &[8; 64 * 4096]).unwrap();
    }
    volume.sync().unwrap();
    for n in 0..removals.len() {
        let attr = volume.resolve(&root, format!("/other{n}").as_bytes(), false).unwrap();
        let other = volume.file(&root, attr.ino, Access::READ).unwrap();
        assert!(read(&other, 0..64 * BLOCK).iter().all(|byte| *byte == 8), "{n}");
    }
    finish(&image, &device, volume);
}

/// An unlinked open file is freed with its deferred conversions; another file reuses its number.
#[test]
fn a_freed_file_drops_its_conversions() {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let volume = opened(&device);
    for round in 0..20 {
        let f = allocated(&volume, b"file", 64);
        volume.unlink(&Cred::root(), ROOT_INO, b"file").unwrap();
        (0..32).for_each(|n| write_block(&f, n * 2, 5));
        drop(f);
        let other = allocated(&volume, format!("other{round}").as_bytes(), 64);
        write_block(&other, 1, 6);
        assert_eq!(unwritten(&volume, &other), 63);
    }
    finish(&image, &device, volume);
}

/// The number of the file's written blocks after a crash now.
fn durable_now(device: &RecordingDevice<MemoryDevice>) -> u64 {
    durable_blocks(device.image_at(device.events()))
}

fn durable_blocks(device: MemoryDevice) -> u64 {
    let volume = Inodes::open(Arc::new(device), &OpenOptions::default()).unwrap();
    let root = Cred::root();
    let attr = volume.resolve(&root, b"/file", false).unwrap();
    let f = volume.file(&root, attr.ino, Access::READ).unwrap();
    let bytes = read(&f, 0..64 * BLOCK);
    bytes.chunks(BLOCK as usize).filter(|chunk| chunk[0] == 5).count() as u64
}

#[test]
fn syncs_and_the_commit_interval_make_conversions_durable() {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let device = Arc::new(RecordingDevice::new(device.snapshot()));
    let commit_interval = Duration::from_millis(200);
    let options = OpenOptions::new().commit_interval(commit_interval);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let f = allocated(&volume, b"file", 64);
    volume.sync().unwrap();
    type SyncCall = fn(&Inodes, &OpenFile<'_>);
    let syncs: [SyncCall; 5] = [
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
        write_block(&f, 3 * n, 5);
        sync(&volume, &f);
        // The last case has no sync: the commit interval makes it durable.
        let begin = now();
        while n == 4 && durable_now(&device) < n + 1 && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(durable_now(&device), n + 1, "{n}");
    }
    drop(f);
    finish(&image, device.inner(), volume);
}

/// A sync waits for the thread that completes conversions of the same files at that moment.
#[test]
fn a_sync_waits_for_the_completing_thread() {
    let (image, device) = need!(stale(64 << 20, KINDS[1].1));
    let device = Arc::new(RecordingDevice::new(device.snapshot()));
    let commit_interval = Duration::from_millis(10);
    let options = OpenOptions::new().commit_interval(commit_interval);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    let others: Vec<_> =
        (0..40).map(|n| allocated(&volume, format!("other{n}").as_bytes(), 64)).collect();
    let f = allocated(&volume, b"file", 64);
    volume.sync().unwrap();
    let stop = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // A bounded number, because the recording device stores all writes in memory.
            for n in 0..400 {
                if stop.load(Ordering::Relaxed) != 0 {
                    break;
                }
                others.iter().for_each(|other| write_block(other, n % 64, 7));
                thread::sleep(Duration::from_millis(4));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for n in 0..24 {
                write_block(&f, n, 5);
                thread::sleep(Duration::from_micros(n * 331 % 4000));
                volume.sync().unwrap();
                assert_eq!(durable_now(&device), n + 1, "{n}");
            }
        }));
        stop.store(1, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    drop((f, others));
    finish(&image, device.inner(), volume);
}

/// After the journal has stopped, conversions cannot complete. Reads and syncs fail; no read
/// returns zeros.
#[test]
fn failed_conversions_are_reported() {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let memory = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(memory, 1));
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    let f = allocated(&volume, b"file", 64);
    let other = file(&volume, b"other");
    volume.sync().unwrap();
    write_block(&f, 3, 5);
    device.add(Rule::on(OpKind::Write, Fault::Error(libc::EIO)));
    volume
        .setattr(&Cred::root(), other.ino(), &SetAttr { uid: Some(7), ..SetAttr::default() })
        .unwrap();
    assert!(other.sync().is_err());
    device.clear();
    let mut bytes = [0; 4096];
    for result in [
        f.read(3 * BLOCK, &mut bytes).map(drop),
        f.read_direct(3 * BLOCK, &mut bytes, Wait::Allowed).map(drop),
        volume.seek(f.ino(), 0, SeekKind::Data).map(drop),
        f.sync(),
        volume.sync(),
    ] {
        assert!(matches!(result, Err(Error::Aborted(_))), "{result:?}");
    }
    // Other files are not affected.
    assert_eq!(other.attr().size, 0);
    drop((f, other));
    assert!(volume.close().is_err());
    drop(volume);
    let after = durable_blocks(device.inner().snapshot());
    assert_eq!(after, 0);
}

/// Power cuts while many conversions are deferred and some writes are synced.
#[test]
fn power_cuts_lose_no_synced_write() {
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
                    write_block(f, block, block as u8 % 7 + 1);
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
