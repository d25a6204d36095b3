//! The machine at hand as all rows of a run say it is, and what is simulated on it.
//!
//! What is measured for one row, in some tenths of a second, varies by more than rows differ: so
//! the turns of all rows and all writes make one machine, and only how fast its cores were, and how
//! soon who sleeps was woken, is a row's own.

use super::calibrate::{Constants, Turn, Writes, near};
use super::dearness::{Dearness, Sample};
use super::measured::middle;
use super::side_by_side::side_by_side;
use super::waking::Waking;
use super::{Bench, Codes, Machine, Outcome};
use crate::failure::Failure;
use nextent_bench_simulated::Course;

/// What some cores do.
pub(super) struct Task<'a> {
    pub(super) workload: &'a str,
    pub(super) design: &'a str,
    pub(super) cores: usize,
    pub(super) course: Course,
}

impl Task<'_> {
    /// What simulated cores do.
    pub(super) fn run(&self, bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
        let Self { workload, design, cores, course } = *self;
        bench.run_course(workload, design, cores, course)
    }

    /// Operations a second of simulated cores.
    pub(super) fn rate(&self, bench: &mut Bench<'_>) -> Result<f64, Failure> {
        Ok(self.run(bench)?.ops_per_s)
    }
}

/// What one real core took.
pub(super) struct One<'a> {
    pub(super) task: Task<'a>,
    /// How fast it was.
    pub(super) pace: f64,
    /// Nanoseconds from one operation to the next.
    pub(super) ns: f64,
}

/// The machine, and what one workload's operations take on it.
#[derive(Clone)]
pub(super) struct Host {
    constants: Constants,
    /// All turns that were taken while the cores were where they usually are.
    turn: Turn,
    /// Nanoseconds of each of those, in order.
    ways: Vec<f64>,
    /// What one core and more need to write to memory.
    device: [Writes; 2],
    codes: Codes,
    /// Of one workload.
    pub(super) dearness: Dearness,
}

impl Host {
    /// The machine of all those turns, where most took `usual` nanoseconds.
    pub(super) fn of(
        constants: Constants,
        usual: f64,
        turns: &[Turn],
        device: [Writes; 2],
    ) -> Self {
        let (turn, ways) = settled(usual, turns);
        let (codes, dearness) = (Codes::default(), Dearness::NONE);
        Self { constants, turn, ways, device, codes, dearness }
    }

    /// The same where writes cost that, whoever writes.
    pub(super) fn writing(&self, writes: Writes) -> Self {
        Self { device: [writes; 2], ..self.clone() }
    }

    /// The same where waking takes so long.
    pub(super) fn waking(&self, waking: Waking) -> Self {
        Self { constants: self.constants.waking(waking), ..self.clone() }
    }

    /// The same with how dear one workload's operations are, by what one core took with each
    /// design.
    pub(super) fn for_code_of(&self, ones: &[One<'_>]) -> Result<Self, Failure> {
        let ones: Vec<&One<'_>> = ones.iter().collect();
        let found = side_by_side(&ones, &|one| self.sample(one))?;
        // What code costs was found in these.
        let handles = ones.iter().all(|one| one.task.workload == "handles");
        let fit = if handles { Dearness::rests } else { Dearness::fit };
        Ok(Self { dearness: fit(&found), ..self.clone() })
    }

    /// What one core takes, simulated and real.
    fn sample(&self, one: &One<'_>) -> Result<Sample, Failure> {
        let machine = self.machine(one.pace)?;
        let time = |times: f64| {
            let dearness = Dearness { times, ..Dearness::NONE };
            let mut bench = self.bench(&machine).with_dearness(dearness);
            Ok::<f64, Failure>(1e9 / one.task.rate(&mut bench)?)
        };
        // The rest is the same with both.
        let (once, twice) = (time(1.0)?, time(2.0)?);
        Ok(Sample { code: twice - once, rest: 2.0 * once - twice, real: one.ns })
    }

    pub(super) fn bench<'a>(&self, machine: &'a Machine) -> Bench<'a> {
        Bench::new(machine)
            .with_device(&self.device)
            .with_codes(&self.codes)
            .with_dearness(self.dearness)
    }

    /// The machine while its cores are as fast as `pace`.
    pub(super) fn machine(&self, pace: f64) -> Result<Machine, Failure> {
        self.machine_at(self.turn.changed, pace)
    }

    /// The same with a turn as it was in the middle of one of `parts` of all, which are in order
    /// and as large as each other.
    pub(super) fn machine_in(
        &self,
        nth: usize,
        parts: usize,
        pace: f64,
    ) -> Result<Machine, Failure> {
        self.machine_at(part(&self.ways, nth, parts), pace)
    }

    /// The same where a turn takes so many nanoseconds.
    fn machine_at(&self, changed: f64, pace: f64) -> Result<Machine, Failure> {
        let turn = Turn { changed, ..self.turn };
        Machine::parse("host", &self.constants.at(turn, pace)?.text())
    }
}

