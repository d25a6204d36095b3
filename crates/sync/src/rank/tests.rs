use super::*;
use crate::{Arc, Condvar, Mutex, RwLock, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

static LOW: LockClass = LockClass::new("low", 10);
static MIDDLE: LockClass = LockClass::nesting("middle", 20);
static HIGH: LockClass = LockClass::new("high", 30);

fn message(f: impl FnOnce()) -> Option<String> {
    catch_unwind(AssertUnwindSafe(f))
        .err()
        .map(|cause| cause.downcast_ref::<String>().expect("a formatted panic").clone())
}

#[test]
fn rising_order_passes() {
    let (low, high) = (Mutex::new(&LOW, 1), RwLock::new(&HIGH, 2));
    let one = low.lock();
    let two = high.read();
    assert_eq!(*one + *two, 3);
}

#[test]
fn inversion_names_both_classes_and_places() {
    let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
    let (first, line) = (high.lock(), line!());
    let said = message(|| drop(low.lock())).expect("an inversion");
    let here = file!();
    assert!(said.contains("`low` (rank 10)") && said.contains("`high` (rank 30)"), "{said}");
    assert!(said.contains(&format!("{here}:{}:", line + 1)), "{said}");
    assert!(said.contains(&format!("taken at {here}:{line}:")), "{said}");
    drop(first);
    drop(low.lock());
}

#[test]
fn a_second_lock_of_a_class_needs_nesting() {
    let (a, b) = (Mutex::new(&LOW, ()), Mutex::new(&LOW, ()));
    let first = a.lock();
    assert!(message(|| drop(b.lock())).is_some());
    drop(first);
    let (a, b) = (RwLock::new(&MIDDLE, ()), RwLock::new(&MIDDLE, ()));
    let _first = a.write();
    let _second = b.write();
}

#[test]
fn reading_twice_is_refused() {
    let lock = RwLock::new(&LOW, ());
    let _first = lock.read();
    assert!(message(|| drop(lock.read())).is_some());
}

#[test]
fn guards_leave_in_any_order() {
    let (a, b, c) = (Mutex::new(&LOW, ()), Mutex::new(&MIDDLE, ()), Mutex::new(&HIGH, ()));
    let (one, two, three) = (a.lock(), b.lock(), c.lock());
    drop(one);
    drop(three);
    // Only `two` is left, so the highest is free again and the lowest is not.
    drop(c.lock());
    assert!(message(|| drop(a.lock())).is_some());
    drop(two);
    drop(a.lock());
}

#[test]
fn trying_is_exempt_but_recorded() {
    let (low, middle, high) =
        (Mutex::new(&LOW, ()), Mutex::new(&MIDDLE, ()), Mutex::new(&HIGH, ()));
    let first = high.lock();
    let second = middle.try_lock().expect("free");
    drop(first);
    assert!(message(|| drop(low.lock())).is_some());
    drop(second);
    drop(low.lock());
    let shared = RwLock::new(&HIGH, ());
    let _third = shared.try_read().expect("free");
    assert!(shared.try_write().is_none());
    assert!(message(|| drop(low.lock())).is_some());
}

#[test]
fn a_token_takes_part() {
    let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
    let token = enter_rank(&MIDDLE);
    drop(high.lock());
    let said = message(|| drop(low.lock())).expect("an inversion");
    assert!(said.contains("`middle` (rank 20)"), "{said}");
    drop(token);
    let _low = low.lock();
    drop(enter_rank(&MIDDLE));
    let _high = high.lock();
    assert!(message(|| drop(enter_rank(&MIDDLE))).is_some());
}

#[test]
fn a_wait_keeps_the_stack_right() {
    let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
    let changed = Condvar::new();
    let mut guard = low.lock();
    assert!(changed.wait_for(&mut guard, Duration::from_millis(1)));
    drop(high.lock());
    assert!(message(|| drop(enter_rank(&LOW))).is_some());
    let inner = high.lock();
    let said = message(|| {
        changed.wait_for(&mut guard, Duration::from_millis(1));
    });
    assert!(said.expect("holds a higher lock").contains("`high`"));
    drop(inner);
}

#[test]
fn threads_have_their_own_stacks() {
    let low = Arc::new(Mutex::new(&LOW, ()));
    let _held = enter_rank(&HIGH);
    let other = Arc::clone(&low);
    thread::spawn(move || drop(other.lock())).join().expect("no inversion there");
    let mine = highest();
    thread::spawn(move || {
        let bound = inherit(&mine);
        assert!(message(|| drop(low.lock())).is_some());
        drop(bound);
        drop(low.lock());
    })
    .join()
    .expect("inherits the caller's order");
}
