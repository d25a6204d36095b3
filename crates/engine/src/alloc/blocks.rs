//! Allocates and frees blocks.
//!
//! An allocation claims clusters from the counters, then searches in this order:
//!
//! 1. the region of the goal, if it is free or leased by the caller's slot;
//! 2. the regions that the slot leases;
//! 3. a region that no slot leases, which the slot then leases;
//! 4. any region; in a second pass with all windows voided.

use super::core::{Core, Sums, bitmap_error, summary};
use super::counters::Counters;
use super::descriptors::Totals;
use super::error::{Error, Result};
use super::groups::Groups;
use super::layout::{ClusterPos, RegionNo};
use super::lease::{Leases, SlotLeases};
use super::region::{Region, TakenClusters};
use super::region_state::Aim;
use super::request::{BlockKind, BlockRequest, BlockRun, Privilege};
use super::seam::{AllocatorChoice, BlockAllocator, Replacement};
use super::window::Window;
use nextent_ondisk::{BlockNo, Geometry, GroupNo, InodeLocation};
use nextent_store::{Handle, Store};
use nextent_sync::atomic::Ordering;
use nextent_sync::{Arc, injected};

/// A search for more clusters than this first accepts only runs of at least this length.
const AMPLE: u32 = 256;

/// The allocator of the volume's blocks.
pub struct BlockAlloc {
    pub(crate) groups: Arc<Groups>,
    leases: Leases,
    pub(super) counters: Arc<Counters>,
    /// An allocator that is called instead of this one. Always none in the product.
    pub(super) replacement: Replacement,
}

/// A [`BlockRequest`] in clusters.
#[derive(Clone, Copy)]
struct ClusterRequest {
    want: u32,
    min: u32,
    goal: Option<ClusterPos>,
    /// Clusters to reserve after the allocated ones, for a window.
    extra: u32,
}

/// The clusters that a search allocated.
struct SearchResult {
    region: RegionNo,
    taken: TakenClusters,
    /// The region, if clusters were reserved in it for a window.
    window_region: Option<Arc<Region>>,
}

impl SearchResult {
    fn new(region: &Arc<Region>, taken: TakenClusters) -> Self {
        let window_region = (taken.reserved > 0).then(|| Arc::clone(region));
        Self { region: region.no(), taken, window_region }
    }
}

impl BlockAlloc {
    /// The allocator of the volume in `store`. `root_blocks` are reserved for root. `system` lists
    /// the blocks of the system zone that no descriptor names: those of the journal.
    ///
    /// Reads the descriptors, but no bitmaps.
    ///
    /// # Errors
    /// A failed read. A damaged descriptor excludes its group, see [`Self::damage`].
    #[cfg(any(test, feature = "lab"))]
    pub fn open(
        store: Arc<Store>,
        geo: Arc<Geometry>,
        root_blocks: u64,
        system: &[BlockRun],
    ) -> Result<Self> {
        Self::open_as(store, geo, root_blocks, system, &AllocatorChoice::default())
    }

