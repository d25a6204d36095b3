//! Allocating and freeing blocks.

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

/// Credits of one [`BlockAlloc::allocate`]: a bitmap and its descriptor's block.
#[cfg(any(test, feature = "lab"))]
pub const ALLOCATE_CREDITS: u32 = 2;

/// A search first looks for at least this many clusters at once, if so many are wanted.
const AMPLE: u32 = 256;

/// The volume's blocks: who has them and who may have them.
pub struct BlockAlloc {
    pub(crate) groups: Arc<Groups>,
    leases: Leases,
    pub(super) counters: Arc<Counters>,
    /// An allocator whose verbs are used instead of these; in the product a constant none.
    pub(super) replacement: Replacement,
}

/// A request in clusters.
#[derive(Clone, Copy)]
struct ClusterRequest {
    want: u32,
    min: u32,
    goal: Option<ClusterPos>,
    /// Clusters to set aside behind what is found.
    extra: u32,
}

/// What a search took.
struct SearchResult {
    region: RegionNo,
    taken: TakenClusters,
    /// The region, where clusters were set aside in it.
    window_region: Option<Arc<Region>>,
}

impl SearchResult {
    fn new(region: &Arc<Region>, taken: TakenClusters) -> Self {
        let window_region = (taken.reserved > 0).then(|| Arc::clone(region));
        Self { region: region.no(), taken, window_region }
    }
}

impl BlockAlloc {
    /// The allocator of the volume in `store`, of which `root_blocks` are root's share. `system`
    /// lists blocks of the volume's own that no descriptor names: the journal's, if any.
    ///
    /// Reads the descriptors, none of the bitmaps.
    ///
    /// # Errors
    /// A failed read. Damaged descriptors exclude their groups, see [`Self::damage`].
    #[cfg(any(test, feature = "lab"))]
    pub fn open(
        store: Arc<Store>,
        geo: Arc<Geometry>,
        root_blocks: u64,
        system: &[BlockRun],
    ) -> Result<Self> {
        Self::open_as(store, geo, root_blocks, system, &AllocatorChoice::default())
    }

    /// As [`Self::open`], with the allocator of `choice`.
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

    /// Takes `min` to `want` contiguous blocks. Uses [`ALLOCATE_CREDITS`].
    ///
    /// Takes `[alloc.lease]` of the caller's slot and one `[alloc.region]` at a time.
    ///
    /// # Errors
    /// `NoSpace` if `privilege` may not take `min` blocks or no run is long enough; a failed
    /// read; `Corrupt` for an impossible request.
    pub fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun> {
        if let Some(other) = self.replacement.get() {
            return other.allocate(h, request);
        }
        self.claim_and_take(h, request, 0).map(|(run, _)| run)
    }

    /// As [`Self::allocate`], for a file that grows: first from its window, which is kept for
    /// later requests that go on where this one ends.
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
        // A write elsewhere in the file leaves the window for the next append.
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

