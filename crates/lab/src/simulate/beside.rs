//! What a second core brings, simulated and measured on the machine at hand, in one run.
//!
//! The machine's constants are measured first; how far its cores are from each other and how fast
//! they are, in each round: where the cores of a virtual machine lie changes. A round is one thread
//! on each of the cores in turn, and both.

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
                course: Course { image: SMALL, warm: 4000, operations: 4000, blocks: 0 },
                warm_up: Duration::from_millis(50),
                seconds: 0.05,
            },
            // The tree of the file grows and shrinks again, and the file ends the run.
            "dio-overwrite" => {
                let operations = 16_000;
                let course = Course { image: SMALL, warm: 16, operations, blocks: 1 };
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
    /// The machine, with a line's way as it was found between the rounds.
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

/// Simulates and measures two cores and one, each workload with each of `names`; `tell` hears of
/// each before it begins.
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
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        for name in names {
            tell(&format!("{workload}: {name}"));
            // Those that were never written down anywhere are left out.
            if super::instructions::of(workload, name).is_err() {
                continue;
            }
            let way = Way::of(workload);
            // The way to memory is others' too.
            let device = [Writes::measure(1, &stock)?, Writes::measure(2, &stock)?];
            let found = measured(workload, name, way, &stock)?;
            let machine = Machine::parse("host", &constants.at(found.turn, found.pace)?.text())?;
            let mut bench = Bench::new(&machine).with_device(&device);
            let mut rate = |cores| {
                let found = bench.run_course(workload, name, cores, way.course);
                found.map(|found| found.ops_per_s)
            };
            // Where memory lies differs each time, as it does for what is measured.
            let mut ratios = Vec::new();
            for _ in 0..SIMULATIONS {
                ratios.push(rate(2)? / rate(1)?);
            }
            let simulated = middle(&mut ratios);
            let (design, measured) = (name.clone(), found.ratio);
            rows.push(Row { workload, design, machine, simulated, measured });
        }
    }
    Ok(Beside { rows })
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

/// Measures a row: the middle of the rounds in which cores were as far from each other as in most.
fn measured(workload: &str, design: &str, way: Way, stock: &MemoryStock) -> Result<Found, Failure> {
    let Way { course, warm_up, seconds } = way;
    let real = Real { workload, design, course, warm_up, seconds, stock };
    let (mut rounds, mut paces) = (Vec::<Round>::new(), Vec::new());
    while rounds.len() < MOST && rounds.iter().filter(|round| round.is_of_two()).count() < ROUNDS {
        let (before, crowding) = (Turn::measure(), calibrate::crowding());
        paces.push(calibrate::pace(2));
        let first = real.rate(0, 1)?;
        let both = real.rate(0, 2)?;
        let second = real.rate(1, 1)?;
        let ratio = 2.0 * both / (first + second);
        let (turns, crowding) = ([before, Turn::measure()], [crowding, calibrate::crowding()]);
        rounds.push(Round { turns, crowding, ratio });
    }
    if rounds.iter().any(Round::is_of_two) {
        rounds.retain(Round::is_of_two);
    }
    let (ratio, turn) = usual(&rounds);
    Ok(Found { ratio, turn, pace: middle(&mut paces) })
}

/// What a row's rounds say.
struct Found {
    /// Operations a second of two threads by those of one.
    ratio: f64,
    /// Where two cores change a word in turns.
    turn: Turn,
    /// How fast the cores were.
    pace: f64,
}

/// The middle of the rounds around which cores did not move; of all if they moved around all.
fn usual(rounds: &[Round]) -> (f64, Turn) {
    let of = |what: fn(&Turn) -> f64| {
        let mut all: Vec<f64> = rounds.iter().flat_map(|round| &round.turns).map(what).collect();
        middle(&mut all)
    };
    let changed = of(|turn| turn.changed);
    let turn = Turn { changed, looked: changed * of(|turn| turn.looked / turn.changed) };
    let near = |other: &Turn| (other.changed / changed - 1.0).abs() < 0.3;
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
        let apart = [round([10.0, 30.0], 0.5), round([10.0, 50.0], 0.6)];
        assert_eq!(told(&apart), (0.6, 30.0, true));
        let halves = |before, after| Round { crowding: [before, after], ..near() };
        let of_two = [(1.0, 1.03), (1.2, 1.0), (0.99, 1.25)].map(|(a, b)| halves(a, b).is_of_two());
        assert_eq!(of_two, [true, false, false]);
    }
}
