//! Where the blocks of files lie on the block device, for the ioctl `FIBMAP` and for `swapon(2)`.
//! The kernel asks only on a mount of a block device.
//!
//! Invariants:
//! - The file is durable before the answer: afterwards the kernel may write the blocks itself, as
//!   it does for a swap file, and no older data in the device's cache may follow.
//! - The engine does not move blocks of a file. The kernel refuses to write, truncate and unlink an
//!   active swap file.

use nextent::FileType;
use nextent::inodes::FileExtent;

use super::Server;
use crate::errno::{Errno, Result, of_node};
use crate::node::inode;

impl Server {
    /// The block of the device that has block `block` of a file, both in units of `unit` bytes. 0,
    /// as on Linux's ext4, for holes, unwritten blocks and contents in the inode; and where no
    /// whole block of the device has it.
    pub(crate) fn device_block(&self, node: u64, block: u64, unit: u32) -> Result<u64> {
        let (ino, unit) = (inode(node)?, u64::from(unit));
        if unit == 0 || self.getattr(node)?.kind != FileType::Regular {
            return Err(Errno(libc::EINVAL));
        }
        self.fsync(node, false)?;
        let Some(start) = block.checked_mul(unit) else { return Ok(0) };
        let found = match self.volume.fiemap(ino, start, unit, 1) {
            Ok(found) => found,
            Err(nextent::Error::TooBig) => return Ok(0),
            Err(error) => return Err(of_node(error)),
        };
        let whole = |extent: &&FileExtent| {
            let covers = extent.logical <= start && extent.len - (start - extent.logical) >= unit;
            covers && !extent.unwritten && !extent.inline
        };
        let at = |extent: &FileExtent| {
            self.how.device_offset + extent.physical + (start - extent.logical)
        };
        let at = found.first().filter(whole).map_or(0, at);
        Ok(if at.is_multiple_of(unit) { at / unit } else { 0 })
    }
}
