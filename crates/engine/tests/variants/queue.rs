//! Direct transfers through a queue follow the rules of direct calls, in every variant, on devices
//! that fail, record or are slow.

use crate::common::direct::{
    BLOCK, Variant, check_cuts, extents, file, finish, opened_with, read, stale,
};
use crate::common::{Image, KINDS, close};
use nextent::inodes::{
    Access, Attached, Buffer, Done, FallocateMode, Inodes, OpenFile, Queue, ROOT_INO, SetAttr, Wait,
};
use nextent::{Cred, Error, OpenOptions};
use nextent_device::{
    Fault, FaultDevice, FileDevice, FileOptions, LatencyDevice, MemoryDevice, OpKind,
    RecordingDevice, Rule,
};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, now, thread};
use nextent_testkit::{e2fs, need};

fn block(byte: u8) -> Buffer {
    Buffer::from_bytes(&[byte; BLOCK as usize])
}

fn write(queue: &mut Queue<'_>, file: Attached, at: u64, data: Buffer) {
    queue.write(file, at, data, at, Wait::Allowed).unwrap();
}

/// Completes all transfers.
fn complete_all(queue: &mut Queue<'_>) -> Vec<Done> {
    let mut done = Vec::new();
    queue.complete(usize::MAX, &mut done);
    assert_eq!(queue.in_flight(), 0);
    done
}

fn complete_all_well(queue: &mut Queue<'_>) {
    for done in complete_all(queue) {
        assert_eq!(done.result.unwrap(), done.buffer.len());
    }
}

fn reopen<'v>(volume: &'v Inodes, file: &OpenFile<'v>) -> OpenFile<'v> {
    volume.file(&Cred::root(), file.ino(), Access::READ_WRITE).unwrap()
}

/// Writes and reads the blocks of one of `threads` threads. Afterwards all bytes of block n are
/// 7 * n + 1.
fn write_and_read(volume: &Inodes, f: &OpenFile<'_>, thread: u64, threads: u64, blocks: u64) {
    let mut queue = volume.queue(10);
    let table = queue.attach(reopen(volume, f));
    let mut done = Vec::new();
    for n in (thread..blocks).step_by(threads as usize) {
        let n = n * 37 % blocks;
        write(&mut queue, table, n * BLOCK, block((n * 7 + 1) as u8));
        if queue.in_flight() >= 10 {
            queue.complete(3, &mut done);
        }
        for one in done.drain(..) {
            assert_eq!(one.result.unwrap(), BLOCK as usize);
            assert!(one.buffer.iter().all(|byte| *byte == (one.tag / BLOCK * 7 + 1) as u8));
        }
    }
    complete_all_well(&mut queue);
    // Read the written blocks.
    for n in (thread..blocks).step_by(threads as usize) {
        let n = n * 37 % blocks;
        queue.read(table, n * BLOCK, Buffer::new(4096), n, Wait::Allowed).unwrap();
    }
    for one in complete_all(&mut queue) {
        assert_eq!(one.result.unwrap(), 4096);
        assert!(one.buffer.iter().all(|byte| *byte == (one.tag * 7 + 1) as u8), "{}", one.tag);
    }
    drop(queue);
}

fn verify(f: &OpenFile<'_>, blocks: u64) {
    for (n, piece) in read(f, 0..blocks * BLOCK).chunks(BLOCK as usize).enumerate() {
        assert!(piece.iter().all(|byte| *byte == (n * 7 + 1) as u8), "block {n}");
    }
}

/// Many threads write unwritten blocks, holes, written blocks and past the end.
#[test]
fn many_threads_of_one_file() {
    crate::variants().iter().for_each(|variant| {
        for kind in [KINDS[0].1, KINDS[1].1] {
            let image = need!(Image::make(64 << 20, kind));
            let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
            let volume = opened_with(&device, variant);
            let f = file(&volume, b"file");
            let _ = f.fallocate(FallocateMode::Allocate, 0, 300 * BLOCK);
            f.set_len(600 * BLOCK).unwrap();
            for _ in 0..2 {
                thread::scope(|scope| {
                    for t in 0..6 {
                        let (volume, f) = (&volume, &f);
                        scope.spawn(move || write_and_read(volume, f, t, 6, 901));
                    }
                });
                verify(&f, 901);
            }
            drop(f);
            finish(&image, &device, volume);
        }
    });
}

