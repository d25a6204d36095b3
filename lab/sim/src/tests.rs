//! What operations are charged.

use crate::atomic::{AtomicU64, Ordering};
use crate::lock::{BiasedMutex, kind_mutex};
use crate::machine::Machine;
use crate::simulation::{clock, gather, run, work};
use crate::{access_bytes, finish, thread, wait_for_last_access};
use crossbeam_utils::CachePadded;
use std::sync::Arc;

const LINE: u64 = 30_000;
const RMW: u64 = 5_000;

fn two_cores() -> Machine {
    Machine {
        cores: 2,
        cluster: 2,
        socket: 2,
        line_shift: 6,
        rmw: RMW,
        near: LINE,
        socket_far: LINE,
        across: LINE,
        wake: 100 * LINE,
        ..Machine::default()
    }
}

/// Runs both on their own cores, from the same time on; what they return.
fn both<R: Send + 'static>(
    machine: Machine,
    one: impl FnOnce() -> R + Send + 'static,
    other: impl FnOnce() -> R + Send + 'static,
) -> (R, R) {
    run(machine, || {
        let other = thread::spawn(|| {
            gather(1, 2, 0, 0);
            other()
        });
        gather(0, 2, 0, 0);
        let one = one();
        let other = other.join().expect("it does not panic");
        finish();
        (one, other)
    })
}

/// What `work` takes on the caller's core.
fn cost(work: impl FnOnce() -> u64) -> u64 {
    let began = clock();
    work();
    clock() - began
}

#[test]
fn a_core_goes_on_past_its_store_buffer_but_not_past_a_read_modify_write() {
    let words: Arc<[CachePadded<AtomicU64>; 3]> = Arc::default();
    let others = words.clone();
    let other = move || {
        others[0].fetch_add(1, Ordering::Relaxed);
        others[1].fetch_add(1, Ordering::Relaxed);
    };
    let one = move || {
        // The other core owns its words by now.
        work(10 * LINE);
        let began = clock();
        words[0].store(7, Ordering::Release);
        words[1].store(7, Ordering::Relaxed);
        assert_eq!((clock() - began, words[0].load(Ordering::Relaxed)), (0, 7));
        words[2].fetch_add(1, Ordering::Relaxed);
        assert_eq!(clock() - began, LINE + RMW);
        // Stores to its own lines are done at once.
        words[0].store(8, Ordering::Release);
        words[2].fetch_add(1, Ordering::Relaxed);
        assert_eq!(clock() - began, LINE + 2 * RMW);
    };
    both(two_cores(), one, other);
}

#[test]
fn a_changed_line_is_shared_by_a_load_and_owned_by_a_change() {
    let word: Arc<CachePadded<AtomicU64>> = Arc::default();
    let others = word.clone();
    let other = move || {
        others.fetch_add(1, Ordering::Relaxed);
        work(20 * LINE);
        [cost(|| others.load(Ordering::Relaxed)), 0, 0]
    };
    let one = move || {
        work(10 * LINE);
        let load = cost(|| word.load(Ordering::Relaxed));
        let change = cost(|| word.fetch_add(1, Ordering::Relaxed));
        work(20 * LINE);
        [load, change, cost(|| word.load(Ordering::Relaxed))]
    };
    let (mine, [theirs, ..]) = both(two_cores(), one, other);
    assert_eq!((mine, theirs), ([LINE, LINE, 0], LINE));
}

#[test]
fn loads_in_a_row_are_in_flight_together_unless_one_depends_on_the_other() {
    let took = |depends: bool| {
        let words: Arc<[CachePadded<AtomicU64>; 2]> = Arc::default();
        let others = words.clone();
        let other = move || {
            others.iter().for_each(|word| _ = word.fetch_add(1, Ordering::Relaxed));
            0
        };
        let one = move || {
            work(10 * LINE);
            cost(|| {
                let first = words[0].load(Ordering::Relaxed);
                if depends {
                    wait_for_last_access();
                }
                first + words[1].load(Ordering::Relaxed)
            })
        };
        both(Machine { window: LINE, ..two_cores() }, one, other).0
    };
    assert_eq!([took(false), took(true)], [LINE, 2 * LINE]);
}

