//! What a second core brings, simulated on the machine at hand and measured there.
//!
//! All is measured (`rounds`) before anything is simulated: one way of a line is found then from
//! the rounds of all rows.

use super::calibrate::{Constants, Turn, Writes, near};
use super::dearness::{Dearness, Sample};
use super::measured::{Measured, middle, usual};
use super::rounds::Rounds;
use super::side_by_side::side_by_side;
use super::{Bench, Codes, Machine, WORKLOADS};
use crate::failure::Failure;
use serde_json::{Value, json};
use std::fmt;

/// One design under one workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// The design's name.
    pub design: String,
    /// The machine, with the middle of all ways of a line that were found between the rounds of
    /// all rows for which its cores were as near to each other.
    pub machine: Machine,
    /// What this workload's operations take beyond what the machine says.
    pub dearness: Dearness,
    /// Operations a second of two cores by those of one: the middle of all simulations.
    pub simulated: f64,
    /// The same as measured: the middle of all rounds that count, in each of which both were
    /// measured.
    pub measured: f64,
    /// All those rounds.
    pub rounds: Vec<f64>,
    /// Whether something else ran on the cores in all rounds, so that these are of both.
    pub disturbed: bool,
    /// Nanoseconds from one operation of a core to its next, with one core and with two.
    pub simulated_ns: [f64; 2],
    /// The same as measured.
    pub measured_ns: [f64; 2],
}

/// What a second core brings with each design under each workload.
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

/// What all of a run's rows say of the machine: what is measured for one of them, in some tenths of
/// a second, varies by more than rows differ.
#[derive(Clone)]
struct Run {
    constants: Constants,
    /// Nanoseconds of a turn in most parts.
    usual: f64,
    /// All turns that were taken while the cores were there.
    turn: Turn,
    /// Nanoseconds of each of those, in order.
    ways: Vec<f64>,
    /// What one core and two need to write to memory.
    device: [Writes; 2],
    codes: Codes,
    /// Of one workload.
    dearness: Dearness,
}

impl Run {
    fn of(constants: Constants, rows: &[Measured]) -> Self {
        let usual = usual(rows);
        let turns = rows.iter().flat_map(|row| &row.rounds).map(|round| round.turn);
        let (turn, ways) = settled(usual, &turns.collect::<Vec<Turn>>());
        let device = [0, 1].map(|cores| {
            let all = || rows.iter().map(|row| &row.device[cores]);
            Writes::by(|of| middle(&mut all().map(of).collect::<Vec<f64>>()))
        });
        let (codes, dearness) = (Codes::default(), Dearness::NONE);
        Self { constants, usual, turn, ways, device, codes, dearness }
    }

    /// The same with how dear one workload's operations are.
    fn for_code_of(&self, rows: &[&Measured]) -> Result<Self, Failure> {
        let found = side_by_side(rows, &|row| self.sample(row))?;
        Ok(Self { dearness: Dearness::fit(&found), ..self.clone() })
    }

    /// What one core takes, simulated and real.
    fn sample(&self, row: &Measured) -> Result<Sample, Failure> {
        let machine = self.machine(row.pace())?;
        let time = |times: f64| {
            let dearness = Dearness { times, ..Dearness::NONE };
            let mut bench = self.bench(&machine).with_dearness(dearness);
            Ok::<f64, Failure>(1e9 / rate(row, &mut bench, 1)?)
        };
        // The rest is the same with both.
        let (once, twice) = (time(1.0)?, time(2.0)?);
        Ok(Sample { code: twice - once, rest: 2.0 * once - twice, real: row.ns()[0] })
    }

    fn bench<'a>(&self, machine: &'a Machine) -> Bench<'a> {
        Bench::new(machine)
            .with_device(&self.device)
            .with_codes(&self.codes)
            .with_dearness(self.dearness)
    }

    /// Simulates what was measured on the machine that was found in all of it.
    fn simulated(&self, row: &Measured) -> Result<Row, Failure> {
        let (workload, design) = (row.workload, row.design.clone());
        let mut rounds = row.ratios(self.usual);
        let disturbed = rounds.is_empty();
        if disturbed {
            rounds = row.disturbed_ratios(self.usual);
        }
        if rounds.is_empty() {
            let why = "the cores were never for long where they usually are";
            return Err(Failure::broken(format!("{workload}: {design}: {why}")));
        }
        // Where memory lies differs each time, as it does for what is measured, and so does how
        // far the cores are from each other.
        let (mut pairs, times) = (Vec::new(), row.way().simulations);
        for time in 0..times {
            let machine = self.machine_at(part(&self.ways, time, times), row.pace())?;
            let mut bench = self.bench(&machine);
            pairs.push([rate(row, &mut bench, 1)?, rate(row, &mut bench, 2)?]);
        }
        pairs.sort_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])));
        let [one, two] = pairs[times / 2];
        Ok(Row {
            workload,
            design,
            machine: self.machine(row.pace())?,
            dearness: self.dearness,
            simulated: two / one,
            measured: middle(&mut rounds.clone()),
            rounds,
            disturbed,
            simulated_ns: [1e9 / one, 2e9 / two],
            measured_ns: row.ns(),
        })
    }

    /// The machine while its cores are as fast as `pace`.
    fn machine(&self, pace: f64) -> Result<Machine, Failure> {
        self.machine_at(self.turn.changed, pace)
    }

    /// The same where a turn takes so many nanoseconds.
    fn machine_at(&self, changed: f64, pace: f64) -> Result<Machine, Failure> {
        let turn = Turn { changed, ..self.turn };
        Machine::parse("host", &self.constants.at(turn, pace)?.text())
    }
}

