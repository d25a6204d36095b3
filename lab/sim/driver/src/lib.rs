//! `simulate`: workloads on simulated cores, held against published figures.
//!
//! - `machine`: machines as TOML files
//! - `instructions`: the instructions of an operation, counted with callgrind
//! - `validate`: every published figure beside the simulated one
//! - `calibrate`: measures a machine file
//! - `report`: tables, JSON, drawings
//!
//! `lab/docs/MODEL.md` describes the model.
#![forbid(unsafe_code)]

mod calibrate;
mod instructions;
mod machine;
mod report;
mod validate;

pub use calibrate::calibrate;
pub use machine::Machine;
pub use nextent_bench::{Design, Failure};
pub use report::Simulation;
pub use validate::{Cell, Validation, validate};

use nextent_bench::designs;
use nextent_bench::simulated::{self, Length, Simulated};
use std::collections::HashMap;

/// Cores at most: further threads have no slots of their own.
pub const MOST_CORES: usize = 256;
/// Operations of a core at most.
const MOST_OPERATIONS: u64 = 1_000_000;
/// Workloads whose instructions are counted.
const WORKLOADS: [&str; 4] = ["fallocate2", "handles", "churn", "dio-overwrite"];

/// What a user asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The workload's name.
    pub workload: String,
    /// A machine's name, or a TOML file.
    pub machine: String,
    /// Numbers of cores.
    pub cores: Vec<usize>,
    /// Names of designs; the default one if empty.
    pub designs: Vec<String>,
    /// Operations of each core that count.
    pub operations: u64,
}

/// One figure, and where its time went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The design's name.
    pub design: String,
    /// Cores that worked.
    pub cores: usize,
    /// Operations a second of all of them, and what was charged.
    pub run: simulated::Outcome,
}

/// Runs all cells of a request, and calls `tell` before each.
///
/// # Errors
/// [`Failure::Usage`] for a request that cannot be run, [`Failure::Broken`] for a run that fails.
pub fn simulate(request: &Request, tell: &mut dyn FnMut(&str)) -> Result<Simulation, Failure> {
    let Request { workload, cores, operations, .. } = request;
    if !WORKLOADS.contains(&workload.as_str()) {
        let known = WORKLOADS.join(", ");
        return Err(Failure::usage(format!("{workload}: simulate has {known}")));
    }
    if cores.is_empty() || cores.iter().any(|n| *n == 0 || *n > MOST_CORES) {
        return Err(Failure::usage(format!("--cores: numbers from 1 to {MOST_CORES}")));
    }
    if !(1..=MOST_OPERATIONS).contains(operations) {
        return Err(Failure::usage(format!("--operations: from 1 to {MOST_OPERATIONS}")));
    }
    let machine = Machine::get(&request.machine)?;
    let default = [Design::default().to_string()];
    let names = if request.designs.is_empty() { &default[..] } else { &request.designs };
    for name in names {
        designs::named(name)?;
    }
    let mut bench = Bench::default();
    let mut outcomes = Vec::new();
    for name in names {
        for &cores in cores {
            tell(&format!("{workload} on {}: {name}, {cores} cores", machine.name));
            let length = Length::of(*operations);
            let run = bench.run(&machine, (workload, name), cores, length, 0)?;
            outcomes.push(Outcome { design: name.clone(), cores, run });
        }
    }
    Ok(Simulation { workload: workload.clone(), machine, outcomes })
}

/// What one operation does on one core, as the simulation counts it.
#[derive(Clone, Copy)]
struct Counts {
    /// Accesses that code is spread over.
    accesses: f64,
    rmws: f64,
    /// Instructions that the code declares itself.
    declared: f64,
}

/// Runs cells. Remembers what an operation does, which is the same on all machines.
#[derive(Default)]
struct Bench {
    counts: HashMap<(String, String), Counts>,
}

