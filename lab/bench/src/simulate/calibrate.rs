//! What the machine at hand costs, by small measurements: a file for `--machine`.

use super::code::Code;
use super::machine::{MOST_RESTED, USUAL_WAKER};
use super::measured::middle;
use super::waking::{self, Waking, rests};
use super::{Machine, meeting, passing};
use crate::failure::Failure;
use crate::run::pin;
use crate::turns::Turns;
use nextent::Buffer;
use nextent_device::{BlockDevice, MemoryDevice, MemoryStock};
use nextent_ondisk::checksum;
use nextent_sync::atomic::{AtomicUsize, Ordering, fence};
use nextent_sync::{Duration, available_cores, hint, now, thread};
use serde::{Deserialize, Serialize};

/// Nanoseconds: nothing that is measured takes so long.
const MOST: f64 = 1e9;

/// Bytes that each of so many cores writes to: more than caches have, but not much more where they
/// are many, for getting memory takes long.
const fn room(cores: usize) -> u64 {
    if cores > 2 { 256 << 20 } else { 1 << 30 }
}

/// Nanoseconds of each of `n` runs of `f`.
pub(super) fn each(n: u64, mut f: impl FnMut(u64)) -> f64 {
    let began = now();
    (0..n).for_each(&mut f);
    began.elapsed().as_nanos() as f64 / n as f64
}

/// How often a small thing is measured.
const RUNS: usize = 7;

/// The best of a few: what disturbs only adds.
pub(super) fn best(mut f: impl FnMut() -> f64) -> f64 {
    (0..RUNS).map(|_| f()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of a chain of shifts and sums on each of the first `cores`, in the mean: how fast
/// they are just now, by each other only.
pub(super) fn pace(cores: usize) -> f64 {
    let chain = |core| {
        // Where that is refused the system chooses.
        let _ = pin(core);
        let mut x = hint::black_box(0x1234_5678_u64);
        let found = best(|| {
            each(50_000, |n| {
                x = hint::black_box((x ^ x << 13).wrapping_add(n) ^ x >> 7);
            })
        });
        hint::black_box(x);
        found
    };
    let one = |core| thread::scope(|scope| scope.spawn(move || chain(core)).join());
    (0..cores).map(|core| one(core).unwrap_or(f64::NAN)).sum::<f64>() / cores as f64
}

/// From here on two cores count as halves of one: what was found is 0.98 to 1.03, or 1.2 and more.
const HALVES: f64 = 1.1;

/// How much longer two cores take for code that leaves few of a core's units idle if both run it at
/// once: once as long, or a fifth longer and more where they are halves of one core. On a virtual
/// machine they are that for minutes.
fn crowding() -> f64 {
    const PARTS: u64 = 64;
    let wide = || {
        let mut sums = [1_u64, 2, 3, 4, 5, 6, 7, 8];
        each(PARTS, |n| {
            for k in 0..64 {
                sums = sums.map(|sum| (sum ^ k).wrapping_add(n | 1));
            }
            sums = hint::black_box(sums);
        })
    };
    let middle = |core: usize, ready: &AtomicUsize, all: usize| {
        // Where that is refused the system chooses.
        let _ = pin(core);
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < all {
            hint::spin_loop();
        }
        let mut times: Vec<f64> = (0..31).map(|_| wide()).collect();
        middle(&mut times)
    };
    let time = |cores: &[usize]| {
        let ready = &AtomicUsize::new(0);
        thread::scope(|scope| {
            let one = |core: &usize| {
                let (core, all) = (*core, cores.len());
                scope.spawn(move || middle(core, ready, all))
            };
            let threads: Vec<_> = cores.iter().map(one).collect();
            let times = threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN));
            times.sum::<f64>() / cores.len() as f64
        })
    };
    2.0 * time(&[0, 1]) / (time(&[0]) + time(&[1]))
}

/// Nanoseconds of the checksum of 4 KiB that a core has, each begun when the one before is there:
/// whoever lets a lock go waits for what was done under it.
fn sum() -> f64 {
    const TIMES: u64 = 10_000;
    let block = [0x5a_u8; 4096];
    let mut sum = checksum::START;
    let found = best(|| each(TIMES, |_| sum = checksum::csum(sum, hint::black_box(&block))));
    hint::black_box(sum);
    found
}

