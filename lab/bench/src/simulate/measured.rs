//! What was measured of each design under each workload, in rounds, and what it says by itself.
//!
//! Plain figures: they can be kept in a file (`kept`) and held against a later simulation.

use super::WORKLOADS;
use super::calibrate::{self, Turn, Writes, near};
use super::host::{One, Task};
use super::real::Real;
use super::waking::Waking;
use super::way::Way;
use crate::failure::Failure;
use crate::run::{Cycle, Pair, Part, Reach};
use nextent_bench_simulated::Course;
use nextent_device::MemoryStock;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The least share of a measurement's time for which the cores must have been where they usually
/// are, or it does not count.
const SHARE: f64 = 0.2;
/// More operations than one core makes in a round.
const MOST: u64 = 100_000_000;

/// One round.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Round {
    /// Where two cores change a word in turns, beside it.
    pub(super) turn: Turn,
    /// How fast the cores were.
    pace: f64,
    /// How long waking took; none where it was not measured.
    waking: Option<Waking>,
    /// What both did together, and each alone, in turns.
    pub(super) pair: Pair,
}

impl Round {
    /// Whether such can have been measured.
    fn is_sound(&self) -> bool {
        let Pair { cycles, together, alone } = &self.pair;
        let good = |part: &Part| part.seconds > 0.0 && part.rate >= 0.0;
        let all_good = |cycle: &Cycle| {
            good(&cycle.both)
                && cycle.alone.iter().flatten().all(good)
                && cycle.turns.iter().all(|turn| *turn > 0.0)
        };
        let ran = |reach: &Reach| reach.before <= reach.after && reach.after <= MOST;
        self.turn.is_sound()
            && self.pace > 0.0
            && self.waking.is_none_or(|waking| waking.is_sound())
            && ran(together)
            && ran(alone)
            && cycles.iter().all(all_good)
    }

    /// Operations a second of two threads by those of one, while a turn took about `usual` and
    /// nothing else ran on their cores; none if that was hardly ever so.
    fn ratio(&self, usual: f64) -> Option<f64> {
        self.ratio_of(usual, Cycle::is_whole)
    }

    /// The same of those cycles that count.
    fn ratio_of(&self, usual: f64, counts: impl Fn(&Cycle) -> bool) -> Option<f64> {
        let is_usual =
            |cycle: &&Cycle| counts(cycle) && cycle.turns.iter().all(|turn| near(*turn, usual));
        let good: Vec<&Cycle> = self.pair.cycles.iter().filter(is_usual).collect();
        if good.is_empty() || (good.len() as f64) < SHARE * self.pair.cycles.len() as f64 {
            return None;
        }
        let both = rate(good.iter().map(|cycle| cycle.both));
        let one = one(&good);
        (one > 0.0).then(|| both / one)
    }

    /// Those in which nothing else ran on the cores; all if there are none.
    fn whole(&self) -> Vec<&Cycle> {
        let all = self.pair.cycles.iter();
        let whole: Vec<&Cycle> = all.clone().filter(|cycle| cycle.is_whole()).collect();
        if whole.is_empty() { all.collect() } else { whole }
    }

    /// Operations a second of one thread, in the mean of both cores.
    fn one(&self) -> f64 {
        one(&self.whole())
    }

    /// Operations a second of two threads.
    fn two(&self) -> f64 {
        rate(self.whole().into_iter().map(|cycle| cycle.both))
    }
}

/// Operations a second in all of those parts.
pub(super) fn rate(parts: impl Iterator<Item = Part> + Clone) -> f64 {
    let seconds: f64 = parts.clone().map(|part| part.seconds).sum();
    let done: f64 = parts.map(|part| part.rate * part.seconds).sum();
    done / seconds
}

/// Operations a second of one thread in those cycles, in the mean of both cores.
fn one(cycles: &[&Cycle]) -> f64 {
    let of = |core: usize| rate(cycles.iter().filter_map(move |cycle| cycle.alone[core]));
    (of(0) + of(1)) / 2.0
}

/// A row as it is measured.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    #[serde(serialize_with = "str::serialize", deserialize_with = "known")]
    pub(super) workload: Name,
    pub(super) design: String,
    pub(super) rounds: Vec<Round>,
    /// What one core and two need to write to memory.
    pub(super) device: [Writes; 2],
    /// Nanoseconds of a turn of two cores when that was measured: cores that are far from each
    /// other may have ways of their own to memory. None where it was not measured.
    device_turn: Option<f64>,
}