/// The same on image files, by io_uring and by threads, and on a slow device.
#[test]
fn on_files_and_slow_devices() {
    let run = |device: Arc<dyn nextent_device::BlockDevice>| {
        let volume = Inodes::open(device, &OpenOptions::default()).unwrap();
        let f = file(&volume, b"file");
        f.fallocate(FallocateMode::Allocate, 0, 200 * BLOCK).unwrap();
        thread::scope(|scope| {
            for t in 0..4 {
                let (volume, f) = (&volume, &f);
                scope.spawn(move || write_and_read(volume, f, t, 4, 301));
            }
        });
        verify(&f, 301);
        drop(f);
        close(&volume);
    };
    let image = need!(Image::make(64 << 20, KINDS[1].1));
    let memory = MemoryDevice::load(&image.path()).unwrap();
    let options = [
        FileOptions::new(),
        FileOptions::new().queue_by_threads(true),
        FileOptions::new().direct(true),
        FileOptions::new().direct(true).queue_by_threads(true),
    ];
    for (n, how) in options.iter().enumerate() {
        memory.save(&image.path()).unwrap();
        match FileDevice::open(image.path(), how) {
            Ok(device) => run(Arc::new(device)),
            Err(error) => eprintln!("options {n}: {error}"),
        }
        e2fs::assert_clean(&image.path());
    }
    let slow = Arc::new(LatencyDevice::new(memory, Duration::from_micros(100)));
    run(slow.clone());
    slow.inner().save(&image.path()).unwrap();
    e2fs::assert_clean(&image.path());
}

/// `Queue::write` itself completes writes that need the file exclusively: parts of blocks, writes
/// past an end within a block, and writes that clear set-id bits.
#[test]
fn exclusive_writes_complete_at_once() {
    crate::variants().iter().for_each(|variant| {
        let image = need!(Image::make(64 << 20, KINDS[1].1));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened_with(&device, variant);
        let f = file(&volume, b"file");
        f.fallocate(FallocateMode::Allocate, 0, 8 * BLOCK).unwrap();
        let all_rights = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
        volume.setattr(&Cred::root(), f.ino(), &all_rights).unwrap();
        let user = Cred::user(7, 7, Vec::new(), 0);
        let mut queue = volume.queue(4);
        let mine = queue.attach(reopen(&volume, &f));
        let theirs = queue.attach(volume.file(&user, f.ino(), Access::WRITE).unwrap());
        write(&mut queue, mine, 0, block(1));
        write(&mut queue, mine, 2 * BLOCK + 512, Buffer::from_bytes(&[2; 1024]));
        write(&mut queue, theirs, 4 * BLOCK, block(3));
        assert_eq!(queue.file(mine).attr().mode, 0o777);
        write(&mut queue, mine, 8 * BLOCK, Buffer::from_bytes(&[4; 512]));
        write(&mut queue, mine, 9 * BLOCK, block(5));
        let done = complete_all(&mut queue);
        assert_eq!(done.iter().map(|done| done.result.as_ref().unwrap()).sum::<usize>(), 13824);
        let refused = queue.read(theirs, 0, block(0), 0, Wait::Allowed).unwrap_err();
        assert!(matches!(refused.error, Error::Access) && refused.buffer.len() == 4096);
        let refused = queue.write(mine, 100, block(0), 0, Wait::Allowed).unwrap_err();
        assert!(matches!(refused.error, Error::Invalid));
        // Reads stop at the end of the file.
        f.set_len(9 * BLOCK + 700).unwrap();
        queue.read(mine, 8 * BLOCK, Buffer::new(4 * 4096), 9, Wait::Allowed).unwrap();
        let done = complete_all(&mut queue).remove(0);
        assert_eq!((done.tag, done.result.unwrap()), (9, 4096 + 700));
        assert!(done.buffer[..512].iter().all(|byte| *byte == 4));
        assert!(done.buffer[512..4096].iter().all(|byte| *byte == 0));
        assert!(done.buffer[4096..4796].iter().all(|byte| *byte == 5));
        let back = queue.detach(mine);
        assert_eq!(back.attr().size, 9 * BLOCK + 700);
        drop((queue, back));
        let whole = read(&f, 0..8 * BLOCK);
        let at = |n: usize| (whole[n], whole[n + 511]);
        assert_eq!([at(0), at(8192), at(8704), at(16384)], [(1, 1), (0, 0), (2, 2), (3, 3)]);
        drop(f);
        finish(&image, &device, volume);
    });
}