/// What two cores find that change words in turns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    /// Nanoseconds of a turn, where each tries to change a word until it can.
    pub(super) changed: f64,
    /// How much longer a look at a word and a change of it take than the change alone.
    pub(super) look: f64,
    /// Nanoseconds of both, of a word that the other has changed and nobody has used since; none
    /// where that was not measured.
    pub(super) rested: Option<f64>,
    /// The chances of changes of lines that both want: see `meeting`.
    pub(super) chances: [f64; 2],
}

impl Turn {
    /// Measures, as it is just now: on a virtual machine, where its cores lie changes.
    pub(super) fn measure() -> Self {
        let (changed, passing) = (turn(), passing::passing());
        let (look, rested) = (passing.look, Some(passing.both));
        Self { changed, look, rested, chances: meeting::chances(changed) }
    }

    /// Whether such can have been measured.
    pub(super) fn is_sound(&self) -> bool {
        let Self { changed, look, rested, chances } = *self;
        let mut times = [changed, look].into_iter().chain(rested);
        times.all(|time| time > 0.0 && time < MOST)
            && chances.iter().all(|chance| (0.0..=1.0).contains(chance))
    }

    /// Whether a line comes whole to who looks at it: else it comes once for the look and once
    /// more for the change. 0.84 to 0.98 times as long was found where it comes whole, with cores
    /// near each other and not.
    pub(super) fn migrates(&self) -> bool {
        self.look < 1.3
    }

    /// How many turns a line takes that rests, where lines migrate: one at least. It comes for the
    /// look, and a change of a line that is there takes `rmw` nanoseconds.
    fn rested(&self, rmw: f64) -> f64 {
        let turns = self.rested.map_or(1.0, |both| (both - rmw) / self.changed);
        if self.migrates() { turns.clamp(1.0, MOST_RESTED) } else { 1.0 }
    }
}

/// Whether cores may have been as near to each other where a turn took `one` as where it took
/// `other`.
pub(super) fn near(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 0.3
}

/// Nanoseconds of a turn of two cores that change a word: how far they are from each other.
pub(super) fn turn() -> f64 {
    middle(&mut turns())
}

/// Nanoseconds of a turn of each of some words, one after another. A line belongs to a part of the
/// cache that cores share, and is longer on its way if that lies far from them: 24 to 30 ns for
/// words on lines side by side.
fn turns() -> Vec<f64> {
    const WORDS: usize = 64;
    const TURNS: u64 = 500;
    let words: Vec<Turns> = (0..WORDS).map(|_| Turns::default()).collect();
    let ready = AtomicUsize::new(0);
    let side = |odd: bool| {
        // Where that is refused the system chooses.
        let _ = pin(odd.into());
        ready.fetch_add(1, Ordering::SeqCst);
        while ready.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        let of = |word: &Turns| {
            let began = now();
            Turns::of(odd, TURNS).for_each(|n| word.take(n));
            began.elapsed().as_nanos() as f64 / (2 * TURNS) as f64
        };
        words.iter().map(of).collect::<Vec<f64>>()
    };
    thread::scope(|scope| {
        let side = &side;
        let sides = [scope.spawn(|| side(false)), scope.spawn(|| side(true))];
        let [one, other] = sides.map(|side| side.join().unwrap_or_else(|_| vec![f64::NAN; WORDS]));
        one.iter().zip(other).map(|(one, other)| (one + other) / 2.0).collect()
    })
}

/// Nanoseconds of writes to a device in memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Writes {
    /// 4 KiB to 16 KiB that were never written.
    pub(super) first: f64,
    /// Each 4 KiB more of them.
    pub(super) more: f64,
    /// 4 KiB where they were written a moment ago.
    pub(super) again: f64,
    /// The same a long time ago.
    pub(super) late: f64,
    /// The same where others of these 16 KiB were written a moment ago, and where the 4 KiB before
    /// them were; as the last, where that was not measured.
    pub(super) near: Option<f64>,
    pub(super) next: Option<f64>,
}

