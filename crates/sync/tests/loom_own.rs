//! A lock that is let go by a plain store, and who sleeps for it, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom_own`.
//!
//! The pattern of `primitive/real/own.rs`: the sleeper counts itself in and looks again, with a
//! heavy barrier between unless an earlier sleeper has left word of one; who lets go stores, passes
//! a light barrier, looks for sleepers, and if there is anything passes a full fence and looks
//! again. A sleeper that nobody wakes is a deadlock, which loom finds.
#![cfg(feature = "model-loom")]

use loom::sync::{Condvar, Mutex};
use nextent_sync::atomic::{AtomicU32, Ordering, fence};
use nextent_sync::{Arc, heavy_barrier, light_barrier, thread};

const SHARP: u32 = 1 << 31;

/// What a variant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// The barrier of who lets go.
    Light,
    /// The fence of who lets go and finds word of a barrier.
    Fence,
}

struct Lock {
    held: AtomicU32,
    waiting: AtomicU32,
    /// Where threads sleep.
    queue: Mutex<()>,
    woken: Condvar,
    without: Without,
}

impl Lock {
    /// Held by the caller; with `sharp`, some sleeper has left word of its barrier.
    fn held(sharp: bool, without: Without) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicU32::new(1),
            waiting: AtomicU32::new(if sharp { SHARP } else { 0 }),
            queue: Mutex::new(()),
            woken: Condvar::new(),
            without,
        })
    }

    fn take(&self) -> bool {
        self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn wait(&self) {
        if self.waiting.fetch_add(1, Ordering::SeqCst) & SHARP == 0 {
            heavy_barrier();
            self.waiting.fetch_or(SHARP, Ordering::SeqCst);
        } else if self.without != Without::Fence {
            fence(Ordering::SeqCst);
        }
        while !self.take() {
            let queue = self.queue.lock().unwrap();
            if self.held.load(Ordering::SeqCst) != 0 {
                drop(self.woken.wait(queue).unwrap());
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
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
        let lock = Lock::held(sharp, without);
        let threads: Vec<_> = (0..sleepers)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    if !lock.take() {
                        lock.wait();
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
