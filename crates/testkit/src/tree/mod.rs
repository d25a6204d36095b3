//! Directory trees as plain lists, for comparison.
//!
//! [`walk`] collects a [`Tree`] from a [`TreeSource`] (a host directory, the model, a volume of the
//! engine). [`diff()`] lists the differences of two, one per line, in the order of paths.

mod diff;
mod entry;
mod host;

pub use diff::{Compare, assert_same, diff};
pub use entry::{Entry, Kind, Stat, Tree, TreeSource, walk};
pub use host::HostDir;
