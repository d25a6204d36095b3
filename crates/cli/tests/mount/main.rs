//! Images mounted over FUSE by the command itself: every operation against the model, trees,
//! processes side by side, kills, bad input. Needs root and /dev/fuse. Over `/dev/fuse`; the same
//! over io_uring is `mount_rings`.
#![cfg(all(feature = "mount", target_os = "linux"))]

mod access;
mod blocks;
mod crew;
mod errors;
mod faults;
mod full;
mod idle;
mod kills;
mod memory;
mod operations;
mod support;
mod trees;
mod words;

/// Whether requests come over io_uring.
pub(crate) const RINGS: bool = false;
/// Whether images are mounted through loop devices.
pub(crate) const BLOCKS: bool = false;
