//! What each of some numbers of cores brings, simulated on the machine at hand and measured there.
//!
//! All is measured (`curve`) before anything is simulated: one machine is found in all rows, and
//! for each workload how dear its code is, from what one core took. What more cores bring is never
//! fitted.

use super::calibrate::Turn;
use super::curve::{Curve, Curves};
use super::dearness::Dearness;
use super::host::{Host, NEAR, costs};
use super::measured::middle;
use super::side_by_side::side_by_side;
use super::{Machine, WORKLOADS};
use crate::failure::Failure;
use serde_json::{Value, json};
use std::fmt;

/// One design under one workload.
#[derive(Clone, Debug)]
struct Row {
    workload: &'static str,
    design: String,
    /// The machine, while its cores were as fast as for this row.
    machine: Machine,
    /// What this workload's operations take beyond what the machine says.
    dearness: Dearness,
    /// Nanoseconds from one operation of one core to its next, simulated and measured.
    ns: [f64; 2],
    points: Vec<Point>,
}

/// One number of cores of a row.
#[derive(Clone, Debug)]
struct Point {
    cores: usize,
    /// Operations a second of all of them by those of one.
    simulated: f64,
    /// The same as measured: the middle of all rounds.
    measured: f64,
    /// Those.
    rounds: Vec<f64>,
    /// Nanoseconds from one operation of a core to its next, simulated and measured.
    ns: [f64; 2],
}

/// What cores bring with each design under each workload.
#[derive(Clone, Debug)]
pub struct Along {
    cores: Vec<usize>,
    rows: Vec<Row>,
}

/// One simulation: of one core, or of the `nth` number of them.
struct Cell<'a> {
    row: &'a Curve,
    nth: Option<usize>,
}

impl Point {
    fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }

    fn is_near(&self) -> bool {
        self.error().abs() <= NEAR
    }
}

/// The machine of all those curves.
fn host(measured: &Curves) -> Host {
    let turns = measured.rows.iter().flat_map(|row| &row.rounds).map(|round| round.turn);
    let turns: Vec<Turn> = turns.collect();
    let usual = middle(&mut turns.iter().map(|turn| turn.changed).collect::<Vec<f64>>());
    // Each number of cores has its own way to memory.
    let device = [measured.device.one, measured.device.all[0]];
    Host::of(measured.constants, usual, &turns, device)
}

/// Operations a second of simulated cores.
fn rate(host: &Host, measured: &Curves, cell: &Cell<'_>) -> Result<f64, Failure> {
    let (host, cores) = match cell.nth {
        Some(nth) => (host.beside(measured.device.all[nth]), measured.cores[nth]),
        None => (host.clone(), 1),
    };
    let machine = host.machine(cell.row.pace())?;
    cell.row.task(cell.nth, cores).rate(&mut host.bench(&machine))
}

/// A row of which one core made so many operations a second, and then each number of cores.
fn row(host: &Host, cores: &[usize], row: &Curve, rates: &[f64]) -> Result<Row, Failure> {
    let (one, all) = (rates[0], &rates[1..]);
    let point = |(nth, (cores, rate)): (usize, (&usize, &f64))| {
        let ns = |rate: f64| *cores as f64 * 1e9 / rate;
        Point {
            cores: *cores,
            simulated: rate / one,
            measured: middle(&mut row.ratios(nth)),
            rounds: row.ratios(nth),
            ns: [ns(*rate), ns(row.rate(Some(nth)))],
        }
    };
    Ok(Row {
        workload: row.workload,
        design: row.design.clone(),
        machine: host.machine(row.pace())?,
        dearness: host.dearness,
        ns: [one, row.rate(None)].map(|rate| 1e9 / rate),
        points: cores.iter().zip(all).enumerate().map(point).collect(),
    })
}

impl Along {
    /// Simulates what was measured; `tell` hears of each workload before it begins.
    ///
    /// # Errors
    /// [`Failure::Broken`] for what broke, [`Failure::Usage`] for constants of a file that no
    /// machine has.
    pub fn of(measured: &Curves, tell: &mut dyn FnMut(&str)) -> Result<Self, Failure> {
        let mut rows = Vec::new();
        let (cores, host) = (&measured.cores[..], host(measured));
        for workload in WORKLOADS {
            let of_it = measured.rows.iter().filter(|row| row.workload == workload);
            let these: Vec<&Curve> = of_it.collect();
            if these.is_empty() {
                continue;
            }
            tell(&format!("{workload}: how dear its code is"));
            let host = host.for_code_of(&these.iter().map(|row| row.one()).collect::<Vec<_>>())?;
            tell(&format!("{workload}: {} designs simulated", these.len()));
            let numbers = || [None].into_iter().chain((0..cores.len()).map(Some));
            // Those of many cores take the longest, so they begin first.
            let of = |nth| these.iter().map(move |row| Cell { row, nth });
            let cells: Vec<Cell<'_>> = numbers().rev().flat_map(of).collect();
            let cells: Vec<&Cell<'_>> = cells.iter().collect();
            let rates = side_by_side(&cells, &|cell| rate(&host, measured, cell))?;
            for (at, of_it) in these.iter().enumerate() {
                let its = rates.iter().skip(at).step_by(these.len()).rev().copied();
                rows.push(row(&host, cores, of_it, &its.collect::<Vec<f64>>())?);
            }
        }
        Ok(Self { cores: cores.to_vec(), rows })
    }

