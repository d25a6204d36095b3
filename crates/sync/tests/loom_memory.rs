//! The gate of the memory device, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom_memory`.
//!
//! The pattern of `memory/gate.rs` and `memory/chunks.rs` in the device: who copies marks its slot,
//! passes a light barrier, looks whether the gate is closed and only then at the pointer to a
//! chunk, which it uses without a lock. Who frees closes the gate, passes a heavy barrier, waits
//! until no slot is marked, takes the pointer away and opens the gate again. A new chunk is
//! pointed to with the gate open.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nextent_sync::{Arc, PerCore, heavy_barrier, light_barrier, thread};

/// What a chunk in use holds.
const LIVE: u32 = 7;

/// What stands between stores and loads, and how the gate is left and opened.
#[derive(Clone, Copy)]
struct Rules {
    light: fn(),
    heavy: fn(),
    leave: Ordering,
    open: Ordering,
    point: Ordering,
}

const WHOLE: Rules = Rules {
    light: light_barrier,
    heavy: heavy_barrier,
    leave: Ordering::Release,
    open: Ordering::Release,
    point: Ordering::Release,
};

struct Memory {
    inside: PerCore<AtomicBool>,
    closed: AtomicBool,
    /// The chunk that may be used, and one; 0 for none.
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
        (rules.light)();
        if !self.closed.load(Ordering::Acquire) {
            let own = self.own.load(Ordering::Acquire);
            if let Some(at) = own.checked_sub(1) {
                // SAFETY: loom checks that nobody writes meanwhile.
                self.chunks[at].with(|chunk| unsafe { assert_eq!(*chunk, LIVE, "freed") });
            }
        }
        mark.store(false, rules.leave);
    }

    /// Frees the chunk, behind the closed gate.
    fn free(&self, rules: Rules) {
        self.closed.store(true, Ordering::Relaxed);
        (rules.heavy)();
        for mark in self.inside.used() {
            while mark.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        self.own.store(0, Ordering::Relaxed);
        // SAFETY: loom checks that nobody reads meanwhile.
        self.chunks[0].with_mut(|chunk| unsafe { *chunk = 0 });
        self.closed.store(false, rules.open);
    }

    /// Has another chunk, while others may copy.
    fn make(&self, rules: Rules) {
        // SAFETY: loom checks that nobody reads meanwhile: it is not pointed to yet.
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
                // Taking a slot orders things; that is not what is looked at.
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
fn nobody_uses_what_was_freed() {
    model(WHOLE);
}

#[test]
#[should_panic]
fn who_copies_needs_the_light_barrier() {
    model(Rules { light: || (), ..WHOLE });
}

#[test]
#[should_panic]
fn who_frees_needs_the_heavy_barrier() {
    model(Rules { heavy: || (), ..WHOLE });
}

#[test]
#[should_panic]
fn it_must_be_left_with_release() {
    model(Rules { leave: Ordering::Relaxed, ..WHOLE });
}

#[test]
#[should_panic]
fn it_must_be_opened_with_release() {
    model(Rules { open: Ordering::Relaxed, ..WHOLE });
}

#[test]
#[should_panic]
fn a_chunk_must_be_pointed_to_with_release() {
    model(Rules { point: Ordering::Relaxed, ..WHOLE });
}