/// One of [`WORKLOADS`]; by another name, for what is derived takes a reference as a part of the
/// text that is read.
pub(super) type Name = &'static str;

/// The workload of that name.
pub(super) fn known<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    let name = String::deserialize(from)?;
    let found = WORKLOADS.into_iter().find(|known| *known == name);
    found.ok_or_else(|| D::Error::custom(format!("{name}: no such workload")))
}

impl Measured {
    /// One without rounds.
    pub(super) fn of(
        workload: &'static str,
        design: &str,
        stock: &MemoryStock,
    ) -> Result<Self, Failure> {
        // The way to memory is others' too, for seconds at a time.
        let (device_turn, device) = device(stock)?;
        Ok(Self { workload, design: design.to_owned(), rounds: Vec::new(), device, device_turn })
    }

    /// Whether such can have been measured.
    pub(super) fn is_sound(&self) -> bool {
        let writes = self.device.iter().all(Writes::is_sound);
        writes
            && self.device_turn.is_none_or(|turn| turn > 0.0)
            && !self.rounds.is_empty()
            && self.rounds.iter().all(Round::is_sound)
    }

    /// How it is run.
    pub(super) fn way(&self) -> Way {
        Way::of(self.workload)
    }

    /// One round more, while a turn usually takes `usual`, or nobody knows.
    pub(super) fn measure(&mut self, stock: &MemoryStock, usual: f64) -> Result<(), Failure> {
        let Way { course, warm_up, seconds, .. } = self.way();
        let (workload, design) = (self.workload, &self.design[..]);
        let rests = true;
        let real = Real { workload, design, course, warm_up, rests, seconds, stock };
        let (turn, pace, waking) = (Turn::measure(), calibrate::pace(2), Some(Waking::measure()));
        let pair = real.pair()?;
        self.write_again(turn.changed, usual, || device(stock))?;
        self.rounds.push(Round { turn, pace, waking, pair });
        Ok(())
    }

    /// Measures writes again, with `measure`, if the cores were elsewhere then and are where they
    /// usually are with a turn that takes `now`.
    fn write_again(
        &mut self,
        now: f64,
        usual: f64,
        measure: impl FnOnce() -> Result<(Option<f64>, [Writes; 2]), Failure>,
    ) -> Result<(), Failure> {
        if near(now, usual) && !self.wrote_near(usual) {
            (self.device_turn, self.device) = measure()?;
        }
        Ok(())
    }

    /// Whether writes were measured while a turn took about `usual`, as far as is known.
    pub(super) fn wrote_near(&self, usual: f64) -> bool {
        self.device_turn.is_none_or(|turn| near(turn, usual))
    }

    /// Whether it is to be measured again. A virtual machine's cores may be elsewhere for minutes:
    /// rounds of then count once that is where they usually are, and no longer if it ends.
    pub(super) fn is_wanting(&self, usual: f64) -> bool {
        let wanted = self.way().rounds;
        self.rounds.len() < 2 * wanted && self.ratios(usual).len() < wanted
    }

    /// What the rounds that count say.
    pub(super) fn ratios(&self, usual: f64) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| round.ratio(usual)).collect()
    }

    /// What all rounds say, whatever else ran on the cores.
    pub(super) fn disturbed_ratios(&self, usual: f64) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| round.ratio_of(usual, |_| true)).collect()
    }

    /// How fast the cores were.
    pub(super) fn pace(&self) -> f64 {
        middle(&mut self.rounds.iter().map(|round| round.pace).collect::<Vec<f64>>())
    }

    /// How long waking took while a turn took about `usual`, or always if it never did: cores that
    /// are far from each other wake each other late. None where that was not measured.
    pub(super) fn waking(&self, usual: f64) -> Option<Waking> {
        let there = self.rounds.iter().filter(|round| near(round.turn.changed, usual));
        let all = || self.rounds.iter().filter_map(|round| round.waking);
        Waking::middle(there.filter_map(|round| round.waking)).or_else(|| Waking::middle(all()))
    }

    /// Nanoseconds from one operation of a core to its next, with one core and with two.
    pub(super) fn ns(&self) -> [f64; 2] {
        [(Round::one as fn(&Round) -> f64, 1.0), (Round::two, 2.0)].map(|(of, cores)| {
            cores * 1e9 / middle(&mut self.rounds.iter().map(of).collect::<Vec<f64>>())
        })
    }

    /// What so many cores do.
    pub(super) fn task(&self, cores: usize) -> Task<'_> {
        let (workload, design) = (self.workload, &self.design[..]);
        Task { workload, design, cores, course: self.course(cores) }
    }

    /// What one of them took.
    pub(super) fn one(&self) -> One<'_> {
        One { task: self.task(1), pace: self.pace(), ns: self.ns()[0] }
    }

    /// What so many cores are to do as well: as many operations as in the middle of all rounds.
    fn course(&self, cores: usize) -> Course {
        let Way { course, as_measured, .. } = self.way();
        if !as_measured || self.rounds.is_empty() {
            return course;
        }
        let reach = |round: &Round| match cores {
            1 => round.pair.alone,
            _ => round.pair.together,
        };
        let middle_of = |of: fn(Reach) -> u64| {
            let all = self.rounds.iter().map(|round| of(reach(round)) as f64);
            middle(&mut all.collect::<Vec<f64>>()) as u64
        };
        let warm = middle_of(|reach| reach.before);
        let operations = middle_of(|reach| reach.after - reach.before).max(1);
        Course { warm, operations, ..course }
    }
}