    /// Like [`Self::open`], with the allocator of `choice`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_as(
        store: Arc<Store>,
        geo: Arc<Geometry>,
        root_blocks: u64,
        system: &[BlockRun],
        choice: &AllocatorChoice,
    ) -> Result<Self> {
        let (no, at) = geo.super_location();
        let block = store.read(no, |_| Ok::<(), Error>(()))?;
        let bits = geo.cluster_bits;
        let totals = |sums: Sums| Arc::new(Totals::new(block, at, bits, sums));
        let (core, sums) = Core::load(store.device().clone(), geo.clone(), totals, system)?;
        let total = geo.clusters(geo.blocks_count);
        let root = geo.clusters(root_blocks);
        let counters = Counters::new(total, sums.free_clusters, root);
        let groups = Arc::new(Groups::new(store, Arc::new(core)));
        let replacement = choice.make(&groups, sums.free_clusters, root);
        Ok(Self { groups, leases: Leases::new(), counters: Arc::new(counters), replacement })
    }

    fn core(&self) -> &Arc<Core> {
        &self.groups.core
    }

    /// Allocates `min` to `want` contiguous blocks. Uses two credits: a bitmap
    /// and the block of its descriptor.
    ///
    /// Takes `[alloc.lease]` of the caller's slot and one `[alloc.region]` at a time.
    ///
    /// # Errors
    /// `NoSpace` if `min` blocks are not available to `privilege`, or no run is long enough; a
    /// failed read; `Corrupt` for a request with `min` of 0 or above `want`.
    pub fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun> {
        if let Some(other) = self.replacement.get() {
            return other.allocate(h, request);
        }
        self.claim_and_take(h, request, 0).map(|(run, _)| run)
    }

    /// Like [`Self::allocate`], for a growing file. Allocates from the file's window first. A
    /// request that continues the previous one reserves a larger window.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn allocate_growing(
        &self,
        h: &Handle<'_>,
        request: &BlockRequest,
        window: &mut Window,
    ) -> Result<BlockRun> {
        if let Some(other) = self.replacement.get() {
            return other.allocate_growing(h, request, window);
        }
        let continues = window.continues(request.goal);
        if continues
            && !window.is_empty()
            && let Some(run) = self.take_from_window(h, request, window)?
        {
            return Ok(run);
        }
        let extra = if continues && !self.counters.is_low() {
            self.release(window);
            window.grow(self.core().layout.size())
        } else {
            0
        };
        let mut request = *request;
        request.goal = request.goal.or(window.next);
        let (run, found) = self.claim_and_take(h, &request, extra)?;
        // A write elsewhere in the file keeps the window for the next append.
        if continues || window.is_empty() {
            window.next = Some(run.end());
            if let SearchResult { region, taken, window_region: Some(window_region) } = found {
                window.region_no = region;
                window.start = taken.run.0 + taken.run.1;
                window.epoch = taken.epoch;
                window.start_block = run.end();
                window.len = taken.reserved;
                window.region.0 = Some(window_region);
            }
        }
        Ok(run)
    }

    /// Releases the clusters of a window. The file's blocks do not change.
    ///
    /// Takes `[alloc.region]`.
    pub fn release(&self, window: &mut Window) {
        if let Some(other) = self.replacement.get() {
            return other.release(window);
        }
        if window.is_empty() {
            return;
        }
        if let Some(region) = &window.region.0 {
            let mut state = region.lock();
            state.release_window((window.start, window.len), window.epoch);
            region.publish_if_unleased(&state);
        }
        window.clear();
    }

    fn take_from_window(
        &self,
        h: &Handle<'_>,
        request: &BlockRequest,
        window: &mut Window,
    ) -> Result<Option<BlockRun>> {
        let layout = &self.core().layout;
        let n = layout.clusters(request.want).min(window.len);
        let min = layout.clusters(request.min);
        if n < min {
            return Ok(None);
        }
        let Some(granted) = self.counters.claim(min, n, request.privilege) else {
            return Err(Error::NoSpace);
        };
        let region = window.region.0.as_ref();
        let taken = region
            .is_some_and(|region| region.take_reserved(h, (window.start, granted), window.epoch));
        if !taken {
            self.counters.release(u64::from(granted));
            window.clear();
            return Ok(None);
        }
        let pos = ClusterPos { region: window.region_no, at: window.start };
        let run = layout.run(pos, granted);
        window.start += granted;
        window.len -= granted;
        window.start_block = run.end();
        window.next = Some(run.end());
        Ok(Some(run))
    }

    fn cluster_request(&self, request: &BlockRequest) -> Result<ClusterRequest> {
        let layout = &self.core().layout;
        let (want, min) = (layout.clusters(request.want), layout.clusters(request.min));
        if min == 0 || want < min {
            let value = u64::from(request.want);
            return Err(bitmap_error("number of blocks requested", value, GroupNo(0))
                .at_inode(request.ino)
                .into());
        }
        let goal = request.goal.and_then(|block| layout.find(block));
        Ok(ClusterRequest { want, min, goal, extra: 0 })
    }

    fn claim_and_take(
        &self,
        h: &Handle<'_>,
        request: &BlockRequest,
        extra: u32,
    ) -> Result<(BlockRun, SearchResult)> {
        let mut wanted = self.cluster_request(request)?;
        let claim = |want| self.counters.claim(wanted.min, want, request.privilege);
        let granted = claim(wanted.want).ok_or(Error::NoSpace)?;
        wanted.want = granted;
        wanted.extra = extra;
        let found = self.search(h, wanted);
        let used =
            found.as_ref().ok().and_then(Option::as_ref).map_or(0, |found| found.taken.run.1);
        self.counters.release(u64::from(granted - used));
        let found = found?.ok_or(Error::NoSpace)?;
        let pos = ClusterPos { region: found.region, at: found.taken.run.0 };
        Ok((self.core().layout.run(pos, used), found))
    }

    /// Finds and allocates clusters, in the order of the module's documentation.
    fn search(&self, h: &Handle<'_>, wanted: ClusterRequest) -> Result<Option<SearchResult>> {
        let mut slot = self.leases.of_caller();
        if let Some(goal) = wanted.goal
            && let Some(found) = self.allocate_at_goal(h, &mut slot, wanted, goal)?
        {
            return Ok(Some(found));
        }
        let ample = ClusterRequest { min: wanted.want.min(AMPLE).max(wanted.min), ..wanted };
        if let Some(found) = self.allocate_in_leases(h, &mut slot, ample) {
            return Ok(Some(found));
        }
        if let Some(found) = self.allocate_in_new_lease(h, &mut slot, ample)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.allocate_in_leases(h, &mut slot, wanted) {
            return Ok(Some(found));
        }
        self.allocate_anywhere(h, &mut slot, wanted)
    }

    /// The region `no`; none if it does not exist or its group is damaged.
    pub(super) fn usable(&self, no: RegionNo) -> Result<Option<Arc<Region>>> {
        let core = self.core();
        let group = core.layout.group(no);
        if group.0 >= core.geo.group_count || core.is_bad(group) {
            return Ok(None);
        }
        match self.groups.region(no) {
            Ok(region) => Ok(region),
            Err(error @ Error::Corrupt(_)) => {
                core.exclude(group, error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Allocates in the goal's region, unless another slot leases it: at the goal, or after it.
    fn allocate_at_goal(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wanted: ClusterRequest,
        goal: ClusterPos,
    ) -> Result<Option<SearchResult>> {
        let core = self.core();
        match core.owner(goal.region) {
            // The goals of many threads' files may lie in one full region. The summary tells
            // without the region's lock.
            0 if !summary::may_hold(core.summary(goal.region), wanted.want.min(AMPLE)) => {
                return Ok(None);
            }
            0 => {}
            owner if owner == super::lease::mark() => {}
            _ => return Ok(None),
        }
        if core.is_bad(core.layout.group(goal.region)) {
            return Ok(None);
        }
        if !slot.touch(goal.region) {
            let Some(region) = self.usable(goal.region)? else { return Ok(None) };
            if !self.leases.lease(slot, core, &region) {
                return Ok(None);
            }
        }
        let Some(region) = slot.regions().first() else { return Ok(None) };
        let near = wanted.want.min(AMPLE).max(wanted.min);
        let taken = region
            .allocate(h, wanted.want, wanted.min, wanted.extra, Aim::At(goal.at))
            .or_else(|| region.allocate(h, wanted.want, near, wanted.extra, Aim::From(goal.at)));
        Ok(taken.map(|taken| SearchResult::new(region, taken)))
    }

    fn allocate_in_leases(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wanted: ClusterRequest,
    ) -> Option<SearchResult> {
        let core = self.core();
        let found = slot.regions().iter().find_map(|region| {
            if core.is_bad(core.layout.group(region.no())) {
                return None;
            }
            let taken = region.allocate(h, wanted.want, wanted.min, wanted.extra, Aim::Anywhere)?;
            Some(SearchResult::new(region, taken))
        });
        if let Some(found) = &found {
            slot.touch(found.region);
        }
        found
    }

    /// Leases regions from the goal on, or from the slot's own regions on, until one has enough.
    fn allocate_in_new_lease(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wanted: ClusterRequest,
    ) -> Result<Option<SearchResult>> {
        let core = self.core();
        let order = wanted.min.next_power_of_two().ilog2().min(core.layout.size().ilog2());
        let mut start = match wanted.goal {
            Some(goal) => goal.region,
            None => slot
                .regions()
                .first()
                .map_or_else(|| Leases::start_region(core), |region| region.no()),
        };
        // Each step examines one region, so the loop ends after all of them.
        for _ in 0..core.layout.count() {
            let Some(no) = self.leases.find(core, start, order) else { return Ok(None) };
            start = RegionNo(no.0 + 1);
            let Some(region) = self.usable(no)? else { continue };
            if region.lock().find(wanted.want, wanted.min, Aim::Anywhere).is_none() {
                continue;
            }
            if !self.leases.lease(slot, core, &region) {
                continue;
            }
            let aim = match wanted.goal {
                Some(goal) if goal.region == no => Aim::From(goal.at),
                _ => Aim::Anywhere,
            };
            if let Some(taken) = region.allocate(h, wanted.want, wanted.min, wanted.extra, aim) {
                return Ok(Some(SearchResult::new(&region, taken)));
            }
            slot.give_up(core, &region);
        }
        Ok(None)
    }

    /// Allocates in any region, also one that another slot leases. Voids all windows in a second
    /// pass.
    #[cold]
    fn allocate_anywhere(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wanted: ClusterRequest,
    ) -> Result<Option<SearchResult>> {
        let core = self.core();
        let count = core.layout.count();
        let start = slot.shared.unwrap_or(Leases::start_region(core)).0 % count;
        for recall in [false, true] {
            for no in (start..count).chain(0..start).map(RegionNo) {
                if !self.worth_loading(no, wanted.min, recall) {
                    continue;
                }
                let Some(region) = self.usable(no)? else { continue };
                if recall && region.lock().recall_windows() == 0 {
                    continue;
                }
                let aim = Aim::Anywhere;
                if let Some(taken) = region.allocate(h, wanted.want, wanted.min, 0, aim) {
                    slot.shared = Some(no);
                    return Ok(Some(SearchResult::new(&region, taken)));
                }
            }
        }
        Ok(None)
    }

    /// Whether a region may have `min` free clusters, or windows to void. A group that is not
    /// loaded has no windows, and its descriptor and summaries are exact.
    fn worth_loading(&self, no: RegionNo, min: u32, windows: bool) -> bool {
        let core = self.core();
        let group = core.layout.group(no);
        if self.groups.is_loaded(group) {
            return true;
        }
        let free = core.group(group).free_clusters.load(Ordering::Relaxed);
        !windows && free > 0 && summary::may_have_run(core.summary(no), min)
    }

    /// Frees blocks that are in use. The journal forgets blocks of metadata. Uses at most
    /// [`Self::free_credits`].
    ///
    /// The blocks count as free at once. They become allocatable when no crash can bring back their
    /// former use. That is at once for blocks allocated in the same transaction, unless the
    /// transaction has fast commits, which may name them.
    ///
    /// # Errors
    /// `Corrupt` if the range leaves the volume, overlaps the system zone, or contains a block that
    /// is free. In the last case the group is excluded from allocation, and the blocks before the
    /// one that the error names may be free.
    pub fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()> {
        if let Some(other) = self.replacement.get() {
            return other.free(h, start, len, kind);
        }
        let core = self.core();
        let clusters = core.layout.clusters(len);
        for (pos, n) in core.layout.pieces(start, len)? {
            // A range over several regions is checked as a whole before any of it is freed.
            let check = |region: &Arc<Region>| match region.first_system_cluster((pos.at, n)) {
                Some(own) => Err(self.system_block_error(ClusterPos { at: own, ..pos })),
                None if n == clusters => self.free_piece(h, region, pos, n, kind).map(|()| true),
                None => Ok(false),
            };
            if self.with_region(pos.region, check)?.transpose()? == Some(true) {
                return Ok(());
            }
        }
        for (pos, n) in core.layout.pieces(start, len)? {
            let free = |region: &Arc<Region>| self.free_piece(h, region, pos, n, kind);
            self.with_region(pos.region, free)?.transpose()?;
        }
        Ok(())
    }

    /// Calls `act` with a region, which is loaded if necessary; none past the end of the volume.
    /// Holds `[alloc.lease]`, or `[alloc.group]` shared, during the call.
    fn with_region<R>(
        &self,
        no: RegionNo,
        act: impl FnOnce(&Arc<Region>) -> R,
    ) -> Result<Option<R>> {
        if self.core().owner(no) == super::lease::mark() {
            let slot = self.leases.of_caller();
            if let Some(region) = slot.get(no) {
                return Ok(Some(act(region)));
            }
        }
        self.groups.with_region(no, act)
    }

    #[cold]
    fn system_block_error(&self, own: ClusterPos) -> Error {
        let layout = &self.core().layout;
        let block = layout.block(own);
        let group = layout.group(own.region);
        bitmap_error("block to free (in the system zone)", block.0, group).at_block(block).into()
    }

    fn free_piece(
        &self,
        h: &Handle<'_>,
        region: &Arc<Region>,
        pos: ClusterPos,
        n: u32,
        kind: BlockKind,
    ) -> Result<()> {
        let core = self.core();
        if kind == BlockKind::Metadata {
            let run = core.layout.run(pos, n);
            (run.start.0..run.end().0).for_each(|no| h.forget(BlockNo(no)));
        }
        if let Err(clear) = region.free(h, (pos.at, n)) {
            let block = core.layout.block(ClusterPos { at: clear, ..pos });
            let group = core.layout.group(pos.region);
            let error =
                bitmap_error("block to free (already free)", block.0, group).at_block(block);
            core.exclude(group, error.clone().into());
            return Err(error.into());
        }
        self.counters.release(u64::from(n));
        Ok(())
    }

    /// Credits for freeing `len` contiguous blocks, without those for revoke records of metadata.
    #[must_use]
    pub fn free_credits(&self, len: u32) -> u32 {
        2 * (len / self.core().geo.blocks_per_group + 2)
    }

    /// Marks blocks as in use, whether they are free or not. Returns how many were free. For the
    /// replay of fast commits, which runs before any allocation.
    ///
    /// # Errors
    /// `Corrupt` if the range leaves the volume; a failed read.
    pub fn mark_used(&self, h: &Handle<'_>, start: BlockNo, len: u32) -> Result<u32> {
        if let Some(other) = self.replacement.get() {
            return Ok(other.mark_used(h, start, len)? << self.core().geo.cluster_bits);
        }
        let mut marked = 0;
        for (pos, n) in self.core().layout.pieces(start, len)? {
            let mark = |region: &Arc<Region>| region.mark_used(h, (pos.at, n));
            let Some(n) = self.with_region(pos.region, mark)? else { continue };
            self.counters.subtract_used(u64::from(n));
            marked += n;
        }
        Ok(marked << self.core().geo.cluster_bits)
    }

    /// Whether none of the blocks is in use in the running transaction.
    ///
    /// # Errors
    /// `Corrupt` if the range leaves the volume; a failed read.
    #[cfg(any(test, feature = "lab"))]
    pub fn is_free(&self, start: BlockNo, len: u32) -> Result<bool> {
        if let Some(other) = self.replacement.get() {
            return other.is_free(start, len);
        }
        for (pos, n) in self.core().layout.pieces(start, len)? {
            let is_free = |region: &Arc<Region>| region.lock().is_free((pos.at, n));
            if self.with_region(pos.region, is_free)? == Some(false) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Blocks not in use.
    pub fn free_blocks(&self) -> u64 {
        let other = self.replacement.get().map(BlockAllocator::free_clusters);
        other.unwrap_or_else(|| self.counters.free()) << self.core().geo.cluster_bits
    }

    /// Blocks available to `privilege`.
    pub fn available(&self, privilege: Privilege) -> u64 {
        let other = self.replacement.get().map(|other| other.available(privilege));
        let clusters = other.unwrap_or_else(|| self.counters.available(privilege));
        clusters << self.core().geo.cluster_bits
    }

    /// Whether freed blocks wait for a commit, or for the end of a trim. Takes each loaded region's
    /// lock in turn.
    pub fn has_pending(&self) -> bool {
        let other = self.replacement.get().map(BlockAllocator::has_pending);
        other.unwrap_or_else(|| self.groups.any_region(|region| region.lock().is_withholding()))
    }

    /// How often commits have made freed blocks allocatable. An operation that fails with `NoSpace`
    /// may succeed if this has changed since it began and [`has_pending`](Self::has_pending) says
    /// no.
    ///
    /// No release is missed. A commit counts it under the lock of the region. If a search finds the
    /// region before that, the caller has read the old number. If `has_pending` finds the region
    /// after that, the caller reads the new number.
    pub fn releases(&self) -> u64 {
        self.core().releases.load(Ordering::Relaxed)
    }

    /// Whether any of `len` blocks from `start` lies in the system zone or outside the volume. No
    /// file may map such a block. Takes no lock.
    #[must_use]
    pub fn overlaps_system_zone(&self, start: BlockNo, len: u32) -> bool {
        let core = self.core();
        let len = u64::from(len.max(1));
        !core.geo.holds_run(start, len) || core.system.touches(start, len)
    }

    /// Blocks of the system zone without the journal: the overhead for `statfs`.
    pub fn overhead(&self) -> u64 {
        let core = self.core();
        let own = |group| core.system.of_group(group).map(|(start, end)| end - start).sum::<u64>();
        core.geo.groups().map(own).sum()
    }

    /// Switches the discard of blocks whose release is durable on or off.
    pub fn set_discard(&self, on: bool) {
        self.core().discard.store(on, Ordering::Relaxed);
    }

    /// Whether groups changed in transactions that are not durable take too much memory. The caller
    /// then commits and calls [`drop_groups`](Self::drop_groups).
    #[must_use]
    pub fn needs_commit_to_drop(&self) -> bool {
        self.groups.needs_commit_to_drop()
    }

    /// Drops the loaded groups that are not in use. Takes `[alloc.groups]`.
    pub fn drop_groups(&self) {
        self.groups.drop_unused();
    }

    /// Bytes and number of the loaded groups, for reports and tests.
    #[must_use]
    pub fn loaded_groups(&self) -> (usize, usize) {
        self.groups.usage()
    }

    /// The first errors that excluded groups from allocation.
    #[cfg(any(all(test, not(feature = "model-shuttle")), feature = "lab"))]
    pub fn damage(&self) -> Vec<Error> {
        self.core().damage()
    }

    /// Whether groups were excluded since [`take_damage`](Self::take_damage). Takes no lock.
    #[must_use]
    pub fn has_damage(&self) -> bool {
        self.core().has_damage()
    }

    /// The errors that excluded groups since the last call.
    pub fn take_damage(&self) -> Vec<Error> {
        self.core().take_damage()
    }

    /// The first block of a group's inode table.
    ///
    /// # Errors
    /// `Corrupt` if the group's descriptor is damaged.
    pub fn inode_table(&self, group: GroupNo) -> Result<BlockNo> {
        let table = self.core().group(group).inode_table;
        if table == BlockNo(0) {
            return Err(bitmap_error("inode table of a damaged descriptor", 0, group).into());
        }
        Ok(table)
    }

    /// The block of the inode table that holds an inode; none if it was never initialised.
    ///
    /// A block that was never initialised holds old bytes of the device, and must not be read
    /// through the cache. The first use of its inodes zeroes it on the device, past the cache. The
    /// next commit of such an inode would then log the old bytes from the cache.
    ///
    /// # Errors
    /// As [`inode_table`](Self::inode_table).
    pub fn inode_table_block(&self, at: &InodeLocation) -> Result<Option<BlockNo>> {
        let table = self.inode_table(at.group)?;
        let initialised = self.core().group(at.group).initialised.load(Ordering::Acquire);
        let there = at.index < initialised || injected("inode-table-unbounded");
        Ok(there.then(|| BlockNo(table.0 + u64::from(at.table_block))))
    }
}
