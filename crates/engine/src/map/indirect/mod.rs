//! The block maps of ext2 and ext3: twelve direct pointers in the root, then a
//! pointer to a table of pointers, to a table of tables, and one level more.
//!
//! A pointer of 0 is a hole, also where a whole table could hang. Tables carry
//! no checksum and no magic; all that can be checked is that pointers lie inside
//! the volume, which is done at each use. Loops of tables in a damaged image
//! cannot trap a reader because each step goes down one of at most three levels.

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