/// A failed write reports its own error, converts nothing and affects no other transfer (D2).
#[test]
fn a_failed_transfer_reports_its_own_error() {
    crate::variants().iter().for_each(|variant| {
        let image = need!(Image::make(64 << 20, KINDS[1].1));
        let memory = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(FaultDevice::new(memory, 1));
        let volume = Inodes::open(device.clone(), &variant.options).unwrap();
        let f = file(&volume, b"file");
        f.fallocate(FallocateMode::Allocate, 0, 64 * BLOCK).unwrap();
        let start = extents(&volume, &f)[0].physical;
        let at = |n: u64| start + n * BLOCK..start + (n + 1) * BLOCK;
        device.add(Rule::on(OpKind::Write, Fault::Error(libc::EIO)).within(at(20)));
        device.add(Rule::on(OpKind::Write, Fault::Error(libc::ENOSPC)).within(at(21)));
        device.add(Rule::on(OpKind::Write, Fault::Torn { sectors: 2 }).within(at(22)));
        let mut queue = volume.queue(16);
        let table = queue.attach(reopen(&volume, &f));
        (16..26).for_each(|n| write(&mut queue, table, n * BLOCK, block(n as u8)));
        for done in complete_all(&mut queue) {
            let n = done.tag / BLOCK;
            assert_eq!(done.result.is_ok(), !(20..23).contains(&n), "block {n}");
            assert!(done.result.is_ok() || matches!(done.result, Err(Error::Io(_))));
        }
        for n in 16..26u8 {
            let bytes = read(&f, u64::from(n) * BLOCK..u64::from(n + 1) * BLOCK);
            let wanted = if (20..23).contains(&n) { 0 } else { n };
            assert!(bytes.iter().all(|byte| *byte == wanted), "block {n}");
        }
        device.clear();
        (20..23).for_each(|n| write(&mut queue, table, n * BLOCK, block(n as u8)));
        complete_all_well(&mut queue);
        drop((queue, f));
        close(&volume);
        drop(volume);
        device.inner().save(&image.path()).unwrap();
        let report = need!(e2fs::e2fsck_recover(&image.path()));
        assert!(report.is_clean(), "{report:?}");
    });
}

/// No read returns stale bytes of the device while other transfers are in flight (D1).
#[test]
fn no_read_returns_stale_data() {
    crate::variants().iter().for_each(|variant| {
        let (image, device) = need!(stale(48 << 20, KINDS[1].1));
        let volume = opened_with(&device, variant);
        let f = file(&volume, b"file");
        f.fallocate(FallocateMode::Allocate, 0, 3 << 20).unwrap();
        f.set_len(6 << 20).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut queue = volume.queue(4);
                    let table = queue.attach(reopen(&volume, &f));
                    while !over.load(Ordering::Relaxed) {
                        for at in (0..6u64 << 20).step_by(1 << 18) {
                            queue.read(table, at, Buffer::new(1 << 18), at, Wait::Allowed).unwrap();
                        }
                        for done in complete_all(&mut queue) {
                            let n = done.result.unwrap();
                            for (at, piece) in done.buffer[..n].chunks(4096).enumerate() {
                                let own = ((done.tag / BLOCK + at as u64) * 7 + 1) as u8;
                                assert!(piece.iter().all(|byte| *byte == 0 || *byte == own));
                            }
                        }
                    }
                });
            }
            let writers: Vec<_> = (0..4)
                .map(|t| {
                    let (volume, f) = (&volume, &f);
                    scope.spawn(move || write_and_read(volume, f, t, 4, 1537))
                })
                .collect();
            let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            over.store(true, Ordering::Relaxed);
            assert!(ends.iter().all(Result::is_ok));
        });
        drop(f);
        finish(&image, &device, volume);
    });
}

