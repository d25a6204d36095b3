//! The lock and its transfers on real threads; the extent cache.

use nextent_ondisk::{BlockNo, FileBlock};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{Duration, thread};

use super::{ExtentCache, InodeRwLock, PendingConversion};
use crate::map::{Extent, ExtentState};

#[test]
fn an_exclusive_holder_drains_transfers_and_excludes_new_ones() {
    let lock = InodeRwLock::new();
    let in_flight = AtomicU32::new(0);
    let exclusive = AtomicU32::new(0);
    thread::scope(|scope| {
        for t in 0..6 {
            let (lock, in_flight, exclusive) = (&lock, &in_flight, &exclusive);
            scope.spawn(move || {
                for n in 0..4000 {
                    let transfer = match n % 7 {
                        0 => lock.try_begin_transfer(),
                        1 | 2 if t < 3 => {
                            let fast = lock.try_fast_transfer();
                            if fast.is_none() {
                                lock.note_shared(&lock.read());
                            }
                            fast
                        }
                        _ => Some(lock.begin_transfer()),
                    };
                    let Some(transfer) = transfer else { continue };
                    in_flight.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(exclusive.load(Ordering::SeqCst), 0);
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                    drop(transfer);
                }
            });
        }
        scope.spawn(|| {
            for n in 0..300 {
                let guard = if n % 3 == 0 { lock.try_write() } else { Some(lock.write()) };
                let Some(_guard) = guard else { continue };
                exclusive.store(1, Ordering::SeqCst);
                assert_eq!(in_flight.load(Ordering::SeqCst), 0);
                thread::yield_now();
                exclusive.store(0, Ordering::SeqCst);
            }
        });
    });
}

#[test]
fn calls_that_must_not_wait_do_not() {
    let lock = InodeRwLock::new();
    let transfer = lock.begin_transfer();
    assert!(lock.try_write().is_none());
    assert!(lock.try_begin_transfer().is_some());
    drop(transfer);
    let guard = lock.try_write().expect("no transfer is in flight");
    assert!(lock.try_begin_transfer().is_none());
    drop(guard);
    let generation = lock.begin_transfer().generation;
    drop(lock.write());
    assert_ne!(lock.begin_transfer().generation, generation);
}

