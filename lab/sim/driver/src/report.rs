//! Simulated figures as tables, JSON and a drawing.

use super::{Machine, Outcome};
use nextent_bench::kernel_lock;
use nextent_sim::{Charge, Why};
use serde_json::{Value, json};
use std::fmt;

/// Reasons that are printed for a cell.
const REASONS: usize = 8;

/// A workload on a machine.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The workload's name.
    pub workload: String,
    /// The machine.
    pub machine: Machine,
    /// All cells, by design, then cores.
    pub outcomes: Vec<Outcome>,
}

impl Outcome {
    fn each(&self) -> f64 {
        self.run.ops_per_s / self.cores as f64
    }
}

impl Simulation {
    /// Operations a second of one core alone, if that was simulated.
    fn alone(&self, design: &str) -> Option<f64> {
        let found = self.outcomes.iter().find(|one| one.design == design && one.cores == 1);
        found.map(Outcome::each)
    }

    /// All figures and reasons.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let cell = |one: &Outcome| {
            let why = one.run.found.charges.iter().take(32).map(|charge| {
                json!({
                    "for": if charge.why == Why::Lock { "lock" } else { "line" },
                    "class": charge.class,
                    "kernel_lock": charge.class.and_then(kernel_lock),
                    "at": site(charge),
                    "count": charge.count,
                    "share": charge.time as f64 / one.run.time.max(1) as f64,
                })
            });
            json!({
                "design": one.design,
                "cores": one.cores,
                "ops_per_s": one.run.ops_per_s,
                "ops_per_s_per_core": one.each(),
                "of_one_core": self.alone(&one.design).map(|alone| one.each() / alone),
                "why": why.collect::<Vec<_>>(),
            })
        };
        json!({
            "workload": self.workload,
            "machine": { "name": self.machine.name, "about": self.machine.about },
            "runs": self.outcomes.iter().map(cell).collect::<Vec<_>>(),
        })
    }

    /// Operations a second and core against cores, as SVG.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut lines: Vec<(&str, Vec<(usize, f64)>)> = Vec::new();
        for one in &self.outcomes {
            let point = (one.cores, one.each());
            match lines.iter_mut().find(|line| line.0 == one.design) {
                Some(line) => line.1.push(point),
                None => lines.push((&one.design, vec![point])),
            }
        }
        let title = format!("{} on {}, simulated", self.workload, self.machine.about);
        nextent_bench::curves(&title, "cores", &lines)
    }

    /// Which locks and lines cost what share of the time, for each cell.
    #[must_use]
    pub fn why(&self) -> String {
        self.outcomes.iter().map(why).collect()
    }
}

fn why(one: &Outcome) -> String {
    let mut text = format!("\n{}, {} cores: where the time goes\n", one.design, one.cores);
    let all = one.run.time.max(1) as f64;
    let charges = &one.run.found.charges;
    let lost: u64 = charges.iter().map(|charge| charge.time).sum();
    for charge in charges.iter().take(REASONS) {
        let what = if charge.why == Why::Lock { "waits for" } else { "line of" };
        let kernel = charge.class.and_then(kernel_lock).filter(|_| one.design != "nextent");
        let kernel = kernel.map_or_else(String::new, |name| format!(" ({name} in Linux)"));
        let class = format!("{}{kernel}", charge.class.unwrap_or("an atomic"));
        let share = charge.time as f64 / all * 100.0;
        text += &format!("{share:6.1} %  {what} {class:<44} {} x{}\n", site(charge), charge.count);
    }
    let rest = 100.0 - lost as f64 / all * 100.0;
    text + &format!("{:6.1} %  code and lines of its own\n", rest.max(0.0))
}

fn site(charge: &Charge) -> String {
    charge
        .site
        .map(|site| nextent_bench::shortened(&site.to_string()).to_owned())
        .unwrap_or_default()
}

impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, machine, .. } = self;
        writeln!(f, "{workload} on {} ({}), simulated", machine.name, machine.about)?;
        let row = ["design", "cores", "operations/s", "each core", "of one"];
        writeln!(f, "{:<20} {:>6} {:>14} {:>12} {:>8}", row[0], row[1], row[2], row[3], row[4])?;
        for one in &self.outcomes {
            let alone = self.alone(&one.design);
            let part = alone.map(|alone| format!("{:.1} %", one.each() / alone * 100.0));
            let part = part.unwrap_or_else(|| "-".into());
            let (all, each) = (one.run.ops_per_s, one.each());
            writeln!(f, "{:<20} {:>6} {all:>14.0} {each:>12.0} {part:>8}", one.design, one.cores)?;
        }
        Ok(())
    }
}
