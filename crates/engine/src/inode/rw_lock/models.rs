//! Shuttle models of transfers against an exclusive holder, and of group conversion.
//!
//! Run with `cargo test -p nextent --features model-shuttle rw_lock::models`. In every schedule no
//! transfer is in flight during an exclusive hold, every sleeper is woken, and each write is
//! converted once or its error is returned to its own transfer.

use nextent_ondisk::FileBlock;
use nextent_sync::atomic::{AtomicU32, Ordering};
use nextent_sync::shuttle::{check_pct, check_random};
use nextent_sync::{Arc, thread};

use super::{InodeRwLock, PendingConversion};

fn check(test: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(test.clone(), 3000);
    check_pct(test, 1500, 3);
}

/// A lock, and what its holders do.
struct Model {
    lock: InodeRwLock,
    in_flight: AtomicU32,
    exclusive: AtomicU32,
}

impl Model {
    fn new() -> Self {
        let [in_flight, exclusive] = [AtomicU32::new(0), AtomicU32::new(0)];
        Self { lock: InodeRwLock::new(), in_flight, exclusive }
    }

    /// A transfer, by a caller that excludes exclusive holders.
    fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.exclusive.load(Ordering::SeqCst), 0);
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    fn transfer_once(&self, never: bool) {
        let lock = &self.lock;
        let transfer = if never { lock.try_begin_transfer() } else { Some(lock.begin_transfer()) };
        if transfer.is_some() {
            self.enter();
        }
    }

    /// A buffered call: a fast-path transfer if that is open, else the lock held shared.
    fn buffered(&self) {
        if let Some(_transfer) = self.lock.try_fast_transfer() {
            return self.enter();
        }
        let held = self.lock.read();
        self.lock.note_shared(&held);
        self.enter();
    }

    fn hold_exclusively(&self, never: bool) {
        let guard = if never { self.lock.try_write() } else { Some(self.lock.write()) };
        let Some(_guard) = guard else { return };
        self.exclusive.store(1, Ordering::SeqCst);
        assert_eq!(self.in_flight.load(Ordering::SeqCst), 0);
        self.exclusive.store(0, Ordering::SeqCst);
    }

    /// Runs `calls` on two threads, while the caller holds the lock exclusively `holds` times. The
    /// second time it does not wait.
    fn run(self, holds: u32, calls: fn(&Self, u32)) {
        let model = Arc::new(self);
        let threads: Vec<_> = (0..2)
            .map(|t| {
                let model = Arc::clone(&model);
                thread::spawn(move || calls(&model, t))
            })
            .collect();
        (0..holds).for_each(|n| model.hold_exclusively(n == 1));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(model.lock.try_write().is_some());
    }
}

#[test]
fn no_transfer_is_in_flight_during_an_exclusive_hold() {
    check(|| {
        let model = Model::new();
        // The fast path is open in half of the runs.
        if nextent_sync::shuttle::rand::Rng::r#gen(&mut nextent_sync::shuttle::rand::thread_rng()) {
            model.lock.io().begin_locked();
            model.lock.io().end();
        }
        model.run(2, |model, t| (0..2).for_each(|n| model.transfer_once(n == t)));
    });
}

#[test]
fn buffered_calls_of_two_slots_open_the_fast_path() {
    check(|| {
        Model::new().run(3, |model, t| {
            (0..4).for_each(|_| model.buffered());
            model.transfer_once(t == 0);
        });
    });
}

#[test]
fn a_transfer_may_end_on_another_thread() {
    check(|| {
        let lock = Arc::new(InodeRwLock::new());
        let ended = Arc::new(AtomicU32::new(0));
        let io = lock.io();
        io.begin_locked();
        let other = {
            let (lock, ended) = (Arc::clone(&lock), Arc::clone(&ended));
            thread::spawn(move || {
                ended.store(1, Ordering::SeqCst);
                lock.io().end();
            })
        };
        let _exclusive = lock.write();
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        other.join().unwrap();
    });
}

/// A file's map, one bit for each block.
#[derive(Default)]
struct Map(AtomicU32);

impl Map {
    /// Converts what was deferred; with `fails` it fails and leaves some or all runs.
    fn complete(&self, lock: &InodeRwLock, fails: bool) -> Result<(), ()> {
        lock.io().complete_deferred(|runs| {
            for run in runs.drain(runs.len().min(usize::from(fails))..) {
                (run.start.0..run.end.0).for_each(|at| {
                    self.0.fetch_or(1 << at, Ordering::SeqCst);
                });
            }
            if runs.is_empty() { Ok(()) } else { Err(()) }
        })
    }
}

/// A write that has ended is found, whatever other threads complete, fail to convert or hold.
#[test]
fn deferred_conversions_are_never_missed() {
    check(|| {
        let lock = Arc::new(InodeRwLock::new());
        let (map, done) = (Arc::new(Map::default()), Arc::new(AtomicU32::new(0)));
        let writers: Vec<_> = (0..2u32)
            .map(|t| {
                let (lock, map, done) = (Arc::clone(&lock), Arc::clone(&map), Arc::clone(&done));
                thread::spawn(move || {
                    for n in 0..2 {
                        let at = 4 * t + 2 * n;
                        let transfer = lock.begin_transfer();
                        let deferral = transfer.io().defer(&[FileBlock(at)..FileBlock(at + 1)]);
                        if deferral.complete {
                            let _ = map.complete(&lock, n == t);
                        }
                        drop(transfer);
                        done.fetch_or(1 << at, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let exclusive = {
            let (lock, map, done) = (Arc::clone(&lock), Arc::clone(&map), Arc::clone(&done));
            thread::spawn(move || {
                let _exclusive = lock.write();
                map.complete(&lock, false).unwrap();
                assert!(lock.io().map_is_current());
                let known = done.load(Ordering::SeqCst);
                assert_eq!(map.0.load(Ordering::SeqCst) & known, known);
            })
        };
        for _ in 0..2 {
            let known = done.load(Ordering::SeqCst);
            if map.0.load(Ordering::SeqCst) & known == known {
                continue;
            }
            if !lock.io().map_is_current() {
                map.complete(&lock, false).unwrap();
            }
            assert_eq!(map.0.load(Ordering::SeqCst) & known, known);
        }
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        exclusive.join().unwrap();
        map.complete(&lock, false).unwrap();
        assert_eq!(map.0.load(Ordering::SeqCst), 0b0101_0101);
    });
}

#[test]
fn delegated_conversions_are_done() {
    check(|| {
        let lock = Arc::new(InodeRwLock::new());
        let done = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..3u32)
            .map(|t| {
                let (lock, done) = (Arc::clone(&lock), Arc::clone(&done));
                thread::spawn(move || {
                    let own =
                        PendingConversion { blocks: vec![FileBlock(t)..FileBlock(t + 1)], size: 0 };
                    let done = lock.io().group.run(own, |all| {
                        if all.blocks.iter().any(|run| run.start.0 == 2) {
                            return Err(());
                        }
                        done.fetch_add(all.blocks.len() as u32, Ordering::SeqCst);
                        Ok(())
                    });
                    assert_eq!(done.is_err(), t == 2);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(done.load(Ordering::SeqCst), 2);
    });
}
