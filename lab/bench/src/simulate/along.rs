//! What each of some numbers of cores brings, simulated on the machine at hand and measured there.
//!
//! All is measured (`curve`) before anything is simulated: one machine is found in all rows, and
//! for each workload and number of cores how dear code is, from what one of them took on a volume
//! of its own. What they bring on one volume is never fitted.

use super::calibrate::{Turn, Writes};
use super::curve::{Curve, Curves};
use super::dearness::Dearness;
use super::host::{Host, NEAR, costs};
use super::measured::middle;
use super::side_by_side::side_by_side;
use super::{Machine, Outcome, WORKLOADS};
use crate::failure::Failure;
use serde_json::{Value, json};
use std::fmt;

/// One design under one workload.
#[derive(Clone, Debug)]
struct Row {
    workload: &'static str,
    design: String,
    points: Vec<Point>,
}

/// One number of cores of a row.
#[derive(Clone, Debug)]
struct Point {
    cores: usize,
    /// The machine.
    machine: Machine,
    /// What this workload's operations take beyond what the machine says.
    dearness: Dearness,
    /// Operations a second of all of them by those of one.
    simulated: f64,
    /// The same as measured: the middle of all rounds.
    measured: f64,
    /// Those.
    rounds: Vec<f64>,
    /// Nanoseconds from one operation of a core to its next, on volumes of their own and on one.
    simulated_ns: [f64; 2],
    measured_ns: [f64; 2],
    /// What they lose most of their time to on one volume when simulated.
    most: Option<Loss>,
}

/// What simulated cores lose time to.
#[derive(Clone, Debug, PartialEq)]
struct Loss {
    /// The class of a lock or, for an atomic, its place; and whether the lock is waited for.
    what: String,
    waiting: bool,
    /// Of all their time.
    share: f64,
}

/// What cores bring with each design under each workload.
#[derive(Clone, Debug)]
pub struct Along {
    cores: Vec<usize>,
    rows: Vec<Row>,
}

/// One simulation: of a row with the `nth` number of cores, on one volume or of one of them alone.
struct Cell<'a> {
    row: &'a Curve,
    nth: usize,
    alone: bool,
}

impl Loss {
    fn to_json(&self) -> Value {
        json!({ "what": self.what, "waiting": self.waiting, "share": self.share })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.waiting { "waiting for" } else { "to the line of" };
        write!(f, "{:.0} % {how} {}", self.share * 100.0, self.what)
    }
}

impl Point {
    fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }

    fn is_near(&self) -> bool {
        self.error().abs() <= NEAR
    }
}

/// What one number of cores of one workload is simulated on.
struct Place {
    host: Host,
    machine: Machine,
    cores: usize,
}

/// The machine of all those curves, whoever writes.
fn host(measured: &Curves) -> Host {
    let turns = measured.rows.iter().flat_map(|row| &row.rounds).map(|round| round.turn);
    let turns: Vec<Turn> = turns.collect();
    let usual = middle(&mut turns.iter().map(|turn| turn.changed).collect::<Vec<f64>>());
    Host::of(measured.constants, usual, &turns, [measured.device.0[0]; 2])
}

impl Cell<'_> {
    /// What simulated cores do.
    fn run(&self, places: &[Place], pace: f64) -> Result<Outcome, Failure> {
        let Self { row, nth, alone } = *self;
        let Place { host, machine, cores } = &places[nth];
        let task = if alone { row.one(nth, *cores, pace).task } else { row.all(nth, *cores) };
        task.run(&mut host.bench(machine))
    }
}

/// What was found of a row with the `nth` number of cores.
fn point(row: &Curve, nth: usize, place: &Place, outcomes: &[Outcome; 2]) -> Point {
    let Place { host, machine, cores } = place;
    let [one, all] = outcomes.each_ref().map(|outcome| outcome.ops_per_s);
    Point {
        cores: *cores,
        machine: machine.clone(),
        dearness: host.dearness,
        simulated: all / one,
        measured: middle(&mut row.ratios(nth, *cores)),
        rounds: row.ratios(nth, *cores),
        simulated_ns: [1e9 / one, *cores as f64 * 1e9 / all],
        measured_ns: row.ns(nth, *cores),
        most: most(&outcomes[1]),
    }
}

