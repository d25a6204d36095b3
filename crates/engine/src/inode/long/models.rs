//! Shuttle models of references against an exclusive holder, and of finishing together.
//!
//! Run with `cargo test -p nextent --features model-shuttle long::models`. In every schedule
//! nobody is inside while the holder is alone, nobody sleeps for ever, and all that was left to
//! others is done once or reported to the one it belongs to.

use nextent_ondisk::FileBlock;
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::shuttle::{check_pct, check_random};
use nextent_sync::{Arc, thread};

use super::{Finished, LongLock};

fn check(test: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(test.clone(), 3000);
    check_pct(test, 1500, 3);
}

fn inside(lock: &LongLock, inside: &AtomicU32, alone: &AtomicU32, never: bool) {
    let transfer = if never { lock.try_transfer() } else { Some(lock.transfer()) };
    let Some(transfer) = transfer else { return };
    inside.fetch_add(1, Ordering::SeqCst);
    assert_eq!(alone.load(Ordering::SeqCst), 0);
    inside.fetch_sub(1, Ordering::SeqCst);
    drop(transfer);
}

#[test]
fn nobody_is_inside_while_one_is_alone() {
    check(|| {
        let lock = Arc::new(LongLock::new());
        let (count, alone) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        // The short way is open in one half of the models.
        if nextent_sync::shuttle::rand::Rng::r#gen(&mut nextent_sync::shuttle::rand::thread_rng()) {
            lock.refs().enter_shared();
            lock.refs().leave();
        }
        let threads: Vec<_> = (0..2)
            .map(|t| {
                let (lock, count, alone) =
                    (Arc::clone(&lock), Arc::clone(&count), Arc::clone(&alone));
                thread::spawn(move || {
                    for n in 0..2 {
                        inside(&lock, &count, &alone, n == t);
                    }
                })
            })
            .collect();
        for n in 0..2 {
            let guard = if n == 0 { Some(lock.write()) } else { lock.try_write() };
            let Some(_guard) = guard else { continue };
            alone.store(1, Ordering::SeqCst);
            assert_eq!(count.load(Ordering::SeqCst), 0);
            alone.store(0, Ordering::SeqCst);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(lock.try_write().is_some());
    });
}

/// Buffered calls: a reference if the short way is open, else the lock held shared.
fn buffered(lock: &LongLock, inside: &AtomicU32, alone: &AtomicU32) {
    let enter = || {
        inside.fetch_add(1, Ordering::SeqCst);
        assert_eq!(alone.load(Ordering::SeqCst), 0);
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    if let Some(_transfer) = lock.short() {
        return enter();
    }
    let held = lock.read();
    lock.note_shared(&held);
    enter();
}

#[test]
fn buffered_calls_open_the_short_way_when_they_meet() {
    check(|| {
        let lock = Arc::new(LongLock::new());
        let (count, alone) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|t| {
                let (lock, count, alone) =
                    (Arc::clone(&lock), Arc::clone(&count), Arc::clone(&alone));
                thread::spawn(move || {
                    for _ in 0..4 {
                        buffered(&lock, &count, &alone);
                    }
                    inside(&lock, &count, &alone, t == 0);
                })
            })
            .collect();
        for n in 0..3 {
            let guard = if n != 1 { Some(lock.write()) } else { lock.try_write() };
            let Some(_guard) = guard else { continue };
            alone.store(1, Ordering::SeqCst);
            assert_eq!(count.load(Ordering::SeqCst), 0);
            alone.store(0, Ordering::SeqCst);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn a_reference_may_end_on_another_thread() {
    check(|| {
        let lock = Arc::new(LongLock::new());
        let ended = Arc::new(AtomicU32::new(0));
        let refs = lock.refs();
        refs.enter_shared();
        let other = {
            let (lock, ended) = (Arc::clone(&lock), Arc::clone(&ended));
            thread::spawn(move || {
                ended.store(1, Ordering::SeqCst);
                lock.refs().leave();
            })
        };
        let _alone = lock.write();
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        other.join().unwrap();
    });
}

/// A file's map, of a bit for each block.
#[derive(Default)]
struct Map(AtomicU32);

impl Map {
    /// Converts what was put off, or fails and leaves all or some of it.
    fn settle(&self, lock: &LongLock, fails: bool) -> Result<(), ()> {
        lock.refs().settle(|runs| {
            for run in runs.drain(runs.len().min(usize::from(fails))..) {
                (run.start.0..run.end.0).for_each(|at| {
                    self.0.fetch_or(1 << at, Ordering::SeqCst);
                });
            }
            if runs.is_empty() { Ok(()) } else { Err(()) }
        })
    }
}

/// Who was told that a write is done finds it, however many settle, fail and have the file alone.
#[test]
fn what_is_put_off_is_never_missed() {
    check(|| {
        let lock = Arc::new(LongLock::new());
        let (map, told) = (Arc::new(Map::default()), Arc::new(AtomicU32::new(0)));
        let writers: Vec<_> = (0..2u32)
            .map(|t| {
                let (lock, map, told) = (Arc::clone(&lock), Arc::clone(&map), Arc::clone(&told));
                thread::spawn(move || {
                    for n in 0..2 {
                        let at = 4 * t + 2 * n;
                        let transfer = lock.transfer();
                        let put = transfer.refs().defer(&[FileBlock(at)..FileBlock(at + 1)]);
                        if put.settle {
                            let _ = map.settle(&lock, n == t);
                        }
                        drop(transfer);
                        told.fetch_or(1 << at, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let alone = {
            let (lock, map, told) = (Arc::clone(&lock), Arc::clone(&map), Arc::clone(&told));
            thread::spawn(move || {
                let _alone = lock.write();
                map.settle(&lock, false).unwrap();
                assert!(lock.refs().is_settled());
                let known = told.load(Ordering::SeqCst);
                assert_eq!(map.0.load(Ordering::SeqCst) & known, known);
            })
        };
        for _ in 0..2 {
            let known = told.load(Ordering::SeqCst);
            if map.0.load(Ordering::SeqCst) & known == known {
                continue;
            }
            if !lock.refs().is_settled() {
                map.settle(&lock, false).unwrap();
            }
            assert_eq!(map.0.load(Ordering::SeqCst) & known, known);
        }
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        alone.join().unwrap();
        map.settle(&lock, false).unwrap();
        assert_eq!(map.0.load(Ordering::SeqCst), 0b0101_0101);
    });
}

#[test]
fn all_that_is_left_to_others_is_done() {
    check(|| {
        let lock = Arc::new(LongLock::new());
        let done = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..3u32)
            .map(|t| {
                let (lock, done) = (Arc::clone(&lock), Arc::clone(&done));
                thread::spawn(move || {
                    let own = Finished { blocks: vec![FileBlock(t)..FileBlock(t + 1)], size: 0 };
                    let told = lock.refs().finished.run(own, |all| {
                        if all.blocks.iter().any(|run| run.start.0 == 2) {
                            return Err(());
                        }
                        done.fetch_add(all.blocks.len() as u32, Ordering::SeqCst);
                        Ok(())
                    });
                    assert_eq!(told.is_err(), t == 2);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(done.load(Ordering::SeqCst), 2);
    });
}
