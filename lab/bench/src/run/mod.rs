//! Running: one run by worker threads, and all runs of a plan, interleaved.

mod cell;
mod fixed;
mod latency;
mod pin;
mod rounds;
mod workers;

pub(crate) use cell::{Cell, CellResult};
pub use fixed::repeat;
pub(crate) use rounds::run;
