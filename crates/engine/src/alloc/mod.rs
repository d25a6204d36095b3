//! Blocks and inode numbers.

mod bits;
mod blocks;
mod buddy;
#[cfg(test)]
mod buddy_model;
mod core;
mod counters;
mod error;
mod groups;
mod home;
mod inode_region;
mod inodes;
mod layout;
mod lease;
mod locks;
mod orlov;
mod region;
mod region_state;
mod request;
mod system;
mod window;

pub use blocks::{ALLOCATE_CREDITS, BlockAlloc};
pub use counters::Reservation;
pub use error::{Error, Result};
pub use home::SUPERBLOCK_SEAL;
pub use inodes::{INODE_CREDITS, InodeAlloc, InodeKind};
pub use request::{BlockRequest, BlockRun, Kind, Privilege};
pub use window::Window;

#[cfg(test)]
mod tests;
