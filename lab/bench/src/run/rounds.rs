//! All runs of a plan. Rounds interleave targets and designs, so that drift of the machine affects
//! all of them alike.

use super::{Cell, CellResult};
use crate::count::{Counted, counted};
use crate::failure::Failure;
use crate::plan::{Column, Location, Plan, Request};
use crate::report::{Counts, Report, Run, VolumeSizes};
use crate::target::sizes_of_device;
use crate::workloads::Workload;

/// Seconds of a counting run without `--lockstat`.
const SHORT: f64 = 0.3;
/// The time limit of a counting run, as a multiple of a timed run: counting is slow.
const PATIENCE: f64 = 4.0;

/// Runs a plan. Before each run it calls `tell` with the run's number and description.
pub(crate) fn run(
    plan: &Plan,
    interrupted: &(dyn Fn() -> bool + Sync),
    tell: &mut dyn FnMut(usize, &str),
) -> Result<Report, Failure> {
    let mut report = Report::new(plan);
    let mut number = 0;
    for round in 0..plan.repeat {
        for &threads in &plan.threads {
            for at in 0..plan.columns.len() {
                let column = (at + round) % plan.columns.len();
                if interrupted() {
                    report.interrupted = true;
                    return Ok(report);
                }
                let label = &plan.columns[column].label;
                tell(number, &format!("round {}, {label}, {threads} threads", round + 1));
                number += 1;
                let cell = cell(plan, column, threads, interrupted);
                let result = cell.run()?;
                let cut = interrupted();
                take(&mut report, &cell, column, round, result, cut);
            }
        }
    }
    if plan.counts {
        count(plan, interrupted, tell, &mut report)?;
    }
    Ok(report)
}

fn cell<'a>(
    plan: &'a Plan,
    column: usize,
    threads: usize,
    interrupted: &'a (dyn Fn() -> bool + Sync),
) -> Cell<'a> {
    Cell {
        plan,
        column: &plan.columns[column],
        threads,
        counted: None,
        seconds: plan.seconds,
        interrupted,
    }
}

/// Adds a run's figures and failures to the report.
fn take(
    report: &mut Report,
    cell: &Cell<'_>,
    column: usize,
    round: usize,
    result: CellResult,
    cut: bool,
) {
    report.note_sizes(column, || volume_sizes(cell.column, &result));
    let CellResult { outcome, sizes, problems } = result;
    let run = format!("{}, {} threads, round {}", cell.column.label, cell.threads, round + 1);
    if let Some(error) = outcome.failure {
        report.failures.push(format!("{run}: {error}; figures so far"));
    }
    for problem in problems.iter().flatten().take(3) {
        report.failures.push(format!("{run}: fsck: {problem}"));
    }
    let unexpected: u64 = outcome.figures.iter().map(|figures| figures.unexpected).sum();
    let extents: Option<Vec<u64>> = outcome.figures.iter().map(|figures| figures.extents).collect();
    let extents = extents.filter(|all| !all.is_empty());
    let file_bytes: u64 = outcome.figures.iter().map(|figures| figures.file_bytes).sum();
    report.runs.push(Run {
        column,
        threads: cell.threads,
        round,
        seconds: outcome.took.as_secs_f64(),
        ops: outcome.per_thread.iter().sum(),
        per_thread: outcome.per_thread,
        bytes: outcome.bytes,
        latency: Some(outcome.latency).filter(|latency| !latency.is_empty()),
        unexpected,
        extents_per_file: extents.as_ref().map(|all| mean(all)),
        average_extent: extents
            .map(|all| file_bytes as f64 / all.iter().sum::<u64>().max(1) as f64),
        free_extents: sizes
            .filter(|_| cell.plan.workload == Workload::Frag)
            .map(|sizes| sizes.free_runs),
        is_clean: problems.map(|problems| problems.is_empty()),
        is_cut: cut,
    });
}

fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len().max(1) as f64
}

/// The sizes of a column's file system.
fn volume_sizes(column: &Column, result: &CellResult) -> Option<VolumeSizes> {
    let sizes = match &column.location {
        Location::Engine => result.sizes,
        Location::Directory(path) => {
            crate::machine::device_of(path).and_then(|device| sizes_of_device(&device))
        }
    }?;
    Some(VolumeSizes { image: sizes.image, journal: sizes.journal })
}

/// Runs each design once more with each number of threads, to count locks and shared stores.
fn count(
    plan: &Plan,
    interrupted: &(dyn Fn() -> bool + Sync),
    tell: &mut dyn FnMut(usize, &str),
    report: &mut Report,
) -> Result<(), Failure> {
    for &threads in &plan.threads {
        for (column, this) in plan.columns.iter().enumerate() {
            let Some(design) = this.design else { continue };
            if interrupted() {
                report.interrupted = true;
                return Ok(());
            }
            let label = &this.label;
            tell(plan.runs(), &format!("counting, {label}, {threads} threads"));
            let (request, enough) = match plan.lockstat {
                true => {
                    let seconds = plan.request.seconds * PATIENCE;
                    let request = Request { seconds, ..plan.only(this, design, threads) };
                    (request, report.median_ops(column, threads))
                }
                false => (plan.briefly(this, design, threads, SHORT), u64::MAX),
            };
            let Counted { ops, classes, problems } = counted(&request, enough, interrupted)?;
            let run = format!("{label}, {threads} threads, counting");
            let lines = problems.iter().take(3).map(|problem| format!("{run}: {problem}"));
            report.failures.extend(lines);
            report.counts.push(Counts { column, threads, ops, classes });
        }
    }
    Ok(())
}
