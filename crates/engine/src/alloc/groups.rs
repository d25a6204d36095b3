//! Loads groups on demand and drops idle ones with the clock algorithm.
//!
//! # Invariants
//!
//! - A loaded group is one object, [`Group`].
//! - The state of a group that is not loaded is in its bitmaps and its descriptor, as the block
//!   cache has them.
//! - Loaded groups take at most [`MEMORY_BOUND`] bytes, unless more are in use.
//!
//! # Loading
//!
//! 1. The thread reads the descriptor and the bitmap without a lock of the allocator. Several
//!    threads may load one group at once.
//! 2. It compares the bitmap with its checksum, its descriptor and the system zone. A mismatch
//!    excludes the group from allocation, and the error names the group.
//! 3. It installs the group under the exclusive `[alloc.group]` lock. The first thread wins.
//! 4. A thread that read a descriptor before a drop does not install it: the group may have been
//!    loaded, changed and dropped since. The thread compares [`GroupCell::drops`] to detect this.
//!
//! # Dropping
//!
//! A thread that loads a group advances the clock until the memory bound holds. The clock drops a
//! group under its exclusive lock if the group has no user and its bitmaps are complete:
//!
//! | user | holds a reference to |
//! |---|---|
//! | a lease | the region, or the inodes of the group |
//! | a window that is not empty | the region |
//! | a transaction that is not durable | the regions it changed, until freed blocks are released |
//! | a commit that renders | the [`CommittedDesc`] |
//! | trim, a search, any other call | the region, or the group's lock in shared mode |
//!
//! All other threads find the group through its lock, before or after the drop. A thread that
//! allocates in a region that its slot leases does not use this module.
//!
//! Lock ranks: `alloc.groups` and `alloc.group` share 409. A holder of `alloc.groups` only tries
//! `alloc.group`.

use super::bits;
use super::core::{Core, bitmap_error};
use super::descriptors::CommittedDesc;
use super::error::{Error, Result};
use super::inode_region::InodeRegion;
use super::layout::RegionNo;
use super::locks;
use super::region::Region;
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::group_desc::flags;
use nextent_ondisk::{BlockNo, Corrupt, GroupDesc, GroupNo, Structure, bitmap};
use nextent_store::{BLOCK_OVERHEAD, BlockRef, Store};
use nextent_sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering, fence};
use nextent_sync::{Arc, Mutex, OnceLock, RwLock, SMALL_LIMITS};
use std::collections::VecDeque;
use std::ops::Deref;

/// Bytes of loaded groups, with the blocks of their bitmaps, above which the clock drops some. With
/// the summaries of all groups this is less than 64 MiB on a volume of 16 TiB. Models (shuttle,
/// loom) drop groups as soon as possible.
const MEMORY_BOUND: usize = if SMALL_LIMITS { 0 } else { 40 << 20 };
/// Bytes above the bound at which the volume commits, so that changed groups can be dropped.
const COMMIT_MARGIN: usize = 8 << 20;
/// Groups that the clock examines for each part of a group that is loaded.
const CLOCK_STEPS: usize = 16;

/// A loaded group. Its blocks and its inodes are loaded separately.
pub(crate) struct Group {
    desc: Arc<CommittedDesc>,
    /// The group's regions. A group at the volume's end may have fewer.
    blocks: OnceLock<Box<[Arc<Region>]>>,
    inodes: OnceLock<InodeGroup>,
    /// Used since the clock last examined the group. Relaxed, a hint.
    referenced: AtomicBool,
}

/// A group, if it is loaded. `[alloc.group]`
#[derive(Default)]
struct GroupCell {
    group: Option<Arc<Group>>,
    /// Number of times the group was dropped.
    drops: u32,
}

/// A reference to a group whose inode numbers are loaded. It keeps them loaded.
#[derive(Clone)]
pub(crate) struct LoadedInodes(Arc<Group>);

impl Deref for LoadedInodes {
    type Target = InodeGroup;
    #[inline]
    fn deref(&self) -> &InodeGroup {
        self.0.inodes.get().expect("it is made of groups whose inodes are loaded")
    }
}

/// The inode numbers of one group.
pub(crate) struct InodeGroup {
    pub(crate) regions: Box<[Arc<InodeRegion>]>,
    /// For each region, the per-thread slot that leases it, plus one; 0 for none. Relaxed: a hint,
    /// as for blocks.
    pub(crate) owners: Box<[AtomicU16]>,
    /// Serialises initialising the table, see [`GroupInfo`](super::core::GroupInfo).
    /// `[alloc.inode-table]`
    pub(crate) initialising: Mutex<()>,
}

