//! The tests of operations in `mount`, on block devices, which use the transport without a library.
#![cfg(all(feature = "mount", target_os = "linux"))]

#[path = "mount/attributes.rs"]
mod attributes;
#[path = "mount/blocks.rs"]
mod blocks;
#[path = "mount/contents.rs"]
mod contents;
#[path = "mount/device_blocks.rs"]
mod device_blocks;
#[path = "mount/ends.rs"]
mod ends;
#[path = "mount/full.rs"]
mod full;
#[path = "mount/idmap.rs"]
mod idmap;
#[path = "mount/operations.rs"]
mod operations;
#[path = "mount/remount.rs"]
mod remount;
#[path = "mount/shutdown.rs"]
mod shutdown;
#[path = "mount/status.rs"]
mod status;
#[path = "mount/support.rs"]
#[allow(dead_code)]
mod support;
#[path = "mount/trees.rs"]
mod trees;
#[path = "mount/volume.rs"]
mod volume;

/// Whether requests come over io_uring.
pub(crate) const RINGS: bool = false;
/// Whether images are mounted through loop devices.
pub(crate) const BLOCKS: bool = true;
