//! The seam's operations: converts requests to clusters, and divides ranges of blocks by group.

use super::ext3::Ext3;
use super::group_pos::{self, GroupPos};
use super::mballoc::Mballoc;
use super::space::{Reserves, Space};
use super::{Allocator, ClusterRequest};
use crate::design::{Count, Design, Exclusion};
use nextent::lab_seams::alloc::{
    BlockAllocator, BlockKind, BlockRequest, BlockRun, Core, Error, Groups, Privilege, Result,
    Window, bitmap_error, buddy::Run,
};
use nextent_num::to_usize;
use nextent_ondisk::{BlockNo, GroupNo, InodeNo};
use nextent_store::Handle;
use nextent_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use nextent_sync::{Arc, CachePadded, PerCore};

/// The allocator of a design.
pub(crate) struct Adapter {
    groups: Arc<Groups>,
    inner: Box<dyn Allocator>,
    /// Whether the slot's last search failed although the counts had space: freed clusters were
    /// withheld at that time. Relaxed: only the slot uses it.
    missed: PerCore<AtomicBool>,
    /// Users of the buffers of the inode table. Relaxed: no thread waits for zero.
    users: Box<[CachePadded<AtomicU32>]>,
}

/// Number of counts for buffers of the inode table.
const BUFFERS: usize = 1024;

impl Adapter {
    /// The allocator of `design` over `groups`, with `free` clusters, `root` of them for root.
    pub(crate) fn new(groups: &Arc<Groups>, design: &Design, free: u64, root: u64) -> Self {
        let geo = &groups.core.geo;
        let reserves = Reserves::new(geo.clusters(geo.blocks_count), root);
        let space = match design.count {
            Count::Superblock => Space::under_super(free, reserves),
            Count::OneLock => Space::one_lock(free, reserves, design.locks),
            Count::PerCpu | Count::Escrow => Space::per_cpu(free, reserves, design.locks),
        };
        let inner: Box<dyn Allocator> = match design.exclusion {
            Exclusion::Groups | Exclusion::TryGroups => {
                Box::new(Mballoc::new(groups.clone(), design, space))
            }
            _ => Box::new(Ext3::new(groups.clone(), design, space)),
        };
        let missed = PerCore::new(|_| AtomicBool::new(false));
        let users = (0..BUFFERS).map(|_| CachePadded::new(AtomicU32::new(0))).collect();
        Self { groups: groups.clone(), inner, missed, users }
    }

    /// Marks an inode dirty as the original: it pins the buffer of the inode table while it copies
    /// the fields. Inodes of one buffer share that count.
    #[track_caller]
    fn mark(&self, h: &Handle<'_>, ino: InodeNo) {
        let geo = &self.core().geo;
        let of_buffer = (geo.block_size / u32::from(geo.inode_size)).max(1);
        let users = &self.users[to_usize(ino.0.saturating_sub(1)) / to_usize(of_buffer) % BUFFERS];
        users.fetch_add(1, Ordering::Relaxed);
        h.look();
        users.fetch_sub(1, Ordering::Relaxed);
    }

    fn core(&self) -> &Arc<Core> {
        &self.groups.core
    }

    fn take(
        &self,
        h: &Handle<'_>,
        request: &BlockRequest,
        file: Option<&mut Window>,
    ) -> Result<BlockRun> {
        let core = self.core();
        let (want, min) = (core.layout.clusters(request.want), core.layout.clusters(request.min));
        if min == 0 || want < min {
            let value = u64::from(request.want);
            let error = bitmap_error("blocks wanted", value, GroupNo(0));
            return Err(error.at_inode(request.ino).into());
        }
        let clusters = ClusterRequest {
            want,
            min,
            goal: request.goal.and_then(|block| group_pos::find(core, block)),
            kind: request.kind,
            privilege: request.privilege,
            ino: request.ino,
            file,
        };
        // The original marks the inode dirty for the new block count,
        self.mark(h, request.ino);
        let Some((group, run)) = self.inner.take(h, clusters)? else {
            self.missed.here().store(true, Ordering::Relaxed);
            return Err(Error::NoSpace);
        };
        // then for the new extent and for the new size.
        self.mark(h, request.ino);
        self.mark(h, request.ino);
        Ok(group_pos::run(core, group, run))
    }

