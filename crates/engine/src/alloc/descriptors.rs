//! Group descriptors and the superblock's totals, as commits render them.
//!
//! - Only commits change them; operations do not.
//! - A region that a commit renders passes the change of its free count since the last rendering.
//!   The descriptor adds the changes of its regions, the superblock those of its groups. Both are
//!   therefore exact for the end of the transaction, although the next one is running.
//! - One commit runs at a time, so no frozen copy is needed.
//!
//! Lock ranks: `alloc.group-desc` (430) and `alloc.totals` (435), not held together.

use super::core::{Core, Sums};
use super::locks;
use nextent_num::to_usize;
use nextent_ondisk::group_desc::{self, flags};
use nextent_ondisk::{BlockNo, GroupDesc, GroupNo, Superblock, Tid, bitmap, superblock};
use nextent_store::{BlockRef, Dirty, Phase, RenderSink, Result, Seal};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Mutex};

/// One group's descriptor, as the last commit left it.
pub struct CommittedDesc {
    group: GroupNo,
    core: Arc<Core>,
    /// The block of the descriptor table, and the descriptor's offset in it.
    block: BlockRef,
    at: usize,
    state: Mutex<DescState>,
}

/// `[alloc.group-desc]`
struct DescState {
    desc: GroupDesc,
    /// The block bitmap, if this commit changed it.
    blocks: Option<BlockRef>,
    /// The inode bitmap, if this commit changed it.
    inodes: Option<BlockRef>,
    freed: Freed,
}

/// Changes since the last rendering: freed less allocated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freed {
    pub(crate) clusters: i64,
    pub(crate) inodes: i64,
    pub(crate) dirs: i64,
}

impl CommittedDesc {
    pub(crate) fn new(
        group: GroupNo,
        core: Arc<Core>,
        block: BlockRef,
        at: usize,
        desc: GroupDesc,
    ) -> Self {
        let state = DescState { desc, blocks: None, inodes: None, freed: Freed::default() };
        Self { group, core, block, at, state: Mutex::new(&locks::GROUP_DESC, state) }
    }

    /// The block that the descriptor is rendered into.
    pub fn block(&self) -> &BlockRef {
        &self.block
    }

    /// The descriptor as the last commit left it.
    pub(crate) fn get(&self) -> GroupDesc {
        self.state.lock().desc
    }

    /// Adds the change of a region of blocks. The caller renders the region into `map` after this.
    /// Initialises the bitmap if the group had none.
    pub fn blocks_changed(self: &Arc<Self>, out: &mut RenderSink, map: &BlockRef, freed: i64) {
        let mut state = self.state.lock();
        if state.desc.has_flag(&self.core.geo.features, flags::BLOCK_UNINIT) {
            let bytes = self.core.uninit_bitmap(self.group);
            out.patch(map, |block| block.copy_from_slice(&bytes));
        }
        state.desc.flags &= !flags::BLOCK_UNINIT;
        state.freed.clusters += freed;
        self.enqueue(&state, out);
        state.blocks = Some(map.clone());
    }

    /// Adds the change of a region of inode numbers. The caller renders the region into `map` after
    /// this. `end` is one past the last inode in use in the region.
    pub(crate) fn inodes_changed(
        self: &Arc<Self>,
        out: &mut RenderSink,
        map: &BlockRef,
        freed: Freed,
        end: u32,
    ) {
        let geo = &self.core.geo;
        let mut state = self.state.lock();
        let touched = state.desc.inodes_touched(geo).max(end);
        if state.desc.has_flag(&geo.features, flags::INODE_UNINIT) {
            out.patch(map, |block| {
                block.fill(0);
                bitmap::pad(block, geo.inodes_per_group);
            });
        }
        state.desc.flags &= !flags::INODE_UNINIT;
        if geo.features.group_csum() {
            state.desc.itable_unused = geo.inodes_per_group - touched;
        }
        state.freed.inodes += freed.inodes;
        state.freed.dirs += freed.dirs;
        self.enqueue(&state, out);
        state.inodes = Some(map.clone());
    }

    fn enqueue(self: &Arc<Self>, state: &DescState, out: &mut RenderSink) {
        if state.blocks.is_none() && state.inodes.is_none() {
            out.later(Phase::Group, self.clone());
        }
    }

    /// Publishes the counts of this commit to searches.
    fn publish(&self, desc: &GroupDesc) {
        let info = self.core.group(self.group);
        info.free_clusters.store(desc.free_clusters, Ordering::Relaxed);
        info.free_inodes.store(desc.free_inodes, Ordering::Relaxed);
        info.used_dirs.store(desc.used_dirs, Ordering::Relaxed);
    }
}

