//! Direct transfers: reads return the written data, by one thread and by many, and no other bytes.

use crate::common::direct::{
    BLOCK, Variant, check_cuts, extents, file, finish, opened, opened_with, read, stale,
};
use crate::common::{Image, KINDS, close};
use nextent::inodes::{Access, FallocateMode, Inodes, OpenFile, ROOT_INO, SetAttr, Wait};
use nextent::{Cred, Error};
use nextent_device::{Fault, FaultDevice, MemoryDevice, OpKind, RecordingDevice, Rule};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, now, thread};
use nextent_testkit::{e2fs, need};

#[test]
fn alignment_rules_and_reads_of_written_data() {
    crate::variants().iter().for_each(alignment_rules_and_reads_of_written_data_with);
}

fn alignment_rules_and_reads_of_written_data_with(variant: &Variant) {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened_with(&device, variant);
    let f = file(&volume, b"file");
    assert_eq!(volume.direct_unit(), 512);
    for (offset, len) in [(1, 512), (512, 100), (256, 256)] {
        let data = vec![0; len];
        let refused = f.write_direct(offset, &data, Wait::Allowed);
        assert!(matches!(refused, Err(Error::Invalid)), "{offset} {len}");
        let refused = f.read_direct(offset, &mut vec![0; len], Wait::Allowed);
        assert!(matches!(refused, Err(Error::Invalid)), "{offset} {len}");
    }
    assert_eq!(f.write_direct(0, &[], Wait::Allowed).unwrap(), 0);
    // Growth by whole blocks, by parts, with a gap, over an end within a block.
    f.write_direct(0, &[1; 8192], Wait::Allowed).unwrap();
    f.write_direct(8192, &[2; 1536], Wait::Allowed).unwrap();
    assert_eq!(f.attr().size, 9728);
    f.write_direct(16384, &[3; 4096], Wait::Allowed).unwrap();
    assert_eq!(f.attr().size, 20480);
    let mut wanted = vec![1; 8192];
    wanted.extend([2; 1536]);
    wanted.extend(vec![0; 16384 - 9728]);
    wanted.extend([3; 4096]);
    assert_eq!(read(&f, 0..40960), wanted);
    // Writes to parts of written blocks, holes and unwritten blocks.
    f.fallocate(FallocateMode::Allocate, 20480, 16 * BLOCK).unwrap();
    wanted.resize(20480 + 16 * BLOCK as usize, 0);
    let steps: [(u64, usize); 6] =
        [(512, 512), (10240, 1024), (12288, 4096), (24576, 8192), (36864, 512), (69632, 1536)];
    for (n, (offset, len)) in steps.into_iter().enumerate() {
        let data = vec![n as u8 + 10; len];
        assert_eq!(f.write_direct(offset, &data, Wait::Allowed).unwrap(), len);
        wanted[offset as usize..offset as usize + len].copy_from_slice(&data);
        assert_eq!(read(&f, 0..wanted.len() as u64), wanted, "step {n}");
        let mut buffered = vec![9; wanted.len()];
        f.read(0, &mut buffered).unwrap();
        assert_eq!(buffered, wanted, "step {n}");
    }
    let reader = volume.file(&Cred::root(), f.ino(), Access::READ).unwrap();
    assert!(matches!(reader.write_direct(0, &[0; 512], Wait::Allowed), Err(Error::Access)));
    drop((f, reader));
    finish(&image, &device, volume);
}

/// Many threads write one file, on every kind of image, also on ext3 without unwritten blocks.
#[test]
fn many_threads_write_one_file_on_every_kind() {
    for (kind, args) in KINDS {
        eprintln!("kind {kind}");
        let image = need!(Image::make(32 << 20, args));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened(&device);
        let f = file(&volume, b"shared");
        let _ = f.fallocate(FallocateMode::Allocate, 0, 1 << 20);
        f.set_len(2 << 20).unwrap();
        // Each thread writes every eighth piece, of 512, 1024, ... bytes, some past the end.
        thread::scope(|scope| {
            for t in 0..8u64 {
                let f = &f;
                scope.spawn(move || {
                    for n in 0..160u64 {
                        let len = 2048u64 << (n % 2);
                        let at = (n * 8 + t) * 4096 % (3 << 20);
                        let data = vec![(t + 1) as u8; len as usize];
                        assert_eq!(f.write_direct(at, &data, Wait::Allowed).unwrap(), data.len());
                        let mut back = vec![0; len as usize];
                        f.read_direct(at, &mut back, Wait::Allowed).unwrap();
                        assert_eq!(back, data, "{at}");
                    }
                });
            }
        });
        for (n, piece) in read(&f, 0..3 << 20).chunks(4096).enumerate() {
            let own = n as u8 % 8 + 1;
            assert!(piece.iter().all(|byte| *byte == own || *byte == 0), "{kind} piece {n}");
            assert!(piece[..2048].iter().all(|byte| *byte == own), "{kind} piece {n}");
        }
        drop(f);
        finish(&image, &device, volume);
    }
}

