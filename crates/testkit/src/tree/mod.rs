//! Directory trees as plain lists, to be compared.
//!
//! [`walk`] turns whatever implements [`TreeSource`] (a host directory, the
//! model, a volume of the engine) into a [`Tree`]; [`diff`] says how two
//! differ, a line each, in the order of their paths.

mod diff;
mod entry;
mod host;

pub use diff::{Compare, assert_same, diff};
pub use entry::{Entry, Kind, Stat, Tree, TreeSource, walk};
pub use host::HostDir;
