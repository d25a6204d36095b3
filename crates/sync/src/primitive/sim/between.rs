//! The code between two uses of locks and atomics: which instructions lie where.
//!
//! A use has a place, by where it is in the sources and what kind of use it is, and the code before
//! it depends on the place of the use before. Of one simulated thread is noted which places follow
//! each other, and some of its operations are stepped through, instruction by instruction
//! ([`super::stepping`]), for what lies between them; runs that are charged are told what that
//! takes.

use super::lines::Use;
use super::stepping::{self, Steps, quiet};
use super::table::Spreading;
use super::world::{self, World};
use std::collections::HashMap;

/// Where a use is: the place in the sources as an address, and in its low bits the kind. It is the
/// same in all simulations of one process.
pub(super) type Place = usize;

/// What lies between two places that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// The first.
    pub from: usize,
    /// The second.
    pub to: usize,
    /// How often they followed each other.
    pub times: u64,
    /// How often of these what lies between them was counted.
    pub stepped: u64,
    /// Instructions counted, but for those that the code itself told of.
    pub instructions: f64,
    /// Read-modify-writes counted that are not simulated.
    pub changes: u64,
}

/// The code between two places, from one to the other: picoseconds of it.
pub type Known = (usize, usize, u64);

/// What is known, and what is found out.
#[derive(Default)]
pub(super) struct Between {
    /// Of whom is noted what follows what.
    noted: Option<usize>,
    found: HashMap<(Place, Place), Span, Spreading>,
    /// Instructions that are counted of each quiet section, and told of since the last use.
    overhead: f64,
    told: u64,
    /// Picoseconds between two places, and before a place, whatever was before.
    known: HashMap<(Place, Place), u64, Spreading>,
    before: HashMap<Place, u64, Spreading>,
}

impl Between {
    /// The caller comes to `to` after `from`; with nothing between but what it has told of, if it
    /// has `told_all`.
    fn note(&mut self, from: Place, to: Place, told_all: bool) {
        let span = self.found.entry((from, to)).or_insert(Span { from, to, ..Span::default() });
        span.times += 1;
        if !stepping::is_on() {
            return;
        }
        let Steps { instructions, changes, sections } = stepping::take();
        let told = std::mem::take(&mut self.told);
        let unwanted = sections as f64 * self.overhead + told as f64;
        span.stepped += 1;
        if told_all {
            return;
        }
        span.instructions += (instructions as f64 - unwanted).max(0.0);
        span.changes += changes;
    }

    /// The caller tells of so many instructions.
    pub(super) fn tell(&mut self, instructions: u64) {
        if stepping::is_on() {
            self.told += instructions;
        }
    }

    /// All that was found, in order.
    pub(super) fn found(&self) -> Vec<Span> {
        let mut found: Vec<Span> = self.found.values().copied().collect();
        found.sort_by_key(|span| (span.from, span.to));
        found
    }

    fn learn(&mut self, known: &[Known]) {
        let mut before: HashMap<Place, (u64, u64), Spreading> = HashMap::default();
        for &(from, to, time) in known {
            self.known.insert((from, to), time);
            let all = before.entry(to).or_default();
            *all = (all.0 + 1, all.1 + time);
        }
        self.before = before.into_iter().map(|(place, (n, time))| (place, time / n)).collect();
    }
}

impl World {
    /// Picoseconds of the code before the caller's next use, of this kind; `beside` if that is of
    /// the same word as the last or of its neighbour.
    pub(super) fn code_before(&mut self, which: Use, beside: bool) -> u64 {
        let (from, place) = self.me().go_on(which);
        let told_all = std::mem::take(&mut self.me().told_all);
        if self.between.noted == Some(self.caller()) {
            self.between.note(from, place, told_all);
        }
        if told_all {
            return 0;
        }
        match self.between.known.get(&(from, place)) {
            Some(time) => *time,
            // Who looks at a word again, or does what nobody who was stepped through did.
            None if beside => 0,
            None => self.between.before.get(&place).copied().unwrap_or(self.step),
        }
    }
}

/// Lets the time of so many instructions pass on the caller's core alone.
pub(crate) fn stretch(instructions: u64) {
    let _quiet = quiet();
    world::with(|world| {
        if world.is_charging() {
            world.told += instructions;
            world.between.tell(instructions);
            world.pass(instructions * world.instruction);
        }
    });
}

/// As [`stretch`], and that is all the code before the caller's next operation.
pub(crate) fn stretch_only(instructions: u64) {
    stretch(instructions);
    let _quiet = quiet();
    world::with(|world| world.me().told_all = world.is_charging());
}

/// Lets pass what the machine takes to sum up so many bytes, which `sum` does.
pub(crate) fn sum<T>(bytes: usize, sum: impl FnOnce() -> T) -> T {
    let _quiet = quiet();
    world::with(|world| {
        if world.is_charging() {
            world.pass(bytes as u64 * world.machine.sum / 64);
        }
    });
    sum()
}

/// What follows is found by what the caller loaded last, and not begun before that is there.
pub(crate) fn leads_on() {
    let _quiet = quiet();
    world::with(|world| world.me().leads_on());
}

/// As [`leads_on`] where lines migrate, and whether they do.
pub(crate) fn leads_to() -> bool {
    let _quiet = quiet();
    let led = |world: &mut World| {
        let migrates = world.machine.migrates;
        if migrates {
            world.me().leads_on();
        }
        migrates
    };
    world::with(led) == Some(true)
}

/// No code lies before the caller's next operation.
pub(crate) fn at_once() {
    let _quiet = quiet();
    world::with(|world| world.me().at_once = true);
}

/// Notes from now on what follows what of the caller's.
pub fn note_places() {
    world::with(|world| world.between.noted = Some(world.caller()));
}