impl Bench {
    /// Runs a cell. Programs execute `between` instructions between two operations.
    fn run(
        &mut self,
        machine: &Machine,
        (workload, design): (&str, &str),
        cores: usize,
        length: Length,
        between: u64,
    ) -> Result<simulated::Outcome, Failure> {
        let step = self.step(machine, workload, design)?;
        let entry = between * machine.instruction;
        let run = machine.cell(workload, design, cores, length, step);
        Simulated { entry: run.entry + entry, ..run }.run()
    }

    /// Picoseconds of the code before each access: the counted instructions of an operation, but
    /// for those that the code declares, and the read-modify-writes that were counted but are not
    /// simulated (allocations, reference counts), spread evenly over its accesses.
    fn step(&mut self, machine: &Machine, workload: &str, design: &str) -> Result<u64, Failure> {
        let counted = instructions::of(workload, design)?;
        let key = (workload.to_owned(), design.to_owned());
        let counts = match self.counts.get(&key) {
            Some(counts) => *counts,
            None => {
                let length = instructions::length(workload);
                let alone = machine.cell(workload, design, 1, length, 0).run()?;
                let each = |n: u64| n as f64 / alone.operations.max(1) as f64;
                let (found, operations) = (&alone.found, alone.operations);
                debug_assert!(operations > 0);
                let counts = Counts {
                    accesses: each(found.accesses),
                    rmws: each(found.rmws),
                    declared: each(found.declared),
                };
                self.counts.insert(key, counts);
                counts
            }
        };
        let code = (counted.instructions - counts.declared).max(0.0) * machine.instruction as f64;
        let unseen = (counted.rmws - counts.rmws).max(0.0) * machine.rmw() as f64;
        Ok(((code + unseen) / counts.accesses.max(1.0)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(workload: &str, cores: &[usize], designs: &[&str]) -> Request {
        Request {
            workload: workload.to_owned(),
            machine: "kunpeng920".to_owned(),
            cores: cores.to_vec(),
            designs: designs.iter().map(|&name| name.to_owned()).collect(),
            operations: 64,
        }
    }

    #[test]
    fn the_default_scales_and_a_historical_design_does_not() {
        let asked = request("handles", &[1, 16], &["ext4-2.6.33", "nextent"]);
        let found = simulate(&asked, &mut |_| {}).expect("it runs").outcomes;
        let part = |at: usize| found[at + 1].run.ops_per_s / found[at].run.ops_per_s / 16.0;
        assert!(part(0) < 0.2, "{}", part(0));
        assert!(part(2) > 0.95, "{}", part(2));
        assert!(found[1].run.found.charges[0].class.is_some(), "{:?}", found[1].run.found);
    }

    #[test]
    fn a_hundred_cores_seldom_meet() {
        // A remote line takes 4 us on this machine.
        let machine = Machine::get("numaq16").expect("it is there");
        let length = Length { image: 64 << 30, warm_up: 8, ..Length::of(8) };
        let mut bench = Bench::default();
        let mut each = |cores: usize| {
            let found = bench.run(&machine, ("churn", "nextent"), cores, length, 0);
            found.expect("it runs").ops_per_s / cores as f64
        };
        let part = each(96) / each(1);
        assert!(part > 0.96, "{part}");
    }

    #[test]
    fn a_request_that_cannot_be_run_is_an_error_of_one_line() {
        let error = |asked: Request| {
            let failure = simulate(&asked, &mut |_| {}).expect_err("it is wrong");
            assert!(matches!(failure, Failure::Usage(_)));
            assert_eq!(failure.to_string().lines().count(), 1);
        };
        error(request("nothing", &[1], &[]));
        error(request("stat", &[1], &[]));
        error(request("handles", &[0], &[]));
        error(request("handles", &[257], &[]));
        error(request("handles", &[1], &["ext5"]));
        error(Request { machine: "abacus".to_owned(), ..request("handles", &[1], &[]) });
        error(Request { operations: 0, ..request("handles", &[1], &[]) });
    }
}
