//! The gate of the memory device, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom_memory`.
//!
//! The pattern of `memory/gate.rs` and `memory/chunks.rs` in the device. A thread that copies marks
//! its slot, passes the fast side of the asymmetric barrier, checks that the gate is open and only
//! then loads the pointer to a chunk, which it uses without a lock. A thread that frees closes the
//! gate, passes the slow side, waits until no slot is marked, clears the pointer and opens the gate
//! again. The pointer to a new chunk is stored while the gate is open.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{Arc, PerCore, asymmetric_fast, asymmetric_slow, thread};

/// The contents of a chunk in use.
const LIVE: u32 = 7;

/// The barriers between stores and loads, and the orderings of three stores.
#[derive(Clone, Copy)]
struct Rules {
    fast: fn(),
    slow: fn(),
    leave: Ordering,
    open: Ordering,
    point: Ordering,
}

const WHOLE: Rules = Rules {
    fast: asymmetric_fast,
    slow: asymmetric_slow,
    leave: Ordering::Release,
    open: Ordering::Release,
    point: Ordering::Release,
};

struct Memory {
    inside: PerCore<AtomicBool>,
    closed: AtomicBool,
    /// The chunk that may be used, plus one; 0 for none.
    own: AtomicUsize,
    chunks: [UnsafeCell<u32>; 2],
}

// SAFETY: loom checks that the cells are used as the gate promises.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inside: PerCore::new(|_| AtomicBool::new(false)),
            closed: AtomicBool::new(false),
            own: AtomicUsize::new(1),
            chunks: [UnsafeCell::new(LIVE), UnsafeCell::new(0)],
        })
    }

    /// Uses the chunk if the gate is open and there is one.
    fn copy(&self, rules: Rules) {
        let mark = self.inside.here();
        mark.store(true, Ordering::Relaxed);
        (rules.fast)();
        if !self.closed.load(Ordering::Acquire) {
            let own = self.own.load(Ordering::Acquire);
            if let Some(at) = own.checked_sub(1) {
                // SAFETY: loom checks that no thread writes meanwhile.
                self.chunks[at].with(|chunk| unsafe { assert_eq!(*chunk, LIVE, "freed") });
            }
        }
        mark.store(false, rules.leave);
    }

    /// Frees the chunk, behind the closed gate.
    fn free(&self, rules: Rules) {
        self.closed.store(true, Ordering::Relaxed);
        (rules.slow)();
        for mark in self.inside.used() {
            while mark.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        self.own.store(0, Ordering::Relaxed);
        // SAFETY: loom checks that no thread reads meanwhile.
        self.chunks[0].with_mut(|chunk| unsafe { *chunk = 0 });
        self.closed.store(false, rules.open);
    }

    /// Makes another chunk, while other threads may copy.
    fn make(&self, rules: Rules) {
        // SAFETY: loom checks that no thread reads meanwhile: no pointer leads to it yet.
        self.chunks[1].with_mut(|chunk| unsafe { *chunk = LIVE });
        self.own.store(2, rules.point);
    }
}

fn model(rules: Rules) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let memory = Memory::new();
        let copies = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                // Taking a slot orders memory, which is not under test.
                let _ = memory.inside.here();
                memory.copy(rules);
                memory.copy(rules);
            })
        };
        memory.free(rules);
        memory.make(rules);
        copies.join().unwrap();
    });
}

#[test]
fn no_thread_uses_a_freed_chunk() {
    model(WHOLE);
}

#[test]
#[should_panic]
fn a_copy_needs_the_fast_side() {
    model(Rules { fast: || (), ..WHOLE });
}

#[test]
#[should_panic]
fn a_free_needs_the_slow_side() {
    model(Rules { slow: || (), ..WHOLE });
}

#[test]
#[should_panic]
fn a_copy_must_end_with_release() {
    model(Rules { leave: Ordering::Relaxed, ..WHOLE });
}

#[test]
#[should_panic]
fn the_gate_must_open_with_release() {
    model(Rules { open: Ordering::Relaxed, ..WHOLE });
}

#[test]
#[should_panic]
fn a_pointer_must_be_stored_with_release() {
    model(Rules { point: Ordering::Relaxed, ..WHOLE });
}
