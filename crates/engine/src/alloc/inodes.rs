//! Allocates and frees inode numbers.
//!
//! A slot leases regions of inode numbers as it leases regions of blocks. A freed number is
//! allocatable at once. The first use of a region initialises its part of the inode table.

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

/// Credits of one [`InodeAlloc::allocate`] or [`InodeAlloc::free`]: a bitmap and the block of its
/// descriptor.
#[cfg(any(test, feature = "lab"))]
pub const INODE_CREDITS: u32 = 2;

/// Most regions of inode numbers that one slot may lease.
const MAX_LEASES: usize = 16;

/// The kind of inode that a number is allocated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A directory.
    Dir,
    /// Anything else.
    File,
}

/// A region that a slot leases, with a reference that keeps the inodes of its group loaded.
struct InodeLease {
    group: GroupNo,
    index: u32,
    inodes: LoadedInodes,
}

/// The regions that one slot leases, most recently used first. `[alloc.lease]`
type SlotLeases = Vec<InodeLease>;

/// The allocator of the volume's inode numbers.
pub struct InodeAlloc {
    groups: Arc<Groups>,
    slots: PerCore<BiasedMutex<SlotLeases>>,
    /// Free inodes when the volume was opened.
    opened_with: u64,
    /// Inodes that each slot freed since, less those that it allocated. Relaxed: the count
    /// publishes no other data.
    freed: PerCore<AtomicI64>,
}

impl InodeAlloc {
    /// The allocator for the volume of `blocks`.
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

    /// Allocates a number for a new inode in the directory `parent`. `hash`, of its name, spreads
    /// directories of the root. Uses [`INODE_CREDITS`].
    ///
    /// The inode's bytes in the table are initialised: an old inode, or zeros.
    ///
    /// Takes `[alloc.lease]` of the caller's slot, one `[alloc.inodes]` at a time, and
    /// `[alloc.inode-table]` at the first use of a region.
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
                self.allocate_in_groups(h, &mut slot, kind, order)?
            }
            InodeKind::File => {
                let order = orlov::for_file(self.core(), parent);
                self.allocate_in_groups(h, &mut slot, kind, order)?
            }
        };
        // The hints may be stale, so every group is searched before the allocation fails.
        let found = match found {
            Some(ino) => Some(ino),
            None => self.allocate_anywhere(h, kind)?,
        };
        let ino = found.ok_or(Error::NoInodes)?;
        self.freed.here().fetch_sub(1, Ordering::Relaxed);
        Ok(ino)
    }

    fn allocate_in_groups(
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
            if let Some(ino) = self.allocate_in_leases(h, slot, kind, group)? {
                return Ok(Some(ino));
            }
            let Some(inodes) = self.usable(group)? else { continue };
            if let Some(ino) = self.allocate_in_new_lease(h, slot, kind, group, inodes)? {
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

    /// Allocates in the slot's leased regions of a group. Ends the leases of full regions.
    fn allocate_in_leases(
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
            if let Some(ino) =
                self.allocate_in_region(h, kind, group, &lease.inodes, lease.index)?
            {
                slot[..=i].rotate_right(1);
                return Ok(Some(ino));
            }
            slot.remove(i).end();
        }
        Ok(None)
    }

    /// Allocates in the regions of a group that no slot leases, and leases the region.
    fn allocate_in_new_lease(
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
            let found = self.allocate_in_region(h, kind, group, &inodes, index);
            if !matches!(found, Ok(None)) {
                slot.insert(0, lease);
                self.end_excess_lease(slot);
                return found;
            }
            lease.end();
        }
        Ok(None)
    }

    /// Ends the least recently used lease if the slot has too many.
    fn end_excess_lease(&self, slot: &mut SlotLeases) {
        if slot.len() > MAX_LEASES
            && let Some(oldest) = slot.pop()
        {
            oldest.end();
        }
    }

    fn allocate_in_region(
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

    /// Zeroes the blocks of a group's inode table that were never initialised, up to the end of
    /// `region`.
    ///
    /// These blocks are not in the log, and not in the cache, since
    /// [`BlockAlloc::inode_table_block`] refuses them. The zeros therefore go directly to the
    /// device. The commit that makes the descriptor cover the blocks flushes the device first.
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

    /// Allocates in any region of any group, also one that another slot leases.
    #[cold]
    fn allocate_anywhere(&self, h: &Handle<'_>, kind: InodeKind) -> Result<Option<InodeNo>> {
        for group in self.core().geo.groups() {
            // The hint is exact for a group that is not loaded.
            let free = self.core().group(group).free_inodes.load(Ordering::Relaxed);
            if free == 0 && !self.groups.is_present(group) {
                continue;
            }
            let Some(inodes) = self.usable(group)? else { continue };
            for index in (0..).take(inodes.regions.len()) {
                if let Some(ino) = self.allocate_in_region(h, kind, group, &inodes, index)? {
                    return Ok(Some(ino));
                }
            }
        }
        Ok(None)
    }

    /// Calls `act` with the inodes of the number's group, the index of its region, and its index in
    /// the group. Loads them if necessary. Holds `[alloc.lease]`, or `[alloc.group]` shared, during
    /// the call.
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

    /// Frees a number, which is allocatable at once. Uses [`INODE_CREDITS`].
    ///
    /// # Errors
    /// `Corrupt` if the number is reserved, beyond the volume, or free already. In the last case
    /// the group is excluded from allocation.
    pub fn free(&self, h: &Handle<'_>, ino: InodeNo, was_dir: bool) -> Result<()> {
        if self.core().geo.is_reserved_inode(ino) {
            let error = Corrupt::field(Structure::InodeBitmap, "inode to free (reserved)", ino.0);
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
            let error =
                Corrupt::field(Structure::InodeBitmap, "inode to free (already free)", ino.0);
            let error: Error = error.at_inode(ino).into();
            if let Ok((group, _)) = self.core().geo.inode_group(ino) {
                self.core().exclude(group, error.clone());
            }
            return Err(error);
        }
        self.freed.here().fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Initialises the inode table up to the region of a number, so that its block can be read. For
    /// the replay of fast commits.
    ///
    /// # Errors
    /// As [`mark_used`](Self::mark_used).
    pub fn initialise_table_block(&self, ino: InodeNo) -> Result<()> {
        let (group, _) = self.core().geo.inode_group(ino)?;
        self.with_region(ino, |inodes, index, _| {
            self.initialise(group, inodes, &inodes.regions[index])
        })?
    }

    /// Marks a number as in use; false if it was already. For the replay of fast commits.
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

    /// The goal for an inode's first block: in its flex group. A flex group of four or more groups
    /// keeps its first group for directories.
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
    /// Ends the lease and publishes the region's free count.
    fn end(self) {
        let index = to_usize(self.index);
        lease::release(&self.inodes.owners[index]);
        self.inodes.regions[index].publish();
    }
}
