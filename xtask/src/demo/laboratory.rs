//! A short look into the laboratory: the designs of four dates and ours, side by side.

use super::table::Outcome;
use super::{Demo, finish, target_dir, text};
use crate::shell::{cargo, command};
use serde_json::Value;
use std::collections::BTreeMap;

/// Designs, each with its date and the reason why it is shown.
const DESIGNS: [(&str, &str, &str); 6] = [
    ("ext3-2002", "2002", "one lock for the whole volume"),
    ("ext4-2.6.36", "2010", "journal handles start under a lock for readers"),
    ("ext4-6.2", "2022", "a direct write to unwritten blocks locks the file"),
    ("ext4-6.16", "2025", "one lock for the allocator's goal"),
    ("ext4-6.17", "2025", "several goals, group locks are tried"),
    ("nextent", "ours", "leased regions, a journal gate by slot"),
];

/// A workload, the heading of its columns and the size of its files.
struct Shown {
    workload: &'static str,
    heading: &'static str,
    options: &'static [&'static str],
}

const WORKLOADS: [Shown; 3] = [
    Shown { workload: "fallocate2", heading: "fallocate 8 KiB", options: &[] },
    Shown { workload: "dio-overwrite", heading: "direct writes", options: &["--file-size", "64m"] },
    Shown { workload: "handles", heading: "journal handles", options: &[] },
];

/// Operations a second by design and number of threads.
type Rates = BTreeMap<(String, u64), f64>;

impl Demo {
    /// Builds the laboratory's program. Its time is not the demo's: it compiles the engine twice
    /// more.
    pub(super) fn build_laboratory() -> Result<(), String> {
        println!("building the laboratory's program");
        let build = cargo(["build", "--release", "--quiet", "-p", "nextent-lab"]).status();
        if build.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err("the laboratory's program does not build".into())
    }

    /// Runs each workload over all designs, then prints one table of them.
    pub(super) fn laboratory(&self) {
        let mut all = Vec::new();
        for shown in &WORKLOADS {
            let mut rates = Rates::new();
            self.table.row(&format!("nextent-lab bench {}", shown.workload), || {
                match self.measured(shown) {
                    Ok(found) => {
                        rates = found;
                        Outcome::Ok(format!("{} runs, images clean", rates.len()))
                    }
                    Err(error) => Outcome::Failed(error),
                }
            });
            all.push(rates);
        }
        print(&all);
    }

    fn measured(&self, shown: &Shown) -> Result<Rates, String> {
        let json = text(&self.path("figures.json"));
        let designs = DESIGNS.map(|(name, ..)| name).join(",");
        let program = text(&target_dir().join("release/nextent-lab"));
        let mut args = vec!["bench", shown.workload, "--design", &designs, "--threads", "1,2"];
        args.extend(["--seconds", "0.15", "--repeat", "1", "--image-size", "512m"]);
        args.extend(["--json", &json]);
        args.extend(shown.options);
        finish(command(&program, &args))?;
        let figures = std::fs::read_to_string(&json).map_err(|error| error.to_string())?;
        let figures: Value = serde_json::from_str(&figures).map_err(|error| error.to_string())?;
        let runs = figures["runs"].as_array().ok_or("no runs")?;
        let cell = |run: &Value| {
            let design = run["design"].as_str()?.to_owned();
            Some(((design, run["threads"].as_u64()?), run["ops_per_s"].as_f64()?))
        };
        Ok(runs.iter().filter_map(cell).collect())
    }
}

/// Prints a row for each design; thousands of operations a second with one and two threads.
fn print(all: &[Rates]) {
    println!("\nthousands of operations a second, with one thread and with two");
    let headings: String =
        WORKLOADS.iter().map(|shown| format!(" {:>17}", shown.heading)).collect();
    println!("{:<17} {headings}", "design");
    for (design, date, about) in DESIGNS {
        let rate = |rates: &Rates, threads| {
            let found = rates.get(&(design.to_owned(), threads));
            found.map_or("-".to_owned(), |rate| format!("{:.0}", rate / 1000.0))
        };
        let cells: String = all
            .iter()
            .map(|rates| format!("   {:>7}{:>8}", rate(rates, 1), rate(rates, 2)))
            .collect();
        println!("{design:<12} {date:<4} {cells}   {about}");
    }
}
