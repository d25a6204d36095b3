//! The lock and its references on real threads; what a slot has seen.

use nextent_ondisk::{BlockNo, FileBlock};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{Duration, thread};

use super::{Finished, LongLock, Seen};
use crate::map::{Extent, State};

#[test]
fn an_exclusive_holder_waits_for_references_and_keeps_new_ones_out() {
    let lock = LongLock::new();
    let inside = AtomicU32::new(0);
    let alone = AtomicU32::new(0);
    thread::scope(|scope| {
        for t in 0..6 {
            let (lock, inside, alone) = (&lock, &inside, &alone);
            scope.spawn(move || {
                for n in 0..4000 {
                    let transfer = match n % 7 {
                        0 => lock.try_transfer(),
                        1 | 2 if t < 3 => {
                            let short = lock.short();
                            if short.is_none() {
                                lock.note_shared(&lock.read());
                            }
                            short
                        }
                        _ => Some(lock.transfer()),
                    };
                    let Some(transfer) = transfer else { continue };
                    inside.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(alone.load(Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(transfer);
                }
            });
        }
        scope.spawn(|| {
            for n in 0..300 {
                let guard = if n % 3 == 0 { lock.try_write() } else { Some(lock.write()) };
                let Some(_guard) = guard else { continue };
                alone.store(1, Ordering::SeqCst);
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                thread::yield_now();
                alone.store(0, Ordering::SeqCst);
            }
        });
    });
}

#[test]
fn who_will_not_wait_does_not() {
    let lock = LongLock::new();
    let transfer = lock.transfer();
    assert!(lock.try_write().is_none());
    assert!(lock.try_transfer().is_some());
    drop(transfer);
    let guard = lock.try_write().expect("nobody is inside");
    assert!(lock.try_transfer().is_none());
    drop(guard);
    let edition = lock.transfer().edition;
    drop(lock.write());
    assert_ne!(lock.transfer().edition, edition);
}

#[test]
fn files_that_one_thread_uses_at_a_time_have_no_references() {
    let lock = LongLock::new();
    let held = || lock.note_shared(&lock.read());
    (0..1000).for_each(|_| held());
    thread::scope(|scope| scope.spawn(|| (0..1000).for_each(|_| held())).join().unwrap());
    assert!(lock.short().is_none());
    // Turns of two threads, each of a few calls.
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
    assert!(lock.short().is_some());
    // Closed for those who come seldom, and for longer each time that it was not worth it.
    for wait in [16, 32, 64] {
        drop(lock.write());
        assert!(lock.short().is_none());
        (0..1000).for_each(|_| held());
        assert!(lock.short().is_none());
        (0..=wait).for_each(|_| drop(lock.transfer()));
        assert!(lock.short().is_some());
    }
    (0..300).for_each(|_| drop(lock.short()));
    drop(lock.write());
    (0..=super::refs::CALM).for_each(|_| drop(lock.transfer()));
    assert!(lock.short().is_some());
}

fn extent(at: u32, start: u64, len: u32) -> Extent {
    Extent { at: FileBlock(at), start: BlockNo(start), len, state: State::Written }
}

fn fresh(at: u32, start: u64, len: u32) -> Extent {
    Extent { state: State::Unwritten, ..extent(at, start, len) }
}

#[test]
fn what_was_seen_is_of_its_edition() {
    let mut seen = Seen::default();
    let (at, start) = (FileBlock, BlockNo);
    seen.note_size(1, 700);
    seen.note_written(1, &[extent(10, 100, 5), fresh(15, 105, 3), extent(30, 120, 10)]);
    assert_eq!((seen.size(1), seen.size(2)), (700, 0));
    assert_eq!(seen.written(1, at(12), 9), Some((start(102), 3)));
    assert_eq!(seen.written(1, at(12), 2), Some((start(102), 2)));
    assert_eq!(seen.written(1, at(15), 2), None);
    assert_eq!(seen.written(1, at(35), 90), Some((start(125), 5)));
    assert_eq!(seen.written(2, at(12), 2), None);
    // An extent that has grown on both sides, by what is known and what is not.
    seen.note_written(1, &[extent(8, 98, 9)]);
    assert_eq!(seen.written(1, at(8), 90), Some((start(98), 9)));
    seen.note_written(1, &[extent(12, 102, 30)]);
    assert_eq!(seen.written(1, at(9), 90), Some((start(99), 33)));
    // What goes on behind it, on the device or not.
    seen.note_written(1, &[extent(42, 132, 2), extent(44, 500, 2)]);
    assert_eq!(seen.written(1, at(9), 90), Some((start(99), 35)));
    assert_eq!(seen.written(1, at(44), 90), Some((start(500), 2)));
    assert_eq!(seen.written(1, at(46), 90), None);
    seen.note_written(2, &[extent(20_000, 9, 1)]);
    assert_eq!((seen.written(2, at(12), 1), seen.size(2)), (None, 0));
    for n in 0..5000 {
        seen.note_written(2, &[extent(3 * n, u64::from(9 * n), 2)]);
        assert_eq!(seen.written(2, at(3 * n + 1), 8), Some((start(u64::from(9 * n) + 1), 1)));
    }
}

#[test]
fn a_damaged_map_that_gives_a_block_two_places_is_not_believed() {
    let mut seen = Seen::default();
    seen.note_written(1, &[extent(10, 100, 5), extent(30, 300, 5)]);
    seen.note_written(1, &[extent(14, 700, 3)]);
    for block in [10, 14, 30] {
        assert_eq!(seen.written(1, FileBlock(block), 1), None);
    }
}

#[test]
fn places_of_unwritten_blocks_are_kept_while_they_are_worth_it() {
    let mut seen = Seen::default();
    let (at, start) = (FileBlock, BlockNo);
    let note = |seen: &mut Seen, of, n| seen.note_fresh(of, &[fresh(100 * n, 1000, 50)]);
    for n in 0..3 {
        note(&mut seen, (1, 0), n);
        assert_eq!(seen.fresh((1, 0), at(100 * n), 9), None);
    }
    // A look that found data begins anew.
    seen.note_written(1, &[extent(900, 90, 1)]);
    for n in 0..4 {
        note(&mut seen, (1, 0), n);
    }
    assert_eq!(seen.fresh((1, 0), at(310), 9), Some((start(1010), 9)));
    assert_eq!(seen.fresh((1, 0), at(345), 9), Some((start(1045), 5)));
    assert_eq!(seen.fresh((1, 0), at(350), 9), None);
    assert_eq!(seen.fresh((1, 1), at(310), 9), None);
    assert_eq!(seen.fresh((2, 0), at(310), 9), None);
    // Neighbours of the block that was asked for: pieces of which some is unwritten.
    seen.note_fresh(
        (1, 0),
        &[extent(400, 1100, 8), fresh(408, 1108, 2), extent(410, 1110, 4), extent(420, 1200, 9)],
    );
    assert_eq!(seen.fresh((1, 0), at(400), 90), Some((start(1100), 14)));
    assert_eq!(seen.fresh((1, 0), at(420), 90), None);
    note(&mut seen, (1, 1), 8);
    assert_eq!(seen.fresh((1, 1), at(310), 9), None);
    assert_eq!(seen.fresh((1, 1), at(849), 9), Some((start(1049), 1)));
    for n in 0..200 {
        note(&mut seen, (1, 1), n);
        assert_eq!(seen.fresh((1, 1), at(100 * n + 1), 1), Some((start(1001), 1)));
    }
    seen.note_size(2, 5);
    note(&mut seen, (2, 1), 3);
    assert_eq!(seen.fresh((2, 1), at(801), 1), None);
}

/// Whoever has the file alone zeroes what is in none of the runs, so it must be given all of them.
#[test]
fn what_is_put_off_comes_in_parts_or_as_one() {
    let lock = LongLock::new();
    let runs = 100_000;
    let put = || {
        for n in (0..runs).rev() {
            let _ = lock.refs().defer(&[FileBlock(2 * n)..FileBlock(2 * n + 1)]);
        }
    };
    let settled = |as_one: bool, fails: bool| {
        let mut lists = Vec::new();
        let convert = |runs: &mut Vec<std::ops::Range<FileBlock>>| {
            assert!(runs.is_sorted_by(|a, b| a.end < b.start));
            lists.push(runs.len() as u32);
            if fails { Err(()) } else { Ok(()) }
        };
        let done = match as_one {
            true => lock.refs().settle_as_one(convert),
            false => lock.refs().settle(convert),
        };
        assert_eq!(done.is_err(), fails);
        lists
    };
    put();
    assert!(settled(false, false).len() > 1);
    assert!(lock.refs().is_settled());
    put();
    assert_eq!(settled(false, true).len(), 1);
    assert!(!lock.refs().is_settled());
    assert_eq!(settled(true, false), [runs]);
    assert!(lock.refs().is_settled());
}

#[test]
fn those_who_finish_together_are_served_together_and_hear_of_failure() {
    let lock = LongLock::new();
    let (done, batches) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for thread in 0..8u32 {
            let (lock, done, batches) = (&lock, &done, &batches);
            scope.spawn(move || {
                for n in 0..200 {
                    let block = FileBlock(thread * 1000 + n);
                    let own = Finished { blocks: vec![block..FileBlock(block.0 + 1)], size: 0 };
                    let bad = n % 10 == 9;
                    let outcome = lock.refs().finished.run(own, |all: Finished| {
                        batches.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_micros(20));
                        // One that cannot be done spoils its batch, and alone says so.
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
