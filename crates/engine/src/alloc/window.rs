//! Windows: clusters reserved for one growing file.
//!
//! - An append reserves more clusters than it allocates. The rest stays reserved, in memory only,
//!   for the file's next append. Files that grow at the same time therefore have few extents.
//! - The file's lock guards the window.
//! - The file's last close and a truncation release the window, see [`BlockAlloc::release`].
//! - A truncation of an open file to size 0 keeps it for the file's next first block.
//! - A window that is lost only delays reuse: when space runs out, the region's epoch voids all its
//!   windows at once.

use super::layout::RegionNo;
use super::region::Region;
use super::seam::ReplacementState;
use super::{BlockAlloc, Privilege};
use nextent_ondisk::BlockNo;
use nextent_store::Handle;
use nextent_sync::Arc;
use std::fmt;

/// Clusters in the first window of a file.
const FIRST: u32 = 8;

/// The region of a window that is not empty.
#[derive(Default)]
pub(super) struct WindowRegion(pub(super) Option<Arc<Region>>);

impl fmt::Debug for WindowRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map(|region| region.no()).fmt(f)
    }
}

/// The clusters reserved for one file.
#[derive(Debug, Default)]
pub struct Window {
    /// The region. Undefined while `len` is 0, as are `start`, `start_block` and `epoch`.
    pub(crate) region_no: RegionNo,
    /// The first cluster, in the region.
    pub(crate) start: u32,
    /// The first block of cluster `start`.
    pub(crate) start_block: BlockNo,
    /// The region's epoch when the clusters were reserved.
    pub(crate) epoch: u32,
    /// Clusters left.
    pub(crate) len: u32,
    /// The block after the last allocation, where a sequential writer continues.
    pub next: Option<BlockNo>,
    /// The region itself, so that no lookup is needed.
    pub(super) region: WindowRegion,
    /// The file was truncated to size 0, and the window is kept for its next first block.
    for_rewrite: bool,
    /// Clusters that the last window had.
    size: u32,
    /// Data of a replacement allocator for the file.
    #[cfg_attr(not(feature = "lab"), expect(dead_code))]
    pub replacement_state: ReplacementState,
}

impl Window {
    /// An empty window.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            region_no: RegionNo(0),
            start: 0,
            start_block: BlockNo(0),
            epoch: 0,
            len: 0,
            next: None,
            region: WindowRegion(None),
            for_rewrite: false,
            size: 0,
            replacement_state: ReplacementState::new(),
        }
    }

    /// Whether the window has no clusters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a request with this goal continues the last allocation.
    pub(crate) fn continues(&self, goal: Option<BlockNo>) -> bool {
        self.next.is_some() && (goal.is_none() || goal == self.next)
    }

    /// The goal for the first block of a file that was truncated to size 0 and kept its window. The
    /// next call returns none.
    pub(crate) fn take_rewrite_goal(&mut self) -> Option<BlockNo> {
        let for_rewrite = std::mem::take(&mut self.for_rewrite);
        (for_rewrite && self.len > 0).then_some(self.start_block)
    }

    /// Clusters to reserve with the next request: doubled each time, at most `limit`.
    pub(crate) fn grow(&mut self, limit: u32) -> u32 {
        self.size = (self.size * 2).clamp(FIRST, limit.max(FIRST));
        self.size
    }

    /// Empties the window after its clusters were released or voided.
    pub(crate) fn clear(&mut self) {
        (self.len, self.for_rewrite) = (0, false);
        // The reference would keep the group loaded.
        self.region = WindowRegion(None);
    }
}

impl BlockAlloc {
    /// Keeps the window of a file that was truncated to size 0, for the file's next first block.
    /// Extends it to the front by the `before` blocks that the file had there, if they are
    /// allocatable: their data may still be in a processor's cache. Releases an empty window.
    ///
    /// Takes `[alloc.region]`.
    pub(crate) fn keep_for_rewrite(&self, window: &mut Window, before: u32) {
        let Some(region) = window.region.0.as_ref().filter(|_| !window.is_empty()) else {
            return self.release(window);
        };
        let n = self.groups.core.layout.clusters(before);
        if let Some(start) = window.start.checked_sub(n).filter(|_| n > 0)
            && region.lock().extend_window_front((start, n), window.epoch)
        {
            window.start = start;
            window.len += n;
            window.start_block.0 -= u64::from(n) << self.groups.core.geo.cluster_bits;
        }
        window.next = Some(window.start_block);
        window.for_rewrite = true;
    }

    /// Allocates the `want` blocks from `start` on, if they are the next ones of `window`. False if
    /// they are not, or if the counters or the region refuse.
    ///
    /// Takes `[alloc.region]`; does no I/O. Uses two credits.
    pub fn take_next(
        &self,
        h: &Handle<'_>,
        window: &mut Window,
        start: BlockNo,
        want: u32,
        privilege: Privilege,
    ) -> bool {
        let n = self.groups.core.layout.clusters(want);
        if n == 0 || n > window.len || window.start_block != start {
            return false;
        }
        let Some(region) = &window.region.0 else { return false };
        if self.counters.claim(n, n, privilege).is_none() {
            return false;
        }
        if !region.take_reserved(h, (window.start, n), window.epoch) {
            self.counters.release(u64::from(n));
            window.clear();
            return false;
        }
        window.start += n;
        window.len -= n;
        window.start_block = BlockNo(start.0 + (u64::from(n) << self.groups.core.geo.cluster_bits));
        window.next = Some(window.start_block);
        true
    }
}
