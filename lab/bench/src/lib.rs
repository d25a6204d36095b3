//! Workloads on the engine and on mounted directories, side by side.
//!
//! A [`Plan`] is a checked request. [`measure`] runs it and returns a [`Report`], which prints
//! itself as a table, as JSON and as an SVG plot.
//!
//! - `workload`: the operations of threads, written once against `target::Session`
//! - `target`: the two implementations of file operations: library and system calls
//! - `run`: threads, clocks and counters; interleaved rounds; the check of each image
//! - `report`: medians, tables, plots
//! - `simulated`: runs on simulated cores, in the copy that is compiled over them
//!
//! The engine does not know this crate, and this crate uses only the engine's public calls.
#![forbid(unsafe_code)]

mod count;
pub mod designs;
mod failure;
mod kernel_names;
mod machine;
mod plan;
mod report;
mod run;
#[cfg(feature = "simulated")]
pub mod simulated;
mod target;
mod workload;
mod workloads;

pub use count::{ClassCounts, Counted, Site, count, shortened};
pub use designs::Design;
pub use failure::Failure;
pub use kernel_names::kernel_lock;
pub use plan::{Plan, Request};
pub use report::{Report, curves, published};
pub use run::repeat;
pub use workloads::Workload;

/// Runs a plan. Calls `tell` before each run with its number and description. The report has the
/// figures until `interrupted` returns true.
///
/// # Errors
/// [`Failure::Usage`] for a target that cannot be used, [`Failure::Broken`] for a run that could
/// not be done. The [`Report`] has the runs that were done but failed.
pub fn measure(
    plan: &Plan,
    interrupted: &(dyn Fn() -> bool + Sync),
    tell: &mut dyn FnMut(usize, &str),
) -> Result<Report, Failure> {
    run::run(plan, interrupted, tell)
}