/// How far from what was measured what is simulated may be.
pub(super) const NEAR: f64 = 0.15;

/// What the machine and operations cost, in a line for each workload of rows that are in order.
pub(super) fn costs<'r>(
    rows: impl Iterator<Item = (&'static str, &'r Machine, Dearness)>,
) -> String {
    let (mut text, mut last) = (String::new(), None);
    for (workload, machine, Dearness { times, besides }) in rows {
        if last.replace(workload) != Some(workload) {
            let (about, constants) = (&machine.about, machine.constants());
            text += &format!("{about}, {workload}: {constants}, code {times:.1} times, ");
            text += &format!("{besides:.0} ns besides\n");
        }
    }
    text
}

/// What lies in the middle of one of `parts` of what is in order, all parts being as large.
fn part(ordered: &[f64], part: usize, parts: usize) -> f64 {
    ordered[(2 * part + 1) * ordered.len() / (2 * parts)]
}

/// The middle of those of `all` that were taken with the cores as near as `usual`, of all if there
/// are none; and how long each took, in order.
fn settled(usual: f64, all: &[Turn]) -> (Turn, Vec<f64>) {
    let there: Vec<Turn> = all.iter().filter(|turn| near(turn.changed, usual)).copied().collect();
    let turns = if there.is_empty() { all } else { &there };
    let of = |what: fn(&Turn) -> f64| middle(&mut turns.iter().map(what).collect::<Vec<f64>>());
    let chances = [of(|turn| turn.chances[0]), of(|turn| turn.chances[1])];
    let mut ways: Vec<f64> = turns.iter().map(|turn| turn.changed).collect();
    let mut rested: Vec<f64> = turns.iter().filter_map(|turn| turn.rested).collect();
    let rested = (!rested.is_empty()).then(|| middle(&mut rested));
    (Turn { changed: middle(&mut ways), look: of(|turn| turn.look), rested, chances }, ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_the_middle_of_those_where_cores_usually_were() {
        // Near cores share an L3, and far ones do not.
        let turn = |changed: f64| Turn {
            changed,
            look: changed.clamp(40.0, 68.0) / 40.0,
            rested: Some(changed + 5.0),
            chances: [changed / 100.0; 2],
        };
        let all = [27.0, 26.0, 28.0, 129.0, 27.5, 131.0, 33.0].map(turn);
        let told = |usual| {
            let (turn, _) = settled(usual, &all);
            (turn.changed, turn.migrates(), turn.rested)
        };
        assert_eq!(told(33.0), (27.5, true, Some(32.5)));
        assert_eq!(told(120.0), (131.0, false, Some(136.0)));
        assert_eq!(told(60.0), (28.0, true, Some(33.0)));
        let older = all.map(|turn| Turn { rested: None, ..turn });
        assert!(settled(33.0, &older).0.rested.is_none());
        let (_, ways) = settled(27.0, &all);
        assert_eq!(ways, [26.0, 27.0, 27.5, 28.0, 33.0]);
        assert_eq!([0, 1, 2].map(|at| part(&ways, at, 3)), [26.0, 27.5, 33.0]);
    }
}