impl Writes {
    /// Measures with memory from `stock`, by so many cores at once: they share the way to memory.
    /// While two are halves of one they share more than that, and such rounds count only if there
    /// are no others.
    pub(super) fn measure(cores: usize, stock: &MemoryStock) -> Result<Self, Failure> {
        let (wanted, most) = if cores > 2 { (3, 3) } else { (5, 15) };
        let (mut rounds, mut good) = (Vec::new(), 0);
        // The first has no memory of others yet.
        while good < wanted && rounds.len() < most {
            let before = if cores > 1 { crowding() } else { 1.0 };
            let found = Self::round(cores, stock)?;
            let is_good = before < HALVES && (cores == 1 || crowding() < HALVES);
            good += usize::from(is_good);
            rounds.push((is_good, found));
        }
        rounds.retain(|(is_good, _)| *is_good || good == 0);
        let best = |of: fn(&Self) -> f64| {
            rounds.iter().map(|(_, found)| of(found)).fold(f64::INFINITY, f64::min)
        };
        Ok(Self::by(best))
    }

    /// Whether such can have been measured.
    pub(super) fn is_sound(&self) -> bool {
        let Self { first, more, again, late, near, next } = self;
        let all = [first, more, again, late].into_iter().chain(near).chain(next);
        all.copied().all(|time| (0.0..MOST).contains(&time))
    }

    /// Each of them, as `found` makes it of what takes it out of others.
    pub(super) fn by(found: impl Fn(fn(&Self) -> f64) -> f64) -> Self {
        Self {
            first: found(|writes| writes.first),
            more: found(|writes| writes.more),
            again: found(|writes| writes.again),
            late: found(|writes| writes.late),
            near: Some(found(|writes| writes.near.unwrap_or(writes.late))),
            next: Some(found(|writes| writes.next.unwrap_or(writes.late))),
        }
    }

    /// One measurement, the mean of all cores.
    fn round(cores: usize, stock: &MemoryStock) -> Result<Self, Failure> {
        let device = MemoryDevice::with_stock(room(cores) * cores as u64, stock);
        let found: std::io::Result<Vec<Self>> = thread::scope(|scope| {
            let one = |core| {
                let device = &device;
                scope.spawn(move || Self::of_core(device, core, room(cores)))
            };
            let threads: Vec<_> = (0..cores).map(one).collect();
            let lost = || Err(std::io::Error::other("a thread panicked"));
            threads.into_iter().map(|one| one.join().unwrap_or_else(|_| lost())).collect()
        });
        let found = found.map_err(|error| Failure::broken(error.to_string()))?;
        Ok(Self::by(|of| found.iter().map(of).sum::<f64>() / cores as f64))
    }

    fn of_core(device: &MemoryDevice, core: usize, room: u64) -> std::io::Result<Self> {
        // Each second 16 KiB of one half, then of the other, in an order without a pattern.
        let writes = room / (64 << 10);
        const BLOCK: usize = 4096;
        const ORDER: u64 = 0x2545_F491_4F6C_DD1D;
        // Where that is refused the system chooses.
        let _ = pin(core);
        // Aligned as that of direct writes is.
        let data = Buffer::from_bytes(&[1; 16 << 10]);
        let clock = each(writes, |_| {
            hint::black_box(now().elapsed());
        }) / 2.0;
        let from = core as u64 * room;
        // Each alone: what follows would else be begun meanwhile, and stores that wait for their
        // lines would be the next one's.
        let write = |at: u64, data: &[u8]| -> std::io::Result<Duration> {
            let began = now();
            device.write_at(from + at, data)?;
            fence(Ordering::SeqCst);
            Ok(began.elapsed())
        };
        let place = |n: u64| n.wrapping_mul(ORDER) % writes * (32 << 10);
        let mean = |took: Duration, n: u64| took.as_nanos() as f64 / n as f64 - clock;
        let ns = |from: u64, places: u64, data: &[u8]| -> std::io::Result<f64> {
            let mut took = Duration::ZERO;
            for n in 0..writes {
                took += write(from + place(n % places), data)?;
            }
            Ok(mean(took, writes))
        };
        let block = &data[..BLOCK];
        let (first, whole) = (ns(0, writes, block)?, ns(room / 2, writes, &data)?);
        let more = (whole - first).max(0.0) / 3.0;
        let (late, again) = (ns(0, writes, block)?, ns(0, 64, block)?);
        // Of 16 KiB that are there, the first 4 KiB and then some of the others.
        let beside = |from: u64, others: &[u64]| -> std::io::Result<f64> {
            let mut took = Duration::ZERO;
            for chunk in (0..writes).map(|n| from + place(n)) {
                write(chunk, block)?;
                for other in others {
                    took += write(chunk + other * BLOCK as u64, block)?;
                }
            }
            Ok(mean(took, writes * others.len() as u64))
        };
        let (near, next) = (Some(beside(0, &[2])?), Some(beside(room / 2, &[1, 2, 3])?));
        Ok(Self { first, more, again, late, near, next })
    }
}

