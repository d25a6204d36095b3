//! Conversion that needs no room in the map: the last resort when no block is left, not even in
//! the reserved pool, for a node that a split extent would need.
//!
//! The rest of the unwritten extent is filled with zeros and all of it converted as it is. Only
//! for who has the file to itself: a transfer in flight elsewhere in the extent would lose.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_store::Handle;
use nextent_sync::Arc;

use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::map::{self, Progress, State};
use crate::volume::Volume;

/// Zeros to fill blocks with.
static ZEROS: [u8; 65536] = [0; 65536];

impl Volume {
    /// Converts `range`, whose data is on the device, inside `h`, with the zeroed rest of its
    /// extents. `[inode.rw]` is held exclusively.
    ///
    /// # Errors
    /// What the device or the map says.
    pub(in super::super) fn convert_zeroed(
        &self,
        h: &Handle<'_>,
        inode: &Arc<Inode>,
        range: Range<FileBlock>,
    ) -> Result<()> {
        let cx = self.fs.map_cx(inode, Privilege::Reserved);
        let mut at = range.start;
        while at < range.end {
            let found = map::next_extent(&cx, &inode.map.read(), at)?;
            let Some(extent) = found.filter(|extent| extent.at < range.end) else { break };
            if extent.state == State::Unwritten {
                self.zero_blocks(extent.start.0, extent.at.0..range.start.0.max(extent.at.0))?;
                if extent.end() > range.end {
                    let skipped = u64::from(range.end.0 - extent.at.0);
                    self.zero_blocks(extent.start.0 + skipped, range.end.0..extent.end().0)?;
                }
                let whole = extent.at..extent.end();
                let done = inode.change_map(h, |root| map::convert(&cx, h, root, whole))?;
                if done != Progress::Done {
                    return Err(Error::NoSpace);
                }
            }
            at = extent.end();
        }
        Ok(())
    }

    /// Fills as many blocks as `blocks` has, from `start` of the device on, with zeros.
    fn zero_blocks(&self, start: u64, blocks: Range<u32>) -> Result<()> {
        let block_size = self.fs.block_size();
        let mut at = start * block_size;
        let mut left = u64::from(blocks.end.saturating_sub(blocks.start)) * block_size;
        while left > 0 {
            let part = left.min(ZEROS.len() as u64);
            self.device_write(at, &[&ZEROS[..part as usize]])?;
            at += part;
            left -= part;
        }
        Ok(())
    }
}
