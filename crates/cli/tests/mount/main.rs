//! Images mounted by the command, over `/dev/fuse`: every operation against the model, trees,
//! concurrent processes, kills, bad input. Needs root. `mount_rings` runs the same over io_uring.
#![cfg(all(feature = "mount", target_os = "linux"))]

mod access;
mod access_times;
mod attributes;
mod blocks;
mod coherence;
mod contents;
mod delta;
mod device_blocks;
mod ends;
mod errors;
mod faults;
mod fstab;
mod full;
mod fuse2fs;
mod handles;
mod idmap;
mod kills;
mod log;
mod memory;
mod nbd;
mod nbd_faults;
mod operations;
mod options;
mod overlay;
mod partitions;
mod remount;
mod shutdown;
mod stat;
mod status;
mod support;
mod trees;
mod volume;

/// Whether requests come over io_uring.
pub(crate) const RINGS: bool = false;
/// Whether images are mounted through loop devices.
pub(crate) const BLOCKS: bool = false;