/// What was found of this machine: nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Constants {
    cores: usize,
    instruction: f64,
    rmw: f64,
    line: f64,
    /// Whether lines go whole to who loads them.
    migrates: bool,
    /// Times its way that a line takes which rests; one way before that is measured.
    rested: Option<f64>,
    /// The chances of changes of lines that two want; none before they are measured.
    chances: Option<[f64; 2]>,
    wake: f64,
    /// For how long whoever wakes is busy with that; none where it was not measured.
    waker: Option<f64>,
    /// The checksum of 4 KiB; none where it was not measured.
    sum: Option<f64>,
    pause: f64,
    offer: f64,
    /// How fast its cores were meanwhile.
    pace: f64,
}

impl Constants {
    /// Measures.
    pub(super) fn measure() -> Result<Self, Failure> {
        let cores = available_cores().min(2);
        // Twice, some seconds apart: one of three times it was a quarter longer.
        let before = rests();
        let Code { instruction, rmw, pace } = Code::measure(cores)?;
        let some: [Waking; RUNS] = std::array::from_fn(|_| Waking::measure());
        let Waking { sleeper: wake, waker } = Waking::middle(some.into_iter()).unwrap_or(some[0]);
        let (waker, after) = (Some(waker), rests());
        let [pause, offer] = [0, 1].map(|which| before[which].min(after[which]));
        if wake > waking::LONGEST {
            let text = format!("a wake-up takes {:.1} ms: something else runs here", wake / 1e6);
            return Err(Failure::broken(text));
        }
        let alone = Self { sum: Some(sum()), ..Self::alone(instruction, rmw) };
        let some = Self { wake, waker, pause, offer, pace, ..alone };
        if cores > 1 { some.at(Turn::measure(), pace) } else { Ok(Self { line: 50.0, ..some }) }
    }

    /// Whether such can have been measured; `from` is where they are told.
    ///
    /// # Errors
    /// [`Failure::Usage`] if no machine can have them.
    pub(super) fn check(&self, from: &str) -> Result<(), Failure> {
        Machine::parse(from, &self.text())?;
        if self.waker.is_some_and(|busy| !(0.0..MOST).contains(&busy)) {
            return Err(Failure::usage(format!("{from}: waker: a number from 0 to {MOST}")));
        }
        match (0.0..MOST).contains(&self.pace) && self.pace > 0.0 {
            true => Ok(()),
            false => Err(Failure::usage(format!("{from}: pace: a number above 0"))),
        }
    }

    /// One core that meets nobody.
    pub(super) fn alone(instruction: f64, rmw: f64) -> Self {
        let [wake, pause, offer] = [0.0; 3];
        Self {
            cores: available_cores(),
            instruction,
            rmw,
            line: 0.0,
            migrates: false,
            rested: None,
            chances: None,
            wake,
            waker: None,
            sum: None,
            pause,
            offer,
            pace: 1.0,
        }
    }

    /// The same while cores are as fast as `pace` says, and with a line's way such that a simulated
    /// turn takes as long as the real one of so many nanoseconds: how many ways a turn has the
    /// simulation says.
    pub(super) fn at(self, turn: Turn, pace: f64) -> Result<Self, Failure> {
        const LINE: f64 = 100.0;
        let slower = pace / self.pace;
        let (instruction, rmw) = (self.instruction * slower, self.rmw * slower);
        let migrates = turn.migrates();
        let (chances, rested) = (None, Some(turn.rested(rmw)));
        let sum = self.sum.map(|ns| ns * slower);
        let now = Self { instruction, rmw, sum, pace, line: LINE, migrates, ..self };
        let now = Self { rested, chances, ..now };
        let ways = Machine::parse("host", &now.text())?.turn()? / 1000.0 / LINE;
        let chances = Some(turn.chances).filter(|_| migrates);
        Ok(Self { line: turn.changed / ways, chances, ..now })
    }

