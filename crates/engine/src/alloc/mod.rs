//! Blocks and inode numbers.

mod bits;
mod buddy;
#[cfg(test)]
mod buddy_model;
mod counters;
mod layout;
mod locks;
mod region_state;
mod request;
mod system;

pub use request::{BlockRequest, BlockRun, Kind, Privilege};
