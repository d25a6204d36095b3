//! A lock that is let go by a plain store, and who sleeps for it, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom_own`.
//!
//! The pattern of `primitive/real/own.rs`: the sleeper counts itself in and looks again, with a
//! heavy barrier between unless an earlier sleeper has left word of one; who lets go stores, passes
//! a light barrier, looks for sleepers, and if there is anything passes a full fence and looks
//! again. A sleeper that nobody wakes is a deadlock, which loom finds.
//!
//! And of the reader-writer lock: who wants it alone bars the others, then waits for those who
//! share it.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use nextent_sync::atomic::{AtomicU32, Ordering, fence};
use nextent_sync::{Arc, heavy_barrier, light_barrier, thread};

const SHARP: u32 = 1 << 31;
const EXCLUSIVE: u32 = 1 << 31;

/// What a variant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// The barrier of who lets go.
    Light,
    /// The fence of who lets go and finds word of a barrier.
    Fence,
    /// The waking of who has barred the lock by the last who shared it.
    Last,
}

struct Lock {
    held: AtomicU32,
    waiting: AtomicU32,
    /// Where threads sleep.
    queue: Mutex<()>,
    woken: Condvar,
    /// Where the one sleeps who has barred the lock.
    barring: Mutex<()>,
    last: Condvar,
    without: Without,
}

impl Lock {
    /// As `held` says; with `sharp`, some sleeper has left word of its barrier.
    fn new(held: u32, sharp: bool, without: Without) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicU32::new(held),
            waiting: AtomicU32::new(if sharp { SHARP } else { 0 }),
            queue: Mutex::new(()),
            woken: Condvar::new(),
            barring: Mutex::new(()),
            last: Condvar::new(),
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
                drop(self.last.wait(barring).unwrap());
            }
        }
        true
    }

    fn wait(&self, take: impl Fn(&Self) -> bool) {
        if self.waiting.fetch_add(1, Ordering::SeqCst) & SHARP == 0 {
            heavy_barrier();
            self.waiting.fetch_or(SHARP, Ordering::SeqCst);
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
            && self.without != Without::Last
        {
            drop(self.barring.lock().unwrap());
            self.last.notify_all();
        }
    }

    fn leave(&self) {
        self.held.store(0, Ordering::Release);
        if self.without != Without::Light {
            light_barrier();
        }
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.without != Without::Fence {
            fence(Ordering::SeqCst);
        }
        if self.waiting.load(Ordering::SeqCst) & !SHARP != 0 {
            drop(self.queue.lock().unwrap());
            self.woken.notify_all();
        } else {
            let _ = self.waiting.compare_exchange(SHARP, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
}

/// `sleepers` want a lock that the caller lets go.
fn model(sleepers: usize, sharp: bool, without: Without) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let lock = Lock::new(EXCLUSIVE, sharp, without);
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

/// The caller shares the lock with nobody yet; one thread wants it alone, `others` to share it. All
/// look at a value that only who is alone may change.
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
fn who_is_alone_is_alone_and_all_get_their_turn() {
    shared(0, Without::Nothing);
    shared(1, Without::Nothing);
}

#[test]
#[should_panic]
fn the_last_who_shares_wakes_who_bars() {
    shared(0, Without::Last);
}

#[test]
fn every_sleeper_is_woken() {
    model(1, false, Without::Nothing);
    model(2, false, Without::Nothing);
}

#[test]
fn word_of_a_barrier_stands_for_one() {
    model(1, true, Without::Nothing);
    model(2, true, Without::Nothing);
}

#[test]
#[should_panic]
fn who_lets_go_needs_the_light_barrier() {
    model(1, false, Without::Light);
}

#[test]
#[should_panic]
fn who_lets_go_with_word_of_a_barrier_needs_a_fence() {
    model(1, true, Without::Fence);
}