    /// The same where waking takes so long.
    pub(super) fn waking(self, waking: Waking) -> Self {
        Self { wake: waking.sleeper, waker: Some(waking.waker), ..self }
    }

    /// A machine's file.
    pub(super) fn text(&self) -> String {
        const CODE: &str = "fit: one core of handles";
        const MEETING: &str = "two cores that change one word, or two, all the time";
        let Self { cores, instruction, rmw, line, migrates, .. } = *self;
        let Self { rested, chances, wake, waker, sum, pause, offer, .. } = *self;
        let rested = rested.unwrap_or(1.0);
        let waker = waker.map_or(USUAL_WAKER, |busy| (busy / wake).min(1.0));
        let near = if cores > 1 {
            "64 words that two cores change in turns"
        } else {
            "assumed: there is one core"
        };
        let constants = [
            ("instruction_ps", instruction * 1000.0, CODE),
            ("rmw_ns", rmw, CODE),
            ("near_ns", line, near),
            ("wake_ns", wake, "a thread on another core that has slept for up to 2 us"),
            ("pause_ns", pause, "10,000 pauses, alone on a core"),
            ("offer_ns", offer, "10,000 yields, alone on a core"),
        ];
        let mut text = format!(
            "# Made by `nextent-lab simulate --calibrate`.\n\
             about = \"this machine, {cores} cores\"\n\n\
             [shape]\ncores = {cores}\ncluster = {cores}\nsocket = {cores}\nline = 64\n\
             unfair = true # who spins looks at the lock's word\n\
             migrates = {migrates} # measured: a changed line goes whole to who looks at it\n\
             rested = {rested:.2} # measured: ways that one takes which nobody has used since\n\
             waker = {waker:.2} # measured: the part of a wake-up that whoever wakes spends\n"
        );
        if let Some(ns) = sum {
            text += &format!("sum_ns = {ns:.1} # measured: the checksum of 4 KiB\n");
        }
        text += "\n[constants]\n";
        for (name, value, source) in constants {
            text += &format!("{name} = {{ value = {value:.1}, source = \"{source}\" }}\n");
        }
        for (name, chance) in ["again", "other"].into_iter().zip(chances.into_iter().flatten()) {
            text += &format!("{name} = {{ value = {chance:.3}, source = \"{MEETING}\" }}\n");
        }
        text
    }
}