    /// Gives back what a window holds. Any time; the file's blocks are not touched.
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
            self.counters.give(u64::from(granted));
            window.clear();
            return Ok(None);
        }
        let place = ClusterPos { region: window.region_no, at: window.start };
        let run = layout.run(place, granted);
        window.start += granted;
        window.len -= granted;
        window.start_block = run.end();
        window.next = Some(run.end());
        Ok(Some(run))
    }

    fn wish(&self, request: &BlockRequest) -> Result<ClusterRequest> {
        let layout = &self.core().layout;
        let (want, min) = (layout.clusters(request.want), layout.clusters(request.min));
        if min == 0 || want < min {
            let value = u64::from(request.want);
            return Err(bitmap_error("blocks wanted", value, GroupNo(0))
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
        let mut wish = self.wish(request)?;
        let claim = |want| self.counters.claim(wish.min, want, request.privilege);
        let granted = claim(wish.want).ok_or(Error::NoSpace)?;
        wish.want = granted;
        wish.extra = extra;
        let found = self.search(h, wish);
        let used =
            found.as_ref().ok().and_then(Option::as_ref).map_or(0, |found| found.taken.run.1);
        self.counters.give(u64::from(granted - used));
        let found = found?.ok_or(Error::NoSpace)?;
        let place = ClusterPos { region: found.region, at: found.taken.run.0 };
        Ok((self.core().layout.run(place, used), found))
    }

    /// Finds and takes clusters: at the goal, in the slot's own leases, in a new lease, and if
    /// all that fails anywhere.
    fn search(&self, h: &Handle<'_>, wish: ClusterRequest) -> Result<Option<SearchResult>> {
        let mut slot = self.leases.here();
        if let Some(goal) = wish.goal
            && let Some(found) = self.at_goal(h, &mut slot, wish, goal)?
        {
            return Ok(Some(found));
        }
        let ample = ClusterRequest { min: wish.want.min(AMPLE).max(wish.min), ..wish };
        if let Some(found) = self.in_leases(h, &mut slot, ample) {
            return Ok(Some(found));
        }
        if let Some(found) = self.in_new_lease(h, &mut slot, ample)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.in_leases(h, &mut slot, wish) {
            return Ok(Some(found));
        }
        let found = self.anywhere(h, &mut slot, wish)?;
        slot.missed |= found.is_none();
        Ok(found)
    }

    /// The region `no`, unless it does not exist or its group is damaged.
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

    /// In the goal's region, if it is the caller's or nobody's: at the goal itself, else near it.
    fn at_goal(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wish: ClusterRequest,
        goal: ClusterPos,
    ) -> Result<Option<SearchResult>> {
        let core = self.core();
        match core.owner(goal.region) {
            // Files of many threads may have a goal that is full: no lock to find out.
            0 if !summary::may_hold(core.summary(goal.region), wish.want.min(AMPLE)) => {
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
        let near = wish.want.min(AMPLE).max(wish.min);
        let taken = region
            .allocate(h, wish.want, wish.min, wish.extra, Aim::At(goal.at))
            .or_else(|| region.allocate(h, wish.want, near, wish.extra, Aim::From(goal.at)));
        Ok(taken.map(|taken| SearchResult::new(region, taken)))
    }

    fn in_leases(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wish: ClusterRequest,
    ) -> Option<SearchResult> {
        let core = self.core();
        let found = slot.regions().iter().find_map(|region| {
            if core.is_bad(core.layout.group(region.no())) {
                return None;
            }
            let taken = region.allocate(h, wish.want, wish.min, wish.extra, Aim::Anywhere)?;
            Some(SearchResult::new(region, taken))
        });
        if let Some(found) = &found {
            slot.touch(found.region);
        }
        found
    }

    /// Leases regions near the goal, or near the slot's own place, until one has enough.
    fn in_new_lease(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wish: ClusterRequest,
    ) -> Result<Option<SearchResult>> {
        let core = self.core();
        let order = wish.min.next_power_of_two().ilog2().min(core.layout.size().ilog2());
        let mut start = match wish.goal {
            Some(goal) => goal.region,
            None => slot
                .regions()
                .first()
                .map_or_else(|| Leases::start_region(core), |region| region.no()),
        };
        // Every step loads one region or gives up, so at most all of them are looked at.
        for _ in 0..core.layout.count() {
            let Some(no) = self.leases.find(core, start, order) else { return Ok(None) };
            start = RegionNo(no.0 + 1);
            let Some(region) = self.usable(no)? else { continue };
            if region.lock().find(wish.want, wish.min, Aim::Anywhere).is_none() {
                continue;
            }
            if !self.leases.lease(slot, core, &region) {
                continue;
            }
            let aim = match wish.goal {
                Some(goal) if goal.region == no => Aim::From(goal.at),
                _ => Aim::Anywhere,
            };
            if let Some(taken) = region.allocate(h, wish.want, wish.min, wish.extra, aim) {
                return Ok(Some(SearchResult::new(&region, taken)));
            }
            slot.give_up(core, &region);
        }
        Ok(None)
    }

    /// In any region, whoever leases it: first as it is, then with all windows voided.
    #[cold]
    fn anywhere(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        wish: ClusterRequest,
    ) -> Result<Option<SearchResult>> {
        let core = self.core();
        let count = core.layout.count();
        let start = slot.shared.unwrap_or(Leases::start_region(core)).0 % count;
        for recall in [false, true] {
            for no in (start..count).chain(0..start).map(RegionNo) {
                if !self.worth_loading(no, wish.min, recall) {
                    continue;
                }
                let Some(region) = self.usable(no)? else { continue };
                if recall && region.lock().recall_windows() == 0 {
                    continue;
                }
                let aim = Aim::Anywhere;
                if let Some(taken) = region.allocate(h, wish.want, wish.min, 0, aim) {
                    slot.shared = Some(no);
                    return Ok(Some(SearchResult::new(&region, taken)));
                }
            }
        }
        Ok(None)
    }

    /// Whether a region may have `min` clusters, or windows: a group that is not loaded has no
    /// windows, and what its descriptor and its summaries say of it is true.
    fn worth_loading(&self, no: RegionNo, min: u32, windows: bool) -> bool {
        let core = self.core();
        let group = core.layout.group(no);
        if self.groups.is_loaded(group) {
            return true;
        }
        let free = core.group(group).free_clusters.load(Ordering::Relaxed);
        !windows && free > 0 && summary::may_have_run(core.summary(no), min)
    }

    /// Frees blocks that are in use. Metadata is forgotten by the journal. Uses at most
    /// [`Self::free_credits`].
    ///
    /// What is free is counted at once; it is handed out again when no crash can bring its old
    /// use back. That may be at once for blocks that were allocated in the same transaction, unless
    /// that has fast commits, which may name them.
    ///
    /// # Errors
    /// `Corrupt` if the range leaves the volume, has blocks of the volume's own or blocks that
    /// are free already; in the last case its group is excluded from allocation and blocks
    /// before the one named may have been freed.
    pub fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()> {
        if let Some(other) = self.replacement.get() {
            return other.free(h, start, len, kind);
        }
        let core = self.core();
        let clusters = core.layout.clusters(len);
        for (place, n) in core.layout.pieces(start, len)? {
            // A range over several regions is looked at as a whole before any of it is freed.
            let look = |region: &Arc<Region>| match region.first_system_cluster((place.at, n)) {
                Some(own) => Err(self.system_block_error(ClusterPos { at: own, ..place })),
                None if n == clusters => self.free_piece(h, region, place, n, kind).map(|()| true),
                None => Ok(false),
            };
            if self.with_region(place.region, look)?.transpose()? == Some(true) {
                return Ok(());
            }
        }
        for (place, n) in core.layout.pieces(start, len)? {
            let free = |region: &Arc<Region>| self.free_piece(h, region, place, n, kind);
            self.with_region(place.region, free)?.transpose()?;
        }
        Ok(())
    }

    /// Does something with a region: of the caller's leases, or loaded if need be. Nothing past the
    /// end of the volume. Takes `[alloc.lease]` or `[alloc.group]` shared, meanwhile.
    fn with_region<R>(
        &self,
        no: RegionNo,
        act: impl FnOnce(&Arc<Region>) -> R,
    ) -> Result<Option<R>> {
        if self.core().owner(no) == super::lease::mark() {
            let slot = self.leases.here();
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
        bitmap_error("freeing the volume's own block", block.0, group).at_block(block).into()
    }

    fn free_piece(
        &self,
        h: &Handle<'_>,
        region: &Arc<Region>,
        place: ClusterPos,
        n: u32,
        kind: BlockKind,
    ) -> Result<()> {
        let core = self.core();
        if kind == BlockKind::Metadata {
            let run = core.layout.run(place, n);
            (run.start.0..run.end().0).for_each(|no| h.forget(BlockNo(no)));
        }
        if let Err(clear) = region.free(h, (place.at, n)) {
            let block = core.layout.block(ClusterPos { at: clear, ..place });
            let group = core.layout.group(place.region);
            let error = bitmap_error("freeing a free block", block.0, group).at_block(block);
            core.exclude(group, error.clone().into());
            return Err(error.into());
        }
        self.counters.give(u64::from(n));
        Ok(())
    }

    /// Credits that freeing `len` contiguous blocks may use, without those for forgetting
    /// metadata.
    #[must_use]
    pub fn free_credits(&self, len: u32) -> u32 {
        2 * (len / self.core().geo.blocks_per_group + 2)
    }

    /// Puts blocks in use whether they are free or not, and says how many were free: for replay
    /// of fast commits, before anything else is allocated.
    ///
    /// # Errors
    /// `Corrupt` if the range leaves the volume; a failed read.
    pub fn mark_used(&self, h: &Handle<'_>, start: BlockNo, len: u32) -> Result<u32> {
        if let Some(other) = self.replacement.get() {
            return Ok(other.mark_used(h, start, len)? << self.core().geo.cluster_bits);
        }
        let mut marked = 0;
        for (place, n) in self.core().layout.pieces(start, len)? {
            let mark = |region: &Arc<Region>| region.mark_used(h, (place.at, n));
            let Some(n) = self.with_region(place.region, mark)? else { continue };
            self.counters.take(u64::from(n));
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
        for (place, n) in self.core().layout.pieces(start, len)? {
            let is_free = |region: &Arc<Region>| region.lock().is_free((place.at, n));
            if self.with_region(place.region, is_free)? == Some(false) {
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

    /// Blocks that `privilege` may still take.
    pub fn available(&self, privilege: Privilege) -> u64 {
        let other = self.replacement.get().map(|other| other.available(privilege));
        let clusters = other.unwrap_or_else(|| self.counters.available(privilege));
        clusters << self.core().geo.cluster_bits
    }

    /// Whether freed blocks wait for a commit, or one has released some since the caller's last
    /// search found none: after `NoSpace`, a commit and another try may succeed. Takes
    /// `[alloc.lease]` and every loaded region's lock in turn.
    pub fn has_pending(&self) -> bool {
        if let Some(other) = self.replacement.get() {
            return other.has_pending();
        }
        if std::mem::take(&mut self.leases.here().missed) {
            return true;
        }
        self.groups.any_region(|region| region.lock().held_back() > 0)
    }

    /// Whether any of `len` blocks from `start` is the volume's own or lies outside it: no file
    /// may map such a block. Takes no lock.
    #[must_use]
    pub fn overlaps_system_zone(&self, start: BlockNo, len: u32) -> bool {
        let core = self.core();
        let len = u64::from(len.max(1));
        !core.geo.holds_run(start, len) || core.system.touches(start, len)
    }

    /// Blocks of the volume's own in groups' heads, bitmaps and tables: statfs's overhead
    /// without the journal.
    pub fn overhead(&self) -> u64 {
        let core = self.core();
        let own = |group| core.system.of_group(group).map(|(start, end)| end - start).sum::<u64>();
        core.geo.groups().map(own).sum()
    }

    /// Whether blocks are discarded once their release is durable.
    #[cfg(any(test, feature = "lab"))]
    pub fn set_discard(&self, on: bool) {
        self.core().discard.store(on, Ordering::Relaxed);
    }

    /// Whether so many groups were changed in transactions that are not durable that a commit, and
    /// then [`drop_groups`](Self::drop_groups), is worth it.
    #[must_use]
    pub fn needs_commit_to_drop(&self) -> bool {
        self.groups.needs_commit_to_drop()
    }

    /// Drops the groups in memory that nobody uses. Takes `[alloc.groups]`.
    pub fn drop_groups(&self) {
        self.groups.drop_unused();
    }

    /// Bytes of the groups in memory, and how many groups that are; for reports and tests.
    #[must_use]
    pub fn loaded_groups(&self) -> (usize, usize) {
        self.groups.usage()
    }

    /// What excluded groups from allocation so far, at most the first few.
    #[cfg(any(test, feature = "lab"))]
    pub fn damage(&self) -> Vec<Error> {
        self.core().damage()
    }

    /// Whether groups were excluded since [`take_damage`](Self::take_damage). Takes no lock.
    #[must_use]
    pub fn has_damage(&self) -> bool {
        self.core().has_damage()
    }

    /// What excluded groups since the last call.
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

    /// The block of the table in which an inode lies; none if that was never initialised. Such a
    /// block has old bytes of the device. It must not be read through the cache: it would stay
    /// there beside the zeros that the first use of its inodes writes to the device, and the next
    /// commit of one of them would log it.
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
