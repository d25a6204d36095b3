//! What a second core brings, simulated and measured on the machine at hand, in one run.
//!
//! The machine's constants are measured first; how far its cores are from each other and how fast
//! they are, in each round: where the cores of a virtual machine lie changes. A round is one thread
//! on each of the cores in turn, and both. All is measured before anything is simulated: one way of
//! a line is found then from the rounds of many rows, and rows for which the cores were elsewhere
//! than for most are measured again.

use super::calibrate::{self, Constants, Turn, Writes};
use super::real::{Real, WARM_UP};
use super::{Bench, Machine, WORKLOADS};
use crate::designs;
use crate::failure::Failure;
use nextent_device::{BlockDevice, MemoryDevice, MemoryStock};
use nextent_lab_simulated::Course;
use nextent_sync::{Duration, available_cores};
use serde_json::{Value, json};
use std::fmt;

/// Measurements of each that count, and of all.
const ROUNDS: usize = 7;
const MOST: usize = 20;
/// How often rows are measured once more for which the cores were elsewhere than for most.
const AGAIN: usize = 3;
/// Simulations of each.
const SIMULATIONS: usize = 3;

/// How a workload is run: the same simulated and measured, where what was done before decides what
/// an operation takes.
#[derive(Clone, Copy)]
struct Way {
    course: Course,
    /// How long threads work before the clock counts, and while it does.
    warm_up: Duration,
    seconds: f64,
}

impl Way {
    fn of(workload: &str) -> Self {
        // An image of which the groups are in memory at once.
        const SMALL: u64 = 8 << 30;
        let usual = Self { course: Course::usual(1000), warm_up: WARM_UP, seconds: 0.1 };
        match workload {
            // Searches pass by all that was freed since the last commit: they grow.
            "churn" => Self {
                course: Course { image: SMALL, warm: 4000, blocks: 0, ..Course::usual(4000) },
                warm_up: Duration::from_millis(50),
                seconds: 0.05,
            },
            // The tree of the file grows and shrinks again, and the file ends the run.
            "dio-overwrite" => {
                let operations = 16_000;
                let course =
                    Course { image: SMALL, warm: 16, blocks: 1, ..Course::usual(operations) };
                Self { course, warm_up: Duration::ZERO, seconds: 10.0 }
            }
            _ => usual,
        }
    }
}

/// One design under one workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// The design's name.
    pub design: String,
    /// The machine, with a line's way as it was found between the rounds of all rows for which its
    /// cores were as near to each other.
    pub machine: Machine,
    /// Operations a second of two cores by those of one: the middle of all simulations.
    pub simulated: f64,
    /// The same as measured: the middle of all rounds, in each of which both were measured.
    pub measured: f64,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The rows.
    pub rows: Vec<Row>,
}

impl Row {
    fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }
}

/// Measures two cores and one, each workload with each of `names`, and simulates both; `tell` hears
/// of each before it begins.
///
/// # Errors
/// [`Failure::Usage`] for an unknown design or on one core, [`Failure::Broken`] for what broke.
pub fn beside(names: &[String], tell: &mut dyn FnMut(&str)) -> Result<Beside, Failure> {
    for name in names {
        designs::named(name)?;
    }
    if available_cores() < 2 {
        return Err(Failure::usage("--measure: there is one core, and two are measured"));
    }
    tell("constants");
    let (constants, stock) = (Constants::measure()?, filled()?);
    let mut all = Vec::new();
    for workload in WORKLOADS {
        for design in names {
            // Those that were never written down anywhere are left out.
            if super::instructions::of(workload, design).is_err() {
                continue;
            }
            tell(&format!("{workload}: {design}"));
            all.push(Measured::now(workload, design, &stock)?);
        }
    }
    // The cores were elsewhere for some of them, which is another machine: those again.
    let usual = middle(&mut all.iter().map(|row| row.turn.changed).collect::<Vec<f64>>());
    for _ in 0..AGAIN {
        for row in all.iter_mut().filter(|row| !row.turn.is_near(usual)) {
            tell(&format!("{}: {} again", row.workload, row.design));
            *row = Measured::now(row.workload, &row.design, &stock)?;
        }
    }
    let run = Run::of(constants, &all);
    let rows: Result<Vec<Row>, Failure> = all
        .into_iter()
        .map(|row| {
            tell(&format!("{}: {} simulated", row.workload, row.design));
            row.simulated(&run)
        })
        .collect();
    Ok(Beside { rows: rows? })
}

