//! A region of blocks: its state under its lock, and its part in transactions.
//!
//! Two threads normally take the lock of a region: the one whose slot leases it, and the committer.
//! The committer takes it twice a transaction: to render the bits, and to release the clusters
//! whose release is durable.

use super::bits;
use super::buddy::Run;
use super::core::Core;
use super::descriptors::CommittedDesc;
use super::layout::RegionNo;
use super::locks;
use super::region_state::{Aim, RegionState};
use nextent_num::to_usize;
use nextent_ondisk::Tid;
use nextent_store::{BlockRef, Dirty, Handle, RenderSink, Result};
use nextent_sync::atomic::Ordering;
use nextent_sync::{Arc, BiasedMutex, BiasedMutexGuard, injected};

/// One region. It shares no cache line with another object.
#[repr(align(128))]
pub(crate) struct Region {
    no: RegionNo,
    /// Offset of the region in the bytes of the group's bitmap.
    first_byte: usize,
    core: Arc<Core>,
    desc: Arc<CommittedDesc>,
    bitmap: BlockRef,
    /// Clusters of the system zone, as (first, end). Most regions have none.
    system: Box<[Run]>,
    state: BiasedMutex<RegionState>,
}

/// Clusters that an allocation took: those in use now, and those reserved after them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenClusters {
    pub(crate) run: Run,
    pub(crate) reserved: u32,
    pub(crate) epoch: u32,
}

impl Region {
    /// The region `no`, in which the clusters set in `used` are in use.
    pub(crate) fn new(
        no: RegionNo,
        len: u32,
        used: Box<[u64]>,
        core: Arc<Core>,
        desc: Arc<CommittedDesc>,
        bitmap: BlockRef,
    ) -> Self {
        let state = RegionState::new(len, used);
        core.publish(no, &state);
        let first_bit = core.layout.first_bit(core.layout.index(no));
        let system = core.system_clusters(core.layout.group(no), first_bit, len);
        let state = BiasedMutex::new(&locks::REGION, state);
        Self { no, first_byte: to_usize(first_bit / 8), core, desc, bitmap, system, state }
    }

    /// The first cluster of a range that lies in the system zone.
    pub(crate) fn first_system_cluster(&self, (start, n): Run) -> Option<u32> {
        let inside = self.system.iter().filter(|run| run.0 < start + n && start < run.1);
        inside.map(|run| run.0.max(start)).min()
    }

    pub(crate) fn no(&self) -> RegionNo {
        self.no
    }

    /// The region's state. `[alloc.region]`
    pub(crate) fn lock(&self) -> BiasedMutexGuard<'_, RegionState> {
        self.state.lock()
    }

    /// Joins the handle's transaction before a change. Uses two credits the first time.
    fn begin(self: &Arc<Self>, state: &mut RegionState, h: &Handle<'_>) {
        if state.begin(h.tid()) {
            h.join(&self.bitmap);
            h.join(self.desc.block());
            h.dirty(self.clone());
        }
    }

    /// Allocates `min` to `want` clusters, and reserves up to `extra` after them for a window.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        h: &Handle<'_>,
        want: u32,
        min: u32,
        extra: u32,
        aim: Aim,
    ) -> Option<TakenClusters> {
        let mut state = self.state.lock();
        let (start, found) = state.find(want + extra, min, aim)?;
        let n = found.min(want);
        self.begin(&mut state, h);
        state.take((start, n));
        let mut taken = TakenClusters { run: (start, n), reserved: found - n, epoch: 0 };
        if taken.reserved > 0 {
            taken.epoch = state.reserve((start + n, found - n));
        }
        Some(taken)
    }

    /// Allocates clusters of a window; false if the window is void.
    pub(crate) fn take_reserved(self: &Arc<Self>, h: &Handle<'_>, run: Run, epoch: u32) -> bool {
        let mut state = self.state.lock();
        if !state.holds_window(epoch) {
            return false;
        }
        self.begin(&mut state, h);
        state.take_reserved(run, epoch)
    }

    /// Frees clusters. The error is the first cluster that is free already; nothing is freed then.
    pub(crate) fn free(self: &Arc<Self>, h: &Handle<'_>, run: Run) -> Result<(), u32> {
        let mut state = self.state.lock();
        self.begin(&mut state, h);
        state.free_run(run, h.has_fast_commits() && !injected("promise-forgotten"))?;
        self.publish_if_unleased(&state);
        Ok(())
    }

    /// Marks clusters as in use, and returns how many were free.
    pub(crate) fn mark_used(self: &Arc<Self>, h: &Handle<'_>, run: Run) -> u32 {
        let mut state = self.state.lock();
        self.begin(&mut state, h);
        let marked = state.mark_used(run);
        self.publish_if_unleased(&state);
        marked
    }

    /// Publishes the summary of a region that no slot leases. A leased region is published when its
    /// lease ends.
    pub(crate) fn publish_if_unleased(&self, state: &RegionState) {
        if self.core.owner(self.no) == 0 {
            self.core.publish(self.no, state);
        }
    }

    /// Whether the bitmap in the block cache is the whole state of the region. The caller must have
    /// the only reference.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        let idle = state.is_idle();
        if idle {
            self.core.publish(self.no, &state);
        }
        idle
    }

    /// Discards the clusters that [`RegionState::committed`] of `tid` releases, before they are
    /// allocatable.
    fn discard(&self, tid: Tid) {
        let runs = self.state.lock().to_release(tid);
        for (at, n) in runs {
            let layout = &self.core.layout;
            let run = layout.run(super::layout::ClusterPos { region: self.no, at }, n);
            let bits = self.core.geo.block_bits;
            // A discard is a hint to the device, so its failure does not fail the commit.
            let _ = self.core.device.discard(run.start.0 << bits, u64::from(run.len) << bits);
        }
    }
}

impl Dirty for Region {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> Result<()> {
        let mut state = self.state.lock();
        let len = state.buddy().size();
        let Some(rendered) = state.render(tid) else { return Ok(()) };
        self.desc.blocks_changed(out, &self.bitmap, rendered.freed);
        let bytes = self.first_byte..self.first_byte + to_usize(len.div_ceil(8));
        out.patch(&self.bitmap, |block| bits::store(rendered.bits, &mut block[bytes]));
        Ok(())
    }

    fn committed(&self, tid: Tid) {
        if self.core.discard.load(Ordering::Relaxed) {
            self.discard(tid);
        }
        let mut state = self.state.lock();
        if state.committed(tid) > 0 {
            // Under the lock: see `BlockAlloc::releases`.
            self.core.releases.fetch_add(1, Ordering::Relaxed);
            self.publish_if_unleased(&state);
        }
    }
}