#[test]
fn a_line_is_used_until_the_request_reaches_it() {
    const EACH: u64 = LINE / 16;
    let word: Arc<CachePadded<AtomicU64>> = Arc::default();
    let others = word.clone();
    let other = move || {
        // By more than a core may run ahead in a private line.
        work(4 * LINE);
        others.fetch_add(1, Ordering::Relaxed);
        loop {
            let looked = clock();
            others.load(Ordering::Relaxed);
            if clock() > looked {
                return looked;
            }
            work(EACH);
        }
    };
    let one = move || {
        word.fetch_add(1, Ordering::Relaxed);
        work(8 * LINE);
        let stored = clock();
        word.store(7, Ordering::Relaxed);
        word.fetch_add(1, Ordering::Relaxed);
        stored
    };
    let (stored, lost) = both(two_cores(), one, other);
    let after = (lost - stored) as f64 / LINE as f64;
    assert!((0.4..0.7).contains(&after), "{after}");
}

/// When a core that released a spin lock, and then works for `pause`, has it again; and when the
/// core has it that waited meanwhile. Both from the release on.
fn handed_over(unfair: bool, pause: u64) -> (u64, u64) {
    let lock = Arc::new(CachePadded::new(kind_mutex(true, 0_u8)));
    let others = lock.clone();
    let one = move || {
        let guard = lock.lock();
        work(10 * LINE);
        let began = clock();
        drop(guard);
        work(pause);
        let _guard = lock.lock();
        let again = clock() - began;
        work(10 * LINE);
        (began, again)
    };
    let other = move || {
        work(5 * LINE);
        let _guard = others.lock();
        let got = clock();
        work(10 * LINE);
        (got, 0)
    };
    let ((began, again), (got, _)) = both(Machine { unfair, ..two_cores() }, one, other);
    (again, got - began)
}

#[test]
fn a_fair_spin_lock_goes_to_the_first_that_waits() {
    let (again, got) = handed_over(false, 5 * LINE);
    assert!((LINE..3 * LINE).contains(&got) && again > got + 9 * LINE, "{again}, {got}");
}

#[test]
fn an_unfair_spin_lock_goes_to_the_core_that_is_first() {
    // The store of the release, the load that polls and the change that takes the lock each need
    // the line.
    let (again, got) = handed_over(true, 5 * LINE);
    assert!((3 * LINE..3 * LINE + 10).contains(&got), "{got}");
    assert!(again > got + 10 * LINE, "{again}");
    // The thread that released the lock takes it again before others see the release.
    let (again, got) = handed_over(true, LINE / 2);
    assert!(again == LINE + RMW && got > again + 10 * LINE, "{again}, {got}");
}

#[test]
fn the_first_wait_for_a_biased_lock_interrupts_all_cores() {
    let lock = Arc::new(CachePadded::new(BiasedMutex::new(0_u8)));
    let others = lock.clone();
    let one = move || {
        let guard = lock.lock();
        work(10 * LINE);
        drop(guard);
        work(1000 * LINE);
        // The other core had it last. For a while a release is a read-modify-write.
        let contended = cost(|| u64::from(*lock.lock()));
        (0..64).for_each(|_| drop(lock.lock()));
        [contended, cost(|| u64::from(*lock.lock()))]
    };
    let other = move || {
        work(5 * LINE);
        [cost(|| u64::from(*others.lock())), 0]
    };
    let ([contended, calm], [waited, _]) = both(two_cores(), one, other);
    assert_eq!(contended, LINE + RMW);
    assert_eq!(calm, RMW);
    assert!(waited.abs_diff(100 * LINE) < 5 * LINE, "{}", waited / LINE);
}

#[test]
fn a_row_of_lines_is_transferred_eight_at_a_time() {
    let data: Arc<Vec<[u64; 8]>> = Arc::new(vec![[0; 8]; 64]);
    let (at, bytes) = (data.as_ptr().addr(), 64 * 64);
    let other = move || {
        access_bytes(at, bytes, true);
        0
    };
    let one = move || {
        work(1000 * LINE);
        let took = cost(|| {
            access_bytes(at, bytes, false);
            0
        });
        drop(data);
        took
    };
    let (took, _) = both(two_cores(), one, other);
    assert!((8 * LINE..=9 * LINE).contains(&took), "{}", took / LINE);
}

#[test]
fn locks_are_as_large_as_real_ones() {
    use crate::{BiasedRwLock, KindMutex, KindRwLock, Mutex, RwLock};
    // `crates/sync/tests/sizes.rs` has the same numbers, with 8 bytes more for the class.
    assert_eq!([size_of::<Mutex<u64>>(), size_of::<RwLock<u64>>()], [16, 16]);
    assert_eq!([size_of::<KindMutex<u64>>(), size_of::<KindRwLock<u64>>()], [16, 24]);
    assert_eq!(size_of::<BiasedRwLock<u64>>(), 24);
}
