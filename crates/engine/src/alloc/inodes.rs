//! Allocating and freeing inode numbers.

use super::blocks::BlockAlloc;
use super::core::Core;
use super::error::{Error, Result};
use super::groups::{Groups, InodeGroup, LoadedInodes};
use super::inode_region::InodeRegion;
use super::lease;
use super::locks;
use super::orlov;
use nextent_num::to_usize;
use nextent_ondisk::{BlockNo, Corrupt, GroupNo, InodeNo, Structure};
use nextent_store::Handle;
use nextent_sync::atomic::{AtomicI64, Ordering};
use nextent_sync::{Arc, BiasedMutex, PerCore};

/// Credits of one [`InodeAlloc::allocate`] or [`InodeAlloc::free`]: a bitmap and its
/// descriptor's block.
#[cfg(any(test, feature = "lab"))]
pub const INODE_CREDITS: u32 = 2;

/// Most regions of inode numbers that one slot leases.
const MAX_LEASES: usize = 16;

/// What an inode number is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A directory.
    Dir,
    /// Anything else.
    File,
}

/// A region that a slot leases, and the inodes of its group, which stay in memory.
struct InodeLease {
    group: GroupNo,
    index: u32,
    inodes: LoadedInodes,
}

/// The regions that one slot leases, latest use first. `[alloc.lease]`
type SlotLeases = Vec<InodeLease>;

/// The volume's inode numbers.
pub struct InodeAlloc {
    groups: Arc<Groups>,
    slots: PerCore<BiasedMutex<SlotLeases>>,
    /// Free inodes when the volume was opened, and each slot's part of what was freed since less
    /// what was allocated. Relaxed: a count that carries nothing else.
    opened_with: u64,
    freed: PerCore<AtomicI64>,
}

impl InodeAlloc {
    /// The inode numbers of the volume whose blocks are `blocks`.
    #[must_use]
    pub fn new(blocks: &BlockAlloc) -> Self {
        let groups = blocks.groups.clone();
        Self {
            opened_with: groups.core.totals.sums().free_inodes,
            groups,
            slots: PerCore::new(|_| BiasedMutex::new(&locks::LEASE, SlotLeases::new())),
            freed: PerCore::new(|_| AtomicI64::new(0)),
        }
    }

    fn core(&self) -> &Arc<Core> {
        &self.groups.core
    }

    /// Takes a number for a new inode of `parent`; `hash` of its name spreads directories of the
    /// root. The number's place in the inode table is initialised: it may hold an old inode, and
    /// zeros if it never held one. Uses [`INODE_CREDITS`].
    ///
    /// Takes `[alloc.lease]` of the caller's slot, one `[alloc.inodes]` at a time, and
    /// `[alloc.inode-table]` when a stretch of the table is used for the first time.
    ///
    /// # Errors
    /// `NoInodes`; a failed read, or a failed write while initialising the table.
    pub fn allocate(
        &self,
        h: &Handle<'_>,
        parent: InodeNo,
        kind: InodeKind,
        hash: u32,
    ) -> Result<InodeNo> {
        let mut slot = self.slots.here().lock();
        let found = match kind {
            InodeKind::Dir => {
                let order = orlov::for_dir(self.core(), parent, hash);
                self.first_in(h, &mut slot, kind, order)?
            }
            InodeKind::File => {
                let order = orlov::for_file(self.core(), parent);
                self.first_in(h, &mut slot, kind, order)?
            }
        };
        // The hints may be stale: before giving up look at every group.
        let found = match found {
            Some(ino) => Some(ino),
            None => self.anywhere(h, kind)?,
        };
        let ino = found.ok_or(Error::NoInodes)?;
        self.freed.here().fetch_sub(1, Ordering::Relaxed);
        Ok(ino)
    }

