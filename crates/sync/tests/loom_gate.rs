//! The journal's gate, all executions: `cargo test -p nextent-sync --features model-loom`.
//!
//! The commit closes it in two steps: it passes the slow side of the asymmetric barrier while the
//! gate is still open (`CLOSING`), and a full fence is enough afterwards (`RESERVED_ONLY`). In a
//! model the fast side is a full fence, which is stronger than it is to anything but the slow side.
//! So the steps after the slow side are modelled without the fast side.
//!
//! In state `OPEN_FENCED` handles pass a full fence as in `CLOSING`, and the commit closes the gate
//! in one step. A handle may make it `OPEN` meanwhile.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use nextent_sync::{Arc, asymmetric_fast, asymmetric_slow, thread};

const OPEN: u32 = 0;
const CLOSING: u32 = 1;
const RESERVED_ONLY: u32 = 2;
const OPEN_FENCED: u32 = 3;

struct Gate {
    pin: AtomicU32,
    word: AtomicU32,
    awaited: AtomicBool,
    guarded: UnsafeCell<u32>,
}

// SAFETY: loom checks that the cell is used as the gate promises.
unsafe impl Sync for Gate {}
// SAFETY: as above.
unsafe impl Send for Gate {}

/// The fences between stores and loads: of a handle, of a handle that must fence, of the commit.
#[derive(Clone, Copy)]
struct Fences {
    fast: fn(),
    full: fn(),
    slow: fn(),
    leave: Ordering,
    /// The commit assumes that the gate is still `OPEN_FENCED`.
    trusting: bool,
}

const WHOLE: Fences = Fences {
    fast: asymmetric_fast,
    full: full_fence,
    slow: asymmetric_slow,
    leave: Ordering::Release,
    trusting: false,
};

fn full_fence() {
    fence(Ordering::SeqCst);
}

impl Gate {
    /// Joins if the state admits it, and leaves; whether it must wake the commit.
    fn handle(&self, reopens: bool, fences: Fences) -> bool {
        self.pin.store(1, Ordering::Relaxed);
        (fences.fast)();
        let mut state = self.word.load(Ordering::Acquire);
        if state != OPEN {
            (fences.full)();
            state = self.word.load(Ordering::Acquire);
        }
        if reopens && state == OPEN_FENCED {
            let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.word.compare_exchange(OPEN_FENCED, OPEN, order, failed);
        }
        if state != RESERVED_ONLY {
            // SAFETY: loom checks that no thread writes meanwhile.
            self.guarded.with(|value| unsafe { assert_eq!(*value, 0) });
        }
        self.pin.store(0, fences.leave);
        (fences.fast)();
        if self.word.load(Ordering::Acquire) == OPEN {
            return false;
        }
        (fences.full)();
        self.awaited.load(Ordering::Relaxed)
    }

    /// Closes a gate in state `from`; false if the commit would sleep until the handle wakes it.
    fn close(&self, from: u32, fences: Fences) -> bool {
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let fenced = from == OPEN_FENCED || fences.trusting;
        let closed =
            fenced && self.word.compare_exchange(OPEN_FENCED, RESERVED_ONLY, order, failed).is_ok();
        if !closed && from != CLOSING && !fences.trusting {
            self.word.store(CLOSING, Ordering::Release);
            (fences.slow)();
        }
        self.word.store(RESERVED_ONLY, Ordering::Release);
        full_fence();
        let left = || self.pin.load(Ordering::Acquire) == 0;
        let drained = left() || {
            self.awaited.store(true, Ordering::Relaxed);
            full_fence();
            left()
        };
        if drained {
            // SAFETY: loom checks that no thread reads meanwhile.
            self.guarded.with_mut(|value| unsafe { *value = 1 });
        }
        drained
    }
}

fn closed(from: u32, fences: Fences) {
    closed_beside(false, from, fences);
}

/// As `closed`; with `reopens`, the handle joins twice and first makes an `OPEN_FENCED` gate
/// `OPEN`.
fn closed_beside(reopens: bool, from: u32, fences: Fences) {
    loom::model(move || {
        let gate = Arc::new(Gate {
            pin: AtomicU32::new(0),
            word: AtomicU32::new(from),
            awaited: AtomicBool::new(false),
            guarded: UnsafeCell::new(0),
        });
        let handle = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let woken = reopens && gate.handle(true, fences);
                gate.handle(false, fences) || woken
            })
        };
        let drained = gate.close(from, fences);
        let woken = handle.join().expect("no panic");
        assert!(drained || woken, "the commit sleeps for ever");
    });
}

#[test]
fn the_gate_excludes_handles_from_the_first_step_on() {
    closed(OPEN, WHOLE);
}

#[test]
fn the_second_step_needs_no_asymmetric_barrier() {
    closed(CLOSING, Fences { fast: || (), ..WHOLE });
}

#[test]
fn an_open_fenced_gate_closes_in_one_step_without_barriers() {
    closed(OPEN_FENCED, Fences { fast: || (), ..WHOLE });
}

#[test]
fn a_gate_that_a_handle_makes_open_closes_in_two_steps() {
    closed_beside(true, OPEN_FENCED, WHOLE);
}

/// The step that closes it must check that the gate is still `OPEN_FENCED`.
#[test]
#[should_panic]
fn an_open_fenced_gate_may_become_open() {
    let unfenced = Fences { fast: || (), ..WHOLE };
    closed_beside(true, OPEN_FENCED, Fences { trusting: true, ..unfenced });
}

/// The slow side alone orders nothing.
#[test]
#[should_panic]
fn the_first_step_needs_the_fast_side() {
    closed(OPEN, Fences { fast: || (), ..WHOLE });
}

#[test]
#[should_panic]
fn the_second_step_needs_the_full_fence_of_a_handle() {
    closed(CLOSING, Fences { fast: || (), full: || (), ..WHOLE });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_handle_must_leave_with_release() {
    closed(OPEN, Fences { leave: Ordering::Relaxed, ..WHOLE });
}
