//! Short sections under locks, and counts, of one core and of two: what real and simulated cores
//! make of the same few lines.
//!
//! ```text
//! cargo run --release -p nextent-sync --example sections
//! cargo run --release -p nextent-sync --example sections --features simulated
//! ```
//!
//! The first says what the machine at hand takes; the second what cores do of which a line's way
//! is `NEAR` nanoseconds (26), a read-modify-write takes `RMW` (1.7), an instruction `INSTRUCTION`
//! (0.15), one that says that one waits `PAUSE` (25), and offering the core `OFFER` (480). `AGAIN`
//! and `OTHER` are the chances that `nextent-lab simulate --calibrate` finds, and nothing if they
//! are not told. Two simulated cores do not do the code between two sections in always the same
//! time, but up to a quarter sooner or later.

use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, CachePadded, KindMutex, LockClass, LockKind, OwnRwLock};
use side::{measure, pass};

static OUTER: LockClass = LockClass::new("outer", 1);
static INNER: LockClass = LockClass::new("inner", 2);
static OWN: LockClass = LockClass::new("own", 3);
static LONG: LockClass = LockClass::new("long", 4);

/// What a lock guards: a sum, who had it last, and how often that was another.
#[derive(Default)]
struct Guarded {
    sum: u64,
    last: usize,
    turns: u64,
}

type Lock = CachePadded<KindMutex<Guarded>>;

/// What both cores use, and a lock that each has for itself.
struct Shared {
    outer: Lock,
    inner: Lock,
    own: [Lock; 2],
    counts: [CachePadded<AtomicU64>; 2],
    /// One of our own, which sleeps.
    long: CachePadded<OwnRwLock<Guarded>>,
}

impl Shared {
    fn new() -> Arc<Self> {
        let lock = |class| {
            let value = Guarded::default();
            CachePadded::new(KindMutex::of_kind(LockKind::Spin, class, value))
        };
        Arc::new(Self {
            outer: lock(&OUTER),
            inner: lock(&INNER),
            own: [lock(&OWN), lock(&OWN)],
            counts: Default::default(),
            long: CachePadded::new(OwnRwLock::new(&LONG, Guarded::default())),
        })
    }

    /// Turns at the locks that both take, the one that sleeps counted with the outer one.
    fn turns(&self) -> [u64; 2] {
        [self.outer.lock().turns + self.long.read().turns, self.inner.lock().turns]
    }
}

impl Guarded {
    fn had_by(&mut self, core: usize) {
        self.sum += 1;
        self.turns += u64::from(self.last != core + 1);
        self.last = core + 1;
    }
}

fn section(lock: &Lock, core: usize) {
    lock.lock().had_by(core);
}

fn nested(shared: &Shared, core: usize) {
    let mut outer = shared.outer.lock();
    section(&shared.inner, core);
    outer.had_by(core);
}

/// An operation of a core, with code of so many nanoseconds in three places.
type Operation = fn(&Shared, usize, [f64; 3]);

const OPERATIONS: [(&str, Operation); 8] = [
    ("one lock", |shared, core, code| {
        section(&shared.outer, core);
        code.into_iter().for_each(pass);
    }),
    ("and its own", |shared, core, [first, second, last]| {
        section(&shared.outer, core);
        pass(first);
        section(&shared.own[core], core);
        pass(second + last);
    }),
    ("one in another", |shared, core, code| {
        nested(shared, core);
        code.into_iter().for_each(pass);
    }),
    // As handles were started and stopped, without the outer lock at the stop and with it.
    ("handle, hack", |shared, core, [first, second, last]| {
        nested(shared, core);
        pass(first);
        section(&shared.own[core], core);
        pass(second);
        section(&shared.inner, core);
        pass(last);
    }),
    ("handle", |shared, core, [first, second, last]| {
        nested(shared, core);
        pass(first);
        section(&shared.own[core], core);
        pass(second);
        nested(shared, core);
        pass(last);
    }),
    ("one count", |shared, _, code| {
        shared.counts[0].fetch_add(1, Ordering::AcqRel);
        code.into_iter().for_each(pass);
    }),
    ("two, up and down", |shared, core, [first, second, last]| {
        let _ = shared.counts.each_ref().map(|count| count.fetch_add(1, Ordering::AcqRel));
        pass(first);
        section(&shared.own[core], core);
        pass(second);
        let _ = shared.counts.each_ref().map(|count| count.fetch_sub(1, Ordering::AcqRel));
        pass(last);
    }),
    // For 40 times as long within, and 20 times as long outside.
    ("long", |shared, core, [first, second, last]| {
        let mut long = shared.long.write();
        long.had_by(core);
        pass(40.0 * first);
        drop(long);
        pass(20.0 * (second + last));
    }),
];

/// Nanoseconds of code in the three places.
const CODE: [[f64; 3]; 4] =
    [[5.0, 6.0, 9.0], [10.0, 10.0, 10.0], [20.0, 10.0, 10.0], [20.0, 20.0, 60.0]];

/// What came of it, in the mean of all cores.
struct Found {
    /// Nanoseconds of an operation.
    time: f64,
    /// Turns of an operation, at both shared locks.
    turns: [f64; 2],
}

