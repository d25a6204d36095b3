//! Running: one run by a crew of threads, and all runs of a plan in turns.

mod cell;
mod crew;
mod latency;
mod rounds;

pub(crate) use cell::{Cell, Finding};
pub(crate) use rounds::run;
