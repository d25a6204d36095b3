//! A biased lock and its sleepers, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom_biased`.
//!
//! The pattern of `primitive/real/biased.rs`. A sleeper counts itself in, passes the slow side of
//! the asymmetric barrier unless an earlier sleeper has set `FENCED`, and checks the lock again. A
//! release stores, passes the fast side, and loads the count; if that is not zero, it passes a full
//! fence and loads it again. A sleeper that no release wakes is a deadlock, which loom reports.
//!
//! Of the reader-writer lock: a writer bars other threads, then waits for the present readers.

#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use nextent_sync::atomic::{AtomicU32, Ordering, fence};
use nextent_sync::{Arc, asymmetric_fast, asymmetric_slow, thread};

const FENCED: u32 = 1 << 31;
const EXCLUSIVE: u32 = 1 << 31;

/// The step that a variant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// The fast side in a release.
    FastSide,
    /// The full fence of both sides while `FENCED` is set.
    Fence,
    /// The last reader's wake-up of the writer that has barred the lock.
    WriterWakeUp,
}

struct Lock {
    held: AtomicU32,
    waiting: AtomicU32,
    /// Threads sleep under this.
    queue: Mutex<()>,
    woken: Condvar,
    /// The writer that has barred the lock sleeps under this.
    barring: Mutex<()>,
    last_left: Condvar,
    without: Without,
}

impl Lock {
    /// A lock in state `held`; with `fenced`, an earlier sleeper has set `FENCED`.
    fn new(held: u32, fenced: bool, without: Without) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicU32::new(held),
            waiting: AtomicU32::new(if fenced { FENCED } else { 0 }),
            queue: Mutex::new(()),
            woken: Condvar::new(),
            barring: Mutex::new(()),
            last_left: Condvar::new(),
            without,
        })
    }

    fn take(&self) -> bool {
        self.held.compare_exchange(0, EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn share(&self) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
        held < EXCLUSIVE && self.held.compare_exchange(held, held + 1, order, failed).is_ok()
    }

    fn bar(&self) -> bool {
        if self.held.fetch_or(EXCLUSIVE, Ordering::Acquire) & EXCLUSIVE != 0 {
            return false;
        }
        while self.held.load(Ordering::Acquire) != EXCLUSIVE {
            let barring = self.barring.lock().unwrap();
            if self.held.load(Ordering::Acquire) != EXCLUSIVE {
                drop(self.last_left.wait(barring).unwrap());
            }
        }
        true
    }

    fn wait(&self, take: impl Fn(&Self) -> bool) {
        if self.waiting.fetch_add(1, Ordering::SeqCst) & FENCED == 0 {
            asymmetric_slow();
            self.waiting.fetch_or(FENCED, Ordering::SeqCst);
        } else if self.without != Without::Fence {
            fence(Ordering::SeqCst);
        }
        while !take(self) {
            let queue = self.queue.lock().unwrap();
            if self.held.load(Ordering::SeqCst) & EXCLUSIVE != 0 {
                drop(self.woken.wait(queue).unwrap());
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn leave_shared(&self) {
        if self.held.fetch_sub(1, Ordering::Release) == EXCLUSIVE + 1
            && self.without != Without::WriterWakeUp
        {
            drop(self.barring.lock().unwrap());
            self.last_left.notify_all();
        }
    }

    fn leave(&self) {
        self.held.store(0, Ordering::Release);
        if self.without != Without::FastSide {
            asymmetric_fast();
        }
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.without != Without::Fence {
            fence(Ordering::SeqCst);
        }
        if self.waiting.load(Ordering::SeqCst) & !FENCED != 0 {
            drop(self.queue.lock().unwrap());
            self.woken.notify_all();
        } else {
            let _ = self.waiting.compare_exchange(FENCED, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
}

/// `sleepers` threads wait for a lock that the caller releases.
fn model(sleepers: usize, fenced: bool, without: Without) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let lock = Lock::new(EXCLUSIVE, fenced, without);
        let threads: Vec<_> = (0..sleepers)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    if !lock.take() {
                        lock.wait(Lock::take);
                    }
                    lock.leave();
                })
            })
            .collect();
        lock.leave();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// The caller is the only reader; one thread wants to write, `others` want to read. All read a
/// value that only a writer may change.
fn shared(others: usize, without: Without) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let lock = Lock::new(1, false, without);
        let value = Arc::new(UnsafeCell::new(0_u32));
        let threads: Vec<_> = (0..=others)
            .map(|n| {
                let (lock, value) = (Arc::clone(&lock), Arc::clone(&value));
                thread::spawn(move || {
                    if n == 0 {
                        if !lock.take() {
                            lock.wait(Lock::bar);
                        }
                        value.with_mut(|value| unsafe { *value += 1 });
                        lock.leave();
                    } else {
                        if !lock.share() {
                            lock.wait(Lock::share);
                        }
                        value.with(|value| unsafe { assert!(*value <= 1) });
                        lock.leave_shared();
                    }
                })
            })
            .collect();
        value.with(|value| unsafe { assert_eq!(*value, 0) });
        lock.leave_shared();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_writer_excludes_readers_and_all_get_the_lock() {
    shared(0, Without::Nothing);
    shared(1, Without::Nothing);
}

#[test]
#[should_panic]
fn the_last_reader_must_wake_the_writer() {
    shared(0, Without::WriterWakeUp);
}

#[test]
fn every_sleeper_is_woken() {
    model(1, false, Without::Nothing);
    model(2, false, Without::Nothing);
}

#[test]
fn an_earlier_slow_side_is_enough() {
    model(1, true, Without::Nothing);
    model(2, true, Without::Nothing);
}

#[test]
#[should_panic]
fn a_release_needs_the_fast_side() {
    model(1, false, Without::FastSide);
}

#[test]
#[should_panic]
fn a_release_needs_the_fence_while_fenced() {
    model(1, true, Without::Fence);
}
