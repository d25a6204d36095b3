//! The indirect block maps of ext2 and ext3.
//!
//! - The root has twelve direct pointers, and the pointers to a singly, a doubly and a triply
//!   indirect table.
//! - A pointer of 0 is a hole. A pointer of 0 to a table is a hole of all blocks under the table.
//! - Tables have no checksum and no magic number. Each use of a pointer checks that it lies in the
//!   volume.
//! - A cycle of tables in a damaged image cannot cause an endless loop, because a descent has at
//!   most three levels.

mod insert;
mod lookup;
mod path;
mod remove;
mod table;
mod unsupported;

pub(super) use insert::insert;
pub(super) use lookup::{lookup, lookup_near, next_extent, visit_nodes};
pub(super) use remove::remove;
#[cfg(feature = "lab")]
pub(super) use unsupported::split;
pub(super) use unsupported::{convert_runs, set_state, shift_left, shift_right};
