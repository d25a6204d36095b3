//! Running: one run by a crew of threads, and all runs of a plan in turns.

#[cfg(feature = "simulation")]
mod calls;
mod cell;
mod crew;
#[cfg(feature = "simulation")]
mod crowd;
mod fixed;
mod latency;
#[cfg(feature = "simulation")]
mod meeting;
#[cfg(feature = "simulation")]
mod pair;
mod pin;
mod rest;
mod rounds;

#[cfg(feature = "simulation")]
pub(crate) use calls::{Part, Reach};
pub(crate) use cell::{Cell, Finding};
#[cfg(feature = "simulation")]
pub(crate) use crowd::{Crowd, crowd};
pub use fixed::repeat;
#[cfg(feature = "simulation")]
pub(crate) use pair::{Cycle, Pair, pair};
#[cfg(feature = "simulation")]
pub(crate) use pin::pin;
pub(crate) use rounds::run;
