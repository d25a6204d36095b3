//! Measures the constants of the machine at hand, as a file for `--machine`.

use crate::Failure;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, hint, io, thread};

/// A measurement is repeated so often, and the least counts: a disturbance only adds.
const REPEATS: usize = 7;
/// Operations of a short measurement.
const OPERATIONS: u64 = 100_000;
/// Times that a line goes back and forth.
const TURNS: u64 = 2_000;
/// Instructions of a link of the chain that each need the result of the one before.
const LINK: u64 = 4;
/// How long a thread sleeps before it is woken.
const SLEEP: Duration = Duration::from_millis(1);

/// What was measured, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Constants {
    cores: usize,
    instruction: f64,
    rmw: f64,
    line: f64,
    wake: f64,
}

/// Measures this machine: the text of a machine file.
///
/// # Errors
/// [`Failure::Broken`] if it has one core only, or a measurement gives no sensible number.
pub fn calibrate() -> Result<String, Failure> {
    let cores = available_cores();
    if cores < 2 {
        let text = "calibrate: the latency between cores needs two cores, and there is one";
        return Err(Failure::broken(text));
    }
    let found = Constants {
        cores,
        instruction: least(chain) / LINK as f64,
        rmw: least(read_modify_writes),
        line: least(line),
        wake: least(wake),
    };
    let all = [found.instruction, found.rmw, found.line, found.wake];
    match all.iter().all(|ns| ns.is_finite() && *ns > 0.0) {
        true => Ok(found.to_string()),
        false => Err(Failure::broken(format!("calibrate: no sensible numbers: {found:?}"))),
    }
}

fn available_cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A word with its cache line to itself.
#[derive(Default)]
#[repr(align(256))]
struct OwnLine(AtomicU64);

/// Keeps the calling thread on the `n`-th of the cores that it may use.
fn pin(n: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[n % cores.len()]);
    Ok(sched_setaffinity(None, &one)?)
}

fn least(measure: fn() -> f64) -> f64 {
    (0..REPEATS).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

fn each(began: Instant, times: u64) -> f64 {
    began.elapsed().as_nanos() as f64 / times as f64
}

/// A link of a chain of instructions.
fn chain() -> f64 {
    let mut x = hint::black_box(0x1234_5678_u64);
    let began = Instant::now();
    for n in 0..OPERATIONS {
        x = (x ^ x << 13).wrapping_add(n) ^ 0x5bd1;
    }
    let took = each(began, OPERATIONS);
    hint::black_box(x);
    took
}

/// A read-modify-write of a word that the core has.
fn read_modify_writes() -> f64 {
    let word = OwnLine::default();
    let began = Instant::now();
    (0..OPERATIONS).for_each(|_| _ = word.0.fetch_add(1, Ordering::Relaxed));
    each(began, OPERATIONS)
}

/// A cache line on its way between the first two cores, which change a word on it in turns.
fn line() -> f64 {
    let (word, ready) = (OwnLine::default(), AtomicU64::new(0));
    let side = |odd: u64| {
        // Where pinning is refused, the system places the threads.
        let _ = pin(odd as usize);
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        let began = Instant::now();
        for turn in (odd..2 * TURNS).step_by(2) {
            let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            while word.0.compare_exchange(turn, turn + 1, order, failed).is_err() {
                hint::spin_loop();
            }
        }
        each(began, 2 * TURNS)
    };
    thread::scope(|scope| {
        let sides = [scope.spawn(|| side(0)), scope.spawn(|| side(1))];
        sides.into_iter().map(|side| side.join().unwrap_or(f64::NAN)).sum::<f64>() / 2.0
    })
}

/// From waking a thread that sleeps until it runs.
fn wake() -> f64 {
    let (woken, began) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let sleeper = thread::current();
        let waker = scope.spawn(|| {
            let sleeper = sleeper;
            thread::sleep(SLEEP);
            let at = began.elapsed();
            woken.store(true, Ordering::SeqCst);
            sleeper.unpark();
            at
        });
        while !woken.load(Ordering::SeqCst) {
            thread::park();
        }
        let ran = began.elapsed();
        waker.join().map_or(f64::NAN, |at| ran.saturating_sub(at).as_nanos() as f64)
    })
}

impl fmt::Display for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, instruction, rmw, line, wake } = self;
        writeln!(f, "# Made by `simulate --calibrate`.")?;
        writeln!(f, "about = \"the machine at hand, {cores} cores\"\n\n[shape]")?;
        writeln!(f, "cores = {cores}\ncluster = {cores}\nsocket = {cores}\nline = 64\n")?;
        writeln!(f, "[constants]")?;
        let ps = 1000.0 * instruction;
        let mut row = |name: &str, value: f64, source: &str| {
            writeln!(f, "{name} = {{ value = {value:.1}, source = \"{source}\" }}")
        };
        row("instruction_ps", ps, "a chain of shifts, sums and exclusive ors")?;
        row("rmw_ns", *rmw, "fetch_add on a line in the L1")?;
        row("near_ns", *line, "two cores that change a word in turns")?;
        row("wake_ns", *wake, "a futex wake-up of a thread that slept for 1 ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    #[test]
    fn calibration_writes_a_machine_file() {
        if available_cores() < 2 {
            eprintln!("skipped: there is one core");
            return;
        }
        let text = calibrate().expect("it measures");
        Machine::parse("this", &text).expect("it is a machine file");
    }
}