    /// As `{"rows": [...]}`, with one for each number of cores.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let of = |row: &Row, point: &Point| {
            json!({
                "workload": row.workload,
                "design": row.design,
                "cores": point.cores,
                "simulated": point.simulated,
                "measured": point.measured,
                "rounds": point.rounds,
                "error": point.error(),
                "constants": row.machine.constants(),
                "dearness": row.dearness.times,
                "besides_ns": row.dearness.besides,
                "simulated_ns": [row.ns[0], point.ns[0]],
                "measured_ns": [row.ns[1], point.ns[1]],
            })
        };
        let rows = self.rows.iter().flat_map(|row| row.points.iter().map(move |at| of(row, at)));
        json!({ "rows": rows.collect::<Vec<_>>() })
    }

    /// How many are near what was measured, in all and of each number of cores.
    fn near(&self) -> String {
        let of = |counts: &dyn Fn(&Point) -> bool| {
            let points = self.rows.iter().flat_map(|row| &row.points);
            let points: Vec<&Point> = points.filter(|point| counts(point)).collect();
            (points.iter().filter(|point| point.is_near()).count(), points.len())
        };
        let each = self.cores.iter().map(|&cores| {
            let (near, all) = of(&|point| point.cores == cores);
            format!("{cores} cores {near} of {all}")
        });
        let (near, all) = of(&|_| true);
        format!("{near} of {all} within 15 %: {}", each.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Along {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "so many cores by one, simulated and measured here; ns of one core")?;
        let of = |row| {
            let Row { workload, machine, dearness, .. }: &Row = row;
            (*workload, machine, *dearness)
        };
        f.write_str(&costs(self.rows.iter().map(of)))?;
        let names = ["workload", "design", "ns", "measured"];
        let [workload, design, ns, measured] = names;
        write!(f, "{workload:<14} {design:<18} {ns:>7} {measured:>8}")?;
        for cores in &self.cores {
            let cores = format!("{cores} cores");
            write!(f, " {cores:>9} {measured:>8} {:>8}", "error")?;
        }
        writeln!(f)?;
        for Row { workload, design, ns: [simulated, measured], points, .. } in &self.rows {
            write!(f, "{workload:<14} {design:<18} {simulated:>7.0} {measured:>8.0}")?;
            for point in points {
                let (Point { simulated, measured, .. }, error) = (point, point.error() * 100.0);
                write!(f, " {simulated:>9.2} {measured:>8.2} {error:>+6.0} %")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{}", self.near())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_cores_is_held_against_its_own() {
        let point = |cores, simulated, measured| {
            let (rounds, ns) = (vec![measured], [10.0, 20.0]);
            Point { cores, simulated, measured, rounds, ns }
        };
        let row = |design: &str, points: [Point; 2]| Row {
            workload: "churn",
            design: design.to_owned(),
            machine: Machine::get("kunpeng920").expect("it is there"),
            dearness: Dearness::NONE,
            ns: [100.0, 110.0],
            points: points.to_vec(),
        };
        let rows = vec![
            row("nextent", [point(2, 2.0, 1.9), point(16, 15.0, 10.0)]),
            row("ext3-2002", [point(2, 0.5, 0.5), point(16, 0.3, 0.33)]),
        ];
        let found = Along { cores: vec![2, 16], rows };
        let text = found.to_string();
        assert!(text.ends_with("3 of 4 within 15 %: 2 cores 2 of 2, 16 cores 1 of 2\n"), "{text}");
        assert!(text.contains("+50 %") && text.contains("16 cores"), "{text}");
        let json = found.to_json();
        let rows = json["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 4);
        assert_eq!((&rows[1]["cores"], &rows[1]["error"]), (&json!(16), &json!(0.5)));
        assert_eq!(rows[2]["design"], "ext3-2002");
    }
}