/// Measures this machine; the text of a machine file. One distance is measured: between the first
/// two cores.
///
/// # Errors
/// [`Failure::Broken`] if a run of the engine or of the simulation fails.
pub fn calibrate() -> Result<String, Failure> {
    Ok(Constants::measure()?.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Constants = Constants {
        cores: 2,
        instruction: 0.2,
        rmw: 5.0,
        line: 0.0,
        migrates: true,
        rested: None,
        chances: None,
        wake: 2000.0,
        waker: None,
        sum: None,
        pause: 25.0,
        offer: 480.0,
        pace: 1.0,
    };

    #[test]
    fn two_cores_of_handles_take_as_long_as_real_ones() {
        // As measured on two kinds of processor: nanoseconds of an operation of one core of two.
        let older = Constants { instruction: 0.12, rmw: 1.9, line: 28.0, pause: 30.0, ..SOME };
        let older = Constants { chances: Some([0.49, 0.26]), ..older };
        let newer = Constants { instruction: 0.07, rmw: 1.4, line: 27.0, pause: 26.0, ..SOME };
        let newer = Constants { chances: Some([0.76, 0.57]), ..newer };
        const DESIGNS: [&str; 3] = ["ext3-final", "ext4-2.6.33-hack", "ext4-2.6.36"];
        for (constants, real) in [(older, [381.0, 244.0, 218.0]), (newer, [215.0, 205.0, 162.0])] {
            let machine = Machine::parse("host", &constants.text()).expect("a machine");
            let mut bench = crate::simulate::Bench::new(&machine);
            for (design, real) in DESIGNS.into_iter().zip(real) {
                let found = bench.run("handles", design, 2, 500).expect("it runs");
                let ns = 2e9 / found.ops_per_s;
                // Where code lies is not looked up in a build that is not optimised.
                let off = ns / real;
                assert!((0.75..1.25).contains(&off), "{design}: {ns:.0}, not {real}");
            }
        }
    }

    #[test]
    fn a_turn_is_a_line_on_its_way() {
        for (line, part) in [(20.0, 1.2), (50.0, 1.2), (160.0, 1.7)] {
            let text = Constants { line, migrates: part < 1.3, ..SOME }.text();
            let machine = Machine::parse("host", &text).expect("a machine");
            let changed = machine.turn().expect("turns") / 1000.0;
            assert!((changed / line - 1.0).abs() < 0.3, "{changed} with {line}");
            let turn = Turn {
                changed,
                look: part,
                rested: Some(1.25 * changed + 10.0),
                chances: [0.7, 0.5],
            };
            let found = SOME.at(turn, 2.0).expect("a line");
            assert!((found.line / line - 1.0).abs() < 0.2, "{found:?}, not {line}");
            assert_eq!((found.instruction, found.rmw), (0.4, 10.0));
            // What is measured makes a machine's file, with the chances where lines migrate.
            let constants = Machine::parse("host", &found.text()).expect("a machine").constants();
            assert_eq!(constants.contains("700 and 500 of 1000"), part < 1.3, "{constants}");
            assert_eq!(constants.contains("1.25 times if it rests"), part < 1.3, "{constants}");
            // Where that was not measured, and where it takes less, it is its way.
            for rested in [None, Some(0.9 * changed)] {
                let found = SOME.at(Turn { rested, ..turn }, 2.0).expect("a line");
                let machine = Machine::parse("host", &found.text()).expect("a machine");
                assert!(!machine.constants().contains("rests"), "{machine:?}");
            }
        }
    }

    #[test]
    fn who_wakes_is_busy_as_long_as_was_measured_or_for_half_of_it() {
        for (waker, told) in [(None, 1000), (Some(500.0), 500), (Some(9000.0), 2000)] {
            let text = Constants { waker, line: 30.0, ..SOME }.text();
            let told = format!("wake 2000 ns ({told} of the waker)");
            let constants = Machine::parse("host", &text).expect("a machine").constants();
            assert!(constants.contains(&told), "{constants}");
        }
        assert!(Constants { waker: Some(-1.0), line: 30.0, ..SOME }.check("x").is_err());
        let found = SOME.waking(Waking { sleeper: 3000.0, waker: 750.0 });
        assert_eq!((found.wake, found.waker), (3000.0, Some(750.0)));
    }

    #[test]
    fn a_sum_takes_as_long_as_was_measured_or_an_instruction_for_four_bytes() {
        for (sum, told) in [(None, 205), (Some(50.0), 50), (Some(0.0), 0)] {
            let text = Constants { sum, line: 30.0, ..SOME }.text();
            let constants = Machine::parse("host", &text).expect("a machine").constants();
            assert!(constants.contains(&format!("sum {told} ns")), "{constants}");
        }
        assert!(Constants { sum: Some(-1.0), line: 30.0, ..SOME }.check("x").is_err());
        // As cores are slower, so is it.
        let turn = Turn { changed: 30.0, look: 1.0, rested: None, chances: [0.7, 0.5] };
        let slow = Constants { sum: Some(50.0), ..SOME }.at(turn, 2.0).expect("a line");
        assert_eq!(slow.sum, Some(100.0));
        assert!(sum() > 0.0);
    }

    #[test]
    fn writes_of_older_files_are_read() {
        let text = r#"{"first": 700.0, "more": 130.0, "again": 60.0, "late": 490.0}"#;
        let older: Writes = serde_json::from_str(text).expect("they are good");
        assert!(older.is_sound() && older.near.is_none() && older.next.is_none());
        assert_eq!(Writes::by(|of| of(&older)).next, Some(490.0));
        assert!(!Writes { next: Some(-1.0), ..older }.is_sound());
    }
}
