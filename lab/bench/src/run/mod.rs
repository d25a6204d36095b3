//! Running: one run by a crew of threads, and all runs of a plan in turns.

mod cell;
mod crew;
mod fixed;
mod latency;
mod pin;
mod rounds;

pub(crate) use cell::{Cell, Finding};
pub use fixed::repeat;
pub(crate) use rounds::run;