/// All groups.
pub struct Groups {
    pub(crate) store: Arc<Store>,
    /// The state that is always in memory.
    pub core: Arc<Core>,
    cells: Box<[RwLock<GroupCell>]>,
    /// The loaded groups, in clock order. `[alloc.groups]`
    clock: Mutex<VecDeque<GroupNo>>,
    /// Bytes of the loaded groups. Relaxed: changed when parts are loaded or dropped.
    loaded: AtomicUsize,
    /// See [`MEMORY_BOUND`]. Relaxed: tests change it.
    bound: AtomicUsize,
    /// Bytes above which the volume commits, so that groups can be dropped. Relaxed, an estimate.
    commit_threshold: AtomicUsize,
}

impl Groups {
    pub(crate) fn new(store: Arc<Store>, core: Arc<Core>) -> Self {
        let cell = || RwLock::new(&locks::GROUP, GroupCell::default());
        Self {
            cells: core.groups.iter().map(|_| cell()).collect(),
            clock: Mutex::new(&locks::GROUPS, VecDeque::new()),
            loaded: AtomicUsize::new(0),
            bound: AtomicUsize::new(MEMORY_BOUND),
            commit_threshold: AtomicUsize::new(MEMORY_BOUND + COMMIT_MARGIN),
            store,
            core,
        }
    }

    fn cell(&self, group: GroupNo) -> &RwLock<GroupCell> {
        &self.cells[to_usize(group.0)]
    }

    /// The group. Reads its descriptor if the group is not loaded.
    fn group(&self, no: GroupNo) -> Result<Arc<Group>> {
        loop {
            let drops = {
                let cell = self.cell(no).read();
                if let Some(group) = &cell.group {
                    group.touch();
                    return Ok(Arc::clone(group));
                }
                cell.drops
            };
            if let Some(group) = self.install(no, drops, self.load(no)?) {
                return Ok(group);
            }
        }
    }

    /// Installs `loaded` as the group `no`, and returns the installed group: another thread may
    /// have been first. None if the group was dropped after its drop count was `drops`; `loaded`
    /// may then be stale.
    fn install(&self, no: GroupNo, drops: u32, loaded: Group) -> Option<Arc<Group>> {
        let mut cell = self.cell(no).write();
        if let Some(group) = &cell.group {
            return Some(Arc::clone(group));
        }
        if cell.drops != drops {
            return None;
        }
        let loaded = Arc::new(loaded);
        cell.group = Some(Arc::clone(&loaded));
        drop(cell);
        self.clock.lock().push_back(no);
        self.account_loaded(loaded.bytes(&self.core));
        Some(loaded)
    }

    /// Counts the bytes of a loaded part and advances the clock. The caller holds a reference to
    /// the group, so the clock does not drop it.
    fn account_loaded(&self, bytes: usize) {
        self.loaded.fetch_add(bytes, Ordering::Relaxed);
        let over = || self.loaded.load(Ordering::Relaxed) > self.bound.load(Ordering::Relaxed);
        if !over() {
            return;
        }
        // One thread at a time advances the clock; the others do not wait for it.
        let Some(mut clock) = self.clock.try_lock() else { return };
        for _ in 0..CLOCK_STEPS {
            if !over() {
                return;
            }
            let Some(no) = clock.pop_front() else { return };
            if !self.try_drop(no) {
                clock.push_back(no);
            }
        }
    }

    /// Advances the clock in models, where groups are few and seldom loaded.
    #[inline]
    fn drop_eagerly(&self) {
        if SMALL_LIMITS {
            self.account_loaded(0);
        }
    }

    /// Drops a group if it is idle and its bitmaps are complete. Does not wait for a lock.
    fn try_drop(&self, no: GroupNo) -> bool {
        let Some(mut cell) = self.cell(no).try_write() else { return false };
        let Some(group) = &cell.group else { return true };
        if group.referenced.swap(false, Ordering::Relaxed) && !SMALL_LIMITS {
            return false;
        }
        if Arc::strong_count(group) != 1 || !group.is_idle(no, &self.core) {
            return false;
        }
        self.loaded.fetch_sub(group.bytes(&self.core), Ordering::Relaxed);
        cell.drops = cell.drops.wrapping_add(1);
        cell.group = None;
        true
    }

    /// Whether the loaded groups are above the threshold at which the volume commits.
    pub(crate) fn needs_commit_to_drop(&self) -> bool {
        self.loaded.load(Ordering::Relaxed) > self.commit_threshold.load(Ordering::Relaxed)
    }

