//! The lock and its references on real threads; what a slot has seen.

use nextent_ondisk::{BlockNo, FileBlock};
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::{Duration, thread};

use super::{Finished, LongLock, Seen};

#[test]
fn an_exclusive_holder_waits_for_references_and_keeps_new_ones_out() {
    let lock = LongLock::new();
    let inside = AtomicU32::new(0);
    let alone = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for n in 0..4000 {
                    let transfer = match n % 7 {
                        0 => lock.try_transfer(),
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
fn what_was_seen_is_of_its_edition() {
    let mut seen = Seen::default();
    let (at, start) = (FileBlock, BlockNo);
    seen.note_size(1, 700);
    seen.note_written(1, at(10), start(100), 5);
    seen.note_written(1, at(30), start(300), 10);
    assert_eq!((seen.size(1), seen.size(2)), (700, 0));
    assert_eq!(seen.written(1, at(12), 9), Some((start(102), 3)));
    assert_eq!(seen.written(1, at(12), 2), Some((start(102), 2)));
    assert_eq!(seen.written(1, at(15), 2), None);
    assert_eq!(seen.written(2, at(12), 2), None);
    // An extent that has grown on both sides, by what is known and what is not.
    seen.note_written(1, at(8), start(98), 9);
    assert_eq!(seen.written(1, at(8), 90), Some((start(98), 9)));
    seen.note_written(1, at(12), start(102), 30);
    assert_eq!(seen.written(1, at(9), 90), Some((start(99), 33)));
    assert_eq!(seen.written(1, at(42), 90), None);
    seen.note_written(2, at(1), start(9), 1);
    assert_eq!((seen.written(2, at(12), 1), seen.size(2)), (None, 0));
    for n in 0..5000 {
        seen.note_written(2, at(3 * n), start(u64::from(9 * n)), 2);
        assert_eq!(seen.written(2, at(3 * n + 1), 8), Some((start(u64::from(9 * n) + 1), 1)));
    }
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
