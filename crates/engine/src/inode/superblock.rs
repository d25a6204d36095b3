//! The superblock while the volume is open.
//!
//! Its variable fields are kept here and rendered by the commit. The totals of free blocks and
//! inodes are not: the allocator writes them into the same block. The block's seal computes the
//! checksum, so the order of the two does not matter.

use nextent_ondisk::superblock::{SUPER_SIZE, Superblock, state};
use nextent_ondisk::{FeatureBit, Geometry, Tid};
use nextent_store::{BlockRef, Dirty, Handle, RenderSink};
use nextent_sync::{Arc, Mutex};

use super::locks;
use crate::alloc::SUPERBLOCK_SEAL;

struct SuperState {
    sb: Superblock,
    dirty: Option<Tid>,
    frozen: Option<Superblock>,
    /// The volume is not marked clean when it is closed. Only a check changes that.
    needs_check: bool,
}

/// The superblock and its block.
pub(crate) struct SuperObject {
    block: BlockRef,
    offset: usize,
    state: Mutex<SuperState>,
}

impl SuperObject {
    pub(crate) fn new(
        geometry: &Geometry,
        block: BlockRef,
        sb: Superblock,
        needs_check: bool,
    ) -> Arc<Self> {
        let (_, offset) = geometry.super_location();
        block.set_seal(SUPERBLOCK_SEAL);
        let state = SuperState { sb, dirty: None, frozen: None, needs_check };
        Arc::new(Self { block, offset, state: Mutex::new(&locks::SUPER, state) })
    }

    /// Calls `look` with the fields, in which the totals are out of date.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&Superblock) -> R) -> R {
        look(&self.state.lock().sb)
    }

    /// Changes fields inside `h`. Takes `[volume.super]`.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        h: &Handle,
        change: impl FnOnce(&mut Superblock) -> R,
    ) -> R {
        let mut state = self.state.lock();
        let tid = h.tid();
        if state.dirty != Some(tid) {
            if state.dirty.is_some() {
                state.frozen = Some(state.sb.clone());
            }
            state.dirty = Some(tid);
            h.join(&self.block);
            h.dirty(Arc::clone(self) as Arc<dyn Dirty>);
        }
        change(&mut state.sb)
    }

    /// Keeps the volume marked as one that e2fsck must check, from `h` on.
    pub(crate) fn require_check(self: &Arc<Self>, h: &Handle) {
        self.change(h, |sb| sb.state.set(sb.state.get() & !state::VALID));
        self.state.lock().needs_check = true;
    }

    /// Whether e2fsck must check the volume after it is closed.
    pub(crate) fn needs_check(&self) -> bool {
        self.state.lock().needs_check
    }

    /// Replaces the fields of a volume that no thread changes. The first transaction must then
    /// [`change`](Self::change) them, because the block still has the old ones.
    pub(crate) fn replace(&self, sb: Superblock) {
        let mut state = self.state.lock();
        debug_assert!(state.dirty.is_none(), "the superblock is part of a transaction");
        state.sb = sb;
    }

    /// Sets a feature that says that a structure is in use, unless it is set. A fast commit has no
    /// record for features, so this transaction needs a full one. A volume of revision 0 becomes
    /// one of revision 1, which has features.
    pub(crate) fn set_feature(self: &Arc<Self>, h: &Handle, bit: impl FeatureBit) {
        if self.with(|sb| sb.features().has(bit)) {
            return;
        }
        h.bar_fast();
        self.change(h, |sb| {
            let mut features = sb.features();
            features.set(bit, true);
            sb.set_features(features);
            sb.become_dynamic();
        });
    }

    /// The whole superblock: the fields kept here, with totals from the block's newest image.
    pub(crate) fn snapshot(&self) -> Superblock {
        let image = self.block.image();
        let mut sb = self.with(Clone::clone);
        if let Ok(on_block) = Superblock::read(&image[self.offset..]) {
            copy_totals(&on_block, &mut sb);
        }
        sb
    }
}

fn copy_totals(from: &Superblock, to: &mut Superblock) {
    to.set_free_blocks_count(from.free_blocks_count());
    to.free_inodes_count = from.free_inodes_count;
}

impl Dirty for SuperObject {
    fn render(&self, tid: Tid, out: &mut RenderSink) -> nextent_store::Result<()> {
        let mut state = self.state.lock();
        let mut sb = match state.frozen.take() {
            Some(sb) => sb,
            None if state.dirty == Some(tid) => {
                state.dirty = None;
                state.sb.clone()
            }
            None => return Ok(()),
        };
        drop(state);
        let at = self.offset..self.offset + SUPER_SIZE;
        out.patch(&self.block, |block| {
            if let Ok(on_block) = Superblock::read(&block[at.clone()]) {
                copy_totals(&on_block, &mut sb);
            }
            block[at].copy_from_slice(sb.bytes());
        });
        Ok(())
    }
}