/// A write converts exactly the unwritten blocks whose data was written (D2).
#[test]
fn a_failed_write_converts_nothing() {
    crate::variants().iter().for_each(a_failed_write_converts_nothing_with);
}

fn a_failed_write_converts_nothing_with(variant: &Variant) {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let memory = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(memory, 1));
    let volume = Inodes::open(device.clone(), &variant.options).unwrap();
    let f = file(&volume, b"file");
    f.fallocate(FallocateMode::Allocate, 0, 64 * BLOCK).unwrap();
    let whole = extents(&volume, &f)[0];
    assert!(whole.unwritten && whole.len == 64 * BLOCK);
    f.write_direct(8 * BLOCK, &[7; 2 * 4096], Wait::Allowed).unwrap();
    let state = |volume: &Inodes, f: &OpenFile<'_>| {
        let mut refused: Vec<(u64, u64, bool)> = Vec::new();
        for e in extents(volume, f) {
            match refused.last_mut() {
                // Some designs split the extent before the data is written.
                Some(last) if last.2 == e.unwritten => last.1 += e.len / BLOCK,
                _ => refused.push((e.logical / BLOCK, e.len / BLOCK, e.unwritten)),
            }
        }
        refused
    };
    let wanted = [(0, 8, true), (8, 2, false), (10, 54, true)];
    assert_eq!(state(&volume, &f), wanted);
    let at = whole.physical + 20 * BLOCK;
    device.add(Rule::on(OpKind::Write, Fault::Error(libc::EIO)).within(at..at + BLOCK));
    let failed = f.write_direct(20 * BLOCK, &[9; 4096], Wait::Allowed);
    assert!(matches!(failed, Err(Error::Io(_))));
    assert_eq!(state(&volume, &f), wanted);
    assert!(read(&f, 20 * BLOCK..21 * BLOCK).iter().all(|byte| *byte == 0));
    device.clear();
    f.write_direct(20 * BLOCK, &[9; 4096], Wait::Allowed).unwrap();
    assert!(read(&f, 20 * BLOCK..21 * BLOCK).iter().all(|byte| *byte == 9));
    drop(f);
    close(&volume);
    drop(volume);
    device.inner().save(&image.path()).unwrap();
    // The superblock records the failed write, like any damage.
    let report = need!(e2fs::e2fsck_recover(&image.path()));
    assert!(report.is_clean(), "{report:?}");
}

/// No read returns stale bytes of the device during concurrent writes (D1).
#[test]
fn no_read_returns_stale_data() {
    crate::variants().iter().for_each(no_read_returns_stale_data_with);
}

