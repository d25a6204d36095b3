//! The groups in use, loaded one at a time when they are needed and dropped by a clock.
//!
//! Loading reads a bitmap without any lock of the allocator; two threads may
//! load the same group at once, and the first to finish wins. A bitmap that
//! does not agree with its checksum, its descriptor or the volume's own blocks
//! excludes its group from allocation; the error names the group.
//!
//! Invariant: what is loaded of a group is one object, [`Group`]. While it is
//! not loaded, its bitmaps and its descriptor, as the block cache has them, say
//! all of it.
//!
//! Dropping. Loaded groups take at most [`MEMORY_BOUND`] bytes, unless more are in use.
//! A thread that loads a group lets the clock pass over others until that is so.
//! A group is dropped under its lock, held exclusively, when nobody else has
//! any of its objects and none has anything that the bitmaps do not say:
//!
//! | user | has |
//! |---|---|
//! | a lease | the region, or the inodes of the group |
//! | a window that is not empty | the region |
//! | a transaction that is not durable | the regions it changed, until freed blocks are released |
//! | a commit that renders | the [`CommittedDesc`] |
//! | trimming, a search, any other call | the region, or the group's lock held shared |
//!
//! Who has none of these finds the group through its lock, and so either before
//! it is dropped or after. A thread that read a descriptor before a drop does not
//! make an object of it after: the number of drops is compared, since the group
//! may have been loaded, changed and dropped meanwhile.
//!
//! A thread that allocates in a region of its own lease comes here not at all.

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

/// Bytes that loaded groups take, with their bitmaps' blocks, before the clock drops some. Together
/// with what is kept of each group always that is less than 64 MiB for volumes of up to 16 TiB.
/// Checkers of schedules drop what they can at once.
const MEMORY_BOUND: usize = if SMALL_LIMITS { 0 } else { 40 << 20 };
/// Bytes beyond the bound, of groups that a transaction has changed, that are worth a commit.
const COMMIT_MARGIN: usize = 8 << 20;
/// Groups that the clock looks at for one part of a group that is loaded.
const CLOCK_STEPS: usize = 16;

/// What is loaded of one group.
pub(crate) struct Group {
    desc: Arc<CommittedDesc>,
    /// The group's regions; shorter than others' at the volume's end.
    blocks: OnceLock<Box<[Arc<Region>]>>,
    inodes: OnceLock<InodeGroup>,
    /// Used since the clock came by. Relaxed, a hint.
    referenced: AtomicBool,
}

/// Where a group is when it is loaded. `[alloc.group]`
#[derive(Default)]
struct GroupCell {
    group: Option<Arc<Group>>,
    /// How often it was dropped.
    drops: u32,
}

/// A group whose inode numbers are loaded, which stays so.
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
    /// Slot that leases each region, plus one; 0 for none. Relaxed: a hint, as for blocks.
    pub(crate) owners: Box<[AtomicU16]>,
    /// One at a time initialises the table, see [`GroupInfo`](super::core::GroupInfo).
    /// `[alloc.inode-table]`
    pub(crate) initialising: Mutex<()>,
}

/// All groups.
pub struct Groups {
    pub(crate) store: Arc<Store>,
    /// What is known without loading a group.
    pub core: Arc<Core>,
    cells: Box<[RwLock<GroupCell>]>,
    /// The loaded groups, in the order the clock hand meets them. `[alloc.groups]`
    clock: Mutex<VecDeque<GroupNo>>,
    /// Bytes of what is loaded. Relaxed: stored when parts of groups come and go.
    loaded: AtomicUsize,
    /// See [`MEMORY_BOUND`]. Relaxed: tests change it.
    bound: AtomicUsize,
    /// Bytes from which on it is worth a commit that groups can leave. Relaxed, a guess.
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

    /// The group, its descriptor loaded if need be; reads that one's block.
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

    /// Makes `loaded` the group `no`, unless there is one by now, which is the result then; none
    /// if the group was dropped since there were `drops` drops, which is before it was loaded.
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

    /// Counts a part that was loaded, of which the caller has the group, and lets the clock go on.
    fn account_loaded(&self, bytes: usize) {
        self.loaded.fetch_add(bytes, Ordering::Relaxed);
        let over = || self.loaded.load(Ordering::Relaxed) > self.bound.load(Ordering::Relaxed);
        if !over() {
            return;
        }
        // One thread at a time is enough; the others go on with what they need.
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

    /// Lets the clock go on, for checkers of schedules: there groups are few and seldom loaded.
    #[inline]
    fn drop_eagerly(&self) {
        if SMALL_LIMITS {
            self.account_loaded(0);
        }
    }

    /// Drops a group if nobody uses it and its blocks say all of it. Waits for nobody.
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

    /// Whether so many groups are loaded that cannot leave that a commit is worth it.
    pub(crate) fn needs_commit_to_drop(&self) -> bool {
        self.loaded.load(Ordering::Relaxed) > self.commit_threshold.load(Ordering::Relaxed)
    }

    /// Drops all groups that nobody uses. Takes `[alloc.groups]`.
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

    /// Bytes of loaded groups, and how many there are; for reports and tests.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.loaded.load(Ordering::Relaxed), self.clock.lock().len())
    }

