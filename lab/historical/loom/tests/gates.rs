//! Loom models of the historical gates, which check every execution.
//!
//! Run with `cargo test -p nextent-historical-loom --features model-loom`.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use nextent_sync::{Arc, KindMutex, KindRwLock, LockClass, LockKind, thread};

/// The gate of jbd2 from 2.6.36 on: a handle joins under a reader lock and leaves without a lock.
struct RwLockGate {
    closed: KindRwLock<bool>,
    updates: AtomicU32,
    guarded: UnsafeCell<u32>,
}

// SAFETY: loom checks that the gate excludes conflicting accesses of the cell.
unsafe impl Sync for RwLockGate {}
// SAFETY: as above.
unsafe impl Send for RwLockGate {}

static JOURNAL: LockClass = LockClass::new("journal", 1);
static HANDLES: LockClass = LockClass::new("handles", 2);
/// A bit in the count: a commit waits until the count is zero.
const AWAITED: u32 = 1 << 31;

impl RwLockGate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            closed: KindRwLock::of_kind(LockKind::Sleep, &JOURNAL, false),
            updates: AtomicU32::new(0),
            guarded: UnsafeCell::new(0),
        })
    }

    /// Joins and leaves. Returns whether the handle must wake a commit.
    fn handle(&self, locked: bool, leave: Ordering) -> bool {
        let journal = self.closed.read();
        if *journal {
            return false;
        }
        if !locked {
            drop(journal);
            self.updates.fetch_add(1, Ordering::Relaxed);
        } else {
            self.updates.fetch_add(1, Ordering::Relaxed);
            drop(journal);
        }
        // SAFETY: loom checks that no thread writes meanwhile.
        self.guarded.with(|value| unsafe { assert_eq!(*value, 0) });
        self.updates.fetch_sub(1, leave) == AWAITED + 1
    }

    /// Closes the gate. Returns whether no handle is inside.
    fn close(&self) -> bool {
        let mut journal = self.closed.write();
        *journal = true;
        self.updates.fetch_or(AWAITED, Ordering::Relaxed);
        drop(journal);
        let drained = self.updates.load(Ordering::Acquire) == AWAITED;
        if drained {
            // SAFETY: loom checks that no thread reads meanwhile.
            self.guarded.with_mut(|value| unsafe { *value = 1 });
        }
        drained
    }
}

fn handle_against_commit(locked: bool, leave: Ordering) -> impl Fn() + Sync + Send + 'static {
    move || {
        let gate = RwLockGate::new();
        let handle = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.handle(locked, leave))
        };
        let drained = gate.close();
        let woken = handle.join().expect("no panic");
        assert!(drained || woken, "the commit was not woken");
    }
}

#[test]
fn the_gate_excludes_and_wakes_the_commit() {
    loom::model(handle_against_commit(true, Ordering::Release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_handle_must_leave_with_release() {
    loom::model(handle_against_commit(true, Ordering::Relaxed));
}

#[test]
#[should_panic]
fn a_handle_must_join_under_the_lock() {
    loom::model(handle_against_commit(false, Ordering::Release));
}

/// The hack of 2010: a handle decrements the count under the count's lock, and loads without a lock
/// whether a commit waits. The count's lock alone ensures that one of the two sees the other.
#[test]
fn an_unlocked_stop_wakes_the_commit() {
    loom::model(|| {
        let handles = Arc::new(KindMutex::of_kind(LockKind::Sleep, &HANDLES, 1));
        let closed = Arc::new(AtomicBool::new(false));
        let stop = {
            let (handles, closed) = (Arc::clone(&handles), Arc::clone(&closed));
            thread::spawn(move || {
                *handles.lock() -= 1;
                closed.load(Ordering::Relaxed)
            })
        };
        closed.store(true, Ordering::Relaxed);
        let drained = *handles.lock() == 0;
        let woken = stop.join().expect("no panic");
        assert!(drained || woken, "the commit was not woken");
    });
}
