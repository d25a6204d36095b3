//! What code costs on the machine at hand: an instruction, and what an atomic change adds to it.
//!
//! Both depend on what is around them, so they are found in the engine's own code: one core runs
//! it, the table says how many instructions an operation has, the simulation how many changes, and
//! the costs are those with which simulated operations take as long as real ones. What a change
//! costs follows from how operations of one workload differ, for an instruction of one workload
//! may take half as long as one of another: that depends on what is found in caches.

use super::beside::middle;
use super::calibrate::{Constants, pace};
use super::real::{Real, WARM_UP};
use super::{Bench, Codes, Machine};
use crate::failure::Failure;
use nextent_device::MemoryStock;
use nextent_lab_simulated::Course;

/// With many changes and with few, short and long. Of the past: what cores make that meet nobody
/// does not depend on these costs.
const SAMPLES: [(&str, &str); 7] = [
    ("handles", "ext4-2.6.33"),
    ("handles", "ext4-2.6.33-hack"),
    ("handles", "ext4-2.6.36"),
    ("fallocate2", "ext3-2003"),
    ("fallocate2", "ext4-2.6.36"),
    ("fallocate2", "ext4-6.16"),
    ("fallocate2", "ext4-6.17"),
];

/// Seconds of a run, and runs of each sample on each core.
const SECONDS: f64 = 0.05;
const ROUNDS: usize = 3;
/// Simulated operations.
const OPERATIONS: u64 = 1000;

/// Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    pub(super) instruction: f64,
    pub(super) rmw: f64,
    /// How fast the cores were, as [`pace`] says.
    pub(super) pace: f64,
}

/// An operation that takes `ns`, with so many instructions and changes.
#[derive(Clone, Copy, Debug)]
struct Sample {
    workload: &'static str,
    instructions: f64,
    changes: f64,
    ns: f64,
}

impl Code {
    /// Measures on the first `cores`.
    pub(super) fn measure(cores: usize) -> Result<Self, Failure> {
        let (stock, course) = (&MemoryStock::default(), Course::usual(OPERATIONS));
        let (mut times, mut paces) = (vec![Vec::new(); SAMPLES.len()], Vec::new());
        for _ in 0..ROUNDS {
            for ((workload, design), times) in SAMPLES.iter().zip(&mut times) {
                let real =
                    Real { workload, design, course, warm_up: WARM_UP, seconds: SECONDS, stock };
                let before = pace(cores);
                let ns = 1e9 / real.rate_of_one(cores)?;
                // How fast cores are changes meanwhile.
                let pace = (before + pace(cores)) / 2.0;
                times.push(ns / pace);
                paces.push(pace);
            }
        }
        let (pace, mut samples) = (middle(&mut paces), Vec::new());
        for ((workload, design), mut times) in SAMPLES.iter().zip(times) {
            let [instructions, changes] = Self::parts(workload, design)?;
            let ns = middle(&mut times) * pace;
            samples.push(Sample { workload, instructions, changes, ns });
        }
        Ok(Self { pace, ..Self::fit(&samples) })
    }

    /// Instructions and changes of an operation, as simulated cores are charged for them.
    fn parts(workload: &str, design: &str) -> Result<[f64; 2], Failure> {
        let codes = Codes::default();
        let ns = |instruction: f64, rmw: f64| {
            let text = Constants::alone(instruction, rmw).text();
            let machine = Machine::parse("one core", &text)?;
            let found =
                Bench::new(&machine).with_codes(&codes).run(workload, design, 1, OPERATIONS)?;
            Ok::<f64, Failure>(1e9 / found.ops_per_s)
        };
        // A nanosecond each, and the other one as good as nothing.
        Ok([ns(1.0, 0.0)?, ns(0.001, 1000.0)? / 1000.0])
    }

    /// The two costs with which `samples` take what they took, as nearly as may be: by the least
    /// sum of squares of what is missing as a part of the whole. An instruction may cost something
    /// else in each workload while a change's cost is found, and costs the same afterwards.
    fn fit(samples: &[Sample]) -> Self {
        let part = |sample: &Sample| {
            let Sample { instructions, changes, ns, .. } = *sample;
            [instructions / ns, changes / ns]
        };
        let (mut by, mut of) = (0.0, 0.0);
        for sample in samples {
            // Instructions of the workload explain so much of both.
            let (mut aa, mut ab, mut a1) = (0.0, 0.0, 0.0);
            for [a, b] in samples.iter().filter(|one| one.workload == sample.workload).map(part) {
                (aa, ab, a1) = (aa + a * a, ab + a * b, a1 + a);
            }
            let [a, b] = part(sample);
            let (rest, missing) = (b - a * ab / aa, 1.0 - a * a1 / aa);
            (by, of) = (by + rest * rest, of + rest * missing);
        }
        let rmw = if by > 0.0 { (of / by).max(0.0) } else { 0.0 };
        let (mut aa, mut left) = (0.0, 0.0);
        for [a, b] in samples.iter().map(part) {
            (aa, left) = (aa + a * a, left + a * (1.0 - b * rmw));
        }
        Self { instruction: left / aa, rmw, pace: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_explain_what_operations_take() {
        let sample = |workload, instructions: f64, changes: f64| {
            let ns = instructions * 0.07 + changes * 6.0;
            Sample { workload, instructions, changes, ns }
        };
        let samples = [sample("a", 300.0, 8.0), sample("a", 344.0, 5.0), sample("a", 800.0, 0.0)];
        let Code { instruction, rmw, .. } = Code::fit(&samples);
        assert!((instruction - 0.07).abs() < 1e-9 && (rmw - 6.0).abs() < 1e-9);
        // Other code of which an instruction takes longer says the same of a change.
        let slow = |instructions: f64, changes: f64| {
            let ns = instructions * 0.14 + changes * 6.0;
            Sample { workload: "b", instructions, changes, ns }
        };
        let all = [samples[0], samples[1], slow(5000.0, 60.0), slow(4600.0, 46.0)];
        let Code { instruction, rmw, .. } = Code::fit(&all);
        assert!((rmw - 6.0).abs() < 1e-9 && (0.07..0.14).contains(&instruction));
        // Noise does not make a change cheaper than nothing.
        let one = |changes, ns| Sample { workload: "a", instructions: 100.0, changes, ns };
        assert_eq!(Code::fit(&[one(0.0, 20.0), one(5.0, 10.0)]).rmw, 0.0);
        // Nor does one operation say anything of it.
        assert_eq!(Code::fit(&[one(5.0, 10.0)]).rmw, 0.0);
    }

    #[test]
    fn changes_are_counted() {
        let [instructions, changes] =
            Code::parts("handles", "ext4-2.6.36").expect("it is simulated");
        assert!((250.0..350.0).contains(&instructions), "{instructions}");
        assert!((4.0..16.0).contains(&changes), "{changes}");
        let [_, few] = Code::parts("handles", "nextent").expect("it is simulated");
        assert!(few < 2.0, "{few}");
    }
}