fn main() {
    println!("{:<17} {:>5} {:>7} {:>7} {:>6} turns", "", "code", "one", "two", "ratio");
    for (name, operation) in OPERATIONS {
        for code in CODE {
            let [one, two] = [1, 2].map(|cores| measure(operation, cores, code));
            let (sum, ratio) = (code.iter().sum::<f64>(), 2.0 * one.time / two.time);
            let (times, [outer, inner]) = ([one.time, two.time], two.turns);
            let [one, two] = times.map(|time| format!("{time:.1}"));
            println!("{name:<17} {sum:>5} {one:>7} {two:>7} {ratio:>6.2} {outer:.2} {inner:.2}");
        }
    }
}

#[cfg(not(feature = "simulated"))]
mod side {
    use super::{Found, Operation, Shared};
    use nextent_sync::atomic::{AtomicUsize, Ordering};
    use nextent_sync::{OnceLock, hint, now, thread};

    const TIMES: u32 = 100_000;
    const RUNS: usize = 9;

    /// Steps, each of which waits for the last.
    fn steps(n: u64) {
        let mut x = 1_u64;
        for k in 0..n {
            x = hint::black_box((x ^ x << 13).wrapping_add(k) ^ x >> 7);
        }
        hint::black_box(x);
    }

    /// Works for so many nanoseconds.
    pub(super) fn pass(time: f64) {
        const STEPS: u64 = 1_000_000;
        static STEP: OnceLock<f64> = OnceLock::new();
        let step = STEP.get_or_init(|| {
            let began = now();
            steps(STEPS);
            began.elapsed().as_nanos() as f64 / STEPS as f64
        });
        steps((time / step) as u64);
    }

    /// The quickest but two of some runs, as others use the cores, too.
    pub(super) fn measure(operation: Operation, cores: usize, code: [f64; 3]) -> Found {
        pass(0.0);
        let mut all: Vec<Found> = (0..RUNS).map(|_| run(operation, cores, code)).collect();
        all.sort_by(|one, other| one.time.total_cmp(&other.time));
        all.swap_remove(2)
    }

    fn run(operation: Operation, cores: usize, code: [f64; 3]) -> Found {
        let (shared, ready) = (Shared::new(), AtomicUsize::new(0));
        let works = |core| {
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < cores {}
            let began = now();
            (0..TIMES).for_each(|_| operation(&shared, core, code));
            began.elapsed().as_nanos() as f64 / f64::from(TIMES)
        };
        let times = thread::scope(|scope| {
            let works = &works;
            let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || works(core))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum::<f64>()
        });
        let all = f64::from(TIMES) * cores as f64;
        Found { time: times / cores as f64, turns: shared.turns().map(|turns| turns as f64 / all) }
    }
}

#[cfg(feature = "simulated")]
mod side {
    use super::{Found, Operation, Shared};
    use nextent_sync::sim::{Machine, clock, gather, run, settle, work};
    use nextent_sync::thread;
    use std::cell::Cell;

    const TIMES: u32 = 4_000;

    /// Works for about so many nanoseconds.
    pub(super) fn pass(time: f64) {
        std::thread_local! {
            static CHANCE: Cell<u64> = const { Cell::new(0x9E37_79B9_7F4A_7C15) };
        }
        let chance = CHANCE.get();
        let next = chance ^ chance << 13;
        let next = next ^ next >> 7;
        CHANCE.set(next ^ next << 17);
        let part = (next >> 40) as f64 / (1_u64 << 24) as f64;
        work((time * 1000.0 * (0.75 + part / 2.0)) as u64);
    }

    /// In thousandths.
    fn told(name: &str) -> Option<u64> {
        let told: Option<f64> = std::env::var(name).ok().and_then(|value| value.parse().ok());
        told.map(|told| (told * 1000.0) as u64)
    }

    pub(super) fn measure(operation: Operation, cores: usize, code: [f64; 3]) -> Found {
        let near = told("NEAR").unwrap_or(26_000);
        let rmw = told("RMW").unwrap_or(1_700);
        let machine = Machine {
            cores: 2,
            cluster: 2,
            socket: 2,
            line_shift: 6,
            rmw,
            near,
            socket_far: near,
            across: near,
            handoff: 100,
            unfair: true,
            migrates: true,
            // Words are in use all the time.
            rested: 100,
            uneven: 20,
            sum: 0,
            wake: 15_000_000,
            waker: 50,
            pause: told("PAUSE").unwrap_or(25_000),
            offer: told("OFFER").unwrap_or(480_000),
            window: 20_000,
            windows: told("AGAIN").zip(told("OTHER")).map(|(again, other)| [again, other]),
        };
        run(machine, move || {
            let shared = Shared::new();
            let others = shared.clone();
            let works = move |shared: &Shared, core| {
                // Picoseconds of an instruction.
                gather(core, cores, 0, told("INSTRUCTION").unwrap_or(150));
                let began = clock();
                (0..TIMES).for_each(|_| operation(shared, core, code));
                (clock() - began) as f64 / 1000.0 / f64::from(TIMES)
            };
            let other = (cores > 1).then(|| thread::spawn(move || works(&others, 1)));
            let mine = works(&shared, 0);
            let theirs = other.map_or(mine, |other| other.join().unwrap_or(f64::NAN));
            settle();
            let all = f64::from(TIMES) * cores as f64;
            let turns = shared.turns().map(|turns| turns as f64 / all);
            Found { time: (mine + theirs) / 2.0, turns }
        })
    }
}
