//! What the machine at hand costs, by small measurements: a file for `--machine`.

use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{CachePadded, Condvar, LockClass, Mutex, available_cores, hint, now, thread};

/// Only this module's.
static CLASS: LockClass = LockClass::new("calibration", 1);

/// Nanoseconds of each of `n` runs of `f`.
fn each(n: u64, mut f: impl FnMut(u64)) -> f64 {
    let began = now();
    (0..n).for_each(&mut f);
    began.elapsed().as_nanos() as f64 / n as f64
}

/// The best of a few: what disturbs only adds.
fn best(mut f: impl FnMut() -> f64) -> f64 {
    (0..7).map(|_| f()).fold(f64::INFINITY, f64::min)
}

/// Adds to a word that nobody else has.
fn change() -> f64 {
    let word = AtomicU64::new(0);
    best(|| {
        each(200_000, |_| {
            word.fetch_add(1, Ordering::SeqCst);
        })
    })
}

/// A chain of eight dependent instructions, by one.
fn instruction() -> f64 {
    let mut x = hint::black_box(0x1234_5678_u64);
    let found = best(|| {
        each(200_000, |n| {
            // Shifts and sums as code is made of, half of them waiting for the one before.
            x = hint::black_box((x ^ x << 13).wrapping_add(n) ^ x >> 7);
        })
    });
    hint::black_box(x);
    found / 8.0
}

/// Two threads, one word, turn by turn: a line one way.
fn transfer() -> f64 {
    const TURNS: u64 = 20_000;
    let word = CachePadded::new(AtomicU64::new(0));
    best(|| {
        word.store(0, Ordering::SeqCst);
        let side = |odd: u64| {
            for turn in 0..TURNS {
                let mut looks = 0_u32;
                while word.load(Ordering::Acquire) != turn * 2 + odd {
                    looks += 1;
                    if looks.is_multiple_of(4096) {
                        thread::yield_now();
                    }
                    hint::spin_loop();
                }
                word.store(turn * 2 + odd + 1, Ordering::Release);
            }
        };
        let began = now();
        thread::scope(|scope| {
            scope.spawn(|| side(1));
            side(0);
        });
        began.elapsed().as_nanos() as f64 / (2 * TURNS) as f64
    })
}

/// Two threads wake each other: one wake-up.
fn wake() -> f64 {
    const TURNS: u64 = 2_000;
    let (turn, changed) = (Mutex::new(&CLASS, 0), Condvar::new());
    best(|| {
        *turn.lock() = 0;
        let side = |odd: u64| {
            for n in 0..TURNS {
                let mut turn = turn.lock();
                while *turn != n * 2 + odd {
                    changed.wait(&mut turn);
                }
                *turn += 1;
                changed.notify_one();
            }
        };
        let began = now();
        thread::scope(|scope| {
            scope.spawn(|| side(1));
            side(0);
        });
        began.elapsed().as_nanos() as f64 / (2 * TURNS) as f64
    })
}

/// Measures this machine; the text of a machine file. One distance is measured: between the two
/// cores that the system chooses.
#[must_use]
pub fn calibrate() -> String {
    let cores = available_cores();
    let line = if cores > 1 { transfer() } else { 50.0 };
    let constants = [
        ("instruction_ps", instruction() * 1000.0, "a chain of shifts and sums"),
        ("entry_ns", 0.0, "the library is called without a system call"),
        ("rmw_ns", change(), "fetch_add on an own word"),
        ("near_ns", line, "two threads, one word, turn by turn"),
        ("socket_ns", line, "as near: one distance is measured"),
        ("across_ns", line, "as near: one distance is measured"),
        ("handoff", 2.0, "queued spin lock: the word, then the next one's node"),
        ("wake_ns", wake(), "two threads that wake each other by a condition"),
    ];
    let mut text = format!(
        "# Made by `nextent simulate --calibrate`.\nabout = \"this machine, {cores} cores\"\n\n\
         [shape]\ncores = {cores}\ncluster = {cores}\nsocket = {cores}\nline = 64\n\n[constants]\n"
    );
    for (name, value, source) in constants {
        text += &format!("{name} = {{ value = {value:.1}, source = \"{source}\" }}\n");
    }
    text
}
