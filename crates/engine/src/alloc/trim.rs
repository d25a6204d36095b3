//! Going through the free blocks: discarding them, and counting their runs.

use super::blocks::BlockAlloc;
use super::error::Result;
use super::layout::{Place, RegionNo};
use super::region::Region;
use nextent_num::to_usize;
use nextent_ondisk::{BlockNo, GroupNo};
use nextent_sync::Arc;

/// How many free runs there are of each size: entry `i` counts runs of `2^i` to `2^(i+1) - 1`
/// blocks, and their blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeHistogram {
    /// Runs and blocks of each size.
    pub sizes: Vec<(u64, u64)>,
}

impl FreeHistogram {
    /// Counts a run.
    fn add(&mut self, len: u64) {
        let size = to_usize(len.ilog2());
        if self.sizes.len() <= size {
            self.sizes.resize(size + 1, (0, 0));
        }
        self.sizes[size].0 += 1;
        self.sizes[size].1 += len;
    }

    /// All free runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.sizes.iter().map(|size| size.0).sum()
    }

    /// All free blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.sizes.iter().map(|size| size.1).sum()
    }
}

impl BlockAlloc {
    /// Discards the free runs of at least `min` blocks in `[start, start + len)` and says how
    /// many blocks that were. Free blocks that an older state of the volume still uses are left
    /// out, and so are those of damaged groups.
    ///
    /// While a run is being discarded nobody can allocate it; everything else goes on. Loads
    /// every group of the range. Takes one `[alloc.region]` at a time, never across I/O.
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

    fn trim_region(&self, region: &Arc<Region>, from: u32, to: u32, min: u32) -> Result<u64> {
        let core = &self.groups.core;
        let (mut at, mut done) = (from, 0);
        loop {
            let Some((start, n)) = region.lock().start_trim(at, to, min) else { return Ok(done) };
            let run = core.layout.run(Place { region: region.no(), at: start }, n);
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

    /// Passes the free runs of the volume to `each`, in order; those of damaged groups are left
    /// out. Runs go on across groups. Bitmaps that are not loaded are read and dropped again, so
    /// memory stays small; what changes meanwhile may be seen or not.
    ///
    /// # Errors
    /// A failed read.
    pub fn free_extents(&self, mut each: impl FnMut(BlockRun64)) -> Result<()> {
        let geo = &self.groups.core.geo;
        let mut last: Option<BlockRun64> = None;
        for group in geo.groups() {
            let first = geo.group_first_block(group).0;
            for (at, n) in self.free_runs_of(group)? {
                let start = first + (u64::from(at) << geo.cluster_bits);
                let end = (start + (u64::from(n) << geo.cluster_bits)).min(geo.blocks_count);
                match &mut last {
                    Some(run) if run.start.0 + run.len == start => run.len = end - run.start.0,
                    _ => {
                        let run = BlockRun64 { start: BlockNo(start), len: end - start };
                        last.replace(run).into_iter().for_each(&mut each);
                    }
                }
            }
        }
        last.into_iter().for_each(each);
        Ok(())
    }

    fn free_runs_of(&self, group: GroupNo) -> Result<Vec<(u32, u32)>> {
        let loaded = self.replacement.get().and_then(|other| other.free_runs(group));
        loaded.map_or_else(|| self.groups.free_runs(group), Ok)
    }

    /// Counts the free runs by size.
    ///
    /// # Errors
    /// As [`Self::free_extents`].
    pub fn free_histogram(&self) -> Result<FreeHistogram> {
        let mut histogram = FreeHistogram::default();
        self.free_extents(|run| histogram.add(run.len))?;
        Ok(histogram)
    }

    /// Free blocks, free inodes and directories of a group as of the last commit.
    #[must_use]
    pub fn group_counts(&self, group: GroupNo) -> (u64, u32, u32) {
        use nextent_sync::atomic::Ordering::Relaxed;
        let core = &self.groups.core;
        let info = core.group(group);
        let blocks = u64::from(info.free_clusters.load(Relaxed)) << core.geo.cluster_bits;
        (blocks, info.free_inodes.load(Relaxed), info.used_dirs.load(Relaxed))
    }
}

/// Contiguous blocks, of any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun64 {
    /// The first.
    pub start: BlockNo,
    /// How many.
    pub len: u64,
}
