//! The wrappers under shuttle: `cargo test -p nextent-sync --features model-shuttle`.
#![cfg(feature = "model-shuttle")]

use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use nextent_sync::{
    Arc, Condvar, Duration, LockClass, Mutex, OnceLock, PerCore, RwLock, SLOTS, SlotId,
    asymmetric_fast, asymmetric_slow, current_slot, enter_rank, now, parallel_map, sleep, thread,
};
use std::collections::VecDeque;

const RUNS: usize = 2_000;

static LOW: LockClass = LockClass::new("low", 10);
static HIGH: LockClass = LockClass::new("high", 20);

fn spawn_each(threads: u32, f: impl Fn(u32) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let running: Vec<_> = (0..threads)
        .map(|n| {
            let f = Arc::clone(&f);
            thread::spawn(move || f(n))
        })
        .collect();
    for thread in running {
        thread.join().expect("no panic");
    }
}

#[test]
fn a_mutex_excludes() {
    shuttle::check_random(
        || {
            let count = Arc::new(Mutex::new(&LOW, 0));
            let shared = Arc::clone(&count);
            spawn_each(3, move |_| {
                let mut count = shared.lock();
                let seen = *count;
                thread::yield_now();
                *count = seen + 1;
            });
            assert_eq!(*count.lock(), 3);
        },
        RUNS,
    );
}

#[test]
fn writers_exclude_readers() {
    shuttle::check_random(
        || {
            let pair = Arc::new(RwLock::new(&LOW, (0, 0)));
            spawn_each(3, move |n| {
                if n == 0 {
                    let mut pair = pair.write();
                    pair.0 += 1;
                    thread::yield_now();
                    pair.1 += 1;
                } else {
                    let pair = pair.read();
                    assert_eq!(pair.0, pair.1);
                }
            });
        },
        RUNS,
    );
}

/// A bounded queue; `wait` takes the guard to its condition.
fn pass_through_queue(wait: fn(&Condvar, &mut nextent_sync::MutexGuard<'_, VecDeque<u32>>)) {
    let queue = Arc::new((Mutex::new(&LOW, VecDeque::new()), Condvar::new(), Condvar::new()));
    let other = Arc::clone(&queue);
    let producer = thread::spawn(move || {
        let (items, space, filled) = &*other;
        for item in 0..4 {
            let mut items = items.lock();
            while items.len() == 1 {
                wait(space, &mut items);
            }
            // The wait has entered the lock into the order again.
            drop(enter_rank(&HIGH));
            items.push_back(item);
            filled.notify_one();
        }
    });
    let (items, space, filled) = &*queue;
    for expected in 0..4 {
        let mut items = items.lock();
        let item = loop {
            match items.pop_front() {
                Some(item) => break item,
                None => wait(filled, &mut items),
            }
        };
        assert_eq!(item, expected);
        space.notify_one();
    }
    producer.join().expect("no panic");
}

#[test]
fn a_condition_loses_no_notification() {
    shuttle::check_random(|| pass_through_queue(|condition, guard| condition.wait(guard)), RUNS);
    shuttle::check_pct(|| pass_through_queue(|condition, guard| condition.wait(guard)), RUNS, 3);
}

#[test]
fn a_wait_with_a_limit_needs_no_notification() {
    shuttle::check_random(
        || {
            pass_through_queue(|condition, guard| {
                assert!(condition.wait_for(guard, Duration::from_millis(5)));
            });
        },
        RUNS,
    );
}

#[test]
#[should_panic(expected = "lock order: `low` (rank 10)")]
fn an_inversion_is_found_in_any_order() {
    shuttle::check_random(
        || {
            let locks = Arc::new((Mutex::new(&LOW, ()), Mutex::new(&HIGH, ())));
            spawn_each(2, move |n| {
                let (low, high) = &*locks;
                if n == 0 {
                    let _low = low.lock();
                    let _high = high.lock();
                } else {
                    let _high = high.lock();
                    let _low = low.lock();
                }
            });
        },
        1,
    );
}

#[test]
fn slots_are_distinct_and_reused() {
    shuttle::check_random(
        || {
            let mine = current_slot();
            let owners = Arc::new(PerCore::new(|_: SlotId| AtomicBool::new(false)));
            for _ in 0..2 {
                let owners = Arc::clone(&owners);
                spawn_each(SLOTS as u32 - 1, move |_| {
                    assert_ne!(current_slot(), mine);
                    assert!(!owners.here().swap(true, Ordering::SeqCst), "a slot of two threads");
                    thread::yield_now();
                    owners.here().store(false, Ordering::SeqCst);
                });
            }
            assert_eq!(mine, current_slot());
        },
        RUNS,
    );
}

#[test]
fn a_cell_is_initialised_once() {
    shuttle::check_random(
        || {
            let cell = Arc::new(OnceLock::new());
            let made = Arc::new(AtomicU32::new(0));
            spawn_each(3, move |n| {
                let value = *cell.get_or_init(|| {
                    thread::yield_now();
                    made.fetch_add(1, Ordering::SeqCst);
                    n
                });
                assert_eq!(cell.get(), Some(&value));
                assert_eq!(made.load(Ordering::SeqCst), 1);
            });
        },
        RUNS,
    );
}

#[test]
fn work_is_spread_over_threads() {
    shuttle::check_random(
        || assert_eq!(parallel_map(3, 0..5_u32, |n| n * n), [0, 1, 4, 9, 16]),
        RUNS,
    );
}

#[test]
fn the_clock_advances_only_when_read() {
    shuttle::check_random(
        || {
            let start = now();
            sleep(Duration::from_secs(3600));
            let slept = start.elapsed();
            assert!(slept >= Duration::from_secs(3600) && slept < Duration::from_secs(3601));
        },
        10,
    );
}

/// The gate of per-slot pins: see `tests/loom.rs` for its memory order.
#[test]
fn a_closed_gate_excludes_users() {
    shuttle::check_random(
        || {
            let pins = Arc::new(PerCore::new(|_| AtomicU32::new(0)));
            let closed = Arc::new(AtomicBool::new(false));
            let value = Arc::new(AtomicU32::new(0));
            let inside = (Arc::clone(&pins), Arc::clone(&closed), Arc::clone(&value));
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let (pins, closed, value) = inside.clone();
                    thread::spawn(move || {
                        pins.here().fetch_add(1, Ordering::Relaxed);
                        asymmetric_fast();
                        if !closed.load(Ordering::Relaxed) {
                            assert_eq!(value.load(Ordering::Relaxed), 0, "inside a closed gate");
                        }
                        pins.here().fetch_sub(1, Ordering::Release);
                    })
                })
                .collect();
            closed.store(true, Ordering::Relaxed);
            asymmetric_slow();
            while pins.used().any(|pin| pin.load(Ordering::Acquire) != 0) {
                thread::yield_now();
            }
            value.store(1, Ordering::Relaxed);
            for user in users {
                user.join().expect("no panic");
            }
        },
        RUNS,
    );
}