/// Memory for images that the system has given before anything is measured: getting it takes
/// longer than anything that is done with it.
fn filled() -> Result<MemoryStock, Failure> {
    const MEMORY: u64 = 2 << 30;
    const CHUNK: u64 = 16 << 10;
    let stock = MemoryStock::default();
    let device = MemoryDevice::with_stock(MEMORY, &stock);
    for at in 0..MEMORY / CHUNK {
        let written = device.write_at(at * CHUNK, &[1; CHUNK as usize]);
        written.map_err(|error| Failure::broken(error.to_string()))?;
    }
    Ok(stock)
}

/// One round: what a turn took before and after, how much the cores were in each other's way then,
/// and operations a second of two threads by those of one.
struct Round {
    turns: [Turn; 2],
    crowding: [f64; 2],
    ratio: f64,
}

impl Round {
    /// Two cores were two, and not halves of one: that is another machine, and not simulated.
    fn is_of_two(&self) -> bool {
        self.crowding.iter().all(|crowding| *crowding < calibrate::HALVES)
    }
}

/// A row as it was measured.
struct Measured {
    workload: &'static str,
    design: String,
    way: Way,
    /// Operations a second of two threads by those of one.
    ratio: f64,
    /// Where two cores change a word in turns: in the middle, and all that was found.
    turn: Turn,
    turns: Vec<Turn>,
    /// How fast the cores were.
    pace: f64,
    /// What one core and two need to write to memory.
    device: [Writes; 2],
}

impl Measured {
    /// Measures: the middle of the rounds in which cores were as far from each other as in most.
    fn now(workload: &'static str, design: &str, stock: &MemoryStock) -> Result<Self, Failure> {
        let way = Way::of(workload);
        // The way to memory is others' too, for seconds at a time.
        let device = [Writes::measure(1, stock)?, Writes::measure(2, stock)?];
        let Way { course, warm_up, seconds } = way;
        let real = Real { workload, design, course, warm_up, seconds, stock };
        let (mut rounds, mut paces) = (Vec::<Round>::new(), Vec::new());
        let of_two = |rounds: &[Round]| rounds.iter().filter(|round| round.is_of_two()).count();
        while rounds.len() < MOST && of_two(&rounds) < ROUNDS {
            let (before, crowding) = (Turn::measure(), calibrate::crowding());
            paces.push(calibrate::pace(2));
            let first = real.rate(0, 1)?;
            let both = real.rate(0, 2)?;
            let second = real.rate(1, 1)?;
            let ratio = 2.0 * both / (first + second);
            let (turns, crowding) = ([before, Turn::measure()], [crowding, calibrate::crowding()]);
            rounds.push(Round { turns, crowding, ratio });
        }
        if of_two(&rounds) > 0 {
            rounds.retain(Round::is_of_two);
        }
        let (ratio, turn) = usual(&rounds);
        let turns = rounds.iter().flat_map(|round| round.turns).collect();
        let (design, pace) = (design.to_owned(), middle(&mut paces));
        Ok(Self { workload, design, way, ratio, turn, turns, pace, device })
    }

    /// Simulates the same on the machine that was found in the whole of `run`.
    fn simulated(self, run: &Run) -> Result<Row, Failure> {
        let Self { workload, design, way, ratio, pace, .. } = self;
        let machine = run.machine(self.turn, pace)?;
        let mut bench = Bench::new(&machine).with_device(&run.device);
        let mut rate = |cores| {
            let found = bench.run_course(workload, &design, cores, way.course);
            found.map(|found| found.ops_per_s)
        };
        // Where memory lies differs each time, as it does for what is measured.
        let mut ratios = Vec::new();
        for _ in 0..SIMULATIONS {
            ratios.push(rate(2)? / rate(1)?);
        }
        Ok(Row { workload, design, machine, simulated: middle(&mut ratios), measured: ratio })
    }
}

/// What all of a run's rows say of the machine: what is measured for one of them, in some tenths of
/// a second, varies by more than rows differ.
struct Run {
    constants: Constants,
    turns: Vec<Turn>,
    /// What one core and two need to write to memory.
    device: [Writes; 2],
}

impl Run {
    fn of(constants: Constants, rows: &[Measured]) -> Self {
        let turns = rows.iter().flat_map(|row| row.turns.iter().copied()).collect();
        let device = [0, 1].map(|cores| {
            let all = || rows.iter().map(|row| &row.device[cores]);
            Writes::by(|of| middle(&mut all().map(of).collect::<Vec<f64>>()))
        });
        Self { constants, turns, device }
    }

