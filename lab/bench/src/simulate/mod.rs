//! `nextent-lab simulate`: the same engine on simulated cores, one cell after another.
//!
//! - `machine`: machines as TOML files
//! - `instructions`: what an operation computes, as counted once by callgrind; `between`: where
//! - `validate`: every published figure beside the simulated one
//! - `rounds`: what one more core brings, measured here; `measured`: what such rounds say;
//!   `beside`: the same simulated
//! - `curve`: what many more bring, measured here; `along`: the same simulated
//! - `host`: the machine that all of these are simulated on; `kept`: files of what was measured
//! - `calibrate`: what this machine costs; `passing` and `meeting`: how lines come there; `code`:
//!   what the engine's code does there; `dearness`: what more in one workload
//! - `real`: short runs of the real engine for both, `way`: how they are made; `side_by_side`:
//!   simulations on all cores
//! - `report`: tables, JSON, drawings
//!
//! A cell runs in the copy of the engine that is compiled over simulated cores; this side asks for
//! it in plain words (see `crate::simulated`).

mod along;
mod beside;
mod between;
mod calibrate;
mod code;
mod curve;
mod dearness;
mod host;
mod instructions;
mod kept;
mod machine;
mod measured;
mod meeting;
mod passing;
mod real;
mod report;
mod rounds;
mod side_by_side;
mod validate;
mod waking;
mod way;

pub use along::Along;
pub use beside::Beside;
pub(crate) use between::Codes;
use calibrate::Writes;
pub use calibrate::calibrate;
pub use curve::Curves;
pub use dearness::Dearness;
pub use kept::Kept;
pub use machine::Machine;
pub use report::Simulation;
pub use rounds::Rounds;
pub use validate::{Cell, Missing, Validation, validate};

use crate::designs::{self, Design};
use crate::failure::Failure;
use crate::plan;
use nextent_bench_simulated as copy;
use nextent_bench_simulated::{Course, WriteCosts};

/// Cores at most: more have no slots of their own.
pub const MOST_CORES: usize = 256;
/// Operations of a core at most.
const MOST_OPERATIONS: u64 = 1_000_000;
/// Workloads of which instructions are counted.
pub(crate) const WORKLOADS: [&str; 4] = ["fallocate2", "handles", "churn", "dio-overwrite"];

/// What a person asks for.
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
    /// Operations of each core that are timed.
    pub operations: u64,
}

/// One figure, and what stood in its way.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The design's name.
    pub design: String,
    /// Cores that worked.
    pub cores: usize,
    /// Operations a second of all of them.
    pub ops_per_s: f64,
    /// Picoseconds of all of them.
    pub time: u64,
    /// What time was lost to, the worst first.
    pub why: Vec<copy::Lost>,
}

/// Runs all cells of a request; `tell` hears of each before it begins.
///
/// # Errors
/// [`Failure::Usage`] for what cannot be asked, [`Failure::Broken`] for what broke.
pub fn simulate(request: &Request, tell: &mut dyn FnMut(&str)) -> Result<Simulation, Failure> {
    counted(&request.workload)?;
    if request.cores.is_empty() || request.cores.iter().any(|n| *n == 0 || *n > MOST_CORES) {
        return Err(Failure::usage(format!("--cores: numbers from 1 to {MOST_CORES}")));
    }
    if !(1..=MOST_OPERATIONS).contains(&request.operations) {
        return Err(Failure::usage(format!("--operations: from 1 to {MOST_OPERATIONS}")));
    }
    let machine = Machine::get(&request.machine)?;
    let default = [Design::default().to_string()];
    let names = if request.designs.is_empty() { &default[..] } else { &request.designs };
    for name in names {
        designs::named(name)?;
    }
    let mut bench = Bench::new(&machine);
    let mut outcomes = Vec::new();
    for name in names {
        for &cores in &request.cores {
            tell(&format!("{} on {}: {name}, {cores} cores", request.workload, machine.name));
            outcomes.push(bench.run(&request.workload, name, cores, request.operations)?);
        }
    }
    Ok(Simulation { workload: request.workload.clone(), machine, outcomes })
}

