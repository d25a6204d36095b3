//! The journal's gate, all executions: `cargo test -p nextent-sync --features model-loom`.
//!
//! It is closed in two steps, so that the heavy barrier is passed while it is open (Closing) and a
//! fence is enough afterwards (Locked). In a model a light barrier is a full fence, which is more
//! than it is to anything but a heavy one; so what happens after the heavy barrier is modelled
//! without it.
//!
//! Or it is sharp: handles pass a fence as if it were closing, and one step closes it. A handle may
//! make it running again meanwhile.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use nextent_sync::{Arc, heavy_barrier, light_barrier, thread};

const RUNNING: u32 = 0;
const CLOSING: u32 = 1;
const LOCKED: u32 = 2;
const SHARP: u32 = 3;

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

/// What stands between stores and loads: of a handle, of one that is late, of the commit.
#[derive(Clone, Copy)]
struct Fences {
    light: fn(),
    late: fn(),
    heavy: fn(),
    leave: Ordering,
    /// The commit takes it that the gate is still sharp.
    trusting: bool,
}

const WHOLE: Fences = Fences {
    light: light_barrier,
    late: full,
    heavy: heavy_barrier,
    leave: Ordering::Release,
    trusting: false,
};

fn full() {
    fence(Ordering::SeqCst);
}

impl Gate {
    /// Joins if the gate lets it, and leaves; whether it has to wake the commit.
    fn handle(&self, calm: bool, fences: Fences) -> bool {
        self.pin.store(1, Ordering::Relaxed);
        (fences.light)();
        let mut state = self.word.load(Ordering::Acquire);
        if state != RUNNING {
            (fences.late)();
            state = self.word.load(Ordering::Acquire);
        }
        if calm && state == SHARP {
            let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.word.compare_exchange(SHARP, RUNNING, order, failed);
        }
        if state != LOCKED {
            // SAFETY: loom checks that nobody writes meanwhile.
            self.guarded.with(|value| unsafe { assert_eq!(*value, 0) });
        }
        self.pin.store(0, fences.leave);
        (fences.light)();
        if self.word.load(Ordering::Acquire) == RUNNING {
            return false;
        }
        (fences.late)();
        self.awaited.load(Ordering::Relaxed)
    }

    /// Closes a gate that is in `from`; false if it would sleep until the handle wakes it.
    fn close(&self, from: u32, fences: Fences) -> bool {
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let sharp = from == SHARP || fences.trusting;
        let locked = sharp && self.word.compare_exchange(SHARP, LOCKED, order, failed).is_ok();
        if !locked && from != CLOSING && !fences.trusting {
            self.word.store(CLOSING, Ordering::Release);
            (fences.heavy)();
        }
        self.word.store(LOCKED, Ordering::Release);
        full();
        let left = || self.pin.load(Ordering::Acquire) == 0;
        let drained = left() || {
            self.awaited.store(true, Ordering::Relaxed);
            full();
            left()
        };
        if drained {
            // SAFETY: loom checks that nobody reads meanwhile.
            self.guarded.with_mut(|value| unsafe { *value = 1 });
        }
        drained
    }
}

fn closed(from: u32, fences: Fences) {
    closed_beside(false, from, fences);
}

/// The same; with `calm`, the handle comes twice and makes a sharp gate running first.
fn closed_beside(calm: bool, from: u32, fences: Fences) {
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
                let woken = calm && gate.handle(true, fences);
                gate.handle(false, fences) || woken
            })
        };
        let drained = gate.close(from, fences);
        let woken = handle.join().expect("no panic");
        assert!(drained || woken, "asleep for ever");
    });
}

#[test]
fn it_holds_from_the_first_step() {
    closed(RUNNING, WHOLE);
}

#[test]
fn the_second_step_needs_no_light_barrier() {
    closed(CLOSING, Fences { light: || (), ..WHOLE });
}

#[test]
fn a_sharp_one_is_closed_in_one_step_without_barriers() {
    closed(SHARP, Fences { light: || (), ..WHOLE });
}

#[test]
fn a_sharp_one_that_runs_again_is_closed_in_two() {
    closed_beside(true, SHARP, WHOLE);
}

/// Whether it is still sharp must be found out by the step that locks it.
#[test]
#[should_panic]
fn a_gate_that_was_sharp_may_run_again() {
    let unfenced = Fences { light: || (), ..WHOLE };
    closed_beside(true, SHARP, Fences { trusting: true, ..unfenced });
}

/// Which is to nothing without the heavy one.
#[test]
#[should_panic]
fn the_first_step_needs_the_light_barrier() {
    closed(RUNNING, Fences { light: || (), ..WHOLE });
}

#[test]
#[should_panic]
fn the_second_step_needs_the_fence_of_the_late() {
    closed(CLOSING, Fences { light: || (), late: || (), ..WHOLE });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_must_be_left_with_release() {
    closed(RUNNING, Fences { leave: Ordering::Relaxed, ..WHOLE });
}
