//! The figures of all runs, and their output.

mod json;
mod locks;
mod plot;
pub mod published;
mod table;

pub use plot::curves;

use crate::count::ClassCounts;
use crate::machine::Machine;
use crate::plan::{Column, Plan};
use crate::workloads::Workload;
use hdrhistogram::Histogram;

/// The figures of all runs.
pub struct Report {
    pub(crate) workload: Workload,
    pub(crate) machine: Machine,
    pub(crate) columns: Vec<Column>,
    pub(crate) threads: Vec<usize>,
    pub(crate) seconds: f64,
    pub(crate) repeat: usize,
    pub(crate) pin: bool,
    pub(crate) shared: bool,
    pub(crate) lockstat: bool,
    /// Sizes of each column's file system, where they are known.
    pub(crate) volume_sizes: Vec<Option<VolumeSizes>>,
    pub(crate) runs: Vec<Run>,
    pub(crate) counts: Vec<Counts>,
    pub(crate) failures: Vec<String>,
    pub(crate) interrupted: bool,
}

/// A file system's sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSizes {
    pub(crate) image: u64,
    pub(crate) journal: u64,
}

/// One run.
pub(crate) struct Run {
    pub(crate) column: usize,
    pub(crate) threads: usize,
    pub(crate) round: usize,
    pub(crate) seconds: f64,
    pub(crate) ops: u64,
    pub(crate) per_thread: Vec<u64>,
    pub(crate) bytes: u64,
    pub(crate) latency: Option<Histogram<u64>>,
    /// Operations of a load file with another result than in the file.
    pub(crate) unexpected: u64,
    pub(crate) extents_per_file: Option<f64>,
    /// Average length of an extent in bytes.
    pub(crate) average_extent: Option<f64>,
    pub(crate) free_extents: Option<u64>,
    /// Whether the check found the image clean.
    pub(crate) is_clean: Option<bool>,
    /// Whether the user interrupted it.
    pub(crate) is_cut: bool,
}

impl Run {
    pub(crate) fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.seconds.max(1e-9)
    }

    pub(crate) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// Lock statistics of a counting run.
pub(crate) struct Counts {
    pub(crate) column: usize,
    pub(crate) threads: usize,
    pub(crate) ops: u64,
    pub(crate) classes: Vec<ClassCounts>,
}

impl Counts {
    /// Shared stores of an operation.
    pub(crate) fn shared_stores(&self) -> f64 {
        self.per_op(|class| class.shared_stores)
    }

    /// Contended acquisitions of an operation.
    pub(crate) fn contended(&self) -> f64 {
        self.per_op(|class| class.contended)
    }

    fn per_op(&self, of: impl Fn(&ClassCounts) -> u64) -> f64 {
        self.classes.iter().map(of).sum::<u64>() as f64 / self.ops.max(1) as f64
    }
}

impl Report {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            workload: plan.workload,
            machine: Machine::here(),
            columns: plan.columns.clone(),
            threads: plan.threads.clone(),
            seconds: plan.seconds.as_secs_f64(),
            repeat: plan.repeat,
            pin: plan.pin.is_some(),
            shared: plan.params.shared,
            lockstat: plan.lockstat,
            volume_sizes: vec![None; plan.columns.len()],
            runs: Vec::new(),
            counts: Vec::new(),
            failures: Vec::new(),
            interrupted: false,
        }
    }

    pub(crate) fn note_sizes(&mut self, column: usize, find: impl FnOnce() -> Option<VolumeSizes>) {
        if self.volume_sizes[column].is_none() {
            self.volume_sizes[column] = find();
        }
    }

    /// A line for each failed run and each damaged image.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Whether the user interrupted it.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted || self.runs.iter().any(|run| run.is_cut)
    }

    /// The runs of a column with so many threads.
    fn cell(&self, column: usize, threads: usize) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.column == column && run.threads == threads)
    }

    fn counts(&self, column: usize, threads: usize) -> Option<&Counts> {
        self.counts.iter().find(|counts| counts.column == column && counts.threads == threads)
    }

    /// The figure by which columns are compared: operations a second, or dbench's MB/s.
    fn figure(&self, run: &Run) -> f64 {
        match self.workload {
            Workload::Dbench => run.mb_per_s(),
            _ => run.ops_per_s(),
        }
    }

    /// The median, and half the distance between minimum and maximum relative to it.
    fn median(&self, column: usize, threads: usize) -> Option<(f64, f64)> {
        spread(self.cell(column, threads).map(|run| self.figure(run)).collect())
    }

    /// The median number of operations.
    pub(crate) fn median_ops(&self, column: usize, threads: usize) -> u64 {
        let ops = self.cell(column, threads).map(|run| run.ops as f64).collect();
        spread(ops).map_or(u64::MAX, |(median, _)| median as u64)
    }
}

/// The median of values, and half the distance between minimum and maximum relative to it.
fn spread(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let (first, last) = (values.first()?, values.last()?);
    let half = values.len() / 2;
    let median = match values.len() % 2 {
        1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    };
    Some((median, (last - first) / 2.0 / median.max(f64::MIN_POSITIVE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![4.0]), Some((4.0, 0.0)));
        assert_eq!(spread(vec![5.0, 3.0, 4.0]), Some((4.0, 0.25)));
        assert_eq!(spread(vec![1.0, 3.0]), Some((2.0, 0.5)));
    }
}