/// What cost most: all that was lost to one lock, waiting for it or for its line, or to an atomic.
fn most(outcome: &Outcome) -> Option<Loss> {
    let mut losses = Vec::<(&str, bool, u64)>::new();
    for lost in &outcome.why {
        let what = if lost.class.is_empty() { &lost.at } else { &lost.class };
        match losses.iter_mut().find(|(known, ..)| known == what) {
            Some((_, waiting, time)) => {
                *waiting |= lost.waiting;
                *time += lost.time;
            }
            None => losses.push((what, lost.waiting, lost.time)),
        }
    }
    let (what, waiting, time) = losses.into_iter().max_by_key(|(.., time)| *time)?;
    let share = time as f64 / outcome.time.max(1) as f64;
    Some(Loss { what: what.to_owned(), waiting, share })
}

/// The machine as it is for each number of cores that run those rows of one workload: each number
/// has its own way to memory, and takes its own time where they do not meet.
fn places(measured: &Curves, these: &[&Curve]) -> Result<Vec<Place>, Failure> {
    let (host, pace) = (host(measured), measured.pace());
    let of = |(nth, (cores, writes)): (usize, (&usize, &Writes))| {
        let ones: Vec<_> = these.iter().map(|row| row.one(nth, *cores, pace)).collect();
        let host = host.writing(*writes).for_code_of(&ones)?;
        Ok(Place { machine: host.machine(pace)?, host, cores: *cores })
    };
    measured.cores.iter().zip(&measured.device.0).enumerate().map(of).collect()
}

/// Those rows with each number of cores.
fn simulated(places: &[Place], these: &[&Curve], pace: f64) -> Result<Vec<Row>, Failure> {
    // Those of many cores take the longest, so they begin first.
    let of = |nth| {
        let both = move |row| [true, false].map(|alone| Cell { row, nth, alone });
        these.iter().flat_map(move |row| both(*row))
    };
    let cells: Vec<Cell<'_>> = (0..places.len()).rev().flat_map(of).collect();
    let cells: Vec<&Cell<'_>> = cells.iter().collect();
    let outcomes = side_by_side(&cells, &|cell| cell.run(places, pace))?;
    let (pairs, _) = outcomes.as_chunks::<2>();
    let row = |(at, row): (usize, &&Curve)| {
        let its = pairs.iter().skip(at).step_by(these.len()).rev();
        let points = its.zip(places).enumerate();
        Row {
            workload: row.workload,
            design: row.design.clone(),
            points: points.map(|(nth, (both, place))| point(row, nth, place, both)).collect(),
        }
    };
    Ok(these.iter().enumerate().map(row).collect())
}

