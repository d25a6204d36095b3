//! How each workload is run where simulated and real cores are held against each other.

use nextent_bench_simulated::Course;
use nextent_sync::Duration;

/// Measurements of each row that are to count, where its way is not to make more; at most twice as
/// many are made.
const ROUNDS: usize = 7;
/// Simulations of each row, where its way is not to make more.
const SIMULATIONS: usize = 3;
/// Blocks of all cores together in a file of direct writes, at most: more take minutes to simulate.
const CURVE_BLOCKS: u64 = 64_000;
/// An image of which the groups are in memory at once.
const SMALL: u64 = 8 << 30;

/// How a workload is run: the same simulated and measured, where what was done before decides what
/// an operation takes.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) course: Course,
    /// As many operations are simulated as were measured, and not those of the course.
    pub(super) as_measured: bool,
    /// How long threads work before the clock counts, and while it does.
    pub(super) warm_up: Duration,
    pub(super) seconds: f64,
    /// Measurements that are to count.
    pub(super) rounds: usize,
    /// Simulations, each with a line's way as it was in another part of all rounds.
    pub(super) simulations: usize,
}

impl Way {
    pub(super) fn of(workload: &str) -> Self {
        let course = Course { image: SMALL, ..Course::usual(1000) };
        let timed = |warm_up, seconds| {
            let warm_up = Duration::from_millis(warm_up);
            let (rounds, simulations) = (ROUNDS, SIMULATIONS);
            Self { course, as_measured: true, warm_up, seconds, rounds, simulations }
        };
        match workload {
            // Searches pass by all that was freed since the last commit: they grow.
            "churn" => timed(50, 0.05),
            // One lock for all is passed on in one rhythm or another here as well, by where memory
            // lies in a simulation.
            "fallocate2" => Self { simulations: 3 * SIMULATIONS, ..timed(15, 0.03) },
            // The tree of the file grows and shrinks again, and the file ends the run. Who sleeps
            // for a file does so for long, or not.
            "dio-overwrite" => {
                let course = Course { image: SMALL, warm: 16, blocks: 1, ..Course::usual(16_000) };
                let simulations = 3 * SIMULATIONS;
                Self { course, as_measured: false, simulations, ..timed(0, 10.0) }
            }
            // Two cores pass locks on in one rhythm or another, each for as long as a run lasts:
            // many short ones say more than a few long ones. All operations are alike.
            _ => Self {
                as_measured: false,
                rounds: 3 * ROUNDS,
                simulations: 3 * SIMULATIONS,
                ..timed(20, 0.04)
            },
        }
    }

    /// The same in shorter runs, where many numbers of cores are measured, one after another.
    pub(super) fn of_curve(workload: &str, cores: usize) -> Self {
        let mut way = Self::of(workload);
        let (warm_up, seconds) = match workload {
            "churn" => (30, 0.03),
            "fallocate2" => (10, 0.02),
            "dio-overwrite" => {
                let operations = &mut way.course.operations;
                *operations = (CURVE_BLOCKS / cores as u64).clamp(1, *operations);
                return way;
            }
            _ => (10, 0.03),
        };
        Self { warm_up: Duration::from_millis(warm_up), seconds, ..way }
    }
}