/// An operation that removes blocks waits for transfers in flight (D4). The next submission to the
/// queue, or its drop, completes them.
#[test]
fn removals_wait_for_transfers() {
    crate::variants().iter().for_each(|variant| {
        let image = need!(Image::make(64 << 20, KINDS[1].1));
        let memory = MemoryDevice::load(&image.path()).unwrap();
        let device = Arc::new(LatencyDevice::new(memory, Duration::from_millis(3)));
        let volume = Inodes::open(device.clone(), &variant.options).unwrap();
        let f = file(&volume, b"file");
        for round in 0..6u64 {
            f.write_direct(0, &[1; 32 * 4096], Wait::Allowed).unwrap();
            f.fallocate(FallocateMode::Allocate, 32 * BLOCK, 32 * BLOCK).unwrap();
            let (began, cut) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|scope| {
                let (volume, f, began, cut) = (&volume, &f, &began, &cut);
                let worker = scope.spawn(move || {
                    let mut queue = volume.queue(8);
                    let table = queue.attach(reopen(volume, f));
                    (0..8).for_each(|n| write(&mut queue, table, n * 8 * BLOCK, block(2)));
                    began.store(true, Ordering::Release);
                    thread::sleep(Duration::from_millis(20));
                    assert!(!cut.load(Ordering::Acquire), "blocks were removed under a transfer");
                    if round % 2 == 0 {
                        write(&mut queue, table, BLOCK, block(3));
                        complete_all_well(&mut queue);
                    }
                });
                while !began.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                match round {
                    0 => f.set_len(0).unwrap(),
                    1 => f.fallocate(FallocateMode::PunchHole, 0, 40 * BLOCK).unwrap(),
                    2 => f.fallocate(FallocateMode::CollapseRange, 0, BLOCK).unwrap(),
                    3 => f.fallocate(FallocateMode::InsertRange, 0, BLOCK).unwrap(),
                    4 => {
                        let mode = FallocateMode::ZeroRange { keep_size: true };
                        f.fallocate(mode, 0, BLOCK).unwrap();
                    }
                    _ => f.set_len(BLOCK).unwrap(),
                }
                cut.store(true, Ordering::Release);
                worker.join().unwrap();
            });
            f.set_len(0).unwrap();
        }
        drop(f);
        close(&volume);
        drop(volume);
        device.inner().save(&image.path()).unwrap();
        e2fs::assert_clean(&image.path());
    });
}

/// Concurrent removals, writes of all kinds and reads of one file do not deadlock.
#[test]
fn removals_and_writes_do_not_deadlock() {
    crate::variants().iter().for_each(|variant| {
        let image = need!(Image::make(64 << 20, KINDS[1].1));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let slow = Arc::new(LatencyDevice::new(device.clone(), Duration::from_micros(30)));
        let volume = Inodes::open(slow, &variant.options).unwrap();
        let f = file(&volume, b"file");
        f.fallocate(FallocateMode::Allocate, 0, 128 * BLOCK).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for t in 0..4u64 {
                let (volume, f, over) = (&volume, &f, &over);
                scope.spawn(move || {
                    let mut queue = volume.queue(10);
                    let table = queue.attach(reopen(volume, f));
                    let mut done = Vec::new();
                    let mut n = t;
                    while !over.load(Ordering::Relaxed) {
                        n = (n * 13 + 7) % 160;
                        write(&mut queue, table, n * BLOCK, block(1));
                        let half = Buffer::from_bytes(&[1; 512]);
                        if n % 40 == 0 {
                            write(&mut queue, table, n * BLOCK + 512, half);
                        }
                        if queue.in_flight() >= 10 {
                            queue.complete(1, &mut done);
                        }
                        assert!(done.drain(..).all(|done| done.result.is_ok()));
                    }
                });
            }
            for n in 0..60u64 {
                match n % 4 {
                    0 => f.set_len((n % 7) * 16 * BLOCK).unwrap(),
                    1 => f.fallocate(FallocateMode::PunchHole, n * BLOCK, 9 * BLOCK).unwrap(),
                    2 => f.fallocate(FallocateMode::Allocate, 0, 128 * BLOCK).unwrap(),
                    _ => drop(f.fallocate(FallocateMode::CollapseRange, 0, BLOCK)),
                }
                thread::sleep(Duration::from_micros(500));
            }
            over.store(true, Ordering::Relaxed);
        });
        drop(f);
        finish(&image, &device, volume);
    });
}