/// Operations a second of simulated cores.
fn rate(row: &Measured, bench: &mut Bench<'_>, cores: usize) -> Result<f64, Failure> {
    let found = bench.run_course(row.workload, &row.design, cores, row.course(cores));
    found.map(|found| found.ops_per_s)
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
    (Turn { changed: middle(&mut ways), look: of(|turn| turn.look), chances }, ways)
}

impl Beside {
    /// Simulates what those rounds measured; `tell` hears of each workload before it begins.
    ///
    /// # Errors
    /// [`Failure::Broken`] for what broke, or if the cores were never for long where they usually
    /// are; [`Failure::Usage`] for constants of a file that no machine has.
    pub fn of(measured: &Rounds, tell: &mut dyn FnMut(&str)) -> Result<Self, Failure> {
        let mut rows = Vec::new();
        let run = Run::of(measured.constants, &measured.rows);
        for workload in WORKLOADS {
            let of_it = measured.rows.iter().filter(|row| row.workload == workload);
            let these: Vec<&Measured> = of_it.collect();
            if these.is_empty() {
                continue;
            }
            tell(&format!("{workload}: how dear its code is"));
            let run = run.for_code_of(&these)?;
            tell(&format!("{workload}: {} designs simulated", these.len()));
            rows.extend(side_by_side(&these, &|row| run.simulated(row))?);
        }
        Ok(Self { rows })
    }

    /// As `{"rows": [...]}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "workload": row.workload,
                "design": row.design,
                "simulated": row.simulated,
                "measured": row.measured,
                "rounds": row.rounds,
                "disturbed": row.disturbed,
                "error": row.error(),
                "constants": row.machine.constants(),
                "dearness": row.dearness.times,
                "besides_ns": row.dearness.besides,
                "simulated_ns": row.simulated_ns,
                "measured_ns": row.measured_ns,
            })
        };
        json!({ "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two cores by one, simulated and measured here")?;
        let mut last = None;
        for Row { workload, machine, dearness, .. } in &self.rows {
            if last.replace(*workload) != Some(*workload) {
                let (constants, Dearness { times, besides }) = (machine.constants(), dearness);
                writeln!(
                    f,
                    "{}, {workload}: {constants}, code {times:.1} times, {besides:.0} ns besides",
                    machine.about
                )?;
            }
        }
        let row = ["workload", "design", "line", "simulated", "measured", "error"];
        let [workload, design, line, simulated, measured, error] = row;
        writeln!(
            f,
            "{workload:<14} {design:<18} {line:>7} {simulated:>9} {measured:>9} {error:>8}"
        )?;
        for row in &self.rows {
            let Row { workload, design, machine, simulated, measured, .. } = row;
            let (line, error) = (machine.line(), row.error() * 100.0);
            let ratios = format!("{simulated:>9.2} {measured:>9.2} {error:>+6.0} %");
            let mark = if row.disturbed { " *" } else { "" };
            writeln!(f, "{workload:<14} {design:<18} {line:>4.0} ns {ratios}{mark}")?;
        }
        if self.rows.iter().any(|row| row.disturbed) {
            writeln!(f, "* measured while something else ran on these cores: stop it and repeat")?;
        }
        let near = self.rows.iter().filter(|row| row.error().abs() <= 0.15).count();
        writeln!(f, "{near} of {} within 15 %", self.rows.len())
    }
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
            chances: [changed / 100.0; 2],
        };
        let all = [27.0, 26.0, 28.0, 129.0, 27.5, 131.0, 33.0].map(turn);
        let told = |usual| {
            let (turn, _) = settled(usual, &all);
            (turn.changed, turn.migrates())
        };
        assert_eq!(told(33.0), (27.5, true));
        assert_eq!(told(120.0), (131.0, false));
        assert_eq!(told(60.0), (28.0, true));
        let (_, ways) = settled(27.0, &all);
        assert_eq!(ways, [26.0, 27.0, 27.5, 28.0, 33.0]);
        assert_eq!([0, 1, 2].map(|at| part(&ways, at, 3)), [26.0, 27.5, 33.0]);
    }
}
