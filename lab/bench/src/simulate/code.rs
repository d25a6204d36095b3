//! What code costs on the machine at hand: an instruction, and what an atomic change adds to it.
//!
//! Both depend on what is around them, so they are found in the engine's own code: one core runs
//! it, the table says how many instructions an operation has, the simulation how many changes, and
//! the costs are those with which simulated operations take as long as real ones. That is
//! `handles`, of which changes are up to half, which has all it needs in caches, and of which an
//! operation is like the one before it. What an instruction takes in other code is found where it
//! is measured (`super::beside`).

use super::calibrate::{Constants, pace};
use super::measured::middle;
use super::real::{Real, WARM_UP};
use super::{Bench, Codes, Machine};
use crate::failure::Failure;
use nextent_bench_simulated::Course;
use nextent_device::MemoryStock;

/// What runs for that.
const WORKLOAD: &str = "handles";
/// With many changes and with few.
const DESIGNS: [&str; 6] =
    ["ext3-2002", "ext4-2.6.33", "ext4-2.6.33-hack", "ext4-2.6.36", "ext4-6.17", "nextent"];

/// Seconds of a run, and runs of each design on each core.
const SECONDS: f64 = 0.05;
const ROUNDS: usize = 5;
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
    instructions: f64,
    changes: f64,
    ns: f64,
}

impl Code {
    /// Measures on the first `cores`.
    pub(super) fn measure(cores: usize) -> Result<Self, Failure> {
        let (stock, course) = (&MemoryStock::default(), Course::usual(OPERATIONS));
        let (mut times, mut paces) = (vec![Vec::new(); DESIGNS.len()], Vec::new());
        for _ in 0..ROUNDS {
            for (design, times) in DESIGNS.iter().zip(&mut times) {
                let (workload, warm_up, seconds, rests) = (WORKLOAD, WARM_UP, SECONDS, false);
                let real = Real { workload, design, course, warm_up, rests, seconds, stock };
                let before = pace(cores);
                let ns = 1e9 / real.rate_of_one(cores)?;
                // How fast cores are changes meanwhile.
                let pace = (before + pace(cores)) / 2.0;
                times.push(ns / pace);
                paces.push(pace);
            }
        }
        let (pace, mut samples) = (middle(&mut paces), Vec::new());
        for (design, mut times) in DESIGNS.iter().zip(times) {
            let [instructions, changes] = Self::parts(design)?;
            let ns = middle(&mut times) * pace;
            samples.push(Sample { instructions, changes, ns });
        }
        Ok(Self { pace, ..Self::fit(&samples) })
    }

    /// Instructions and changes of an operation, as simulated cores are charged for them.
    fn parts(design: &str) -> Result<[f64; 2], Failure> {
        let codes = Codes::default();
        let ns = |instruction: f64, rmw: f64| {
            let text = Constants::alone(instruction, rmw).text();
            let machine = Machine::parse("one core", &text)?;
            let found =
                Bench::new(&machine).with_codes(&codes).run(WORKLOAD, design, 1, OPERATIONS)?;
            Ok::<f64, Failure>(1e9 / found.ops_per_s)
        };
        // A nanosecond each, and the other one as good as nothing.
        Ok([ns(1.0, 0.0)?, ns(0.001, 1000.0)? / 1000.0])
    }

    /// The two costs with which `samples` take what they took, as nearly as may be: by the least
    /// sum of squares of what is missing as a part of the whole.
    fn fit(samples: &[Sample]) -> Self {
        let (mut aa, mut ab, mut bb, mut a1, mut b1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for Sample { instructions, changes, ns } in samples {
            let (a, b) = (instructions / ns, changes / ns);
            (aa, ab, bb) = (aa + a * a, ab + a * b, bb + b * b);
            (a1, b1) = (a1 + a, b1 + b);
        }
        // Noise does not make a change cheaper than nothing.
        let both = aa * bb - ab * ab;
        let rmw = if both > 1e-9 * aa * bb { ((aa * b1 - ab * a1) / both).max(0.0) } else { 0.0 };
        Self { instruction: (a1 - ab * rmw) / aa, rmw, pace: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_explain_what_operations_take() {
        let sample = |instructions: f64, changes: f64| {
            let ns = instructions * 0.07 + changes * 6.0;
            Sample { instructions, changes, ns }
        };
        let samples = [sample(300.0, 8.0), sample(344.0, 5.0), sample(800.0, 0.0)];
        let Code { instruction, rmw, .. } = Code::fit(&samples);
        assert!((instruction - 0.07).abs() < 1e-9 && (rmw - 6.0).abs() < 1e-9);
        // One that took longer moves both a little.
        let slow = Sample { ns: 1.1 * samples[0].ns, ..samples[0] };
        let Code { instruction, rmw, .. } = Code::fit(&[slow, samples[1], samples[2]]);
        assert!((0.06..0.08).contains(&instruction) && (5.0..8.0).contains(&rmw));
        // Noise does not make a change cheaper than nothing.
        let one = |changes, ns| Sample { instructions: 100.0, changes, ns };
        assert_eq!(Code::fit(&[one(0.0, 20.0), one(5.0, 10.0)]).rmw, 0.0);
        // Nor does one operation say anything of it.
        assert_eq!(Code::fit(&[one(5.0, 10.0)]).rmw, 0.0);
    }

    #[test]
    fn changes_are_counted() {
        let [instructions, changes] = Code::parts("ext4-2.6.36").expect("it is simulated");
        assert!((250.0..350.0).contains(&instructions), "{instructions}");
        assert!((4.0..16.0).contains(&changes), "{changes}");
        let [_, few] = Code::parts("nextent").expect("it is simulated");
        assert!(few < 2.0, "{few}");
    }
}