/// Nothing, if there is such a workload and its instructions were counted.
fn counted(workload: &str) -> Result<(), Failure> {
    plan::workload(workload)?;
    if WORKLOADS.contains(&workload) {
        return Ok(());
    }
    let those = WORKLOADS.join(", ");
    let text = format!("{workload}: its instructions were not counted; simulate has {those}");
    Err(Failure::usage(text))
}

/// A machine, and what one core does between two operations on locks, by workload and design.
pub(crate) struct Bench<'m> {
    machine: &'m Machine,
    codes: Codes,
    /// What a workload's operations take beyond what the machine says.
    dearness: Dearness,
    /// Picoseconds that a program computes between two operations.
    between: u64,
    /// What writes to the device cost, while one core writes and while more do.
    writes: [WriteCosts; 2],
}

impl<'m> Bench<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self {
            machine,
            codes: Codes::default(),
            dearness: Dearness::NONE,
            between: 0,
            writes: [WriteCosts::default(); 2],
        }
    }

    /// The same with what others have found out of code, and what they will.
    pub(crate) fn with_codes(self, codes: &Codes) -> Self {
        Self { codes: codes.clone(), ..self }
    }

    /// The same with operations that take so much more. What code tells of is loops over a few
    /// words, which cost the same everywhere.
    fn with_dearness(self, dearness: Dearness) -> Self {
        Self { dearness, ..self }
    }

    /// The same with programs that compute between two operations.
    pub(crate) fn with_code_between(self, instructions: f64) -> Self {
        Self { between: (instructions * self.machine.instruction_ps as f64) as u64, ..self }
    }

    /// The same with a device that takes so long for writes while one core writes, and so long
    /// while more do.
    fn with_device(self, costs: &[Writes; 2]) -> Self {
        let ps = |ns: f64| (ns * 1000.0) as u64;
        let write = |of: &Writes| WriteCosts {
            first: ps(of.first),
            more: ps(of.more),
            again: ps(of.again),
            late: ps(of.late),
            near: ps(of.near.unwrap_or(of.late)),
            next: ps(of.next.unwrap_or(of.late)),
        };
        Self { writes: [write(&costs[0]), write(&costs[1])], ..self }
    }

    /// Runs one cell.
    pub(crate) fn run(
        &mut self,
        workload: &str,
        design: &str,
        cores: usize,
        operations: u64,
    ) -> Result<Outcome, Failure> {
        self.run_course(workload, design, cores, Course::usual(operations))
    }

    /// The same over another course.
    fn run_course(
        &mut self,
        workload: &str,
        design: &str,
        cores: usize,
        course: Course,
    ) -> Result<Outcome, Failure> {
        let code = self.codes.of(self.machine, workload, design, self.dearness.times)?;
        let mut orders = self.machine.orders(workload, design, cores, course, code.step);
        orders.code = code.between;
        orders.entry += self.between;
        orders.rest = (self.dearness.besides * 1000.0) as u64;
        orders.writes = self.writes;
        let told = ask(&orders)?;
        let (ops_per_s, time, why) = (told.ops_per_s, told.time, told.why);
        Ok(Outcome { design: design.to_owned(), cores, ops_per_s, time, why })
    }
}

fn ask(orders: &copy::Orders) -> Result<copy::Told, Failure> {
    copy::simulated(orders).map_err(ours)
}

fn ask_turn(orders: &copy::Orders) -> Result<u64, Failure> {
    copy::simulated_turn(orders).map_err(ours)
}

