//! Models that hold under every admission: that of slots, and those that replace it.
//!
//! The invariants of handles, J1 to J6 in `journal/seam.rs`, are asserted by the journal itself on
//! the way.

#![allow(dead_code)] // each test file uses a part

pub(crate) mod close;
pub(crate) mod handles;