    fn first_in(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        kind: InodeKind,
        order: impl Iterator<Item = GroupNo>,
    ) -> Result<Option<InodeNo>> {
        for group in order {
            let hint = self.core().group(group).free_inodes.load(Ordering::Relaxed);
            if hint == 0 {
                continue;
            }
            if self.core().is_bad(group) {
                continue;
            }
            if let Some(ino) = self.in_leases(h, slot, kind, group)? {
                return Ok(Some(ino));
            }
            let Some(inodes) = self.usable(group)? else { continue };
            if let Some(ino) = self.in_new_lease(h, slot, kind, group, inodes)? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    fn usable(&self, group: GroupNo) -> Result<Option<LoadedInodes>> {
        if self.core().is_bad(group) {
            return Ok(None);
        }
        match self.groups.inodes(group) {
            Ok(inodes) => Ok(Some(inodes)),
            Err(error @ Error::Corrupt(_)) => {
                self.core().exclude(group, error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// In the slot's leases of a group. Those in which there is none end.
    fn in_leases(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        kind: InodeKind,
        group: GroupNo,
    ) -> Result<Option<InodeNo>> {
        let mut i = 0;
        while let Some(lease) = slot.get(i) {
            if lease.group != group {
                i += 1;
                continue;
            }
            if let Some(ino) = self.in_region(h, kind, group, &lease.inodes, lease.index)? {
                slot[..=i].rotate_right(1);
                return Ok(Some(ino));
            }
            slot.remove(i).end();
        }
        Ok(None)
    }

    /// In regions of a group that nobody leases, of which the first that has one is leased.
    fn in_new_lease(
        &self,
        h: &Handle<'_>,
        slot: &mut SlotLeases,
        kind: InodeKind,
        group: GroupNo,
        inodes: LoadedInodes,
    ) -> Result<Option<InodeNo>> {
        for (index, (region, owner)) in (0..).zip(inodes.regions.iter().zip(&inodes.owners)) {
            if !region.may_have_free() || !lease::acquire(owner) {
                continue;
            }
            let lease = InodeLease { group, index, inodes: inodes.clone() };
            let found = self.in_region(h, kind, group, &inodes, index);
            if !matches!(found, Ok(None)) {
                slot.insert(0, lease);
                self.end_excess_lease(slot);
                return found;
            }
            lease.end();
        }
        Ok(None)
    }

    /// Ends the lease that was not used for longest if there are too many.
    fn end_excess_lease(&self, slot: &mut SlotLeases) {
        if slot.len() > MAX_LEASES
            && let Some(oldest) = slot.pop()
        {
            oldest.end();
        }
    }

    fn in_region(
        &self,
        h: &Handle<'_>,
        kind: InodeKind,
        group: GroupNo,
        inodes: &InodeGroup,
        index: u32,
    ) -> Result<Option<InodeNo>> {
        let region = &inodes.regions[to_usize(index)];
        if !region.is_table_initialised() {
            self.initialise(group, inodes, region)?;
        }
        let at = region.allocate(h, kind == InodeKind::Dir);
        Ok(at.map(|at| self.core().geo.inode_at(group, at)))
    }

    /// Writes zeros over the part of a group's table, up to a region's end, that was never used.
    ///
    /// The descriptor says from where on the table was left as the device had it. These blocks
    /// are in no log, and not in the cache, since [`BlockAlloc::inode_table_block`] refuses them. So the
    /// zeros go straight to the device; the flush of the commit that makes the descriptor cover
    /// them makes them stable first.
    fn initialise(&self, group: GroupNo, inodes: &InodeGroup, region: &InodeRegion) -> Result<()> {
        let core = self.core();
        let geo = &core.geo;
        let info = core.group(group);
        let _guard = inodes.initialising.lock();
        let (ready, end) = (info.initialised.load(Ordering::Relaxed), region.end());
        if ready < end {
            let table = info.inode_table;
            let first = BlockNo(table.0 + u64::from(ready / geo.inodes_per_block));
            let stop = table.0 + u64::from(end.div_ceil(geo.inodes_per_block));
            let bytes = (stop - first.0) << geo.block_bits;
            core.device.write_zeroes(first.0 << geo.block_bits, bytes).map_err(|error| {
                nextent_store::Error::Io { op: "zero", block: first, source: Arc::new(error) }
            })?;
            info.initialised.store(end, Ordering::Release);
        }
        region.set_table_initialised();
        Ok(())
    }

    /// In any region of any group, whoever leases it.
    #[cold]
    fn anywhere(&self, h: &Handle<'_>, kind: InodeKind) -> Result<Option<InodeNo>> {
        for group in self.core().geo.groups() {
            // Of a group that is not loaded the hint is true.
            let free = self.core().group(group).free_inodes.load(Ordering::Relaxed);
            if free == 0 && !self.groups.is_present(group) {
                continue;
            }
            let Some(inodes) = self.usable(group)? else { continue };
            for index in (0..).take(inodes.regions.len()) {
                if let Some(ino) = self.in_region(h, kind, group, &inodes, index)? {
                    return Ok(Some(ino));
                }
            }
        }
        Ok(None)
    }

    /// Does something with the inodes of the group of a number, the region it lies in, and its
    /// place in the group. They are of the caller's leases, or loaded if need be. Takes
    /// `[alloc.lease]` or `[alloc.group]` shared, meanwhile.
    fn with_region<R>(
        &self,
        ino: InodeNo,
        act: impl FnOnce(&InodeGroup, usize, u32) -> R,
    ) -> Result<R> {
        let (group, at) = self.core().geo.inode_group(ino)?;
        let index = at / InodeRegion::size(self.core());
        let leased = |lease: &&InodeLease| (lease.group, lease.index) == (group, index);
        {
            let slot = self.slots.here().lock();
            if let Some(lease) = slot.iter().find(leased) {
                return Ok(act(&lease.inodes, to_usize(index), at));
            }
        }
        self.groups.with_inodes(group, |inodes| act(inodes, to_usize(index), at))
    }

    /// Gives a number back, to be used again at once. Uses [`INODE_CREDITS`].
    ///
    /// # Errors
    /// `Corrupt` if the number is reserved, beyond the volume or free already; in the last case
    /// its group is excluded from allocation.
    pub fn free(&self, h: &Handle<'_>, ino: InodeNo, was_dir: bool) -> Result<()> {
        if self.core().geo.is_reserved_inode(ino) {
            let error = Corrupt::field(Structure::InodeBitmap, "freeing reserved inode", ino.0);
            return Err(error.at_inode(ino).into());
        }
        let free = |inodes: &InodeGroup, index: usize, at| {
            let region = &inodes.regions[index];
            let freed = region.free(h, at, was_dir);
            if freed && inodes.owners[index].load(Ordering::Relaxed) == 0 {
                region.publish();
            }
            freed
        };
        if !self.with_region(ino, free)? {
            let error = Corrupt::field(Structure::InodeBitmap, "freeing free inode", ino.0);
            let error: Error = error.at_inode(ino).into();
            if let Ok((group, _)) = self.core().geo.inode_group(ino) {
                self.core().exclude(group, error.clone());
            }
            return Err(error);
        }
        self.freed.here().fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Initialises the place of a number in the table, which is then read like any. For replay of
    /// fast commits.
    ///
    /// # Errors
    /// As [`mark_used`](Self::mark_used).
    pub fn initialise_table_block(&self, ino: InodeNo) -> Result<()> {
        let (group, _) = self.core().geo.inode_group(ino)?;
        self.with_region(ino, |inodes, index, _| {
            self.initialise(group, inodes, &inodes.regions[index])
        })?
    }

    /// Puts a number in use; false if it was already. For replay of fast commits.
    ///
    /// # Errors
    /// `Corrupt` if the number is beyond the volume; a failed read or write.
    pub fn mark_used(&self, h: &Handle<'_>, ino: InodeNo, is_dir: bool) -> Result<bool> {
        let (group, _) = self.core().geo.inode_group(ino)?;
        let mark = |inodes: &InodeGroup, index: usize, at| {
            let region = &inodes.regions[index];
            if !region.is_table_initialised() {
                self.initialise(group, inodes, region)?;
            }
            let marked = region.mark_used(h, at, is_dir);
            if marked {
                region.publish();
            }
            Ok::<bool, Error>(marked)
        };
        let marked = self.with_region(ino, mark)??;
        if marked {
            self.freed.here().fetch_sub(1, Ordering::Relaxed);
        }
        Ok(marked)
    }

    /// Whether a number is in use.
    ///
    /// # Errors
    /// `Corrupt` if the number is beyond the volume; a failed read.
    pub fn is_used(&self, ino: InodeNo) -> Result<bool> {
        self.with_region(ino, |inodes, index, at| inodes.regions[index].is_used(at))
    }

    /// Inode numbers not in use.
    pub fn free_inodes(&self) -> u64 {
        let freed = self.freed.used().map(|slot| slot.load(Ordering::Relaxed)).sum();
        self.opened_with.saturating_add_signed(freed)
    }

    /// Where an inode's first block should lie: near its group, leaving the first group of a
    /// large flex group to directories.
    #[must_use]
    pub fn data_goal(&self, ino: InodeNo, kind: InodeKind) -> BlockNo {
        let geo = &self.core().geo;
        let group = geo.inode_group(ino).map_or(GroupNo(0), |(group, _)| group);
        let first = GroupNo(group.0 / geo.flex_groups * geo.flex_groups);
        let next = GroupNo(first.0 + 1);
        let for_files = geo.flex_groups >= 4 && kind == InodeKind::File && geo.has_group(next);
        geo.group_first_block(if for_files { next } else { first })
    }
}

impl InodeLease {
    /// Ends it and tells others what the region has.
    fn end(self) {
        let index = to_usize(self.index);
        lease::release(&self.inodes.owners[index]);
        self.inodes.regions[index].publish();
    }
}