    /// Drops all idle groups. Takes `[alloc.groups]`.
    pub(crate) fn drop_unused(&self) {
        let mut clock = self.clock.lock();
        for _ in 0..clock.len() {
            let Some(no) = clock.pop_front() else { break };
            if !self.try_drop(no) {
                clock.push_back(no);
            }
        }
        let (loaded, bound) = (&self.loaded, &self.bound);
        let most = loaded.load(Ordering::Relaxed).max(bound.load(Ordering::Relaxed));
        self.commit_threshold.store(most + COMMIT_MARGIN, Ordering::Relaxed);
    }

    /// Bytes and number of the loaded groups, for reports and tests.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.loaded.load(Ordering::Relaxed), self.clock.lock().len())
    }

    /// Whether a group that was read before `change` is installed after it, for tests. `change`
    /// changes and drops the group.
    #[cfg(all(test, not(feature = "model-shuttle")))]
    pub(crate) fn takes_stale(&self, no: GroupNo, change: impl FnOnce()) -> bool {
        let (drops, read) = (self.cell(no).read().drops, self.load(no).expect("it is read"));
        change();
        assert!(!self.is_present(no), "it was not dropped");
        self.install(no, drops, read).is_some()
    }

    /// Number of drops of groups, for tests.
    #[cfg(test)]
    pub(crate) fn drops(&self) -> u32 {
        self.cells.iter().map(|cell| cell.read().drops).sum()
    }

    /// Sets the memory bound, for tests.
    #[cfg(all(test, not(feature = "model-shuttle")))]
    pub(crate) fn set_bound(&self, bytes: usize) {
        self.bound.store(bytes, Ordering::Relaxed);
    }

    /// Checks that a group's descriptor is usable.
    fn check_usable(&self, group: GroupNo) -> Result<()> {
        if self.core.group(group).block_bitmap == BlockNo(0) {
            let error = Corrupt::field(Structure::GroupDescriptor, "usable", 0u32);
            return Err(error.at_group(group).into());
        }
        Ok(())
    }

    fn load(&self, group: GroupNo) -> Result<Group> {
        self.check_usable(group)?;
        let (no, at) = self.core.geo.desc_location(group);
        let block = self.store.read(no, |_| Ok::<(), Error>(()))?;
        let size = usize::from(self.core.geo.desc_size);
        let desc = GroupDesc::read(&block.image()[at..at + size])?;
        let desc = CommittedDesc::new(group, self.core.clone(), block, at, desc);
        Ok(Group {
            desc: Arc::new(desc),
            blocks: OnceLock::new(),
            inodes: OnceLock::new(),
            referenced: AtomicBool::new(false),
        })
    }

    /// The regions of `loaded`, which is the group `no`. Loads them if necessary.
    fn regions<'g>(&self, no: GroupNo, loaded: &'g Group) -> Result<&'g [Arc<Region>]> {
        if let Some(regions) = loaded.blocks.get() {
            return Ok(regions);
        }
        match self.load_blocks(no, loaded) {
            Ok(regions) => {
                let mut installed = false;
                let regions = loaded.blocks.get_or_init(|| {
                    installed = true;
                    regions
                });
                if installed {
                    self.account_loaded(blocks_bytes(&self.core));
                }
                Ok(regions)
            }
            // The bitmap may have changed while this thread read it, after another thread loaded
            // it.
            Err(error) => loaded.blocks.get().map(|regions| &**regions).ok_or(error),
        }
    }

    /// Whether any part of a group is loaded.
    pub(crate) fn is_present(&self, group: GroupNo) -> bool {
        self.cell(group).read().group.is_some()
    }

    /// Whether the regions of a group are loaded.
    pub(crate) fn is_loaded(&self, group: GroupNo) -> bool {
        self.cell(group).read().group.as_ref().is_some_and(|group| group.blocks.get().is_some())
    }

    /// Whether `wanted` is true of any loaded region. Takes `[alloc.groups]`, then each
    /// `[alloc.group]` shared, one at a time.
    pub(crate) fn any_region(&self, wanted: impl Fn(&Region) -> bool) -> bool {
        let groups: Vec<GroupNo> = self.clock.lock().iter().copied().collect();
        groups.into_iter().any(|no| {
            let cell = self.cell(no).read();
            let regions = cell.group.as_ref().and_then(|group| group.blocks.get());
            regions.is_some_and(|regions| regions.iter().any(|region| wanted(region)))
        })
    }

    /// A region, loaded if necessary; none past the end of the volume.
    pub(crate) fn region(&self, no: RegionNo) -> Result<Option<Arc<Region>>> {
        self.with_region(no, Arc::clone)
    }

    /// Calls `act` with a region, loaded if necessary; none past the end of the volume. Holds
    /// `[alloc.group]` shared during the call if the region was loaded.
    pub(crate) fn with_region<R>(
        &self,
        no: RegionNo,
        act: impl FnOnce(&Arc<Region>) -> R,
    ) -> Result<Option<R>> {
        let layout = &self.core.layout;
        let (no, index) = (layout.group(no), to_usize(layout.index(no)));
        {
            let cell = self.cell(no).read();
            if let Some(group) = &cell.group
                && let Some(regions) = group.blocks.get()
            {
                group.touch();
                let found = regions.get(index).map(act);
                drop(cell);
                self.drop_eagerly();
                return Ok(found);
            }
        }
        let group = self.group(no)?;
        Ok(self.regions(no, &group)?.get(index).map(act))
    }

    /// Reads a group's block bitmap. Returns the descriptor that takes its changes, its block, and
    /// its bytes.
    ///
    /// # Errors
    /// A failed read, or a bitmap that contradicts its descriptor.
    #[cfg(feature = "lab")]
    pub fn read_blocks(&self, group: GroupNo) -> Result<(Arc<CommittedDesc>, BlockRef, Vec<u8>)> {
        let loaded = self.group(group)?;
        let (block, bytes) = self.read_bitmap_of(group, &loaded)?;
        Ok((Arc::clone(&loaded.desc), block, bytes))
    }

    fn read_bitmap_of(&self, group: GroupNo, loaded: &Group) -> Result<(BlockRef, Vec<u8>)> {
        let core = &self.core;
        let desc = loaded.desc.get();
        let uninit = desc.has_flag(&core.geo.features, flags::BLOCK_UNINIT);
        let block = self.read_bitmap(desc.block_bitmap, |bytes| {
            if uninit {
                Ok(())
            } else {
                bitmap::verify_block_bitmap(&core.geo, group, &desc, bytes)
            }
        })?;
        let bytes = if uninit { core.uninit_bitmap(group) } else { block.image().to_vec() };
        self.check_blocks(group, &desc, &bytes)?;
        Ok((block, bytes))
    }

    fn load_blocks(&self, group: GroupNo, loaded: &Group) -> Result<Box<[Arc<Region>]>> {
        let core = &self.core;
        let (block, bytes) = self.read_bitmap_of(group, loaded)?;
        let desc = &loaded.desc;
        let layout = &core.layout;
        let first = layout.first(group);
        let lens = (0..layout.per_group()).map(|index| (index, layout.len(group, index)));
        let region = |(index, len): (u32, u32)| {
            let from = to_usize(layout.first_bit(index) / 8);
            let mut used = vec![0; bits::word_count(len)].into_boxed_slice();
            bits::load(&mut used, &bytes[from..]);
            let no = RegionNo(first.0 + index);
            Arc::new(Region::new(no, len, used, core.clone(), desc.clone(), block.clone()))
        };
        Ok(lens.take_while(|&(_, len)| len > 0).map(region).collect())
    }

    fn read_bitmap(
        &self,
        no: BlockNo,
        check: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
    ) -> Result<BlockRef> {
        self.store.read(no, |bytes| check(bytes).map_err(|error| Error::from(error.at_block(no))))
    }

    /// Compares a block bitmap with its descriptor and the system zone.
    fn check_blocks(&self, group: GroupNo, desc: &GroupDesc, bytes: &[u8]) -> Result<()> {
        let geo = &self.core.geo;
        let free = bitmap::count_clear(bytes, geo.group_clusters(group));
        if free != desc.free_clusters {
            let error = bitmap_error("number of free clusters", u64::from(free), group);
            return Err(error.at_block(desc.block_bitmap).into());
        }
        let first = geo.group_first_block(group).0;
        for (start, end) in self.core.system.of_group(group) {
            let bit = must_fit((start - first) >> geo.cluster_bits);
            let stop = must_fit((end - first).div_ceil(u64::from(geo.cluster_blocks)));
            if let Some(clear) = bitmap::find_clear(bytes, bit, stop) {
                let block = first + (u64::from(clear) << geo.cluster_bits);
                let error = bitmap_error("free block of the system zone", block, group);
                return Err(error.at_block(desc.block_bitmap).into());
            }
        }
        Ok(())
    }

    /// The inode numbers of a group, loaded if necessary.
    ///
    /// # Errors
    /// A failed read, or a bitmap that contradicts its descriptor.
    pub(crate) fn inodes(&self, no: GroupNo) -> Result<LoadedInodes> {
        let group = self.group(no)?;
        if group.inodes.get().is_none() {
            match self.load_inodes(no, &group) {
                Ok(inodes) => {
                    if group.inodes.set(inodes).is_ok() {
                        self.account_loaded(inodes_bytes(&self.core));
                    }
                }
                Err(error) if group.inodes.get().is_none() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(LoadedInodes(group))
    }

    /// Calls `act` with the inode numbers of a group, loaded if necessary. Holds `[alloc.group]`
    /// shared during the call if they were loaded.
    pub(crate) fn with_inodes<R>(
        &self,
        no: GroupNo,
        act: impl FnOnce(&InodeGroup) -> R,
    ) -> Result<R> {
        {
            let cell = self.cell(no).read();
            if let Some(group) = &cell.group
                && let Some(inodes) = group.inodes.get()
            {
                group.touch();
                let found = act(inodes);
                drop(cell);
                self.drop_eagerly();
                return Ok(found);
            }
        }
        Ok(act(&*self.inodes(no)?))
    }

    fn load_inodes(&self, group: GroupNo, loaded: &Group) -> Result<InodeGroup> {
        let core = &self.core;
        let geo = &core.geo;
        let committed = &loaded.desc;
        let desc = committed.get();
        let uninit = desc.has_flag(&geo.features, flags::INODE_UNINIT);
        let block = self.read_bitmap(desc.inode_bitmap, |bytes| {
            if uninit { Ok(()) } else { bitmap::verify_inode_bitmap(geo, group, &desc, bytes) }
        })?;
        let bytes = if uninit { vec![0; geo.block_len()] } else { block.image().to_vec() };
        let free = bitmap::count_clear(&bytes, geo.inodes_per_group);
        if free != desc.free_inodes {
            let error = Corrupt::field(Structure::InodeBitmap, "number of free inodes", free);
            return Err(error.at_group(group).at_block(desc.inode_bitmap).into());
        }
        let regions = InodeRegion::cut(group, core, committed, &block, &bytes);
        Ok(InodeGroup {
            owners: regions.iter().map(|_| AtomicU16::new(0)).collect(),
            regions,
            initialising: Mutex::new(&locks::TABLE, ()),
        })
    }
}

impl Group {
    /// Sets `referenced` unless it is set, so that readers share its cache line.
    #[inline]
    fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    fn bytes(&self, core: &Core) -> usize {
        let blocks = if self.blocks.get().is_some() { blocks_bytes(core) } else { 0 };
        let inodes = if self.inodes.get().is_some() { inodes_bytes(core) } else { 0 };
        size_of::<Self>() + size_of::<CommittedDesc>() + 64 + blocks + inodes
    }

    /// Whether no thread references or leases a part of the group, and its bitmaps are complete.
    /// The caller holds the group's lock exclusively and has the only reference to the group.
    fn is_idle(&self, no: GroupNo, core: &Core) -> bool {
        let regions = self.blocks.get().map_or(&[][..], |regions| regions);
        let inodes = self.inodes.get();
        let numbers = inodes.map_or(&[][..], |inodes| &inodes.regions);
        let unshared = regions.iter().all(|region| Arc::strong_count(region) == 1)
            && numbers.iter().all(|region| Arc::strong_count(region) == 1)
            && Arc::strong_count(&self.desc) == 1 + regions.len() + numbers.len();
        let first = core.layout.first(no).0;
        let unleased = (first..).zip(regions).all(|(no, _)| core.owner(RegionNo(no)) == 0)
            && inodes.is_none_or(|inodes| {
                inodes.owners.iter().all(|owner| owner.load(Ordering::Relaxed) == 0)
            });
        // Pairs with the Release decrement of each dropped reference.
        fence(Ordering::Acquire);
        unshared
            && unleased
            && regions.iter().all(|region| region.is_idle())
            && numbers.iter().all(|region| region.is_idle())
    }
}

/// Bytes of a group's regions and of the block of their bitmap.
fn blocks_bytes(core: &Core) -> usize {
    let bits = to_usize(core.layout.size()) / 8;
    // The buddy has two bits a cluster, each of the two bitmaps one.
    let region = size_of::<Region>() + 4 * bits + 128;
    to_usize(core.layout.per_group()) * region + core.geo.block_len() + BLOCK_OVERHEAD
}

/// Bytes of a group's inode numbers and of the block of their bitmap.
fn inodes_bytes(core: &Core) -> usize {
    let regions = to_usize(core.geo.inodes_per_group.div_ceil(InodeRegion::size(core)));
    regions * (size_of::<InodeRegion>() + 192) + core.geo.block_len() + BLOCK_OVERHEAD
}
