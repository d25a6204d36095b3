//! References counted apart when they come and when they go, ended on any thread, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom_refs`.
//!
//! The pattern of `inode::long` in the engine: who wants to be alone closes the way, passes a heavy
//! barrier and sums all departures, then all arrivals. Equal sums mean that nobody is inside.
//! That leaving needs a release store is in `loom.rs`.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use nextent_sync::{Arc, PerCore, heavy_barrier, light_barrier, thread};

const CAME: usize = 0;
const WENT: usize = 1;

struct Refs {
    counts: PerCore<[AtomicU64; 2]>,
    open: AtomicBool,
    guarded: UnsafeCell<u32>,
}

// SAFETY: loom checks that the cell is used as the counts promise.
unsafe impl Sync for Refs {}
// SAFETY: as above.
unsafe impl Send for Refs {}

impl Refs {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            counts: PerCore::new(|_| [AtomicU64::new(0), AtomicU64::new(0)]),
            open: AtomicBool::new(true),
            guarded: UnsafeCell::new(0),
        })
    }

    fn count(&self, what: usize, ordering: Ordering) {
        let own = &self.counts.here()[what];
        own.store(own.load(Ordering::Relaxed) + 1, ordering);
    }

    fn enter(&self, barrier: fn()) -> bool {
        self.count(CAME, Ordering::Release);
        barrier();
        if self.open.load(Ordering::Acquire) {
            return true;
        }
        self.count(WENT, Ordering::Release);
        false
    }

    fn look(&self) {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.guarded.with(|value| unsafe { assert_eq!(*value, 0) });
    }

    fn sum(&self, what: usize) -> u64 {
        self.counts.used().map(|count| count[what].load(Ordering::Acquire)).sum()
    }

    /// Closes the way and changes what is guarded if nobody is inside.
    fn alone(&self, barrier: fn(), order: [usize; 2]) {
        self.open.store(false, Ordering::Relaxed);
        barrier();
        let first = self.sum(order[0]);
        if first == self.sum(order[1]) {
            // SAFETY: loom checks that nobody reads meanwhile.
            self.guarded.with_mut(|value| unsafe { *value = 1 });
        }
    }
}

/// One reference is begun here and ended on another thread, one is tried for meanwhile.
fn model(order: [usize; 2]) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let refs = Refs::new();
        assert!(refs.enter(light_barrier));
        let ends = {
            let refs = Arc::clone(&refs);
            thread::spawn(move || {
                // Taking a slot orders things; that is not what is looked at.
                let _ = refs.counts.here();
                refs.look();
                refs.count(WENT, Ordering::Release);
            })
        };
        let tries = {
            let refs = Arc::clone(&refs);
            thread::spawn(move || {
                if refs.enter(light_barrier) {
                    refs.look();
                    refs.count(WENT, Ordering::Release);
                }
            })
        };
        refs.alone(heavy_barrier, order);
        ends.join().unwrap();
        tries.join().unwrap();
    });
}

#[test]
fn equal_sums_mean_that_nobody_is_inside() {
    model([WENT, CAME]);
}

#[test]
#[should_panic]
fn arrivals_are_not_summed_first() {
    model([CAME, WENT]);
}

#[test]
#[should_panic]
fn the_barrier_of_who_comes_is_needed() {
    loom::model(|| {
        let refs = Refs::new();
        let tries = {
            let refs = Arc::clone(&refs);
            thread::spawn(move || {
                if refs.enter(|| {}) {
                    refs.look();
                    refs.count(WENT, Ordering::Release);
                }
            })
        };
        refs.alone(heavy_barrier, [WENT, CAME]);
        tries.join().unwrap();
    });
}
