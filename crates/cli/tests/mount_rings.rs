//! The tests of `mount`, over io_uring.
#![cfg(all(feature = "mount", target_os = "linux"))]

#[path = "mount/access.rs"]
mod access;
#[path = "mount/access_times.rs"]
mod access_times;
#[path = "mount/attributes.rs"]
mod attributes;
#[path = "mount/blocks.rs"]
mod blocks;
#[path = "mount/coherence.rs"]
mod coherence;
#[path = "mount/contents.rs"]
mod contents;
#[path = "mount/delta.rs"]
mod delta;
#[path = "mount/device_blocks.rs"]
mod device_blocks;
#[path = "mount/ends.rs"]
mod ends;
#[path = "mount/errors.rs"]
mod errors;
#[path = "mount/faults.rs"]
mod faults;
#[path = "mount/fstab.rs"]
mod fstab;
#[path = "mount/full.rs"]
mod full;
#[path = "mount/handles.rs"]
mod handles;
#[path = "mount/idmap.rs"]
mod idmap;
#[path = "mount/kills.rs"]
mod kills;
#[path = "mount/log.rs"]
mod log;
#[path = "mount/memory.rs"]
mod memory;
#[path = "mount/nbd.rs"]
mod nbd;
#[path = "mount/nbd_faults.rs"]
mod nbd_faults;
#[path = "mount/operations.rs"]
mod operations;
#[path = "mount/options.rs"]
mod options;
#[path = "mount/overlay.rs"]
mod overlay;
#[path = "mount/partitions.rs"]
mod partitions;
#[path = "mount/remount.rs"]
mod remount;
#[path = "mount/shutdown.rs"]
mod shutdown;
#[path = "mount/stat.rs"]
mod stat;
#[path = "mount/status.rs"]
mod status;
#[path = "mount/support.rs"]
mod support;
#[path = "mount/trees.rs"]
mod trees;
#[path = "mount/volume.rs"]
mod volume;

/// Whether requests come over io_uring.
pub(crate) const RINGS: bool = true;
/// Whether images are mounted through loop devices.
pub(crate) const BLOCKS: bool = false;
