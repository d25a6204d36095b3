//! Many schedules, one after another, until one fails.

use crate::base_volumes::BaseVolumes;
use crate::bugs::InjectedBug;
use crate::schedule::{Failure, run};
use std::ops::Range;

/// One of so many schedules is also judged by e2fsck.
const THOROUGH: u64 = 50;

/// The result of schedules without a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Steps of all schedules together.
    pub steps: u64,
    /// A hash of the scheduler's decisions in the last schedule.
    pub trace: u64,
}

/// Runs the schedules `seeds` with `bug` injected. A single one is judged by e2fsck, too.
///
/// # Errors
/// The first schedule that fails, and how.
pub fn explore(
    seeds: Range<u64>,
    bug: Option<&'static InjectedBug>,
) -> Result<Passed, (u64, Failure)> {
    let bases = BaseVolumes::default();
    let alone = seeds.end - seeds.start == 1;
    let mut passed = Passed::default();
    for seed in seeds {
        let thorough = alone || seed.is_multiple_of(THOROUGH);
        let (steps, trace) = run(&bases, seed, bug, thorough).map_err(|failure| (seed, failure))?;
        passed = Passed { steps: passed.steps + steps, trace };
    }
    Ok(passed)
}
