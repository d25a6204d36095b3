//! What a second core brings, simulated and measured on the machine at hand, in one run.

use super::{Bench, Machine, WORKLOADS};
use crate::designs;
use crate::failure::Failure;
use crate::plan::{Plan, Request as Measured};
use serde_json::{Value, json};
use std::fmt;

/// Seconds of a measurement, and how many there are of each.
const SECONDS: f64 = 0.25;
const ROUNDS: usize = 5;
/// Operations of a simulated core.
const OPERATIONS: u64 = 1000;

/// One design under one workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// The design's name.
    pub design: String,
    /// Operations a second of two cores by those of one.
    pub simulated: f64,
    /// The same as measured: the middle of all rounds.
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
/// [`Failure::Usage`] for an unknown design, [`Failure::Broken`] for what broke.
pub fn beside(names: &[String], tell: &mut dyn FnMut(&str)) -> Result<Beside, Failure> {
    let machine = Machine::get("host")?;
    let mut bench = Bench::new(&machine);
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        for name in names {
            let design = designs::named(name)?;
            tell(&format!("{workload}: {name}"));
            // Those that were never written down anywhere are left out.
            if super::instructions::of(workload, name).is_err() {
                continue;
            }
            let mut rate =
                |cores| bench.run(workload, name, cores, OPERATIONS).map(|found| found.ops_per_s);
            let simulated = rate(2)? / rate(1)?;
            let request = Measured {
                workload: workload.to_owned(),
                targets: vec!["engine".to_owned()],
                designs: vec![name.clone()],
                threads: vec![1, 2],
                seconds: SECONDS,
                repeat: ROUNDS,
                image_size: None,
                image: None,
                // As they are simulated.
                lock_kind: design.has_old_locks().then(|| "spin".to_owned()),
                pin: true,
                lockstat: false,
                shared: false,
                loadfile: None,
                file_size: None,
                bs: Vec::new(),
                depth: None,
                latency: None,
            };
            let report = crate::measure(&Plan::new(&request)?, &|| false, &mut |_, _| ())?;
            if let Some(failure) = report.failures().first() {
                return Err(Failure::broken(failure.clone()));
            }
            let (one, two) = (report.median_rate(0, 1), report.median_rate(0, 2));
            rows.push(Row { workload, design: name.clone(), simulated, measured: two / one });
        }
    }
    Ok(Beside { rows })
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
            })
        };
        json!({ "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two cores by one, simulated and measured here")?;
        let row = ["workload", "design", "simulated", "measured", "error"];
        let [workload, design, simulated, measured, error] = row;
        writeln!(f, "{workload:<14} {design:<18} {simulated:>9} {measured:>9} {error:>8}")?;
        for row in &self.rows {
            let Row { workload, design, simulated, measured } = row;
            let error = row.error() * 100.0;
            writeln!(
                f,
                "{workload:<14} {design:<18} {simulated:>9.2} {measured:>9.2} {error:>+6.0} %"
            )?;
        }
        let near = self.rows.iter().filter(|row| row.error().abs() <= 0.15).count();
        writeln!(f, "{near} of {} within 15 %", self.rows.len())
    }
}
