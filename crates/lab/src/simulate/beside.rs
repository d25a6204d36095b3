//! What a second core brings, simulated and measured on the machine at hand, in one run.
//!
//! The machine's constants are measured first, and how far its cores are from each other before
//! each round: where the cores of a virtual machine lie changes. What is simulated is what is
//! measured: files that one thread has made in one directory, an image and a log of the same size.

use super::calibrate::{self, Constants};
use super::{Bench, Machine, WORKLOADS};
use crate::designs;
use crate::failure::Failure;
use crate::plan::{Plan, Request as Measured};
use nextent_sync::available_cores;
use serde_json::{Value, json};
use std::fmt;

/// Seconds of a measurement, and how many there are of each.
const SECONDS: f64 = 0.2;
const ROUNDS: usize = 9;
/// Bytes of an image, as those are that are simulated.
const IMAGE: u64 = 256 << 30;
/// Simulations of each.
const SIMULATIONS: usize = 3;
/// Operations of a simulated core.
const OPERATIONS: u64 = 1000;

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
    let (constants, device) = (Constants::measure()?, calibrate::device()?);
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        for name in names {
            tell(&format!("{workload}: {name}"));
            // Those that were never written down anywhere are left out.
            if super::instructions::of(workload, name).is_err() {
                continue;
            }
            let (measured, turn) = measured(workload, name)?;
            let machine = Machine::parse("host", &constants.at(turn)?.text())?;
            let mut bench = Bench::new(&machine).with_device(device);
            let mut rate =
                |cores| bench.run(workload, name, cores, OPERATIONS).map(|found| found.ops_per_s);
            // Where memory lies differs each time, as it does for what is measured.
            let mut ratios = Vec::new();
            for _ in 0..SIMULATIONS {
                ratios.push(rate(2)? / rate(1)?);
            }
            let simulated = middle(&mut ratios);
            rows.push(Row { workload, design: name.clone(), machine, simulated, measured });
        }
    }
    Ok(Beside { rows })
}

/// One round: what a turn took before and after, and operations a second of two threads by those of
/// one.
struct Round {
    turns: [f64; 2],
    ratio: f64,
}

/// Operations a second of two threads by those of one, and nanoseconds of a turn meanwhile: the
/// middle of the rounds in which cores were as far from each other as in most.
fn measured(workload: &str, name: &str) -> Result<(f64, f64), Failure> {
    let plan = Plan::new(&request(workload, name)?)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = calibrate::turn();
        let report = crate::measure(&plan, &|| false, &mut |_, _| ())?;
        if let Some(failure) = report.failures().first() {
            return Err(Failure::broken(failure.clone()));
        }
        let ratio = report.median_rate(0, 2) / report.median_rate(0, 1);
        rounds.push(Round { turns: [before, calibrate::turn()], ratio });
    }
    Ok(usual(&rounds))
}

/// The middle of the rounds around which cores did not move; of all if they moved around all.
fn usual(rounds: &[Round]) -> (f64, f64) {
    let mut turns: Vec<f64> = rounds.iter().flat_map(|round| round.turns).collect();
    let turn = middle(&mut turns);
    let near = |other: &f64| (other / turn - 1.0).abs() < 0.3;
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

/// One round of a row.
fn request(workload: &str, name: &str) -> Result<Measured, Failure> {
    Ok(Measured {
        workload: workload.to_owned(),
        targets: vec!["engine".to_owned()],
        designs: vec![name.to_owned()],
        threads: vec![1, 2],
        seconds: SECONDS,
        repeat: 1,
        image_size: Some(IMAGE),
        image: None,
        // As they are simulated.
        lock_kind: designs::named(name)?.has_old_locks().then(|| "spin".to_owned()),
        pin: true,
        lockstat: false,
        shared: workload == "fallocate2",
        loadfile: None,
        file_size: None,
        bs: Vec::new(),
        depth: None,
        latency: None,
    })
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
        let round = |turns, ratio| Round { turns, ratio };
        let near = || round([30.0, 31.0], 0.8);
        let moved = || round([30.0, 130.0], 0.4);
        let far = || round([130.0, 131.0], 0.3);
        let told = usual(&[near(), moved(), near(), far(), far(), near(), moved()]);
        assert_eq!(told, (0.8, 31.0));
        let told = usual(&[round([10.0, 30.0], 0.5), round([10.0, 50.0], 0.6)]);
        assert_eq!(told, (0.6, 30.0));
    }
}
