//! What the machine at hand costs, by small measurements: a file for `--machine`.

use super::Machine;
use crate::counters::{CHANGES, Counters};
use crate::failure::Failure;
use crate::run::pin;
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use nextent_sync::{Condvar, LockClass, Mutex, available_cores, hint, now, thread};

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

/// Two threads on cores of their own wake each other: one wake-up.
fn wake() -> f64 {
    const TURNS: u64 = 2_000;
    let (turn, changed) = (Mutex::new(&CLASS, 0), Condvar::new());
    let side = |odd: u64| {
        // Where that is refused the system chooses.
        let _ = pin(odd as usize);
        for n in 0..TURNS {
            let mut turn = turn.lock();
            while *turn != n * 2 + odd {
                changed.wait(&mut turn);
            }
            *turn += 1;
            changed.notify_one();
        }
    };
    best(|| {
        *turn.lock() = 0;
        let began = now();
        thread::scope(|scope| {
            scope.spawn(|| side(1));
            scope.spawn(|| side(0));
        });
        began.elapsed().as_nanos() as f64 / (2 * TURNS) as f64
    })
}

/// Nanoseconds of a turn of counters where one core turns them, and where two do at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    pub(super) alone: f64,
    pub(super) beside: f64,
}

impl Turns {
    /// As it is just now: on a virtual machine, where its cores lie changes.
    pub(super) fn measure() -> Self {
        Self { alone: counted(1), beside: counted(2) }
    }
}

/// The turns of so many threads on cores of their own, which begin together.
fn counted(threads: usize) -> f64 {
    const TURNS: u64 = 50_000;
    let (counters, ready) = (Counters::default(), AtomicUsize::new(0));
    let side = |n: usize| {
        let _ = pin(n);
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < threads {
            thread::yield_now();
        }
        let code = || (0..30).for_each(|n| _ = hint::black_box(n));
        each(TURNS, |_| counters.turn(code))
    };
    thread::scope(|scope| {
        let side = &side;
        let members: Vec<_> = (0..threads).map(|n| scope.spawn(move || side(n))).collect();
        let times = members.into_iter().map(|member| member.join().unwrap_or(f64::NAN));
        times.sum::<f64>() / threads as f64
    })
}

/// Nanoseconds of a write of 4 KiB to a device in memory, at a place that was never written, by a
/// thread that has just begun, as those are that are measured.
pub(super) fn device() -> Result<f64, Failure> {
    // As many as a thread makes in a round, one in each MiB before the next.
    const WRITES: u64 = 1 << 14;
    const ROOM: u64 = 1 << 30;
    let write = || -> std::io::Result<f64> {
        let _ = pin(0);
        let device = MemoryDevice::new(ROOM);
        let (data, stride) = ([1; 4096], (1 << 20) + ROOM / WRITES);
        let began = now();
        for n in 0..WRITES {
            device.write_at(n * stride % ROOM / 4096 * 4096, &data)?;
        }
        Ok(began.elapsed().as_nanos() as f64 / WRITES as f64)
    };
    let written = thread::scope(|scope| scope.spawn(write).join());
    let written = written.map_err(|_| Failure::broken("a thread panicked"))?;
    written.map_err(|error| Failure::broken(error.to_string()))
}

/// What was found of this machine: nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    instruction: f64,
    rmw: f64,
    line: f64,
    wake: f64,
}

impl Constants {
    /// Measures.
    pub(super) fn measure() -> Result<Self, Failure> {
        let some = Self { instruction: instruction(), rmw: change(), line: 50.0, wake: wake() };
        if available_cores() > 1 { some.at(Turns::measure()) } else { Ok(some) }
    }

    /// The same with a line's way such that two simulated cores lose by counters what two real ones
    /// do.
    ///
    /// The simulated loss jumps tenfold where a line is longer on its way than
    /// whoever has it goes on using it. A real loss within the jump gives the jump's place, which
    /// says more of the model than of the machine.
    pub(super) fn at(self, turns: Turns) -> Result<Self, Failure> {
        let lost = (turns.beside - turns.alone).max(0.0);
        let (mut near, mut far) = (0.0, 5_000.0);
        while far - near > 1.0 {
            let line = (near + far) / 2.0;
            let machine = Machine::parse("host", &Self { line, ..self }.text())?;
            let code = turns.alone / CHANGES as f64 - self.rmw;
            let [alone, beside] = machine.counters((code.max(0.0) * 1000.0) as u64)?;
            if (beside - alone) / 1000.0 < lost { near = line } else { far = line }
        }
        Ok(Self { line: far, ..self })
    }

    /// A machine's file.
    pub(super) fn text(&self) -> String {
        let cores = available_cores();
        let Self { instruction, rmw, line, wake } = *self;
        let constants = [
            ("instruction_ps", instruction * 1000.0, "a chain of shifts and sums"),
            ("entry_ns", 0.0, "the library is called without a system call"),
            ("rmw_ns", rmw, "fetch_add on an own word"),
            ("near_ns", line, "fit: three counters that two cores change at once"),
            ("socket_ns", line, "as near: one distance is measured"),
            ("across_ns", line, "as near: one distance is measured"),
            ("handoff", 1.0, "who spins here looks at the lock's own word"),
            ("wake_ns", wake, "two cores that wake each other by a condition"),
        ];
        let mut text = format!(
            "# Made by `nextent simulate --calibrate`.\nabout = \"this machine, {cores} cores\"\n\n\
             [shape]\ncores = {cores}\ncluster = {cores}\nsocket = {cores}\nline = 64\n\n\
             [constants]\n"
        );
        for (name, value, source) in constants {
            text += &format!("{name} = {{ value = {value:.1}, source = \"{source}\" }}\n");
        }
        text
    }
}

/// Measures this machine; the text of a machine file. One distance is measured: between the first
/// two cores.
///
/// # Errors
/// [`Failure::Broken`] if the simulation of the counters fails.
pub fn calibrate() -> Result<String, Failure> {
    Ok(Constants::measure()?.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Constants = Constants { instruction: 0.2, rmw: 5.0, line: 0.0, wake: 2000.0 };

    /// A turn on one core and on two, in nanoseconds, where lines are so far.
    fn turns(line: f64, step: u64) -> Turns {
        let machine = Machine::parse("host", &Constants { line, ..SOME }.text());
        let [alone, beside] = machine.expect("a machine").counters(step).expect("turns");
        Turns { alone: alone / 1000.0, beside: beside / 1000.0 }
    }

    #[test]
    fn a_line_is_as_far_as_counters_say() {
        for line in [10.0, 30.0, 160.0] {
            let found = SOME.at(turns(line, 10_000)).expect("a line").line;
            assert!((found / line - 1.0).abs() < 0.15, "{found}, not {line}");
        }
    }

    #[test]
    fn what_no_line_costs_is_where_the_cost_jumps() {
        let (less, more) = (turns(30.0, 5_000), turns(60.0, 5_000));
        assert!(more.beside > 3.0 * less.beside, "{less:?} {more:?}");
        let between = Turns { beside: 2.0 * less.beside, ..less };
        let found = SOME.at(between).expect("a line").line;
        assert!((30.0..60.0).contains(&found), "{found}");
    }
}
