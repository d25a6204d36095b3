//! The most frequent step of a growing file: extends its last extent by blocks of its window.
//!
//! Everything that it needs is in memory and it does not wait, so it changes map and fields under
//! their locks taken once. All other cases are left to the functions of `map`. It may refuse for
//! any reason, and has changed nothing then.

use nextent_ondisk::FileBlock;
use nextent_ondisk::inode::{flags, mode};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::change::Change;
use super::fs::Fs;
use super::object::{Inode, InodeState};
use crate::FileType;
use crate::alloc::{Privilege, Window};
use crate::map::{self, ExtentState};

/// Credits of a step: the inode, a bitmap and its descriptor.
pub(crate) const CREDITS: u32 = super::credits::INODE + super::credits::BIT;

/// Flags of files that need the general path.
const NOT_SIMPLE: u32 =
    flags::FIXED_CONTENTS | flags::APPEND | flags::INLINE_DATA | flags::HUGE_FILE | flags::SYNC;
/// Sectors, and bytes, up to which no feature or wider count is needed.
const SMALL: u64 = 1 << 31;

/// Blocks to add at the end of a file.
pub(crate) struct GrowStep {
    /// The first block, after all mapped ones.
    pub(crate) at: FileBlock,
    /// Number of blocks.
    pub(crate) len: u32,
    /// The state of the new blocks.
    pub(crate) state: ExtentState,
    /// The least size of the file afterwards.
    pub(crate) size: u64,
    /// Which reserves the blocks may come from.
    pub(crate) privilege: Privilege,
}

/// Extends the file inside `h` and runs `note` on the fields; false if the step is not simple. The
/// caller holds `[inode.rw]`, and with it the window, exclusively.
///
/// Takes `[inode.map]`, `[inode.state]` and `[alloc.region]`.
pub(crate) fn extend_tail(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    window: &mut Window,
    step: &GrowStep,
    note: impl FnOnce(&mut InodeState),
) -> bool {
    let bits = fs.geometry.block_bits;
    inode.with_map_and_fields(|root, state| {
        let disk = &state.disk;
        // The rest of a partial last block may have to be zeroed.
        let whole = disk.size & ((1 << bits) - 1) == 0;
        let small = disk.blocks < SMALL && step.size < SMALL;
        // The write drops no rights.
        let rights = mode::TYPE | mode::SETUID | mode::SETGID;
        let plain = disk.mode & rights == FileType::Regular.mode_bits();
        if state.free || !plain || disk.flags & NOT_SIMPLE != 0 || !whole || !small {
            return false;
        }
        let Some(tail) = map::tail(root) else { return false };
        if tail.end != step.at || tail.state != step.state || tail.room < step.len {
            return false;
        }
        if !fs.blocks.take_next(h, window, tail.after, step.len, step.privilege) {
            return false;
        }
        inode.begin_change(state, h, Change::Contents);
        map::lengthen_tail(root, &mut state.disk.block, &tail, step.len);
        state.disk.blocks += u64::from(step.len) << (bits - 9);
        state.disk.size = state.disk.size.max(step.size);
        state.data_changed = Some(h.tid());
        note(state);
        true
    })
}