fn no_read_returns_stale_data_with(variant: &Variant) {
    let (image, device) = need!(stale(48 << 20, KINDS[1].1));
    let volume = opened_with(&device, variant);
    let f = file(&volume, b"file");
    f.fallocate(FallocateMode::Allocate, 0, 4 << 20).unwrap();
    f.set_len(8 << 20).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buf = vec![0; 1 << 18];
                while !over.load(Ordering::Relaxed) {
                    for at in (0..12u64 << 20).step_by(1 << 18) {
                        let n = f.read_direct(at, &mut buf, Wait::Allowed).unwrap();
                        assert!(buf[..n].iter().all(|byte| matches!(byte, 0..=4)), "{at}");
                    }
                }
            });
        }
        let writers: Vec<_> = (0..4u64)
            .map(|t| {
                let f = &f;
                scope.spawn(move || {
                    for n in 0..400u64 {
                        let at = (n * 4 + t) * BLOCK;
                        let len = if n % 5 == 0 { 2048 } else { 4096 };
                        f.write_direct(at, &vec![t as u8 + 1; len], Wait::Allowed).unwrap();
                    }
                })
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
    drop(f);
    finish(&image, &device, volume);
}

/// An operation that removes blocks waits for transfers in flight (D4), so no transfer writes to a
/// freed block.
#[test]
fn removals_wait_for_transfers() {
    crate::variants().iter().for_each(removals_wait_for_transfers_with);
}

fn removals_wait_for_transfers_with(variant: &Variant) {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let memory = MemoryDevice::load(&image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(memory, 1));
    let volume = Inodes::open(device.clone(), &variant.options).unwrap();
    let f = file(&volume, b"file");
    f.write_direct(0, &[1; 64 * 4096], Wait::Allowed).unwrap();
    for round in 0..5 {
        let place = extents(&volume, &f)[0].physical;
        let slow = Fault::Delay(Duration::from_millis(60));
        device.add(Rule::on(OpKind::Write, slow).within(place..place + BLOCK).times(1));
        let began = now();
        thread::scope(|scope| {
            scope.spawn(|| f.write_direct(0, &[2; 4096], Wait::Allowed).unwrap());
            while device.struck() <= round {
                thread::yield_now();
            }
            match round {
                0 => f.set_len(0).unwrap(),
                1 => f.fallocate(FallocateMode::PunchHole, 0, 4 * BLOCK).unwrap(),
                2 => f.fallocate(FallocateMode::CollapseRange, 0, BLOCK).unwrap(),
                3 => f.fallocate(FallocateMode::InsertRange, 0, BLOCK).unwrap(),
                _ => f.fallocate(FallocateMode::ZeroRange { keep_size: true }, 0, BLOCK).unwrap(),
            }
            // The device delays the write for that time.
            assert!(began.elapsed() >= Duration::from_millis(60), "round {round}");
        });
        device.clear();
        f.set_len(0).unwrap();
        volume.sync().unwrap();
        f.write_direct(0, &[1; 64 * 4096], Wait::Allowed).unwrap();
    }
    drop(f);
    close(&volume);
    drop(volume);
    device.inner().save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// A call with `Wait::Never` succeeds if it need not wait, and fails otherwise (D5).
#[test]
fn calls_that_must_not_wait() {
    crate::variants().iter().for_each(calls_that_must_not_wait_with);
}

fn calls_that_must_not_wait_with(variant: &Variant) {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened_with(&device, variant);
    let f = file(&volume, b"file");
    f.write_direct(0, &[1; 16 * 4096], Wait::Allowed).unwrap();
    f.fallocate(FallocateMode::Allocate, 16 * BLOCK, 16 * BLOCK).unwrap();
    f.set_len(64 * BLOCK).unwrap();
    let try_write = |at: u64, len: usize| f.write_direct(at, &vec![5; len], Wait::Never);
    let overwrite = |at: u64, len: usize| {
        for _ in 0..100 {
            // The first write in a clock tick sets the times, and may wait for the journal.
            f.write_direct(0, &[1; 512], Wait::Allowed).unwrap();
            match try_write(at, len) {
                Err(Error::WouldBlock) => {}
                done => return done.unwrap(),
            }
        }
        panic!("an overwrite is always refused");
    };
    assert_eq!(overwrite(BLOCK, 4096), 4096);
    if variant.shares_parts {
        assert_eq!(overwrite(BLOCK + 512, 1024), 1024);
    }
    for (what, at, len) in [
        ("unwritten", 16 * BLOCK, 4096),
        ("part of unwritten", 17 * BLOCK, 512),
        ("hole", 40 * BLOCK, 4096),
        ("growth", 64 * BLOCK, 4096),
    ] {
        f.write_direct(0, &[1; 512], Wait::Allowed).unwrap();
        assert!(matches!(try_write(at, len), Err(Error::WouldBlock)), "{what}");
    }
    let mut buf = vec![0; 4096];
    assert_eq!(f.read_direct(BLOCK, &mut buf, Wait::Never).unwrap(), 4096);
    // A frozen journal starts no handle. A call that must not wait needs none.
    volume.freeze().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| f.set_len(64 * BLOCK));
        thread::sleep(Duration::from_millis(50));
        // The thread that waits for the journal holds the file's lock.
        assert!(matches!(try_write(BLOCK, 512), Err(Error::WouldBlock)));
        let refused = f.read_direct(BLOCK, &mut [0; 512], Wait::Never);
        assert!(matches!(refused, Err(Error::WouldBlock)));
        volume.thaw().unwrap();
        waits.join().unwrap().unwrap();
    });
    drop(f);
    finish(&image, &device, volume);
}