/// Nanoseconds of a turn of two cores, and what one and two then need to write to memory.
fn device(stock: &MemoryStock) -> Result<(Option<f64>, [Writes; 2]), Failure> {
    let turn = Some(calibrate::turn());
    Ok((turn, [Writes::measure(1, stock)?, Writes::measure(2, stock)?]))
}

/// Nanoseconds of a turn in the middle of all that two cores did together.
pub(super) fn usual(rows: &[Measured]) -> f64 {
    let cycles = rows.iter().flat_map(|row| &row.rounds).flat_map(|round| &round.pair.cycles);
    let mut turns: Vec<f64> = cycles.flat_map(|cycle| cycle.turns).collect();
    if turns.is_empty() { f64::NAN } else { middle(&mut turns) }
}

/// The one in the middle of at least one.
pub(super) fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(turns: [f64; 2], seconds: f64, both: f64, alone: [f64; 2]) -> Cycle {
        let part = |rate| Part { seconds, rate };
        let alone = alone.map(|rate| (rate > 0.0).then(|| part(rate)));
        Cycle { both: part(both), turns, alone }
    }

    #[test]
    fn cycles_for_which_cores_were_elsewhere_do_not_count() {
        let turn = Turn { changed: 26.0, look: 1.0, rested: None, chances: [0.7, 0.5] };
        let round = |cycles: &[Cycle]| Round {
            turn,
            pace: 1.0,
            waking: None,
            pair: Pair { cycles: cycles.to_vec(), ..Pair::default() },
        };
        let near = [
            cycle([26.0, 27.0], 0.003, 8.0, [11.0, 9.0]),
            cycle([30.0, 24.0], 0.001, 4.0, [11.0, 9.0]),
        ];
        let moved = cycle([26.0, 120.0], 0.003, 3.0, [1.0, 1.0]);
        let far = cycle([130.0, 120.0], 0.003, 2.0, [5.0, 15.0]);
        assert_eq!(round(&near).ratio(26.0), Some(0.7));
        assert_eq!(round(&[near[0], moved, far]).ratio(26.0), Some(0.8));
        assert_eq!(round(&[near[0], moved, far]).ratio(120.0), Some(0.2));
        assert_eq!(round(&[moved, far, moved, moved, moved, moved]).ratio(120.0), None);
        assert_eq!(round(&[near[1], moved]).ratio(120.0), None);
        assert_eq!(round(&[]).ratio(26.0), None);
        // Who had nothing left to do says nothing of one core.
        let over = cycle([26.0, 26.0], 0.003, 8.0, [0.0, 9.0]);
        assert_eq!(round(&[near[0], over]).ratio(26.0), Some(0.8));
        assert_eq!(round(&[over]).ratio(26.0), None);
        assert_eq!(round(&near).one(), 10.0);
        // Something else ran on a core.
        let disturbed = cycle([26.0, 26.0], 0.004, 2.0, [1.0, 1.0]);
        assert_eq!(round(&[near[0], disturbed]).ratio(26.0), Some(0.8));
        assert_eq!(round(&[disturbed]).ratio(26.0), None);
        assert_eq!(round(&[disturbed]).ratio_of(26.0, |_| true), Some(2.0));
        assert_eq!([round(&[near[0], disturbed]).one(), round(&[disturbed]).one()], [10.0, 1.0]);
    }

    #[test]
    fn rounds_while_cores_are_elsewhere_are_made_up_for_and_say_nothing_of_waking() {
        let round = |changed: f64, sleeper| {
            let turn = Turn { changed, look: 1.0, rested: None, chances: [0.7, 0.5] };
            let cycles = vec![cycle([changed; 2], 0.003, 8.0, [11.0, 9.0])];
            let waking = Some(Waking { sleeper, waker: sleeper / 2.0 });
            Round { turn, pace: 1.0, waking, pair: Pair { cycles, ..Pair::default() } }
        };
        let row = |near: usize, far: usize| {
            let near = std::iter::repeat_with(|| round(22.0, 7000.0)).take(near);
            let rounds = near.chain(std::iter::repeat_with(|| round(118.0, 15_000.0)).take(far));
            let none = Writes { near: None, next: None, ..Writes::by(|_| 0.0) };
            let (design, device) = ("nextent".to_owned(), [none; 2]);
            let (workload, rounds, device_turn) = ("churn", rounds.collect(), Some(22.0));
            Measured { workload, design, rounds, device, device_turn }
        };
        let wanting = [(6, 0), (7, 0), (3, 7), (6, 7), (6, 8), (0, 14)];
        let wanting = wanting.map(|(near, far)| row(near, far).is_wanting(22.0));
        assert_eq!(wanting, [true, false, true, true, false, false]);
        let sleeper = |row: &Measured, usual| row.waking(usual).map(|waking| waking.sleeper);
        assert_eq!(sleeper(&row(2, 7), 22.0), Some(7000.0));
        assert_eq!(sleeper(&row(2, 7), 118.0), Some(15_000.0));
        assert_eq!(sleeper(&row(2, 7), 60.0), Some(15_000.0));
        assert_eq!(sleeper(&row(0, 0), 22.0), None);
        let written = |device_turn| Measured { device_turn, ..row(1, 0) }.wrote_near(22.0);
        assert_eq!([Some(22.0), Some(118.0), None].map(written), [true, false, true]);
    }

    #[test]
    fn writes_measured_while_cores_were_elsewhere_are_measured_again_once_they_are_back() {
        let writes = |ns| Writes { near: None, next: None, ..Writes::by(|_| ns) };
        // Nanoseconds of the first turn, of each later round's, and of the usual one.
        let last = |first: f64, rounds: &[f64], usual: f64| {
            let device_turn = Some(first);
            let (workload, design) = ("dio-overwrite", "nextent".to_owned());
            let device = [writes(10.0 * first); 2];
            let mut row = Measured { workload, design, rounds: Vec::new(), device, device_turn };
            let mut again = 0;
            for turn in rounds {
                let measure = || {
                    again += 1;
                    Ok((Some(*turn), [writes(10.0 * turn); 2]))
                };
                row.write_again(*turn, usual, measure).expect("it is measured");
            }
            (again, row.device_turn, row.device[1].first)
        };
        assert_eq!(last(118.0, &[118.0, 119.0], 22.0), (0, Some(118.0), 1180.0));
        assert_eq!(last(118.0, &[119.0, 23.0, 22.0, 118.0], 22.0), (1, Some(23.0), 230.0));
        assert_eq!(last(22.0, &[118.0, 23.0], 22.0), (0, Some(22.0), 220.0));
        // Where they are usually nobody knows yet.
        assert_eq!(last(118.0, &[23.0], f64::NAN), (0, Some(118.0), 1180.0));
    }

    #[test]
    fn as_many_operations_are_simulated_as_were_measured() {
        let turn = Turn { changed: 26.0, look: 1.0, rested: None, chances: [0.7, 0.5] };
        let round = |before, after| {
            let alone = Reach { before, after };
            let together = Reach { before: before / 2, after: after / 2 };
            Round {
                turn,
                pace: 1.0,
                waking: None,
                pair: Pair { alone, together, ..Pair::default() },
            }
        };
        let course = |workload, cores| {
            let rounds = vec![round(100, 400), round(120, 500), round(300, 340)];
            let design = "nextent".to_owned();
            let none = Writes { near: None, next: None, ..Writes::by(|_| 0.0) };
            let row = Measured { workload, design, rounds, device: [none; 2], device_turn: None };
            let Course { warm, operations, .. } = row.course(cores);
            (warm, operations)
        };
        assert_eq!((course("churn", 1), course("churn", 2)), ((120, 300), (60, 150)));
        // Operations that are all alike.
        assert_eq!(course("handles", 1), (256, 1000));
    }
}
