//! Conversion that needs no space in the map: the last resort when no block is left for a tree
//! node, not even in the reserved pool.
//!
//! It zeroes the parts of the unwritten extent that hold no data, and converts the extent as a
//! whole. The caller must hold the file exclusively, because zeroing would overwrite a transfer in
//! flight to the same extent.

use std::ops::Range;

use nextent_num::{to_u64, to_usize};
use nextent_ondisk::{BlockNo, FileBlock};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::change::Change;
use super::fs::Fs;
use super::object::Inode;
use crate::alloc::Privilege;
use crate::error::{Cause, Error, Result};
use crate::map::{self, Extent, ExtentState, Progress};

static ZEROS: [u8; 65536] = [0; 65536];

impl Fs {
    /// Converts the run `runs[at]` inside `h`, with the rest of its extents. Zeroes the blocks of
    /// those extents that are in none of `runs`, which rise and whose data is on the device.
    /// `[inode.rw]` is held exclusively.
    ///
    /// # Errors
    /// Errors of the device and the map.
    pub(crate) fn convert_zeroed(
        &self,
        h: &Handle<'_>,
        inode: &Arc<Inode>,
        at: usize,
        runs: &[Range<FileBlock>],
    ) -> Result<()> {
        let cx = self.map_cx(inode, Privilege::Reserved);
        let mut from = runs[at].start;
        while from < runs[at].end {
            let found = map::next_extent(&cx, &inode.map.read(), from)?;
            let Some(extent) = found.filter(|extent| extent.at < runs[at].end) else { break };
            if extent.state == ExtentState::Unwritten {
                for gap in gaps(&extent, runs) {
                    let skipped = u64::from(gap.start - extent.at.0);
                    self.zero_blocks(extent.start.0 + skipped, gap)?;
                }
                let whole = extent.at..extent.end();
                let done = inode
                    .change_map(h, Change::Contents, |root| map::convert(&cx, h, root, whole))?;
                if done != Progress::Done {
                    return Err(Error::NoSpace);
                }
            }
            from = extent.end();
        }
        Ok(())
    }

    /// Zeroes as many blocks as `blocks` has, from block `start` of the device on.
    fn zero_blocks(&self, start: u64, blocks: Range<u32>) -> Result<()> {
        let block_size = self.block_size();
        let mut at = start * block_size;
        let mut left = u64::from(blocks.end - blocks.start) * block_size;
        while left > 0 {
            let part = left.min(to_u64(ZEROS.len()));
            let done = self.store.device().write_at(at, &ZEROS[..to_usize(part)]);
            done.map_err(|source| {
                let block = BlockNo(at / block_size);
                Error::Io(Cause::new(format!("write of zeros at block {block}: {source}")))
            })?;
            at += part;
            left -= part;
        }
        Ok(())
    }
}

/// The blocks of `extent` that are in none of `runs`, which rise.
fn gaps(extent: &Extent, runs: &[Range<FileBlock>]) -> Vec<Range<u32>> {
    let (mut from, end) = (extent.at.0, extent.end().0);
    let mut gaps = Vec::new();
    for run in runs.iter().filter(|run| run.end.0 > extent.at.0 && run.start.0 < end) {
        if run.start.0 > from {
            gaps.push(from..run.start.0);
        }
        from = run.end.0.max(from);
    }
    if from < end {
        gaps.push(from..end);
    }
    gaps
}
