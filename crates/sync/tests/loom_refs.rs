//! An in-flight count that threads raise and lower in slots of their own, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom_refs`.
//!
//! The pattern of the in-flight I/O counts of an inode in the engine. A thread that needs exclusive
//! access closes the fast path, passes the slow side of the asymmetric barrier, and sums all ends,
//! then all begins. Equal sums mean that nothing is in flight. That an end needs a release store is
//! in `loom.rs`.

#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use nextent_sync::{Arc, PerCore, asymmetric_fast, asymmetric_slow, thread};

const BEGUN: usize = 0;
const ENDED: usize = 1;

struct InFlight {
    counts: PerCore<[AtomicU64; 2]>,
    open: AtomicBool,
    guarded: UnsafeCell<u32>,
}

// SAFETY: loom checks that the cell is used as the counts promise.
unsafe impl Sync for InFlight {}
// SAFETY: as above.
unsafe impl Send for InFlight {}

impl InFlight {
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
        self.count(BEGUN, Ordering::Release);
        barrier();
        if self.open.load(Ordering::Acquire) {
            return true;
        }
        self.count(ENDED, Ordering::Release);
        false
    }

    fn use_guarded(&self) {
        // SAFETY: loom checks that no thread writes meanwhile.
        self.guarded.with(|value| unsafe { assert_eq!(*value, 0) });
    }

    fn sum(&self, what: usize) -> u64 {
        self.counts.used().map(|count| count[what].load(Ordering::Acquire)).sum()
    }

    /// Closes the fast path and changes the guarded value if nothing is in flight.
    fn exclusive(&self, barrier: fn(), order: [usize; 2]) {
        self.open.store(false, Ordering::Relaxed);
        barrier();
        let first = self.sum(order[0]);
        if first == self.sum(order[1]) {
            // SAFETY: loom checks that no thread reads meanwhile.
            self.guarded.with_mut(|value| unsafe { *value = 1 });
        }
    }
}

/// One count begins here and ends on another thread; a third thread tries to begin one meanwhile.
fn model(order: [usize; 2]) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let in_flight = InFlight::new();
        assert!(in_flight.enter(asymmetric_fast));
        let ends = {
            let in_flight = Arc::clone(&in_flight);
            thread::spawn(move || {
                // Taking a slot orders memory, which is not under test.
                let _ = in_flight.counts.here();
                in_flight.use_guarded();
                in_flight.count(ENDED, Ordering::Release);
            })
        };
        let tries = {
            let in_flight = Arc::clone(&in_flight);
            thread::spawn(move || {
                if in_flight.enter(asymmetric_fast) {
                    in_flight.use_guarded();
                    in_flight.count(ENDED, Ordering::Release);
                }
            })
        };
        in_flight.exclusive(asymmetric_slow, order);
        ends.join().unwrap();
        tries.join().unwrap();
    });
}

#[test]
fn equal_sums_mean_that_nothing_is_in_flight() {
    model([ENDED, BEGUN]);
}

#[test]
#[should_panic]
fn begins_must_not_be_summed_first() {
    model([BEGUN, ENDED]);
}

#[test]
#[should_panic]
fn a_begin_needs_the_fast_side() {
    loom::model(|| {
        let in_flight = InFlight::new();
        let tries = {
            let in_flight = Arc::clone(&in_flight);
            thread::spawn(move || {
                if in_flight.enter(|| {}) {
                    in_flight.use_guarded();
                    in_flight.count(ENDED, Ordering::Release);
                }
            })
        };
        in_flight.exclusive(asymmetric_slow, [ENDED, BEGUN]);
        tries.join().unwrap();
    });
}