    fn trim_group(&self, group: GroupNo, from: u32, to: u32, min: u32) -> Result<u64> {
        let core = self.core();
        let (mut at, mut done) = (from, 0);
        while let Some((start, n)) = self.inner.start_trim(group, at, to, min)? {
            let run = group_pos::run(core, group, (start, n));
            let bits = core.geo.block_bits;
            let outcome = core.device.discard(run.start.0 << bits, u64::from(run.len) << bits);
            self.inner.end_trim(group);
            outcome.map_err(|error| nextent_store::Error::Io {
                op: "discard",
                block: run.start,
                source: Arc::new(error),
            })?;
            done += u64::from(run.len);
            at = start + n;
        }
        Ok(done)
    }
}

impl BlockAllocator for Adapter {
    fn allocate(&self, h: &Handle<'_>, request: &BlockRequest) -> Result<BlockRun> {
        self.take(h, request, None)
    }

    fn allocate_growing(
        &self,
        h: &Handle<'_>,
        request: &BlockRequest,
        window: &mut Window,
    ) -> Result<BlockRun> {
        let mut request = *request;
        request.goal = request.goal.or(window.next);
        let run = self.take(h, &request, Some(window))?;
        window.next = Some(run.end());
        Ok(run)
    }

    fn release(&self, window: &mut Window) {
        self.inner.release(window);
    }

    fn free(&self, h: &Handle<'_>, start: BlockNo, len: u32, kind: BlockKind) -> Result<()> {
        let core = self.core();
        let pieces = group_pos::pieces(core, start, len)?;
        for &(group, (at, n)) in &pieces {
            if let Some(own) = core.system_clusters(group, at, n).first() {
                let block = group_pos::block(core, GroupPos { group, at: at + own.0 });
                let error = bitmap_error("freeing the volume's own block", block.0, group);
                return Err(error.at_block(block).into());
            }
        }
        for (group, run) in pieces {
            if kind == BlockKind::Metadata {
                let blocks = group_pos::run(core, group, run);
                (blocks.start.0..blocks.end().0).for_each(|no| h.forget(BlockNo(no)));
            }
            if let Err(clear) = self.inner.free(h, group, run)? {
                let block = group_pos::block(core, GroupPos { group, at: clear });
                let error = bitmap_error("freeing a free block", block.0, group).at_block(block);
                core.exclude(group, error.clone().into());
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn mark_used(&self, h: &Handle<'_>, start: BlockNo, len: u32) -> Result<u32> {
        let mut marked = 0;
        for (group, run) in group_pos::pieces(self.core(), start, len)? {
            marked += self.inner.mark_used(h, group, run)?;
        }
        Ok(marked)
    }

    fn is_free(&self, start: BlockNo, len: u32) -> Result<bool> {
        for (group, run) in group_pos::pieces(self.core(), start, len)? {
            if !self.inner.is_free(group, run)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn free_clusters(&self) -> u64 {
        self.inner.space().free()
    }

    fn available(&self, privilege: Privilege) -> u64 {
        self.inner.space().available(privilege)
    }

    fn has_pending(&self) -> bool {
        self.missed.here().swap(false, Ordering::Relaxed) || self.inner.has_pending()
    }

    fn trim(&self, first: BlockNo, last: BlockNo, min: u32) -> Result<u64> {
        let core = self.core();
        let (Some(from), Some(to)) = (group_pos::find(core, first), group_pos::find(core, last))
        else {
            return Ok(0);
        };
        let mut done = 0;
        for group in (from.group.0..=to.group.0).map(GroupNo) {
            let begin = if group == from.group { from.at } else { 0 };
            let stop = if group == to.group { to.at + 1 } else { u32::MAX };
            done += self.trim_group(group, begin, stop, min)?;
        }
        Ok(done)
    }
}

/// Discards freed clusters. It is a hint to the device, so errors are ignored.
pub(super) fn discard(core: &Core, group: GroupNo, run: Run) {
    let run = group_pos::run(core, group, run);
    let bits = core.geo.block_bits;
    let _ = core.device.discard(run.start.0 << bits, u64::from(run.len) << bits);
}

/// A group that was read. Excludes a damaged group and returns `None` for it.
pub(super) fn unless_damaged<T>(core: &Core, group: GroupNo, read: Result<T>) -> Result<Option<T>> {
    match read {
        _ if core.is_bad(group) => Ok(None),
        Ok(found) => Ok(Some(found)),
        Err(error @ Error::Corrupt(_)) => {
            core.exclude(group, error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