impl Dirty for CommittedDesc {
    fn render(&self, _tid: Tid, out: &mut RenderSink) -> Result<()> {
        let geo = &self.core.geo;
        let mut state = self.state.lock();
        let freed = std::mem::take(&mut state.freed);
        // Loading checked the free counts. The count of directories cannot be checked, so a damaged
        // one must not overflow.
        let add = |count: u32, freed: i64| {
            u32::try_from((i64::from(count) + freed).max(0)).unwrap_or(u32::MAX)
        };
        state.desc.free_clusters = add(state.desc.free_clusters, freed.clusters);
        state.desc.free_inodes = add(state.desc.free_inodes, freed.inodes);
        state.desc.used_dirs = add(state.desc.used_dirs, freed.dirs);
        if let Some(map) = state.blocks.take().filter(|_| geo.features.metadata_csum()) {
            let sum = out.patch(&map, |block| bitmap::block_checksum(geo, block));
            state.desc.block_bitmap_csum = sum;
        }
        if let Some(map) = state.inodes.take().filter(|_| geo.features.metadata_csum()) {
            let sum = out.patch(&map, |block| bitmap::inode_checksum(geo, block));
            state.desc.inode_bitmap_csum = sum;
        }
        let desc = state.desc;
        out.patch(&self.block, |block| {
            let bytes = &mut block[self.at..self.at + usize::from(geo.desc_size)];
            desc.write(bytes);
            group_desc::seal(geo, self.group, bytes);
        });
        self.publish(&desc);
        drop(state);
        self.core.totals.add(freed, out);
        Ok(())
    }
}

/// The superblock's counts of free blocks and inodes, as the last commit left them.
pub(crate) struct Totals {
    block: BlockRef,
    at: usize,
    cluster_bits: u32,
    state: Mutex<TotalsState>,
    /// Copy of the sums for searches. Relaxed: hints, stored by commits only.
    live: [AtomicU64; 3],
}

/// `[alloc.totals]`
struct TotalsState {
    sums: Sums,
    queued: bool,
}

impl Totals {
    /// Totals rendered into the superblock at offset `at` of `block`. Sets the block's seal, so
    /// that the commit fills in the checksum.
    pub(crate) fn new(block: BlockRef, at: usize, cluster_bits: u32, sums: Sums) -> Self {
        block.set_seal(SUPERBLOCK_SEAL);
        let state = Mutex::new(&locks::TOTALS, TotalsState { sums, queued: false });
        let live = [sums.free_clusters, sums.free_inodes, sums.used_dirs].map(AtomicU64::new);
        Self { block, at, cluster_bits, state, live }
    }

    /// The sums as of the last commit, without a lock.
    pub(crate) fn sums(&self) -> Sums {
        let [free_clusters, free_inodes, used_dirs] =
            [0, 1, 2].map(|i: usize| self.live[i].load(Ordering::Relaxed));
        Sums { free_clusters, free_inodes, used_dirs }
    }

    fn add(self: &Arc<Self>, freed: Freed, out: &mut RenderSink) {
        let mut state = self.state.lock();
        let sums = &mut state.sums;
        sums.free_clusters = sums.free_clusters.saturating_add_signed(freed.clusters);
        sums.free_inodes = sums.free_inodes.saturating_add_signed(freed.inodes);
        sums.used_dirs = sums.used_dirs.saturating_add_signed(freed.dirs);
        if !state.queued {
            state.queued = true;
            out.later(Phase::Super, self.clone());
        }
    }
}

impl Dirty for Totals {
    fn render(&self, _tid: Tid, out: &mut RenderSink) -> Result<()> {
        let mut state = self.state.lock();
        state.queued = false;
        let sums = state.sums;
        let values = [sums.free_clusters, sums.free_inodes, sums.used_dirs];
        for (live, value) in self.live.iter().zip(values) {
            live.store(value, Ordering::Relaxed);
        }
        out.patch(&self.block, |block| {
            let bytes = &mut block[self.at..self.at + superblock::SUPER_SIZE];
            if let Ok(mut sb) = Superblock::read(bytes) {
                sb.set_free_blocks_count(sums.free_clusters << self.cluster_bits);
                // The counts of a damaged volume may add up to more than the field holds.
                sb.free_inodes_count.set(u32::try_from(sums.free_inodes).unwrap_or(u32::MAX));
                bytes.copy_from_slice(sb.bytes());
            }
        });
        Ok(())
    }
}

/// Fills in the superblock's checksum when the commit writes its block.
pub(crate) const SUPERBLOCK_SEAL: Seal = Seal { f: seal_superblock, seed: 0 };

fn seal_superblock(_seed: u32, _no: BlockNo, block: &mut [u8]) {
    let at =
        if block.len() > superblock::SUPER_SIZE { to_usize(superblock::SUPER_OFFSET) } else { 0 };
    let bytes = &mut block[at..at + superblock::SUPER_SIZE];
    if let Ok(mut sb) = Superblock::read(bytes) {
        sb.seal_again();
        bytes.copy_from_slice(sb.bytes());
    }
}
