//! Running: one run by a crew of threads, and all runs of a plan in turns.

mod cell;
mod crew;
mod fixed;
mod latency;
#[cfg(feature = "simulation")]
mod meeting;
#[cfg(feature = "simulation")]
mod pair;
mod pin;
mod rest;
mod rounds;

pub(crate) use cell::{Cell, Finding};
pub use fixed::repeat;
#[cfg(feature = "simulation")]
pub(crate) use pair::{Cycle, Pair, Part, Reach, pair};
#[cfg(feature = "simulation")]
pub(crate) use pin::pin;
pub(crate) use rounds::run;