#[test]
fn a_file_used_by_one_slot_at_a_time_gets_no_shared_io() {
    let lock = InodeRwLock::new();
    let held = || lock.note_shared(&lock.read());
    (0..1000).for_each(|_| held());
    thread::scope(|scope| scope.spawn(|| (0..1000).for_each(|_| held())).join().unwrap());
    assert!(lock.try_fast_transfer().is_none());
    // The two threads take turns, each for a few calls.
    let turn = AtomicU32::new(0);
    thread::scope(|scope| {
        for me in 0..2 {
            let (turn, held) = (&turn, &held);
            scope.spawn(move || {
                for n in 0..80 {
                    while turn.load(Ordering::SeqCst) != 2 * n + me {
                        thread::yield_now();
                    }
                    held();
                    turn.store(2 * n + me + 1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(lock.try_fast_transfer().is_some());
    // The fast path reopens later each time that few transfers have used it.
    for wait in [16, 32, 64] {
        drop(lock.write());
        assert!(lock.try_fast_transfer().is_none());
        (0..1000).for_each(|_| held());
        assert!(lock.try_fast_transfer().is_none());
        (0..=wait).for_each(|_| drop(lock.begin_transfer()));
        assert!(lock.try_fast_transfer().is_some());
    }
    (0..300).for_each(|_| drop(lock.try_fast_transfer()));
    drop(lock.write());
    (0..=super::shared_io::SLOW_BEGINS).for_each(|_| drop(lock.begin_transfer()));
    assert!(lock.try_fast_transfer().is_some());
}

fn extent(at: u32, start: u64, len: u32) -> Extent {
    Extent { at: FileBlock(at), start: BlockNo(start), len, state: ExtentState::Written }
}

fn unwritten(at: u32, start: u64, len: u32) -> Extent {
    Extent { state: ExtentState::Unwritten, ..extent(at, start, len) }
}

#[test]
fn cached_extents_are_valid_for_one_generation() {
    let mut cache = ExtentCache::default();
    let (at, start) = (FileBlock, BlockNo);
    cache.note_size(1, 700);
    cache.note_written(1, &[extent(10, 100, 5), unwritten(15, 105, 3), extent(30, 120, 10)]);
    assert_eq!((cache.size(1), cache.size(2)), (700, 0));
    assert_eq!(cache.written(1, at(12), 9), Some((start(102), 3)));
    assert_eq!(cache.written(1, at(12), 2), Some((start(102), 2)));
    assert_eq!(cache.written(1, at(15), 2), None);
    assert_eq!(cache.written(1, at(35), 90), Some((start(125), 5)));
    assert_eq!(cache.written(2, at(12), 2), None);
    // An extent that extends a cached one on both sides.
    cache.note_written(1, &[extent(8, 98, 9)]);
    assert_eq!(cache.written(1, at(8), 90), Some((start(98), 9)));
    cache.note_written(1, &[extent(12, 102, 30)]);
    assert_eq!(cache.written(1, at(9), 90), Some((start(99), 33)));
    // Adjacent in the file; on the device the first is adjacent and the second is not.
    cache.note_written(1, &[extent(42, 132, 2), extent(44, 500, 2)]);
    assert_eq!(cache.written(1, at(9), 90), Some((start(99), 35)));
    assert_eq!(cache.written(1, at(44), 90), Some((start(500), 2)));
    assert_eq!(cache.written(1, at(46), 90), None);
    cache.note_written(2, &[extent(20_000, 9, 1)]);
    assert_eq!((cache.written(2, at(12), 1), cache.size(2)), (None, 0));
    for n in 0..5000 {
        cache.note_written(2, &[extent(3 * n, u64::from(9 * n), 2)]);
        assert_eq!(cache.written(2, at(3 * n + 1), 8), Some((start(u64::from(9 * n) + 1), 1)));
    }
}

#[test]
fn extents_of_a_damaged_map_are_not_cached() {
    let mut cache = ExtentCache::default();
    cache.note_written(1, &[extent(10, 100, 5), extent(30, 300, 5)]);
    cache.note_written(1, &[extent(14, 700, 3)]);
    for block in [10, 14, 30] {
        assert_eq!(cache.written(1, FileBlock(block), 1), None);
    }
}

#[test]
fn unwritten_extents_are_cached_until_conversions_are_needless() {
    let mut cache = ExtentCache::default();
    let (at, start) = (FileBlock, BlockNo);
    let note =
        |cache: &mut ExtentCache, of, n| cache.note_unwritten(of, &[unwritten(100 * n, 1000, 50)]);
    for n in 0..3 {
        note(&mut cache, (1, 0), n);
        assert_eq!(cache.unwritten((1, 0), at(100 * n), 9), None);
    }
    // A lookup that found data ends the streak.
    cache.note_written(1, &[extent(900, 90, 1)]);
    for n in 0..4 {
        note(&mut cache, (1, 0), n);
    }
    assert_eq!(cache.unwritten((1, 0), at(310), 9), Some((start(1010), 9)));
    assert_eq!(cache.unwritten((1, 0), at(345), 9), Some((start(1045), 5)));
    assert_eq!(cache.unwritten((1, 0), at(350), 9), None);
    assert_eq!(cache.unwritten((1, 1), at(310), 9), None);
    assert_eq!(cache.unwritten((2, 0), at(310), 9), None);
    // Neighbours of the block: a contiguous piece is cached if any of its extents is unwritten.
    cache.note_unwritten(
        (1, 0),
        &[
            extent(400, 1100, 8),
            unwritten(408, 1108, 2),
            extent(410, 1110, 4),
            extent(420, 1200, 9),
        ],
    );
    assert_eq!(cache.unwritten((1, 0), at(400), 90), Some((start(1100), 14)));
    assert_eq!(cache.unwritten((1, 0), at(420), 90), None);
    note(&mut cache, (1, 1), 8);
    assert_eq!(cache.unwritten((1, 1), at(310), 9), None);
    assert_eq!(cache.unwritten((1, 1), at(849), 9), Some((start(1049), 1)));
    for n in 0..200 {
        note(&mut cache, (1, 1), n);
        assert_eq!(cache.unwritten((1, 1), at(100 * n + 1), 1), Some((start(1001), 1)));
    }
    cache.note_size(2, 5);
    note(&mut cache, (2, 1), 3);
    assert_eq!(cache.unwritten((2, 1), at(801), 1), None);
}

/// The exclusive holder zeroes the gaps between runs, so it must get all runs at once.
#[test]
fn deferred_runs_come_in_batches_or_as_one() {
    let lock = InodeRwLock::new();
    let runs = 100_000;
    let defer_all = || {
        for n in (0..runs).rev() {
            let _ = lock.io().defer(&[FileBlock(2 * n)..FileBlock(2 * n + 1)]);
        }
    };
    let convert_all = |as_one: bool, fails: bool| {
        let mut lists = Vec::new();
        let convert = |runs: &mut Vec<std::ops::Range<FileBlock>>| {
            assert!(runs.is_sorted_by(|a, b| a.end < b.start));
            lists.push(runs.len() as u32);
            if fails { Err(()) } else { Ok(()) }
        };
        let done = match as_one {
            true => lock.io().complete_deferred_as_one(convert),
            false => lock.io().complete_deferred(convert),
        };
        assert_eq!(done.is_err(), fails);
        lists
    };
    defer_all();
    assert!(convert_all(false, false).len() > 1);
    assert!(lock.io().map_is_current());
    defer_all();
    assert_eq!(convert_all(false, true).len(), 1);
    assert!(!lock.io().map_is_current());
    assert_eq!(convert_all(true, false), [runs]);
    assert!(lock.io().map_is_current());
}

#[test]
fn concurrent_conversions_are_batched_and_report_failures() {
    let lock = InodeRwLock::new();
    let (done, batches) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for thread in 0..8u32 {
            let (lock, done, batches) = (&lock, &done, &batches);
            scope.spawn(move || {
                for n in 0..200 {
                    let block = FileBlock(thread * 1000 + n);
                    let own =
                        PendingConversion { blocks: vec![block..FileBlock(block.0 + 1)], size: 0 };
                    let bad = n % 10 == 9;
                    let outcome = lock.io().group.run(own, |all: PendingConversion| {
                        batches.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_micros(20));
                        // One bad write fails its batch; afterwards only its own transfer gets the
                        // error.
                        if all.blocks.iter().any(|run| run.start.0 % 10 == 9) {
                            return Err(());
                        }
                        done.fetch_add(all.blocks.len() as u32, Ordering::Relaxed);
                        Ok(())
                    });
                    assert_eq!(outcome.is_err(), bad);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 8 * 180);
    assert!(batches.into_inner() > 0);
}
