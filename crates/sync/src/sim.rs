//! Running code on simulated cores.
//!
//! [`run`] makes a world in which threads are cores of a [`Machine`]. Nothing is charged until as
//! many threads as are to be measured have come together in [`gather`]; from then on every thread
//! has a clock of its own.

pub use crate::primitive::sim::between::{Known, Span, learn, note_places, run_on, step_through};
pub(crate) use crate::primitive::sim::between::{
    at_once, leads_on, leads_to, stretch, stretch_only, sum,
};
pub use crate::primitive::sim::chance::{Choice, Turns};
use crate::primitive::sim::data::data;
pub use crate::primitive::sim::explore::{explore, shuffle, steps, trace};
pub use crate::primitive::sim::lines::Machine;
use crate::primitive::sim::lines::Use;
use crate::primitive::sim::stepping::quiet;
pub use crate::primitive::sim::world::{
    Charge, Found, Why, about, clock, forget, gather, over, rest, run, settle, tally, unpaid, work,
};
use crate::primitive::sim::{uses, world};
use std::panic::Location;

/// A count of references at `address` is changed, as a part of what is done before.
#[track_caller]
pub(crate) fn counted(address: usize) {
    let _quiet = quiet();
    if world::is_charging() {
        at_once();
        world::at(None, Location::caller());
        uses::access(address, Use::Change);
    }
}

/// What comes next follows from what was done last, and is not begun before.
pub(crate) fn follows() {
    let _quiet = quiet();
    world::with(world::World::follow);
}

/// Uses the lines of plain data.
pub(crate) fn traffic(address: usize, bytes: usize, stores: bool) {
    let _quiet = quiet();
    let which = if stores { Use::Store } else { Use::Load };
    data(address, bytes, which);
}
