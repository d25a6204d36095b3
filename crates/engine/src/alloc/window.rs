//! Clusters set aside for one growing file.
//!
//! A file that is appended to gets more clusters than it asked for; the rest
//! waits, in memory only, for its next request. So files that grow in turns,
//! or from several threads in turns, still stay in few pieces. The owner of
//! the file keeps the window, guards it with the file's own lock, and gives it
//! back with [`BlockAlloc::release`](super::BlockAlloc::release) when the file
//! is closed or cut; an open file that is emptied, as one that is written
//! anew, keeps it for its first block. Nothing breaks if it is forgotten or lost: when space
//! runs out all windows are voided at once, by an epoch in their region.

use super::layout::RegionNo;
use super::region::Region;
use super::seam::ReplacementState;
use super::{BlockAlloc, Privilege};
use nextent_ondisk::BlockNo;
use nextent_store::Handle;
use nextent_sync::Arc;
use std::fmt;

/// First window of a file, in clusters.
const FIRST: u32 = 8;

/// Where a window lies.
#[derive(Default)]
pub(super) struct WindowRegion(pub(super) Option<Arc<Region>>);

impl fmt::Debug for WindowRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map(|region| region.no()).fmt(f)
    }
}

/// What is set aside for one file.
#[derive(Debug, Default)]
pub struct Window {
    /// Region, first cluster and epoch; meaningless while `len` is 0.
    pub(crate) region_no: RegionNo,
    pub(crate) start: u32,
    /// The block of that cluster.
    pub(crate) start_block: BlockNo,
    pub(crate) epoch: u32,
    /// Clusters left.
    pub(crate) len: u32,
    /// Block after the last one handed out, where a sequential file goes on.
    pub next: Option<BlockNo>,
    /// The region itself, so that its use needs no search for it.
    pub(super) region: WindowRegion,
    /// The file was emptied, and what is left waits for its first block.
    for_rewrite: bool,
    /// Clusters to set aside next time.
    size: u32,
    /// What a replacement allocator keeps for the file.
    #[cfg_attr(not(feature = "lab"), expect(dead_code))]
    pub replacement_state: ReplacementState,
}

impl Window {
    /// A window that holds nothing.
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

    /// Whether clusters are set aside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a request with this goal goes on where the last one ended.
    pub(crate) fn continues(&self, goal: Option<BlockNo>) -> bool {
        self.next.is_some() && (goal.is_none() || goal == self.next)
    }

    /// Where the first block of a file goes that was emptied and kept what was set aside; said
    /// once.
    pub(crate) fn take_rewrite_goal(&mut self) -> Option<BlockNo> {
        let for_rewrite = std::mem::take(&mut self.for_rewrite);
        (for_rewrite && self.len > 0).then_some(self.start_block)
    }

    /// Clusters to set aside behind the next request, doubled each time up to `limit`.
    pub(crate) fn grow(&mut self, limit: u32) -> u32 {
        self.size = (self.size * 2).clamp(FIRST, limit.max(FIRST));
        self.size
    }

    /// Forgets what was set aside, after it was given back or voided.
    pub(crate) fn clear(&mut self) {
        (self.len, self.for_rewrite) = (0, false);
        // Its group may leave memory now.
        self.region = WindowRegion(None);
    }
}

impl BlockAlloc {
    /// Keeps the window of a file that was emptied and may be written anew at once, from the
    /// `before` blocks on that the file had in front of it, if they are free: a processor's cache
    /// may still have them. A window that holds nothing keeps nothing.
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

    /// Takes the `want` blocks from `start` on, if they are the next ones of `window`; false if
    /// they are not, or the space is not to be had without a search.
    ///
    /// Takes `[alloc.region]`; does no I/O. Uses [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS).
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
            self.counters.give(u64::from(n));
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
