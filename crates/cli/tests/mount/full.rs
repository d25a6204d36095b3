//! A volume that is full: `write(2)` says so.

use crate::support::*;
use nextent_testkit::need;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SIZE: u64 = 32 << 20;

fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::StorageFull
}

/// Writes until that fails; the number of bytes that write(2) took.
#[track_caller]
fn write_until_full(file: &mut File, piece: usize) -> u64 {
    let (data, mut taken) = (vec![7; piece], 0);
    while taken <= SIZE {
        match file.write(&data) {
            Ok(n) => taken += n as u64,
            Err(error) => {
                assert!(is_full(&error), "{error}");
                return taken;
            }
        }
    }
    panic!("wrote {} MiB into {} MiB", taken >> 20, SIZE >> 20);
}

#[test]
fn writes_without_end_are_refused() {
    need!(with_each(&["", "direct_io"], "32m", |mount, options| {
        for (append, piece) in [(false, 128 << 10), (true, 4096)] {
            let path = mount.join("big");
            let mut file =
                OpenOptions::new().create(true).append(append).write(true).open(&path).unwrap();
            let taken = write_until_full(&mut file, piece);
            let found = file.metadata().unwrap();
            assert_eq!(found.len(), taken, "{options}");
            assert!(found.blocks() * 512 >= taken, "{options}");
            file.sync_all().unwrap();
            drop(file);
            std::fs::remove_file(&path).unwrap();
            // With space again no write is refused. The kernel releases a closed file later, which
            // frees its space. Until then write(2) may fail.
            wait_until("space", || {
                let mut next = File::create(mount.join("next")).unwrap();
                let written = next.write_all(&vec![1; 1 << 20]);
                next.sync_all().unwrap();
                assert!(written.as_ref().err().is_none_or(is_full), "{written:?}");
                written.is_ok()
            });
            std::fs::remove_file(mount.join("next")).unwrap();
        }
    }));
}

/// A file that filled the volume is truncated and written like any other. Allocated blocks are
/// written also on a full volume.
#[test]
fn a_full_volume_takes_writes_that_need_no_space() {
    need!(with_each(&[""], "32m", |mount, _| {
        let has = File::create(mount.join("has")).unwrap();
        has.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        has.sync_all().unwrap();
        let mut big = File::create(mount.join("big")).unwrap();
        write_until_full(&mut big, 128 << 10);
        for round in 2..5 {
            has.write_all_at(&vec![round; 1 << 20], 0).unwrap();
            has.sync_all().unwrap();
        }
        big.sync_all().unwrap();
        big.set_len(0).unwrap();
        big.write_all_at(&vec![9; 1 << 20], 0).unwrap();
        big.sync_all().unwrap();
        assert_eq!(std::fs::read(mount.join("has")).unwrap(), vec![4; 1 << 20]);
        assert_eq!(std::fs::read(mount.join("big")).unwrap(), vec![9; 1 << 20]);
    }));
}

/// A write that fits in part writes that part, and the next one fails.
#[test]
fn a_write_may_fit_in_part() {
    need!(with_each(&["", "direct_io"], "32m", |mount, options| {
        let fill = File::create(mount.join("fill")).unwrap();
        let len = take_all(&fill);
        fill.set_len(len - (600 << 10)).unwrap();
        fill.sync_all().unwrap();
        let mut last = File::create(mount.join("last")).unwrap();
        let written = last.write_all(&vec![5; 1 << 20]);
        assert!(written.is_err_and(|error| is_full(&error)), "{options}: no error was reported");
        last.sync_all().unwrap();
        let found = std::fs::read(mount.join("last")).unwrap();
        assert!(found.iter().all(|byte| *byte == 5) && found.len() < 1 << 20, "{options}");
    }));
}

/// A write that needs the blocks of a removed file waits until the kernel has released that file.
/// The file is closed while the write waits. A round counts only if the write started earlier.
#[test]
fn a_write_waits_for_the_blocks_of_a_removed_file() {
    need!(with_each(&["", "direct_io"], "32m", |mount, options| {
        let overlapped = (0..20).any(|_| {
            let big = File::create(mount.join("big")).unwrap();
            take_all(&big);
            std::fs::remove_file(mount.join("big")).unwrap();
            let next = File::create(mount.join("next")).unwrap();
            let closed = AtomicBool::new(false);
            let (early, written) = std::thread::scope(|scope| {
                let closed = &closed;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(50));
                    closed.store(true, Ordering::SeqCst);
                    drop(big);
                });
                let early = !closed.load(Ordering::SeqCst);
                (early, next.write_all_at(&vec![1; 1 << 20], 0))
            });
            std::fs::remove_file(mount.join("next")).unwrap();
            assert!(written.as_ref().err().is_none_or(is_full), "{options}: {written:?}");
            early && written.is_ok()
        });
        assert!(overlapped, "{options}: no write waited");
    }));
}

#[test]
fn the_blocks_of_a_closed_file_are_free_at_once() {
    need!(with_each(&["", "direct_io"], "32m", |mount, options| {
        for round in 0..50 {
            let big = File::create(mount.join("big")).unwrap();
            let empty = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&big, empty, 0, 20 << 20).unwrap();
            let written = big.write_all_at(&vec![1; 1 << 20], 20 << 20);
            assert!(written.is_ok(), "{options}, round {round}: {written:?}");
            std::fs::remove_file(mount.join("big")).unwrap();
        }
    }));
}

/// A removed file that a process has open keeps its blocks. Writes wait in vain, then fail.
#[test]
fn an_open_file_keeps_its_blocks() {
    need!(with_each(&["", "direct_io"], "32m", |mount, options| {
        let big = File::create(mount.join("big")).unwrap();
        take_all(&big);
        std::fs::remove_file(mount.join("big")).unwrap();
        let next = File::create(mount.join("next")).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let written = next.write_all_at(&vec![1; 1 << 20], 0);
                    assert!(written.as_ref().is_err_and(is_full), "{options}: {written:?}");
                });
            }
        });
        drop(big);
    }));
}
