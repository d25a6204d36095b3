//! Patterns that rely on weak memory, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom`.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use nextent_sync::{
    Arc, LockClass, Mutex, OnceLock, PerCore, SLOTS, asymmetric_fast, asymmetric_slow,
    current_slot, thread,
};

/// The pins of a gate's users, and a value that only a thread that has closed the gate may change.
struct Gate {
    pins: PerCore<AtomicU32>,
    closed: AtomicBool,
    guarded: UnsafeCell<u32>,
}

// SAFETY: loom checks that the cell is used as the gate promises.
unsafe impl Sync for Gate {}
// SAFETY: as above.
unsafe impl Send for Gate {}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            pins: PerCore::new(|_| AtomicU32::new(0)),
            closed: AtomicBool::new(false),
            guarded: UnsafeCell::new(0),
        })
    }

    /// Stores in the own slot, passes a barrier, loads the state.
    fn enter(&self, barrier: fn(), ordering: Ordering) -> bool {
        let pin = self.pins.here();
        // A plain store: the slot has one writer.
        pin.store(1, Ordering::Relaxed);
        barrier();
        let open = !self.closed.load(Ordering::Acquire);
        if open {
            // SAFETY: loom checks that no thread writes meanwhile.
            self.guarded.with(|value| unsafe { assert_eq!(*value, 0) });
        }
        pin.store(0, ordering);
        open
    }

    /// Stores the state, passes a barrier, loads all slots; true if no user is inside.
    fn close(&self, barrier: fn()) -> bool {
        self.closed.store(true, Ordering::Release);
        barrier();
        let drained = self.pins.used().all(|pin| pin.load(Ordering::Acquire) == 0);
        if drained {
            // SAFETY: loom checks that no thread reads meanwhile.
            self.guarded.with_mut(|value| unsafe { *value = 1 });
        }
        drained
    }
}

fn users_against_a_close(
    users: usize,
    fast: fn(),
    slow: fn(),
    leave: Ordering,
) -> impl Fn() + Sync + Send + 'static {
    move || {
        let gate = Gate::new();
        let running: Vec<_> = (0..users)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    gate.enter(fast, leave);
                })
            })
            .collect();
        gate.close(slow);
        for user in running {
            user.join().expect("no panic");
        }
    }
}

#[test]
fn a_gate_with_both_sides_excludes() {
    let test = users_against_a_close(1, asymmetric_fast, asymmetric_slow, Ordering::Release);
    loom::model(test);
}

#[test]
fn a_gate_with_two_users_excludes() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(users_against_a_close(2, asymmetric_fast, asymmetric_slow, Ordering::Release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_gate_without_the_fast_side_does_not() {
    loom::model(users_against_a_close(1, || (), asymmetric_slow, Ordering::Release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_gate_without_the_slow_side_does_not() {
    loom::model(users_against_a_close(1, asymmetric_fast, || (), Ordering::Release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_user_must_leave_with_release() {
    loom::model(users_against_a_close(1, asymmetric_fast, asymmetric_slow, Ordering::Relaxed));
}

#[test]
fn a_mutex_hands_over_what_it_guards() {
    static CLASS: LockClass = LockClass::new("count", 1);
    loom::model(|| {
        let count = Arc::new(Mutex::new(&CLASS, 0));
        let other = Arc::clone(&count);
        let thread = thread::spawn(move || *other.lock() += 1);
        *count.lock() += 1;
        thread.join().expect("no panic");
        assert_eq!(*count.lock(), 2);
    });
}

#[test]
fn a_cell_publishes_its_value() {
    loom::model(|| {
        let cell = Arc::new(OnceLock::new());
        let other = Arc::clone(&cell);
        let thread = thread::spawn(move || *other.get_or_init(|| 1));
        let mine = *cell.get_or_init(|| 2);
        assert_eq!(thread.join().expect("no panic"), mine);
    });
}

#[test]
fn threads_have_distinct_slots() {
    loom::model(|| {
        let mine = current_slot();
        let theirs = thread::spawn(current_slot).join().expect("no panic");
        assert_ne!(mine, theirs);
        assert!(theirs.index() < SLOTS);
    });
}

/// The words of a lock whose release is a plain store.
struct LockWords {
    held: AtomicU32,
    waiting: AtomicU32,
    woken: AtomicBool,
}

impl LockWords {
    /// Stores the word, passes a barrier, loads the count of waiters and wakes them.
    fn leave(&self, barrier: fn()) {
        self.held.store(0, Ordering::Release);
        barrier();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.woken.store(true, Ordering::SeqCst);
        }
    }

    /// Counts the thread in, passes a barrier, loads the word; true if it must not sleep.
    fn is_free(&self, barrier: fn()) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        barrier();
        self.held.load(Ordering::Acquire) == 0
    }
}

fn no_thread_sleeps_for_ever(fast: fn(), slow: fn()) -> impl Fn() + Sync + Send + 'static {
    move || {
        let words = Arc::new(LockWords {
            held: AtomicU32::new(1),
            waiting: AtomicU32::new(0),
            woken: AtomicBool::new(false),
        });
        let holder = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.leave(fast))
        };
        let found_free = words.is_free(slow);
        holder.join().expect("no panic");
        assert!(found_free || words.woken.load(Ordering::SeqCst), "asleep for ever");
    }
}

#[test]
fn a_release_by_a_store_wakes_the_waiter() {
    loom::model(no_thread_sleeps_for_ever(asymmetric_fast, asymmetric_slow));
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn a_release_without_the_fast_side_may_not() {
    loom::model(no_thread_sleeps_for_ever(|| (), asymmetric_slow));
}

/// A cached name, with the file that it refers to, which another thread removes.
struct CachedName {
    generation: AtomicU32,
    file_is_gone: Mutex<bool>,
}

/// Loads the generation, the file, and the generation again, while another thread removes the file
/// with the given ordering.
fn a_name_is_valid(raise: Ordering, again: bool) -> impl Fn() + Sync + Send + 'static {
    static CLASS: LockClass = LockClass::new("file", 1);
    move || {
        let file_is_gone = Mutex::new(&CLASS, false);
        let name = Arc::new(CachedName { generation: AtomicU32::new(0), file_is_gone });
        let other = Arc::clone(&name);
        let remover = thread::spawn(move || {
            other.generation.store(1, raise);
            *other.file_is_gone.lock() = true;
        });
        if name.generation.load(Ordering::Acquire) == 0 {
            let gone = *name.file_is_gone.lock();
            fence(Ordering::Acquire);
            if !again || name.generation.load(Ordering::Acquire) == 0 {
                assert!(!gone, "a file that has no name");
            }
        }
        remover.join().expect("no panic");
    }
}

#[test]
fn a_name_of_the_same_generation_has_a_file() {
    loom::model(a_name_is_valid(Ordering::Release, true));
}

#[test]
#[should_panic(expected = "a file that has no name")]
fn the_generation_must_be_checked_again() {
    loom::model(a_name_is_valid(Ordering::Release, false));
}
