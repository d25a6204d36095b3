//! Patterns that rely on weak memory, all executions:
//! `cargo test -p nextent-sync --features model-loom --test loom`.
#![cfg(feature = "model-loom")]

use loom::cell::UnsafeCell;
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use nextent_sync::{
    Arc, LockClass, Mutex, OnceLock, PerCore, SLOTS, current_slot, heavy_barrier, light_barrier,
    thread,
};

/// What users of a gate pin, and what only one who has closed it may change.
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

    /// Store in the own slot, barrier, look at the state.
    fn enter(&self, barrier: fn(), ordering: Ordering) -> bool {
        let pin = self.pins.here();
        // A plain store: the slot has one writer.
        pin.store(1, Ordering::Relaxed);
        barrier();
        let open = !self.closed.load(Ordering::Acquire);
        if open {
            // SAFETY: loom checks that nobody writes meanwhile.
            self.guarded.with(|value| unsafe { assert_eq!(*value, 0) });
        }
        pin.store(0, ordering);
        open
    }

    /// Store the state, barrier, look at the slots; true if nobody is inside.
    fn close(&self, barrier: fn()) -> bool {
        self.closed.store(true, Ordering::Release);
        barrier();
        let drained = self.pins.used().all(|pin| pin.load(Ordering::Acquire) == 0);
        if drained {
            // SAFETY: loom checks that nobody reads meanwhile.
            self.guarded.with_mut(|value| unsafe { *value = 1 });
        }
        drained
    }
}

fn users_against_one_who_closes(
    users: usize,
    light: fn(),
    heavy: fn(),
    leave: Ordering,
) -> impl Fn() + Sync + Send + 'static {
    move || {
        let gate = Gate::new();
        let running: Vec<_> = (0..users)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    gate.enter(light, leave);
                })
            })
            .collect();
        gate.close(heavy);
        for user in running {
            user.join().expect("no panic");
        }
    }
}

#[test]
fn a_gate_with_both_barriers_holds() {
    let test = users_against_one_who_closes(1, light_barrier, heavy_barrier, Ordering::Release);
    loom::model(test);
}

#[test]
fn a_gate_with_two_users_holds() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(users_against_one_who_closes(2, light_barrier, heavy_barrier, Ordering::Release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_gate_without_the_light_barrier_does_not() {
    loom::model(users_against_one_who_closes(1, || (), heavy_barrier, Ordering::Release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_gate_without_the_heavy_barrier_does_not() {
    loom::model(users_against_one_who_closes(1, light_barrier, || (), Ordering::Release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_user_must_leave_with_release() {
    loom::model(users_against_one_who_closes(1, light_barrier, heavy_barrier, Ordering::Relaxed));
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
fn a_cell_shows_what_its_maker_did() {
    loom::model(|| {
        let cell = Arc::new(OnceLock::new());
        let other = Arc::clone(&cell);
        let thread = thread::spawn(move || *other.get_or_init(|| 1));
        let mine = *cell.get_or_init(|| 2);
        assert_eq!(thread.join().expect("no panic"), mine);
    });
}

#[test]
fn threads_have_slots_of_their_own() {
    loom::model(|| {
        let mine = current_slot();
        let theirs = thread::spawn(current_slot).join().expect("no panic");
        assert_ne!(mine, theirs);
        assert!(theirs.index() < SLOTS);
    });
}

/// The words of a lock that is let go by a plain store.
struct Words {
    held: AtomicU32,
    waiting: AtomicU32,
    woken: AtomicBool,
}

impl Words {
    /// Store the word, barrier, look for who waits: wakes them.
    fn leave(&self, barrier: fn()) {
        self.held.store(0, Ordering::Release);
        barrier();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.woken.store(true, Ordering::SeqCst);
        }
    }

    /// Count oneself in, barrier, look at the word; true if there is no need to sleep.
    fn look(&self, barrier: fn()) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        barrier();
        self.held.load(Ordering::Acquire) == 0
    }
}

fn nobody_sleeps_for_ever(light: fn(), heavy: fn()) -> impl Fn() + Sync + Send + 'static {
    move || {
        let words = Arc::new(Words {
            held: AtomicU32::new(1),
            waiting: AtomicU32::new(0),
            woken: AtomicBool::new(false),
        });
        let holder = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.leave(light))
        };
        let found_free = words.look(heavy);
        holder.join().expect("no panic");
        assert!(found_free || words.woken.load(Ordering::SeqCst), "asleep for ever");
    }
}

#[test]
fn a_lock_let_go_by_a_store_wakes_who_waits() {
    loom::model(nobody_sleeps_for_ever(light_barrier, heavy_barrier));
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn a_lock_let_go_without_the_light_barrier_may_not() {
    loom::model(nobody_sleeps_for_ever(|| (), heavy_barrier));
}

/// A name that one thread remembers, and the file it means, which another removes.
struct Remembered {
    edition: AtomicU32,
    file_is_gone: Mutex<bool>,
}

/// The edition, the file, the edition again, while the file goes with the orderings given.
fn a_name_is_believed(raise: Ordering, again: bool) -> impl Fn() + Sync + Send + 'static {
    static CLASS: LockClass = LockClass::new("file", 1);
    move || {
        let file_is_gone = Mutex::new(&CLASS, false);
        let name = Arc::new(Remembered { edition: AtomicU32::new(0), file_is_gone });
        let other = Arc::clone(&name);
        let remover = thread::spawn(move || {
            other.edition.store(1, raise);
            *other.file_is_gone.lock() = true;
        });
        if name.edition.load(Ordering::Acquire) == 0 {
            let gone = *name.file_is_gone.lock();
            fence(Ordering::Acquire);
            if !again || name.edition.load(Ordering::Acquire) == 0 {
                assert!(!gone, "a file that has no name");
            }
        }
        remover.join().expect("no panic");
    }
}

#[test]
fn a_name_of_the_same_edition_means_a_file_that_is_there() {
    loom::model(a_name_is_believed(Ordering::Release, true));
}

#[test]
#[should_panic(expected = "a file that has no name")]
fn a_name_must_be_of_the_same_edition_after_the_look_too() {
    loom::model(a_name_is_believed(Ordering::Release, false));
}