/// A call with `Wait::Never` that would wait fails, and has no effect (D5).
#[test]
fn calls_that_must_not_wait() {
    crate::variants().iter().for_each(|variant| {
        let image = need!(Image::make(64 << 20, KINDS[1].1));
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        let volume = opened_with(&device, variant);
        let f = file(&volume, b"file");
        f.write_direct(0, &[1; 16 * 4096], Wait::Allowed).unwrap();
        f.fallocate(FallocateMode::Allocate, 16 * BLOCK, 16 * BLOCK).unwrap();
        f.set_len(64 * BLOCK).unwrap();
        let mut queue = volume.queue(4);
        let table = queue.attach(reopen(&volume, &f));
        let tried = |queue: &mut Queue<'_>, at: u64| {
            // The first write in a clock tick sets the times, and may wait for the journal.
            f.write_direct(0, &[1; 4096], Wait::Allowed).unwrap();
            queue.write(table, at, block(5), at, Wait::Never)
        };
        let overwritten = (0..100).any(|_| match tried(&mut queue, BLOCK) {
            Ok(()) => true,
            Err(refused) => {
                assert!(matches!(refused.error, Error::WouldBlock));
                false
            }
        });
        assert!(overwritten, "an overwrite is always refused");
        for at in [16 * BLOCK, 40 * BLOCK, 64 * BLOCK] {
            let refused = tried(&mut queue, at).unwrap_err();
            assert!(matches!(refused.error, Error::WouldBlock), "{at}");
        }
        queue.read(table, BLOCK, Buffer::new(4096), 0, Wait::Never).unwrap();
        complete_all_well(&mut queue);
        volume.freeze().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| f.set_len(64 * BLOCK));
            thread::sleep(Duration::from_millis(50));
            let began = now();
            let refused = queue.write(table, BLOCK, block(5), 0, Wait::Never);
            assert!(matches!(refused.unwrap_err().error, Error::WouldBlock));
            let refused = queue.read(table, BLOCK, block(5), 0, Wait::Never);
            assert!(matches!(refused.unwrap_err().error, Error::WouldBlock));
            assert!(began.elapsed() < Duration::from_secs(2));
            volume.thaw().unwrap();
            waits.join().unwrap().unwrap();
        });
        drop((queue, f));
        finish(&image, &device, volume);
    });
}

/// If the reserved pool has no block for the map, the writer holds the file exclusively.
#[test]
fn conversion_needs_no_space() {
    crate::variants().iter().for_each(|variant| {
        let (image, device) = need!(stale(24 << 20, &["-t", "ext4", "-b", "1024", "-m", "0"]));
        let volume = opened_with(&device, variant);
        let f = file(&volume, b"file");
        f.fallocate(FallocateMode::Allocate, 0, 4 << 20).unwrap();
        for n in 0.. {
            let name = format!("fill{n}");
            let made = volume.create_file(&Cred::root(), ROOT_INO, name.as_bytes(), 0o644);
            let Ok(filler) = made else { break };
            if filler.write(0, &vec![6; 100_000]).map_or(true, |written| written < 100_000) {
                break;
            }
        }
        thread::scope(|scope| {
            for t in 0..4u64 {
                let (volume, f) = (&volume, &f);
                scope.spawn(move || {
                    let mut queue = volume.queue(10);
                    let table = queue.attach(reopen(volume, f));
                    let mut done = Vec::new();
                    for n in (t..2048).step_by(4) {
                        let data = Buffer::from_bytes(&[t as u8 + 1; 1024]);
                        write(&mut queue, table, n * 2048, data);
                        if queue.in_flight() >= 10 {
                            queue.complete(1, &mut done);
                        }
                    }
                    complete_all_well(&mut queue);
                    assert!(done.into_iter().all(|done| done.result.unwrap() == 1024));
                });
            }
        });
        for (n, chunk) in read(&f, 0..4 << 20).chunks(1024).enumerate() {
            let own = if n % 2 == 0 { (n / 2 % 4) as u8 + 1 } else { 0 };
            assert!(chunk.iter().all(|byte| *byte == own), "block {n}");
        }
        drop(f);
        finish(&image, &device, volume);
    });
}

/// Power cuts with several transfers in flight. Each block has its data or zeros, and every flushed
/// block has its data (D1, D2, D6).
#[test]
fn power_cuts_show_no_stale_data() {
    crate::variants().iter().for_each(power_cuts_with);
}

fn power_cuts_with(variant: &Variant) {
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
            let (volume, f, device) = (&volume, &f, &device);
            scope.spawn(move || {
                let mut queue = volume.queue(6);
                let table = queue.attach(reopen(volume, f));
                let mut done = Vec::new();
                for n in 0..36 {
                    let at = (n * 37 + t * 11) % 36 * 3 + t;
                    write(&mut queue, table, at * BLOCK, block(at as u8 % 7 + 1));
                    if queue.in_flight() >= 6 {
                        queue.complete(2, &mut done);
                    }
                    if n % 6 == 5 {
                        queue.file(table).sync().unwrap();
                        for one in done.drain(..) {
                            one.result.unwrap();
                            device.mark(one.tag / BLOCK + 1);
                        }
                    }
                }
            });
        }
    });
    drop(f);
    close(&volume);
    let recording = device.recording();
    check_cuts(&recording, from);
}