impl Along {
    /// Simulates what was measured; `tell` hears of each workload before it begins.
    ///
    /// # Errors
    /// [`Failure::Broken`] for what broke, [`Failure::Usage`] for constants of a file that no
    /// machine has.
    pub fn of(measured: &Curves, tell: &mut dyn FnMut(&str)) -> Result<Self, Failure> {
        let mut rows = Vec::new();
        for workload in WORKLOADS {
            let of_it = measured.rows.iter().filter(|row| row.workload == workload);
            let these: Vec<&Curve> = of_it.collect();
            if these.is_empty() {
                continue;
            }
            tell(&format!("{workload}: how dear its code is"));
            let places = places(measured, &these)?;
            tell(&format!("{workload}: {} designs simulated", these.len()));
            rows.extend(simulated(&places, &these, measured.pace())?);
        }
        Ok(Self { cores: measured.cores.clone(), rows })
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
                "constants": point.machine.constants(),
                "dearness": point.dearness.times,
                "besides_ns": point.dearness.besides,
                "simulated_ns": point.simulated_ns,
                "measured_ns": point.measured_ns,
                "loses_most_to": point.most.as_ref().map(Loss::to_json),
            })
        };
        let rows = self.rows.iter().flat_map(|row| row.points.iter().map(move |at| of(row, at)));
        json!({ "rows": rows.collect::<Vec<_>>() })
    }

    /// What simulated cores lose most to where they are not near what was measured.
    fn off(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            for point in row.points.iter().filter(|point| !point.is_near()) {
                let (Row { workload, design, .. }, cores) = (row, point.cores);
                let error = point.error() * 100.0;
                write!(f, "off: {workload}, {design}, {cores} cores, {error:+.0} %; simulated ")?;
                match &point.most {
                    Some(most) => writeln!(f, "ones lose {most}")?,
                    None => writeln!(f, "ones lose nothing")?,
                }
            }
        }
        Ok(())
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
        writeln!(f, "so many cores by one of them, simulated and measured here; ns of one")?;
        for (nth, cores) in self.cores.iter().enumerate() {
            let of = |row| {
                let Row { workload, points, .. }: &Row = row;
                (*workload, &points[nth].machine, points[nth].dearness)
            };
            for line in costs(self.rows.iter().map(of)).lines() {
                writeln!(f, "{cores} cores of {line}")?;
            }
        }
        write!(f, "{:<14} {:<18}", "workload", "design")?;
        for cores in &self.cores {
            let cores = format!("{cores} cores");
            write!(
                f,
                " {:>7} {:>8} {cores:>9} {:>8} {:>8}",
                "ns", "measured", "measured", "error"
            )?;
        }
        writeln!(f)?;
        for Row { workload, design, points, .. } in &self.rows {
            write!(f, "{workload:<14} {design:<18}")?;
            for point in points {
                let (Point { simulated, measured, .. }, error) = (point, point.error() * 100.0);
                let [one, real] = [point.simulated_ns[0], point.measured_ns[0]];
                write!(
                    f,
                    " {one:>7.0} {real:>8.0} {simulated:>9.2} {measured:>8.2} {error:>+6.0} %"
                )?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{}", self.near())?;
        self.off(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_bench_simulated::Lost;

    #[test]
    fn each_number_of_cores_is_held_against_its_own() {
        let point = |cores, simulated, measured| {
            let (dearness, rounds, ns) = (Dearness::NONE, vec![measured], [10.0, 20.0]);
            let (simulated_ns, measured_ns) = (ns, ns);
            let machine = Machine::get("kunpeng920").expect("it is there");
            Point {
                cores,
                machine,
                dearness,
                simulated,
                measured,
                rounds,
                simulated_ns,
                measured_ns,
                most: Some(Loss { what: "journal.state".to_owned(), waiting: true, share: 0.6 }),
            }
        };
        let row = |design: &str, points: [Point; 2]| Row {
            workload: "churn",
            design: design.to_owned(),
            points: points.to_vec(),
        };
        let rows = vec![
            row("nextent", [point(2, 2.0, 1.9), point(16, 15.0, 10.0)]),
            row("ext3-2002", [point(2, 0.5, 0.5), point(16, 0.3, 0.33)]),
        ];
        let found = Along { cores: vec![2, 16], rows };
        let text = found.to_string();
        let near = "3 of 4 within 15 %: 2 cores 2 of 2, 16 cores 1 of 2\n";
        let off = "off: churn, nextent, 16 cores, +50 %; simulated ones lose 60 % waiting for \
                   journal.state\n";
        assert!(text.ends_with(&[near, off].concat()), "{text}");
        assert!(text.contains("+50 %") && text.contains("16 cores"), "{text}");
        let json = found.to_json();
        let rows = json["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 4);
        assert_eq!((&rows[1]["cores"], &rows[1]["error"]), (&json!(16), &json!(0.5)));
        assert_eq!(rows[2]["design"], "ext3-2002");
    }

    #[test]
    fn all_that_is_lost_to_one_lock_counts_together() {
        let lost = |class: &str, waiting, time| Lost {
            waiting,
            class: class.to_owned(),
            at: "somewhere.rs:1".to_owned(),
            count: 1,
            time,
        };
        let of = |why: Vec<Lost>| {
            most(&Outcome {
                design: "nextent".to_owned(),
                cores: 2,
                ops_per_s: 1.0,
                time: 100,
                why,
            })
        };
        let (state, atomic) = (lost("journal.state", true, 20), lost("", false, 30));
        let told = |loss: Option<Loss>| loss.expect("something is lost").to_string();
        assert_eq!(
            told(of(vec![atomic.clone(), state.clone()])),
            "30 % to the line of somewhere.rs:1"
        );
        let all = vec![atomic, state.clone(), lost("journal.state", false, 15)];
        assert_eq!(told(of(all)), "35 % waiting for journal.state");
        assert_eq!(of(vec![]), None);
    }
}
