//! Running code on simulated cores.
//!
//! [`run`] makes a world in which threads are cores of a [`Machine`]. Nothing is charged until as
//! many threads as are to be measured have come together in [`gather`]; from then on every thread
//! has a clock of its own.

pub use crate::primitive::sim::chance::{Choice, Turns};
pub use crate::primitive::sim::explore::{explore, shuffle, steps, trace};
pub use crate::primitive::sim::lines::Machine;
use crate::primitive::sim::lines::Use;
use crate::primitive::sim::world;
pub use crate::primitive::sim::world::{
    Charge, Found, Why, clock, forget, gather, over, run, settle, tally, unpaid, work,
};
pub(crate) use crate::primitive::sim::world::{at_once, stretch};

/// Uses the lines of plain data.
pub(crate) fn traffic(address: usize, bytes: usize, stores: bool) {
    let which = if stores { Use::Store } else { Use::Load };
    world::with(|world| world.data(address, bytes, which));
}