    /// Whether a group that was read before a change of it, and before it was dropped, becomes the
    /// group; for tests. `change` does both.
    #[cfg(test)]
    pub(crate) fn takes_stale(&self, no: GroupNo, change: impl FnOnce()) -> bool {
        let (drops, read) = (self.cell(no).read().drops, self.load(no).expect("it is read"));
        change();
        assert!(!self.is_present(no), "it was not dropped");
        self.install(no, drops, read).is_some()
    }

    /// How often groups were dropped; for tests.
    #[cfg(test)]
    pub(crate) fn drops(&self) -> u32 {
        self.cells.iter().map(|cell| cell.read().drops).sum()
    }

    /// Has the clock keep to another bound; for tests.
    #[cfg(test)]
    pub(crate) fn set_bound(&self, bytes: usize) {
        self.bound.store(bytes, Ordering::Relaxed);
    }

    /// The error for a group whose descriptor is unusable.
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

    /// The regions of `loaded`, which is the group `no`, loaded if need be.
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
            // Another thread may have loaded and changed the group while this one was reading.
            Err(error) => loaded.blocks.get().map(|regions| &**regions).ok_or(error),
        }
    }

    /// Whether anything of a group is loaded.
    pub(crate) fn is_present(&self, group: GroupNo) -> bool {
        self.cell(group).read().group.is_some()
    }

    /// Whether the regions of a group are loaded.
    pub(crate) fn is_loaded(&self, group: GroupNo) -> bool {
        self.cell(group).read().group.as_ref().is_some_and(|group| group.blocks.get().is_some())
    }

    /// Whether `wanted` is true of a loaded region. Takes `[alloc.groups]` and, one after another,
    /// `[alloc.group]` shared.
    pub(crate) fn any_region(&self, wanted: impl Fn(&Region) -> bool) -> bool {
        let groups: Vec<GroupNo> = self.clock.lock().iter().copied().collect();
        groups.into_iter().any(|no| {
            let cell = self.cell(no).read();
            let regions = cell.group.as_ref().and_then(|group| group.blocks.get());
            regions.is_some_and(|regions| regions.iter().any(|region| wanted(region)))
        })
    }

    /// A region, loaded if need be; nothing past the end of the volume.
    pub(crate) fn region(&self, no: RegionNo) -> Result<Option<Arc<Region>>> {
        self.with_region(no, Arc::clone)
    }

    /// Does something with a region, which is loaded if need be, unless it lies past the end of the
    /// volume. Takes `[alloc.group]` shared, meanwhile.
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

    /// A group's block bitmap as the disk has it: where its changes go, its block, its bytes.
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

    /// Compares a block bitmap with the descriptor and the volume's own blocks.
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
                let error = bitmap_error("free, though the volume's own, block", block, group);
                return Err(error.at_block(desc.block_bitmap).into());
            }
        }
        Ok(())
    }

    /// The inode numbers of a group, loaded if need be.
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

    /// Does something with the inode numbers of a group, which are loaded if need be. Takes
    /// `[alloc.group]` shared, meanwhile.
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
    /// A hint: not stored again when set, so that readers share the line.
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

    /// Whether nobody has any of the group's objects, or leases any, and its blocks say all of it.
    /// The caller has its lock exclusively and is the only one to have the group.
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
        // What others did before they let go of theirs (a release each) comes before.
        fence(Ordering::Acquire);
        unshared
            && unleased
            && regions.iter().all(|region| region.is_idle())
            && numbers.iter().all(|region| region.is_idle())
    }
}

/// Bytes of the regions of a group, and of the block of their bitmap.
fn blocks_bytes(core: &Core) -> usize {
    let bits = to_usize(core.layout.size()) / 8;
    // A buddy has twice as many bits as clusters, the two bitmaps one each.
    let region = size_of::<Region>() + 4 * bits + 128;
    to_usize(core.layout.per_group()) * region + core.geo.block_len() + BLOCK_OVERHEAD
}

/// Bytes of the inode numbers of a group, and of the block of their bitmap.
fn inodes_bytes(core: &Core) -> usize {
    let regions = to_usize(core.geo.inodes_per_group.div_ceil(InodeRegion::size(core)));
    regions * (size_of::<InodeRegion>() + 192) + core.geo.block_len() + BLOCK_OVERHEAD
}
