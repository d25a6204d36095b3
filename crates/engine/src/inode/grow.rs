//! The commonest step of a file that grows: its last extent goes on, and so does its window.
//!
//! All that this needs is in memory and nothing in it waits, so map and fields are changed in one
//! visit, with one look at each. Whatever is not that simple is left to the verbs of `map`: this
//! module may say no for any reason, and has changed nothing then.

use nextent_ondisk::FileBlock;
use nextent_ondisk::inode::{flags, mode};
use nextent_store::Handle;
use nextent_sync::Arc;

use super::change::Change;
use super::fs::Fs;
use super::object::{Inode, InodeState};
use crate::FileType;
use crate::alloc::{Privilege, Window};
use crate::map::{self, State};

/// Credits of a step: the inode, a bitmap and its descriptor.
pub(crate) const CREDITS: u32 = super::credits::INODE + super::credits::BIT;

/// Flags of files for which growing is not simple.
const NOT_SIMPLE: u32 =
    flags::IMMUTABLE | flags::APPEND | flags::INLINE_DATA | flags::HUGE_FILE | flags::SYNC;
/// Sectors, and bytes, up to which no feature or wider count is needed.
const SMALL: u64 = 1 << 31;

/// Blocks to add to the end of a file.
pub(crate) struct Step {
    /// The first block, after all that are mapped.
    pub(crate) at: FileBlock,
    /// How many.
    pub(crate) len: u32,
    /// What the new blocks are.
    pub(crate) state: State,
    /// The size that the file has at least, afterwards.
    pub(crate) size: u64,
    /// How deep into the reserves the blocks may come from.
    pub(crate) privilege: Privilege,
}

/// Takes the step inside `h`, and runs `note` on the fields; false if it is not that simple. The
/// caller holds `[inode.rw]` with the window exclusively.
///
/// Takes `[inode.map]`, `[inode.state]` and `[alloc.region]`.
pub(crate) fn extend_tail(
    fs: &Fs,
    h: &Handle<'_>,
    inode: &Arc<Inode>,
    window: &mut Window,
    step: &Step,
    note: impl FnOnce(&mut InodeState),
) -> bool {
    let bits = fs.geometry.block_bits;
    inode.both(|root, state| {
        let disk = &state.disk;
        // A last block that is used in part may have to be zeroed up to its end.
        let whole = disk.size & ((1 << bits) - 1) == 0;
        let small = disk.blocks < SMALL && step.size < SMALL;
        // Without rights that a write takes away.
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
        inode.begin(state, h, Change::Contents);
        map::lengthen_tail(root, &mut state.disk.block, &tail, step.len);
        state.disk.blocks += u64::from(step.len) << (bits - 9);
        state.disk.size = state.disk.size.max(step.size);
        state.data_changed = Some(h.tid());
        note(state);
        true
    })
}