/// Counts what lies between the caller's uses from now on, where that can be done.
pub fn step_through() {
    let overhead = Steps::overhead();
    world::with(|world| world.between.overhead = overhead);
    if stepping::begin() {
        stepping::take();
    }
}

/// Counts no more.
pub fn run_on() {
    stepping::end();
}

/// From now on the code between these places takes so long.
pub fn learn(known: &[Known]) {
    world::with(|world| world.between.learn(known));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arc;
    use crate::primitive::atomic::{AtomicU64, Ordering};
    use crate::primitive::sim::lines::Machine;
    use crate::primitive::sim::world::{Found, clock, gather, run, settle};
    use crossbeam_utils::CachePadded;

    /// How often the same is done.
    const TIMES: u64 = 64;

    /// Much between a load and a change, and little between that and the next load.
    fn work(words: &[CachePadded<AtomicU64>; 2]) {
        for _ in 0..TIMES {
            let mut sum = words[0].load(Ordering::Relaxed);
            for n in 0..200 {
                sum = std::hint::black_box(sum.wrapping_mul(n | 1));
            }
            words[1].fetch_add(sum, Ordering::Relaxed);
        }
    }

    /// What is found out of it on one core, and its time; `step` for what is not known.
    fn on_one_core(step: u64, before: impl FnOnce() + 'static) -> (Found, u64) {
        let machine =
            Machine { cores: 1, cluster: 1, socket: 1, line_shift: 6, ..Machine::default() };
        run(machine, move || {
            let words: Arc<[CachePadded<AtomicU64>; 2]> = Arc::default();
            before();
            gather(0, 1, step, 0);
            let began = clock();
            work(&words);
            let took = clock() - began;
            run_on();
            (settle(), took)
        })
    }

    fn near(found: u64, wanted: u64) -> bool {
        (found as f64 / wanted as f64 - 1.0).abs() < 0.1
    }

    #[test]
    fn code_is_found_and_charged_where_it_lies() {
        let (found, _) = on_one_core(0, || {
            note_places();
            step_through();
        });
        let steady = |span: &&Span| span.times >= TIMES - 1;
        let spans: Vec<&Span> = found.spans.iter().filter(steady).collect();
        let [one, other] = spans[..] else { panic!("{spans:?}") };
        assert!(one.from == other.to && one.to == other.from);
        // Where it cannot be done, nothing is counted.
        if one.stepped > 0 {
            let each = |span: &Span| span.instructions / span.stepped as f64;
            let (least, most) = (each(one).min(each(other)), each(one).max(each(other)));
            // Of a build that is not optimised there are some dozens for each step.
            assert!((400.0..40_000.0).contains(&most) && least < most / 8.0, "{spans:?}");
            assert_eq!(one.changes + other.changes, 0);
        }
        // What is known is charged, and where nothing is, the step, but for loads of the same word.
        let known = [(one.from, one.to, 7000), (other.from, other.to, 500)];
        let (_, took) = on_one_core(1_000_000, move || learn(&known));
        assert!(near(took, TIMES * 7500), "{took}");
        let (_, took) = on_one_core(1000, || ());
        assert!(near(took, TIMES * 1000), "{took}");
        // Of places that were never reached from there, what lies before them elsewhere.
        let known = [(0, one.to, 4000), (8, one.to, 6000)];
        let (_, took) = on_one_core(0, move || learn(&known));
        assert!(near(took, TIMES * 5000), "{took}");
    }

    #[test]
    fn where_all_code_is_told_of_nothing_is_added() {
        let machine =
            Machine { cores: 1, cluster: 1, socket: 1, line_shift: 6, ..Machine::default() };
        let (took, found) = run(machine, || {
            let words: Arc<[CachePadded<AtomicU64>; 3]> = Arc::default();
            note_places();
            step_through();
            gather(0, 1, 1_000_000, 10);
            let sum = words[0].load(Ordering::Relaxed);
            let began = clock();
            std::hint::black_box((0..200).fold(sum, |sum, n| sum.wrapping_mul(n | 1)));
            stretch_only(5);
            words[1].load(Ordering::Relaxed);
            let took = clock() - began;
            // Once, and no longer.
            words[2].load(Ordering::Relaxed);
            run_on();
            ([took, clock() - began - took], settle())
        });
        assert_eq!(took[0], 50);
        assert!(took[1] >= 500_000, "{took:?}");
        // Nothing was counted there, though there is a loop.
        let mut counted: Vec<f64> = found.spans.iter().map(|span| span.instructions).collect();
        counted.sort_by(f64::total_cmp);
        assert!(counted.len() == 3 && counted[0] == 0.0, "{counted:?}");
        assert_eq!(found.told, 5);
    }

    #[test]
    fn a_sum_takes_what_the_machine_says_and_is_not_counted() {
        let machine = Machine {
            cores: 1,
            cluster: 1,
            socket: 1,
            line_shift: 6,
            sum: 1000,
            ..Machine::default()
        };
        let ((sum, took), found) = run(machine, || {
            let words: Arc<[CachePadded<AtomicU64>; 2]> = Arc::default();
            note_places();
            step_through();
            gather(0, 1, 0, 0);
            words[0].load(Ordering::Relaxed);
            let began = clock();
            let add = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum + u64::from(*byte));
            let sum = crate::sums(&[1; 512], add);
            let took = clock() - began;
            words[1].load(Ordering::Relaxed);
            run_on();
            ((sum, took), settle())
        });
        assert_eq!((sum, took), (512, 8000));
        // It has thousands of instructions.
        let mut between = found.spans.iter().filter(|span| span.from > 0);
        let counted = between.next().expect("two loads").instructions;
        assert!(counted < 500.0, "{counted}");
        assert_eq!(found.told, 0);
    }
}
