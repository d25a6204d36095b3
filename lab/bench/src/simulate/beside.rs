//! What a second core brings, simulated on the machine at hand and measured there.
//!
//! All is measured (`rounds`) before anything is simulated: one way of a line is found then from
//! the rounds of all rows.

use super::calibrate::{Constants, Turn, Writes};
use super::dearness::Dearness;
use super::host::{Host, NEAR, costs};
use super::measured::{Measured, middle, usual};
use super::rounds::Rounds;
use super::side_by_side::side_by_side;
use super::{Machine, WORKLOADS};
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
    /// All those simulations.
    pub simulations: Vec<f64>,
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

/// The machine of all those rows, of which most turns took `usual` nanoseconds.
fn host(constants: Constants, rows: &[Measured], usual: f64) -> Host {
    let turns = rows.iter().flat_map(|row| &row.rounds).map(|round| round.turn);
    // Of all if none were measured with the cores where they usually are.
    let known = rows.iter().any(|row| row.wrote_near(usual));
    let device = [0, 1].map(|cores| {
        let written = |row: &&Measured| row.wrote_near(usual) || !known;
        let all = || rows.iter().filter(written).map(|row| &row.device[cores]);
        Writes::by(|of| middle(&mut all().map(of).collect::<Vec<f64>>()))
    });
    Host::of(constants, usual, &turns.collect::<Vec<Turn>>(), device)
}

/// Simulates what was measured on the machine that was found in all of it.
fn simulated(host: &Host, usual: f64, row: &Measured) -> Result<Row, Failure> {
    let (workload, design) = (row.workload, row.design.clone());
    let mut rounds = row.ratios(usual);
    let disturbed = rounds.is_empty();
    if disturbed {
        rounds = row.disturbed_ratios(usual);
    }
    if rounds.is_empty() {
        let why = "the cores were never for long where they usually are";
        return Err(Failure::broken(format!("{workload}: {design}: {why}")));
    }
    // Where memory lies differs each time, as it does for what is measured, and so does how
    // far the cores are from each other.
    let (mut pairs, times) = (Vec::new(), row.way().simulations);
    let host = &row.waking(usual).map_or_else(|| host.clone(), |waking| host.waking(waking));
    for time in 0..times {
        let machine = host.machine_in(time, times, row.pace())?;
        let mut bench = host.bench(&machine);
        pairs.push([row.task(1).rate(&mut bench)?, row.task(2).rate(&mut bench)?]);
    }
    let ratio = |&[one, two]: &[f64; 2]| two / one;
    let simulations = pairs.iter().map(ratio).collect();
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let [one, two] = pairs[times / 2];
    Ok(Row {
        workload,
        design,
        machine: host.machine(row.pace())?,
        dearness: host.dearness,
        simulated: two / one,
        simulations,
        measured: middle(&mut rounds.clone()),
        rounds,
        disturbed,
        simulated_ns: [1e9 / one, 2e9 / two],
        measured_ns: row.ns(),
    })
}

impl Beside {
    /// Simulates what those rounds measured; `tell` hears of each workload before it begins.
    ///
    /// # Errors
    /// [`Failure::Broken`] for what broke, or if the cores were never for long where they usually
    /// are; [`Failure::Usage`] for constants of a file that no machine has.
    pub fn of(measured: &Rounds, tell: &mut dyn FnMut(&str)) -> Result<Self, Failure> {
        let mut rows = Vec::new();
        let usual = usual(&measured.rows);
        let host = host(measured.constants, &measured.rows, usual);
        for workload in WORKLOADS {
            let of_it = measured.rows.iter().filter(|row| row.workload == workload);
            let these: Vec<&Measured> = of_it.collect();
            if these.is_empty() {
                continue;
            }
            tell(&format!("{workload}: how dear its code is"));
            let ones: Vec<_> = these.iter().map(|row| row.one()).collect();
            let host = host.for_code_of(&ones)?;
            tell(&format!("{workload}: {} designs simulated", these.len()));
            rows.extend(side_by_side(&these, &|row| simulated(&host, usual, row))?);
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
                "simulations": row.simulations,
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
        let of = |row| {
            let Row { workload, machine, dearness, .. }: &Row = row;
            (*workload, machine, *dearness)
        };
        f.write_str(&costs(self.rows.iter().map(of)))?;
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
        let near = self.rows.iter().filter(|row| row.error().abs() <= NEAR).count();
        writeln!(f, "{near} of {} within 15 %", self.rows.len())
    }
}
