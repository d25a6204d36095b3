//! What the machine at hand costs, by small measurements: a file for `--machine`.

use super::Machine;
use crate::failure::Failure;
use crate::run::pin;
use crate::turns::Turns;
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

/// What adding to a word that nobody else has takes beside other code, much of which a core does
/// at the same time.
fn change() -> f64 {
    const WORDS: usize = 64;
    let (word, mut words) = (AtomicU64::new(0), [0_u64; WORDS]);
    let mut code = |n: u64| {
        for n in n..n + 16 {
            let at = n as usize * 9 % WORDS;
            words[at] = hint::black_box(words[(at + 9) % WORDS].wrapping_mul(5) ^ n);
        }
    };
    // In turns, since what disturbs may last.
    let mut added: Vec<f64> = (0..15)
        .map(|_| {
            let alone = each(20_000, &mut code);
            let beside = each(20_000, |n| {
                code(n);
                word.fetch_add(1, Ordering::SeqCst);
            });
            beside - alone
        })
        .collect();
    super::beside::middle(&mut added).max(0.0)
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

/// Nanoseconds of a turn where two cores change a word in turns, as it is just now: on a virtual
/// machine, where its cores lie changes.
pub(super) fn turn() -> f64 {
    const TURNS: u64 = 20_000;
    let mut times: Vec<f64> = (0..3).map(|_| turns(TURNS)).collect();
    super::beside::middle(&mut times)
}

fn turns(each: u64) -> f64 {
    let (turns, ready) = (Turns::default(), AtomicUsize::new(0));
    let side = |odd: bool| {
        // Where that is refused the system chooses.
        let _ = pin(odd.into());
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        let began = now();
        turns.take_all(odd, each);
        began.elapsed().as_nanos() as f64 / (2 * each) as f64
    };
    thread::scope(|scope| {
        let side = &side;
        let sides = [scope.spawn(|| side(false)), scope.spawn(|| side(true))];
        let times = sides.into_iter().map(|side| side.join().unwrap_or(f64::NAN));
        times.sum::<f64>() / 2.0
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
        let some = Self { instruction: instruction(), rmw: change(), line: 0.0, wake: wake() };
        if available_cores() > 1 { some.at(turn()) } else { Ok(some.with_line(50.0)) }
    }

    fn with_line(self, line: f64) -> Self {
        Self { line, ..self }
    }

    /// The same with a line's way such that a simulated turn takes as long as the real one of so
    /// many nanoseconds: how many ways a turn has the simulation says.
    pub(super) fn at(self, turn: f64) -> Result<Self, Failure> {
        const LINE: f64 = 100.0;
        let machine = Machine::parse("host", &self.with_line(LINE).text())?;
        let ways = machine.turn()? / 1000.0 / LINE;
        Ok(self.with_line(turn / ways))
    }

    /// A machine's file.
    pub(super) fn text(&self) -> String {
        let cores = available_cores();
        let Self { instruction, rmw, line, wake } = *self;
        let near = if cores > 1 {
            "a word that two cores change in turns"
        } else {
            "assumed: there is one core"
        };
        let constants = [
            ("instruction_ps", instruction * 1000.0, "a chain of shifts and sums"),
            ("entry_ns", 0.0, "the library is called without a system call"),
            ("rmw_ns", rmw, "fetch_add on an own word, beside loads and stores"),
            ("near_ns", line, near),
            ("socket_ns", line, "as near: one distance is measured"),
            ("across_ns", line, "as near: one distance is measured"),
            ("wake_ns", wake, "two cores that wake each other by a condition"),
        ];
        let mut text = format!(
            "# Made by `nextent simulate --calibrate`.\nabout = \"this machine, {cores} cores\"\n\n\
             [shape]\ncores = {cores}\ncluster = {cores}\nsocket = {cores}\nline = 64\n\
             unfair = true # who spins looks at the lock's word\n\n[constants]\n"
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
/// [`Failure::Broken`] if the simulation of a turn fails.
pub fn calibrate() -> Result<String, Failure> {
    Ok(Constants::measure()?.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Constants = Constants { instruction: 0.2, rmw: 5.0, line: 0.0, wake: 2000.0 };

    #[test]
    fn a_turn_is_a_line_on_its_way() {
        for line in [20.0, 50.0, 160.0] {
            let machine = Machine::parse("host", &SOME.with_line(line).text()).expect("a machine");
            let turn = machine.turn().expect("turns") / 1000.0;
            assert!((turn / line - 1.0).abs() < 0.3, "{turn} with {line}");
            let found = SOME.at(turn).expect("a line").line;
            assert!((found / line - 1.0).abs() < 0.1, "{found}, not {line}");
        }
    }
}