    /// The machine where cores were as far from each other as `turn` says, and as fast as `pace`.
    fn machine(&self, turn: Turn, pace: f64) -> Result<Machine, Failure> {
        let turn = settled(turn, &self.turns);
        Machine::parse("host", &self.constants.at(turn, pace)?.text())
    }
}

/// The middle of all turns that were taken with the cores as near to each other as for `turn`.
fn settled(turn: Turn, all: &[Turn]) -> Turn {
    let is_there = |other: &&Turn| other.is_near(turn.changed);
    let there: Vec<Turn> = all.iter().filter(is_there).copied().collect();
    if there.is_empty() { turn } else { middle_turn(&there) }
}

/// The middle of both, the second as a part of the first.
fn middle_turn(turns: &[Turn]) -> Turn {
    let of = |what: fn(&Turn) -> f64| middle(&mut turns.iter().map(what).collect::<Vec<f64>>());
    let changed = of(|turn| turn.changed);
    Turn { changed, looked: changed * of(|turn| turn.looked / turn.changed) }
}

/// The middle of the rounds around which cores did not move; of all if they moved around all.
fn usual(rounds: &[Round]) -> (f64, Turn) {
    let turn = middle_turn(&rounds.iter().flat_map(|round| round.turns).collect::<Vec<Turn>>());
    let near = |other: &Turn| other.is_near(turn.changed);
    let ratios = |all: bool| {
        let kept = rounds.iter().filter(|round| all || round.turns.iter().all(near));
        kept.map(|round| round.ratio).collect::<Vec<f64>>()
    };
    let mut kept = ratios(false);
    if kept.is_empty() {
        kept = ratios(true);
    }
    (middle(&mut kept), turn)
}

pub(super) fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Beside {
    /// As `{"rows": [...]}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "workload": row.workload,
                "design": row.design,
                "simulated": row.simulated,
                "measured": row.measured,
                "error": row.error(),
                "constants": row.machine.constants(),
            })
        };
        json!({ "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two cores by one, simulated and measured here")?;
        if let Some(Row { machine, .. }) = self.rows.first() {
            writeln!(f, "{}: {}", machine.about, machine.constants())?;
        }
        let row = ["workload", "design", "line", "simulated", "measured", "error"];
        let [workload, design, line, simulated, measured, error] = row;
        writeln!(
            f,
            "{workload:<14} {design:<18} {line:>7} {simulated:>9} {measured:>9} {error:>8}"
        )?;
        for row in &self.rows {
            let Row { workload, design, machine, simulated, measured } = row;
            let (line, error) = (machine.line(), row.error() * 100.0);
            let ratios = format!("{simulated:>9.2} {measured:>9.2} {error:>+6.0} %");
            writeln!(f, "{workload:<14} {design:<18} {line:>4.0} ns {ratios}")?;
        }
        let near = self.rows.iter().filter(|row| row.error().abs() <= 0.15).count();
        writeln!(f, "{near} of {} within 15 %", self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_around_which_cores_moved_do_not_count() {
        // Near cores share an L3, and far ones do not.
        let turn = |changed| Turn { changed, looked: changed * changed.clamp(40.0, 68.0) / 40.0 };
        let round =
            |turns: [f64; 2], ratio| Round { turns: turns.map(turn), crowding: [1.0; 2], ratio };
        let near = || round([30.0, 31.0], 0.8);
        let moved = || round([30.0, 130.0], 0.4);
        let far = || round([130.0, 131.0], 0.3);
        let told = |rounds: &[Round]| {
            let (ratio, turn) = usual(rounds);
            (ratio, turn.changed, turn.migrates())
        };
        let most = [near(), moved(), near(), far(), far(), near(), moved()];
        assert_eq!(told(&most), (0.8, 31.0, true));
        assert_eq!(told(&most[3..6]), (0.3, 130.0, false));
        let all: Vec<Turn> = [27.0, 26.0, 28.0, 129.0, 27.5, 131.0, 33.0].map(turn).to_vec();
        assert_eq!(settled(turn(33.0), &all).changed, 27.5);
        assert_eq!(settled(turn(120.0), &all).changed, 131.0);
        assert_eq!(settled(turn(60.0), &all).changed, 60.0);
        let apart = [round([10.0, 30.0], 0.5), round([10.0, 50.0], 0.6)];
        assert_eq!(told(&apart), (0.6, 30.0, true));
        let halves = |before, after| Round { crowding: [before, after], ..near() };
        let of_two = [(1.0, 1.03), (1.2, 1.0), (0.99, 1.25)].map(|(a, b)| halves(a, b).is_of_two());
        assert_eq!(of_two, [true, false, false]);
    }
}