/// The failure of the other copy as one of this.
fn ours(failure: copy::Failure) -> Failure {
    match failure {
        copy::Failure::Usage(text) => Failure::Usage(text),
        copy::Failure::Broken(text) => Failure::Broken(text),
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
    fn the_default_scales_and_the_past_does_not() {
        let asked = request("handles", &[1, 16], &["ext4-2.6.33", "nextent"]);
        let found = simulate(&asked, &mut |_| {}).expect("it runs").outcomes;
        let part = |at: usize| found[at + 1].ops_per_s / found[at].ops_per_s / 16.0;
        assert!(part(0) < 0.2, "{}", part(0));
        assert!(part(2) > 0.95, "{}", part(2));
        let worst = &found[1].why[0];
        assert!(worst.at.contains("museum"), "{worst:?}");
    }

    #[test]
    fn a_hundred_cores_seldom_meet_in_the_cache() {
        // Where a line takes 4 us to come.
        let machine = Machine::get("numaq16").expect("it is there");
        let course = Course { image: 64 << 30, warm: 8, ..Course::usual(8) };
        let each = |cores: usize| {
            let mut bench = Bench::new(&machine);
            let found = bench.run_course("churn", "nextent", cores, course).expect("it runs");
            found.ops_per_s / cores as f64
        };
        let part = each(96) / each(1);
        assert!(part > 0.96, "{part}");
    }

    #[test]
    fn writes_cost_more_beside_others_and_each_core_has_caches() {
        let machine = Machine::get("kunpeng920").expect("it is there");
        let course = Course { image: 8 << 30, warm: 100, ..Course::usual(200) };
        let each = |alone: Writes, beside: Writes, cores: usize| {
            let mut bench = Bench::new(&machine).with_device(&[alone, beside]);
            let found = bench.run_course("churn", "nextent", cores, course).expect("it runs");
            found.ops_per_s / cores as f64
        };
        let all =
            |ns: f64| Writes { first: ns, more: ns, again: ns, late: ns, near: None, next: None };
        let [one, two] = [1, 2].map(|cores| each(all(1000.0), all(5000.0), cores));
        assert_eq!(one, each(all(1000.0), all(1000.0), 1));
        assert!(two < 0.7 * one, "{two}, {one}");
        // What a core has written a moment ago it has, whatever others write.
        let far = Writes { late: 100_000.0, ..all(0.0) };
        let [one, two] = [1, 2].map(|cores| each(far, far, cores));
        assert!(two > 0.8 * one, "{two}, {one}");
    }

    #[test]
    fn writes_differ_and_are_as_told_in_the_mean() {
        const NS: f64 = 1e6;
        let machine = Machine::get("kunpeng920").expect("it is there");
        let all = Writes { first: NS, more: NS, again: NS, late: NS, near: None, next: None };
        let each = |warm: u64, operations: u64| {
            let course = Course { image: 8 << 30, warm, blocks: 1, ..Course::usual(operations) };
            let mut bench = Bench::new(&machine).with_device(&[all, all]);
            let found = bench.run_course("dio-overwrite", "nextent", 1, course).expect("it runs");
            1e9 / found.ops_per_s
        };
        let some = [16, 17, 18, 19].map(|warm| each(warm, 1));
        assert!(some.iter().all(|ns| (0.74 * NS..1.27 * NS).contains(ns)), "{some:?}");
        assert!(some.iter().any(|ns| (ns - some[0]).abs() > 0.05 * NS), "{some:?}");
        assert!((each(16, 400) / NS - 1.0).abs() < 0.03);
    }

    #[test]
    fn what_cannot_be_asked_is_told_in_a_line() {
        let told = |asked: Request| {
            let failure = simulate(&asked, &mut |_| {}).expect_err("it is wrong");
            assert!(matches!(failure, Failure::Usage(_)));
            assert_eq!(failure.to_string().lines().count(), 1);
        };
        told(request("nothing", &[1], &[]));
        told(request("stat", &[1], &[]));
        told(request("handles", &[0], &[]));
        told(request("handles", &[257], &[]));
        told(request("handles", &[1], &["ext5"]));
        told(Request { machine: "abacus".to_owned(), ..request("handles", &[1], &[]) });
        told(Request { operations: 0, ..request("handles", &[1], &[]) });
    }
}
