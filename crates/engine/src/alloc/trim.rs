//! Discards free blocks (`FITRIM`), and finds out whether a block is free.

use super::blocks::BlockAlloc;
use super::error::Result;
use super::layout::{ClusterPos, RegionNo};
use super::region::Region;
use nextent_ondisk::BlockNo;
use nextent_sync::Arc;

impl BlockAlloc {
    /// Discards the free runs of at least `min` blocks in `[start, start + len)`. Returns the
    /// number of blocks discarded. Skips damaged groups, and free blocks that are held back because
    /// an image of the volume still uses them.
    ///
    /// A run is not allocatable while it is being discarded. Loads each group of the range. Takes
    /// one `[alloc.region]` at a time, and holds none across I/O.
    ///
    /// # Errors
    /// A failed read of a bitmap, or a failed discard.
    pub fn trim(&self, start: BlockNo, len: u64, min: u32) -> Result<u64> {
        let core = &self.groups.core;
        let layout = &core.layout;
        let end = start.0.saturating_add(len).min(core.geo.blocks_count);
        let first = start.0.max(core.geo.first_data_block.0);
        if first >= end {
            return Ok(0);
        }
        let (Some(from), Some(last)) = (layout.find(BlockNo(first)), layout.find(BlockNo(end - 1)))
        else {
            return Ok(0);
        };
        let min = layout.clusters(min.max(1));
        if let Some(other) = self.replacement.get() {
            return other.trim(BlockNo(first), BlockNo(end - 1), min);
        }
        let mut done = 0;
        for no in (from.region.0..=last.region.0).map(RegionNo) {
            let Some(region) = self.usable(no)? else { continue };
            let begin = if no == from.region { from.at } else { 0 };
            let stop = if no == last.region { last.at + 1 } else { layout.size() };
            done += self.trim_region(&region, begin, stop, min)?;
        }
        Ok(done)
    }

    /// Whether nothing uses a block, now or after a crash. False in a damaged group, and if
    /// it is unknown.
    ///
    /// # Errors
    /// A failed read of a bitmap.
    pub(crate) fn is_allocatable(&self, no: BlockNo) -> Result<bool> {
        let Some(pos) = self.groups.core.layout.find(no) else { return Ok(false) };
        let Some(region) = self.usable(pos.region)? else { return Ok(false) };
        let state = region.lock();
        Ok(state.buddy().run_at(pos.at, 1) == 1)
    }

    fn trim_region(&self, region: &Arc<Region>, from: u32, to: u32, min: u32) -> Result<u64> {
        let core = &self.groups.core;
        let (mut at, mut done) = (from, 0);
        loop {
            let Some((start, n)) = region.lock().start_trim(at, to, min) else { return Ok(done) };
            let run = core.layout.run(ClusterPos { region: region.no(), at: start }, n);
            let bits = core.geo.block_bits;
            let outcome = core.device.discard(run.start.0 << bits, u64::from(run.len) << bits);
            region.lock().end_trim();
            outcome.map_err(|error| nextent_store::Error::Io {
                op: "discard",
                block: run.start,
                source: Arc::new(error),
            })?;
            done += u64::from(run.len);
            at = start + n;
        }
    }
}