/// A write clears set-id bits and capabilities, and needs the file exclusively only for that.
#[test]
fn writes_clear_set_id_bits() {
    crate::variants().iter().for_each(writes_clear_set_id_bits_with);
}

fn writes_clear_set_id_bits_with(variant: &Variant) {
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = opened_with(&device, variant);
    let f = file(&volume, b"program");
    f.write_direct(0, &[1; 8192], Wait::Allowed).unwrap();
    let all = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
    let name = b"security.capability";
    let either = nextent::inodes::XattrMode::Either;
    volume.setattr(&Cred::root(), f.ino(), &all).unwrap();
    volume.setxattr(&Cred::root(), f.ino(), name, &[1; 20], either).unwrap();
    let user = volume.file(&Cred::user(7, 7, Vec::new(), 0), f.ino(), Access::WRITE).unwrap();
    assert!(matches!(user.write_direct(0, &[2; 512], Wait::Never), Err(Error::WouldBlock)));
    assert_eq!(f.attr().mode, 0o6777);
    user.write_direct(0, &[2; 512], Wait::Allowed).unwrap();
    assert_eq!(f.attr().mode, 0o777);
    assert!(matches!(volume.getxattr(&Cred::root(), f.ino(), name), Err(Error::NoData)));
    drop((f, user));
    finish(&image, &device, volume);
}

/// If the reserved pool has no block for the map, the conversion zeroes the rest of the extent.
#[test]
fn conversion_needs_no_space() {
    crate::variants().iter().for_each(conversion_needs_no_space_with);
}

fn conversion_needs_no_space_with(variant: &Variant) {
    let (image, device) = need!(stale(24 << 20, &["-t", "ext4", "-b", "1024", "-m", "0"]));
    let volume = opened_with(&device, variant);
    let root = Cred::root();
    let f = file(&volume, b"file");
    f.fallocate(FallocateMode::Allocate, 0, 4 << 20).unwrap();
    let mut n = 0;
    loop {
        let name = format!("fill{n}");
        let Ok(filler) = volume.create_file(&root, ROOT_INO, name.as_bytes(), 0o644) else { break };
        if filler.write(0, &vec![6; 100_000]).map_or(true, |written| written < 100_000) {
            break;
        }
        n += 1;
    }
    let block = 1024;
    // Every second block, so that each is an extent.
    thread::scope(|scope| {
        for t in 0..4u64 {
            let f = &f;
            scope.spawn(move || {
                for n in (t..2048).step_by(4) {
                    let at = n * 2 * block;
                    f.write_direct(at, &[t as u8 + 1; 1024], Wait::Allowed).unwrap();
                }
            });
        }
    });
    let bytes = read(&f, 0..4 << 20);
    for (n, chunk) in bytes.chunks(block as usize).enumerate() {
        let own = if n % 2 == 0 { (n / 2 % 4) as u8 + 1 } else { 0 };
        assert!(chunk.iter().all(|byte| *byte == own), "block {n}");
    }
    drop(f);
    finish(&image, &device, volume);
}

/// Power cuts during writes to unwritten blocks, to holes and past the end.
#[test]
fn power_cuts_show_no_stale_data() {
    crate::variants().iter().for_each(power_cuts_show_no_stale_data_with);
}

fn power_cuts_show_no_stale_data_with(variant: &Variant) {
    let (_image, device) = need!(stale(16 << 20, KINDS[1].1));
    let device = Arc::new(RecordingDevice::new(device.snapshot()));
    let volume = Inodes::open(device.clone(), &variant.options).unwrap();
    let f = file(&volume, b"file");
    f.fallocate(FallocateMode::Allocate, 0, 60 * BLOCK).unwrap();
    f.set_len(80 * BLOCK).unwrap();
    f.sync().unwrap();
    let from = device.recording().events().len();
    thread::scope(|scope| {
        for t in 0..3u64 {
            let (f, device) = (&f, &device);
            scope.spawn(move || {
                for n in 0..36 {
                    let block = (n * 37 + t * 11) % 36 * 3 + t;
                    let data = vec![block as u8 % 7 + 1; 4096];
                    f.write_direct(block * BLOCK, &data, Wait::Allowed).unwrap();
                    if n % 6 == 5 {
                        f.sync().unwrap();
                        device.mark(block + 1);
                    }
                }
            });
        }
    });
    drop(f);
    close(&volume);
    let recording = device.recording();
    eprintln!("{} events, of which {from} before the file existed", recording.events().len());
    check_cuts(&recording, from);
}
